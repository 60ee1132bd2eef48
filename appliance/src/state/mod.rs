//! What survives a restart: the installation id and the saved configuration, in sled, written through here alone.
//!
//! sled's own flush reaches neither the file's metadata nor the drive's cache, so [`Database::commit`] adds the syncs
//! that make an acknowledged change durable, and every change is also kept as a readable generation beside it. Persistent
//! reservations are files of their own.

mod database;
mod generations;
mod model;
mod reservations;

pub(crate) use database::Database;
pub(crate) use model::{SavedConfig, SavedStore, SavedTarget, SavedUnit};
pub(crate) use reservations::ReservationFiles;
