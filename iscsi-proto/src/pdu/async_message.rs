//! Asynchronous Message (§11.9).

use crate::{Lun, Sn};

/// Asynchronous Message. Sense data of a SCSI event is the data segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AsyncMessage {
    /// Logical unit of a SCSI event.
    pub lun: Lun,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// What happened.
    pub event: AsyncEvent,
}

/// §11.9.1 with the parameters each event has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AsyncEvent {
    /// 0: sense data are in the data segment.
    Scsi,
    /// 1: the initiator must log out within so many seconds.
    LogoutRequested {
        /// Parameter3, seconds.
        within_s: u16,
    },
    /// 2: the target will drop this connection.
    ConnectionDropped {
        /// Parameter1.
        cid: u16,
        /// Parameter2: Time2Wait, seconds.
        time_to_wait: u16,
        /// Parameter3: Time2Retain, seconds.
        time_to_retain: u16,
    },
    /// 3: the target will drop all connections of the session.
    SessionDropped {
        /// Parameter2: Time2Wait, seconds.
        time_to_wait: u16,
        /// Parameter3: Time2Retain, seconds.
        time_to_retain: u16,
    },
    /// 4: the initiator must start a text negotiation within so many seconds.
    NegotiationRequested {
        /// Parameter3, seconds.
        within_s: u16,
    },
    /// 5 (RFC 7144): all tasks of a logical unit were terminated.
    TasksTerminated,
    /// Anything else.
    Other {
        /// AsyncEvent field.
        code: u8,
        /// AsyncVCode field.
        vendor_code: u8,
        /// Parameters 1 to 3.
        parameters: [u16; 3],
    },
}
