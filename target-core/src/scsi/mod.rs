//! The SCSI side: target device, logical units, commands. Knows no iSCSI PDU and no transport.

mod attention;
mod block;
mod cdb;
mod copy;
mod device;
mod engine;
mod erasure;
mod lu;
mod medium;
mod primary;
mod reservations;
mod sense;
mod status;
mod table;
mod task_set;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use attention::UnitAttention;
pub use device::{ScsiTask, TargetDevice, TaskAttribute, TmfOutcome};
pub use lu::{LogicalUnit, UnitConfig};
pub use reservations::{
    KeepRequest, KeptRegistration, KeptReservation, KeptReservations, ReservationKeeper, ReservationType,
};
pub use sense::{FieldPointer, Sense, SenseKey};
pub use status::{Failure, Outcome, Status};
