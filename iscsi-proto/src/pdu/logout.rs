//! Logout Request (§11.14) and Logout Response (§11.15).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{ALWAYS_ONE, immediate_bit, is_immediate, task_tag};
use crate::{BHS_LEN, Cid, DecodeError, Itt, Sn};

/// Logout Request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogoutRequest {
    /// I bit.
    pub immediate: bool,
    /// What is to be closed.
    pub reason: LogoutReason,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Connection meant; ignored when the session is to be closed.
    pub cid: Cid,
    /// Command sequence number.
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
}

/// §11.14.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogoutReason {
    /// 0
    CloseSession,
    /// 1
    CloseConnection,
    /// 2
    RemoveConnectionForRecovery,
}

/// Logout Response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogoutResponse {
    /// Outcome.
    pub response: LogoutResponseCode,
    /// As requested.
    pub itt: Itt,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// Seconds to wait before a reconnect.
    pub time_to_wait: u16,
    /// Seconds after which tasks cannot be reassigned any more.
    pub time_to_retain: u16,
}

/// §11.15.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogoutResponseCode {
    /// 0
    Success,
    /// 1
    CidNotFound,
    /// 2
    RecoveryNotSupported,
    /// 3
    CleanupFailed,
}

impl LogoutRequest {
    pub(super) const OPCODE: u8 = 0x06;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &LogoutRequestWire = transmute_ref!(bhs);
        Ok(Self {
            immediate: is_immediate(wire.opcode),
            reason: LogoutReason::decode(wire.flags & REASON_MASK)?,
            itt: task_tag("Logout Request", wire.itt)?,
            cid: Cid(wire.cid.get()),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(LogoutRequestWire {
            opcode: Self::OPCODE | immediate_bit(self.immediate),
            flags: ALWAYS_ONE | self.reason.encode(),
            itt: self.itt.0.into(),
            cid: self.cid.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl LogoutReason {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Self::CloseSession,
            1 => Self::CloseConnection,
            2 => Self::RemoveConnectionForRecovery,
            _ => return Err(DecodeError::field("Logout Request", "Reason Code", code as u32)),
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::CloseSession => 0,
            Self::CloseConnection => 1,
            Self::RemoveConnectionForRecovery => 2,
        }
    }
}

impl LogoutResponse {
    pub(super) const OPCODE: u8 = 0x26;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &LogoutResponseWire = transmute_ref!(bhs);
        Ok(Self {
            response: LogoutResponseCode::decode(wire.response)?,
            itt: Itt(wire.itt.get()),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            time_to_wait: wire.time_to_wait.get(),
            time_to_retain: wire.time_to_retain.get(),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(LogoutResponseWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
            response: self.response.encode(),
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            time_to_wait: self.time_to_wait.into(),
            time_to_retain: self.time_to_retain.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl LogoutResponseCode {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Self::Success,
            1 => Self::CidNotFound,
            2 => Self::RecoveryNotSupported,
            3 => Self::CleanupFailed,
            _ => return Err(DecodeError::field("Logout Response", "Response", code as u32)),
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::CidNotFound => 1,
            Self::RecoveryNotSupported => 2,
            Self::CleanupFailed => 3,
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct LogoutRequestWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    _reserved8: [u8; 8],
    itt: U32,
    cid: U16,
    _reserved22: [u8; 2],
    cmd_sn: U32,
    exp_stat_sn: U32,
    _reserved32: [u8; 16],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct LogoutResponseWire {
    opcode: u8,
    flags: u8,
    response: u8,
    _reserved3: u8,
    _lengths: [u8; 4],
    _reserved8: [u8; 8],
    itt: U32,
    _reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    _reserved36: [u8; 4],
    time_to_wait: U16,
    time_to_retain: U16,
    _reserved44: [u8; 4],
}

const REASON_MASK: u8 = 0x7f;
