//! The SCSI side: target device, logical units, commands. Knows no iSCSI PDU and no transport.

mod attention;
mod device;
mod lu;
mod sense;
mod status;

pub use attention::UnitAttention;
pub use device::{ScsiTask, TargetDevice, TaskAttribute};
pub use lu::{LogicalUnit, UnitConfig};
pub use sense::{FieldPointer, Sense, SenseKey};
pub use status::{Failure, Outcome, Status};
