//! Reject (§11.17). The data segment is the header of the PDU refused.

use crate::Sn;

/// Reject.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// DataSN or R2TSN, with a data-digest or SNACK reason.
    pub data_sn: u32,
}

/// §11.17.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectReason {
    /// 0x02
    DataDigestError,
    /// 0x03
    SnackReject,
    /// 0x04
    ProtocolError,
    /// 0x05
    CommandNotSupported,
    /// 0x06
    ImmediateCommandReject,
    /// 0x07
    TaskInProgress,
    /// 0x08
    InvalidDataAck,
    /// 0x09
    InvalidPduField,
    /// 0x0a
    LongOperationReject,
    /// 0x0c
    WaitingForLogout,
    /// Anything else.
    Other(u8),
}
