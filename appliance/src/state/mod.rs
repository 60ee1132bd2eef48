//! What survives a restart: the installation id and the saved configuration, in sled, written through here alone.
//!
//! sled's own flush reaches neither the file's metadata nor the drive's cache, so [`Database::commit`] adds the syncs
//! that make an acknowledged change durable, and every change is also kept as a readable generation beside it. Persistent
//! reservations, and marks of disks that are being sanitized, are files of their own.

mod database;
mod generations;
mod memory;
mod model;
mod reservations;
mod sanitize_marks;
mod unit_file;

pub(crate) use database::Database;
pub(crate) use memory::UnitMemory;
pub(crate) use model::{SavedConfig, SavedStore, SavedTarget, SavedUnit};
pub(crate) use reservations::ReservationFiles;
pub(crate) use sanitize_marks::SanitizeMarks;
