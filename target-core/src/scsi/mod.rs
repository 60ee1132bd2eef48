//! The SCSI side: target device, logical units, commands. Knows no iSCSI PDU and no transport.

mod access_state;
mod attention;
mod block;
mod cdb;
mod copy;
mod device;
mod engine;
mod erasure;
mod identifying;
mod kept_states;
mod lu;
mod medium;
mod multimedia;
mod nonvolatile;
mod primary;
mod reservations;
mod sanitize_mark;
mod self_test;
mod sense;
mod statistics;
mod status;
mod table;
mod task_set;
#[cfg(test)]
pub(crate) mod testing;
mod thin;
mod timestamp;

#[cfg(test)]
mod tests;

pub use access_state::{AccessState, GroupView, StateCause};
pub use attention::UnitAttention;
pub use device::{ScsiTask, TargetDevice, TaskAttribute, TmfOutcome};
pub use engine::command_name;
pub use erasure::ErasureView;
pub use lu::{DeviceType, LogicalUnit, UnitConfig};
pub use nonvolatile::{Keeping, NonVolatileMemory};
pub use reservations::{
    KeepRequest, KeptRegistration, KeptReservation, KeptReservations, ReservationKeeper, ReservationType,
    ReservationsView,
};
pub use sanitize_mark::{MarkKeeper, MarkRequest, SanitizeMark, SanitizeWork};
pub use sense::{FieldPointer, Sense, SenseKey};
pub use status::{Failure, Outcome, Status};
pub use thin::SoftThreshold;
