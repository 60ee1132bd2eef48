//! Keeps persistent reservations with APTPL: gives each unit what was kept for it, and writes what it says from then on.
//!
//! One thread does the writing, so that a disk that is slow to sync holds up nobody but those who asked.

use std::sync::Arc;

use target_core::control::Directory;
use target_core::scsi::{KeepRequest, LogicalUnit};
use tokio::sync::mpsc;

use crate::error::StartError;
use crate::state::ReservationFiles;

/// The way from units to their files.
#[derive(Debug)]
pub(crate) struct ReservationStore {
    files: ReservationFiles,
    requests: mpsc::UnboundedSender<KeepRequest>,
}

impl ReservationStore {
    /// Starts the thread that writes, which ends with the last unit.
    pub(crate) fn start(files: ReservationFiles) -> Result<Self, StartError> {
        let (requests, queue) = mpsc::unbounded_channel();
        let theirs = files.clone();
        std::thread::Builder::new()
            .name("reservations".into())
            .spawn(move || write(queue, &theirs))
            .map_err(|source| StartError::System {
                what: "no thread for reservations",
                source,
            })?;
        Ok(Self { files, requests })
    }

    /// Every unit that is served; before the first login.
    pub(crate) fn adopt_all(&self, directory: &Directory) -> Result<(), StartError> {
        let targets = directory.targets.values();
        let mut units = targets.flat_map(|target| target.device.luns());
        units.try_for_each(|(_, unit)| self.adopt(&unit))
    }

    /// One unit, before any nexus uses it.
    pub(crate) fn adopt(&self, unit: &Arc<LogicalUnit>) -> Result<(), StartError> {
        let kept = self.files.load(&unit.kept_as())?;
        unit.keep_reservations(self.requests.clone(), kept);
        Ok(())
    }
}

fn write(mut queue: mpsc::UnboundedReceiver<KeepRequest>, files: &ReservationFiles) {
    while let Some(request) = queue.blocking_recv() {
        let saved = files.save(&request.unit, request.reservations.as_ref());
        // Nobody waits any more when the process is about to end.
        let _ = request.done.send(saved.map_err(|error| error.to_string()));
    }
}
