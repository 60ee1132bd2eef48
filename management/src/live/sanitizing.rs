//! Keeps the marks of disks that are being sanitized: gives each unit the one that was left, whereupon it goes on, and writes
//! what it asks for.
//!
//! One thread does the writing, so that a disk that is slow to sync holds up nobody but those who asked.

use std::sync::Arc;

use target_core::control::Directory;
use target_core::scsi::{LogicalUnit, MarkRequest};
use tokio::sync::mpsc;

use crate::state::{SanitizeMarks, StateError};

/// The way from units to their marks.
#[derive(Debug)]
pub struct SanitizeStore {
    marks: SanitizeMarks,
    requests: mpsc::UnboundedSender<MarkRequest>,
}

impl SanitizeStore {
    /// Starts the thread that writes, which ends with the last unit.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(marks: SanitizeMarks) -> Result<Self, StateError> {
        let (requests, queue) = mpsc::unbounded_channel();
        let theirs = marks.clone();
        std::thread::Builder::new()
            .name("sanitize-marks".into())
            .spawn(move || write(queue, &theirs))
            .map_err(|error| {
                let problem = format!("no thread for the marks of disks that are sanitized: {error}");
                StateError::new(marks.directory(), problem, "free some memory")
            })?;
        Ok(Self { marks, requests })
    }

    /// Every unit that is served; before the first login, in the runtime in which interrupted work is to go on.
    ///
    /// # Errors
    /// The mark of one of them cannot be read.
    pub fn adopt_all(&self, directory: &Directory) -> Result<(), StateError> {
        let targets = directory.targets.values();
        let mut units = targets.flat_map(|target| target.device.luns());
        units.try_for_each(|(_, unit)| self.adopt(&unit))
    }

    /// One unit, before any nexus uses it, in the runtime in which interrupted work is to go on.
    ///
    /// # Errors
    /// Its mark cannot be read.
    pub fn adopt(&self, unit: &Arc<LogicalUnit>) -> Result<(), StateError> {
        let left = self.marks.load(&unit.kept_as())?;
        if left.as_ref().is_some_and(|mark| mark.work.is_some()) {
            let serial = &unit.config().serial;
            tracing::warn!(serial, "sanitizing this disk was interrupted, and begins anew");
        }
        unit.keep_sanitize_mark(self.requests.clone(), left);
        Ok(())
    }
}

fn write(mut queue: mpsc::UnboundedReceiver<MarkRequest>, marks: &SanitizeMarks) {
    while let Some(request) = queue.blocking_recv() {
        let saved = marks.save(&request.unit, request.mark);
        // Nobody waits any more when the process is about to end.
        let _ = request.done.send(saved.map_err(|error| error.to_string()));
    }
}
