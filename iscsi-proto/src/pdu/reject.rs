//! Reject (§11.17). The data segment is the header of the PDU refused.

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::ALWAYS_ONE;
use crate::{BHS_LEN, Itt, Sn};

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

impl Reject {
    pub(super) const OPCODE: u8 = 0x3f;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &RejectWire = transmute_ref!(bhs);
        Self {
            reason: RejectReason::decode(wire.reason),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            data_sn: wire.data_sn.get(),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(RejectWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
            reason: self.reason.encode(),
            itt: Itt::RESERVED.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            data_sn: self.data_sn.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl RejectReason {
    const fn decode(code: u8) -> Self {
        match code {
            0x02 => Self::DataDigestError,
            0x03 => Self::SnackReject,
            0x04 => Self::ProtocolError,
            0x05 => Self::CommandNotSupported,
            0x06 => Self::ImmediateCommandReject,
            0x07 => Self::TaskInProgress,
            0x08 => Self::InvalidDataAck,
            0x09 => Self::InvalidPduField,
            0x0a => Self::LongOperationReject,
            0x0c => Self::WaitingForLogout,
            other => Self::Other(other),
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::DataDigestError => 0x02,
            Self::SnackReject => 0x03,
            Self::ProtocolError => 0x04,
            Self::CommandNotSupported => 0x05,
            Self::ImmediateCommandReject => 0x06,
            Self::TaskInProgress => 0x07,
            Self::InvalidDataAck => 0x08,
            Self::InvalidPduField => 0x09,
            Self::LongOperationReject => 0x0a,
            Self::WaitingForLogout => 0x0c,
            Self::Other(other) => other,
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct RejectWire {
    opcode: u8,
    flags: u8,
    reason: u8,
    _reserved3: u8,
    _lengths: [u8; 4],
    _reserved8: [u8; 8],
    itt: U32,
    _reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    data_sn: U32,
    _reserved40: [u8; 8],
}
