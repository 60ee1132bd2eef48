//! Keeps persistent reservations with APTPL: gives each unit what was kept for it, and writes what it says from then on.
//!
//! One thread does the writing, so that a disk that is slow to sync holds up nobody but those who asked.

use std::sync::Arc;

use target_core::control::Directory;
use target_core::scsi::{KeepRequest, LogicalUnit};
use tokio::sync::mpsc;

use crate::state::{ReservationFiles, StateError};

/// The way from units to their files.
#[derive(Debug)]
pub struct ReservationStore {
    files: ReservationFiles,
    requests: mpsc::UnboundedSender<KeepRequest>,
}

impl ReservationStore {
    /// Starts the thread that writes, which ends with the last unit.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(files: ReservationFiles) -> Result<Self, StateError> {
        let (requests, queue) = mpsc::unbounded_channel();
        let theirs = files.clone();
        std::thread::Builder::new()
            .name("reservations".into())
            .spawn(move || write(queue, &theirs))
            .map_err(|error| {
                StateError::new(
                    files.directory(),
                    format!("no thread for reservations: {error}"),
                    "free some memory",
                )
            })?;
        Ok(Self { files, requests })
    }

    /// The files.
    #[must_use]
    pub const fn files(&self) -> &ReservationFiles {
        &self.files
    }

    /// Every unit that is served; before the first login.
    ///
    /// # Errors
    /// What was kept for one of them cannot be read.
    pub fn adopt_all(&self, directory: &Directory) -> Result<(), StateError> {
        let targets = directory.targets.values();
        let mut units = targets.flat_map(|target| target.device.luns());
        units.try_for_each(|(_, unit)| self.adopt(&unit))
    }

    /// One unit, before any nexus uses it.
    ///
    /// # Errors
    /// What was kept for it cannot be read.
    pub fn adopt(&self, unit: &Arc<LogicalUnit>) -> Result<(), StateError> {
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
