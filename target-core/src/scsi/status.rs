//! How a command ends.

use backstores::StoreError;
use iscsi_proto::pdu::Residual;

use super::Sense;

/// SAM-5 §5.3.1 status codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are SAM-5's")]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ConditionMet = 0x04,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
    AcaActive = 0x30,
    TaskAborted = 0x40,
}

/// Why a command did not end well. `?` carries it to the engine, the only place that makes a status of it.
#[derive(Debug)]
pub enum Failure {
    /// CHECK CONDITION with this sense.
    Check(Sense),
    /// CHECK CONDITION with the sense of this error; the engine adds the block it happened at.
    Store(StoreError),
    /// BUSY.
    Busy,
    /// TASK SET FULL.
    TaskSetFull,
    /// RESERVATION CONFLICT.
    ReservationConflict,
    /// Not a failure, but not GOOD either: CONDITION MET.
    ConditionMet,
    /// The task was aborted or its nexus is gone: nobody is to be told.
    Aborted,
}

/// The end of a task as its connection sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A SCSI status to be delivered.
    Status {
        /// Status.
        status: Status,
        /// Sense data, with CHECK CONDITION.
        sense: Option<Sense>,
        /// Residual of Data-Out, or of Data-In of a unidirectional read.
        residual: Residual,
    },
    /// Nobody is to be told.
    Aborted,
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
