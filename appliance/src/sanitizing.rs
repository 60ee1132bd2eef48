//! Keeps the marks of disks that are being sanitized: gives each unit the one that was left, and writes what it asks for.
//!
//! One thread does the writing, so that a disk that is slow to sync holds up nobody but those who asked.

use target_core::control::Directory;
use target_core::scsi::MarkRequest;
use tokio::sync::mpsc;

use crate::error::StartError;
use crate::state::SanitizeMarks;

/// Starts the thread that writes, which ends with the last unit, and lets every unit that is served know of it; before the
/// first login.
pub(crate) fn keep_marks(marks: SanitizeMarks, directory: &Directory) -> Result<(), StartError> {
    let (requests, queue) = mpsc::unbounded_channel();
    for (_, unit) in directory.targets.values().flat_map(|target| target.device.luns()) {
        unit.keep_sanitize_mark(requests.clone(), marks.load(&unit.kept_as())?);
    }
    std::thread::Builder::new()
        .name("sanitize-marks".into())
        .spawn(move || write(queue, &marks))
        .map_err(|source| StartError::System {
            what: "no thread for the marks of disks that are sanitized",
            source,
        })?;
    Ok(())
}

fn write(mut queue: mpsc::UnboundedReceiver<MarkRequest>, marks: &SanitizeMarks) {
    while let Some(request) = queue.blocking_recv() {
        let saved = marks.save(&request.unit, request.mark);
        // Nobody waits any more when the process is about to end.
        let _ = request.done.send(saved.map_err(|error| error.to_string()));
    }
}
