//! The protocol data units of RFC 7143 §11: one plain struct per PDU, no lifetime, no data segment inside.
//!
//! A data segment travels beside its header. Lengths (TotalAHSLength, DataSegmentLength) belong to framing and
//! are in [`Frame`](crate::Frame), not in these types. Each file has, below its public types, the layout of its
//! headers as a private struct of 48 bytes; the compiler checks the size.

mod async_message;
mod data;
mod login;
mod logout;
mod nop;
mod reject;
mod scsi;
mod snack;
mod task_management;
mod text;

pub use async_message::{AsyncEvent, AsyncMessage};
pub use data::{DataIn, DataInStatus, DataOut, R2t};
pub use login::{LoginRequest, LoginResponse, LoginStage, LoginStatus};
pub use logout::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode};
pub use nop::{NopIn, NopOut};
pub use reject::{Reject, RejectReason};
pub use scsi::{Residual, ScsiCommand, ScsiResponse, ScsiResponseCode, TaskAttribute};
pub use snack::{Snack, SnackType};
pub use task_management::{Function, TaskManagementRequest, TaskManagementResponse, TmfResponse};
pub use text::{TextRequest, TextResponse};

use zerocopy::network_endian::U32;

use crate::{BHS_LEN, DecodeError, Itt, Sn};

/// What an initiator may send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// §11.7
    DataOut(DataOut),
    /// §11.12
    Login(LoginRequest),
    /// §11.14
    Logout(LogoutRequest),
    /// §11.18
    NopOut(NopOut),
    /// §11.3
    ScsiCommand(ScsiCommand),
    /// §11.16
    Snack(Snack),
    /// §11.5
    TaskManagement(TaskManagementRequest),
    /// §11.10
    Text(TextRequest),
}

/// What a target may send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Response {
    /// §11.9
    AsyncMessage(AsyncMessage),
    /// §11.7
    DataIn(DataIn),
    /// §11.13
    Login(LoginResponse),
    /// §11.15
    Logout(LogoutResponse),
    /// §11.19
    NopIn(NopIn),
    /// §11.8
    R2t(R2t),
    /// §11.17
    Reject(Reject),
    /// §11.4
    ScsiResponse(ScsiResponse),
    /// §11.6
    TaskManagement(TaskManagementResponse),
    /// §11.11
    Text(TextResponse),
}

impl Request {
    /// Reads a header. Reserved bits are ignored, reserved *values* are errors (§11.2.1, §11.2.1.2).
    pub fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        Ok(match bhs[0] & OPCODE_MASK {
            NopOut::OPCODE => Self::NopOut(NopOut::decode(bhs)),
            ScsiCommand::OPCODE => Self::ScsiCommand(ScsiCommand::decode(bhs)?),
            TaskManagementRequest::OPCODE => Self::TaskManagement(TaskManagementRequest::decode(bhs)?),
            LoginRequest::OPCODE => Self::Login(LoginRequest::decode(bhs)?),
            TextRequest::OPCODE => Self::Text(TextRequest::decode(bhs)?),
            DataOut::OPCODE => Self::DataOut(DataOut::decode(bhs)),
            LogoutRequest::OPCODE => Self::Logout(LogoutRequest::decode(bhs)?),
            Snack::OPCODE => Self::Snack(Snack::decode(bhs)?),
            unknown => return Err(DecodeError::Opcode(unknown)),
        })
    }

    /// Writes a header; the length fields are zero and filled in by framing.
    #[must_use]
    pub fn encode(&self) -> [u8; BHS_LEN] {
        match self {
            Self::DataOut(pdu) => pdu.encode(),
            Self::Login(pdu) => pdu.encode(),
            Self::Logout(pdu) => pdu.encode(),
            Self::NopOut(pdu) => pdu.encode(),
            Self::ScsiCommand(pdu) => pdu.encode(),
            Self::Snack(pdu) => pdu.encode(),
            Self::TaskManagement(pdu) => pdu.encode(),
            Self::Text(pdu) => pdu.encode(),
        }
    }

    /// What RFC 7143 calls it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DataOut(_) => "SCSI Data-Out",
            Self::Login(_) => "Login Request",
            Self::Logout(_) => "Logout Request",
            Self::NopOut(_) => "NOP-Out",
            Self::ScsiCommand(_) => "SCSI Command",
            Self::Snack(_) => "SNACK Request",
            Self::TaskManagement(_) => "Task Management Function Request",
            Self::Text(_) => "Text Request",
        }
    }

    /// Initiator Task Tag.
    #[must_use]
    pub const fn itt(&self) -> Itt {
        match self {
            Self::DataOut(pdu) => pdu.itt,
            Self::Login(pdu) => pdu.itt,
            Self::Logout(pdu) => pdu.itt,
            Self::NopOut(pdu) => pdu.itt,
            Self::ScsiCommand(pdu) => pdu.itt,
            Self::Snack(pdu) => pdu.itt,
            Self::TaskManagement(pdu) => pdu.itt,
            Self::Text(pdu) => pdu.itt,
        }
    }

    /// The command sequence number; Data-Out and SNACK have none.
    #[must_use]
    pub const fn cmd_sn(&self) -> Option<Sn> {
        match self {
            Self::DataOut(_) | Self::Snack(_) => None,
            Self::Login(pdu) => Some(pdu.cmd_sn),
            Self::Logout(pdu) => Some(pdu.cmd_sn),
            Self::NopOut(pdu) => Some(pdu.cmd_sn),
            Self::ScsiCommand(pdu) => Some(pdu.cmd_sn),
            Self::TaskManagement(pdu) => Some(pdu.cmd_sn),
            Self::Text(pdu) => Some(pdu.cmd_sn),
        }
    }

    /// Whether it carries a CmdSN without taking that number (§4.2.2.1). A login does, always.
    #[must_use]
    pub const fn immediate(&self) -> bool {
        match self {
            Self::DataOut(_) | Self::Snack(_) => false,
            Self::Login(_) => true,
            Self::Logout(pdu) => pdu.immediate,
            Self::NopOut(pdu) => pdu.immediate,
            Self::ScsiCommand(pdu) => pdu.immediate,
            Self::TaskManagement(pdu) => pdu.immediate,
            Self::Text(pdu) => pdu.immediate,
        }
    }

    /// Acknowledges all responses before it.
    #[must_use]
    pub const fn exp_stat_sn(&self) -> Sn {
        match self {
            Self::DataOut(pdu) => pdu.exp_stat_sn,
            Self::Login(pdu) => pdu.exp_stat_sn,
            Self::Logout(pdu) => pdu.exp_stat_sn,
            Self::NopOut(pdu) => pdu.exp_stat_sn,
            Self::ScsiCommand(pdu) => pdu.exp_stat_sn,
            Self::Snack(pdu) => pdu.exp_stat_sn,
            Self::TaskManagement(pdu) => pdu.exp_stat_sn,
            Self::Text(pdu) => pdu.exp_stat_sn,
        }
    }
}

impl Response {
    /// Reads a header (scripted initiators and tests need this half).
    pub fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        Ok(match bhs[0] & OPCODE_MASK {
            NopIn::OPCODE => Self::NopIn(NopIn::decode(bhs)),
            ScsiResponse::OPCODE => Self::ScsiResponse(ScsiResponse::decode(bhs)?),
            TaskManagementResponse::OPCODE => Self::TaskManagement(TaskManagementResponse::decode(bhs)?),
            LoginResponse::OPCODE => Self::Login(LoginResponse::decode(bhs)?),
            TextResponse::OPCODE => Self::Text(TextResponse::decode(bhs)),
            DataIn::OPCODE => Self::DataIn(DataIn::decode(bhs)?),
            LogoutResponse::OPCODE => Self::Logout(LogoutResponse::decode(bhs)?),
            R2t::OPCODE => Self::R2t(R2t::decode(bhs)?),
            AsyncMessage::OPCODE => Self::AsyncMessage(AsyncMessage::decode(bhs)),
            Reject::OPCODE => Self::Reject(Reject::decode(bhs)),
            unknown => return Err(DecodeError::Opcode(unknown)),
        })
    }

    /// Writes a header; the length fields are zero and filled in by framing.
    #[must_use]
    pub fn encode(&self) -> [u8; BHS_LEN] {
        match self {
            Self::AsyncMessage(pdu) => pdu.encode(),
            Self::DataIn(pdu) => pdu.encode(),
            Self::Login(pdu) => pdu.encode(),
            Self::Logout(pdu) => pdu.encode(),
            Self::NopIn(pdu) => pdu.encode(),
            Self::R2t(pdu) => pdu.encode(),
            Self::Reject(pdu) => pdu.encode(),
            Self::ScsiResponse(pdu) => pdu.encode(),
            Self::TaskManagement(pdu) => pdu.encode(),
            Self::Text(pdu) => pdu.encode(),
        }
    }

    /// What RFC 7143 calls it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AsyncMessage(_) => "Asynchronous Message",
            Self::DataIn(_) => "SCSI Data-In",
            Self::Login(_) => "Login Response",
            Self::Logout(_) => "Logout Response",
            Self::NopIn(_) => "NOP-In",
            Self::R2t(_) => "R2T",
            Self::Reject(_) => "Reject",
            Self::ScsiResponse(_) => "SCSI Response",
            Self::TaskManagement(_) => "Task Management Function Response",
            Self::Text(_) => "Text Response",
        }
    }

    /// Initiator Task Tag; [`Itt::RESERVED`] in those that belong to no task.
    #[must_use]
    pub const fn itt(&self) -> Itt {
        match self {
            Self::AsyncMessage(_) | Self::Reject(_) => Itt::RESERVED,
            Self::DataIn(pdu) => pdu.itt,
            Self::Login(pdu) => pdu.itt,
            Self::Logout(pdu) => pdu.itt,
            Self::NopIn(pdu) => pdu.itt,
            Self::R2t(pdu) => pdu.itt,
            Self::ScsiResponse(pdu) => pdu.itt,
            Self::TaskManagement(pdu) => pdu.itt,
            Self::Text(pdu) => pdu.itt,
        }
    }
}

const fn is_immediate(opcode: u8) -> bool {
    opcode & IMMEDIATE != 0
}

const fn immediate_bit(immediate: bool) -> u8 {
    flag(IMMEDIATE, immediate)
}

const fn flag(bit: u8, set: bool) -> u8 {
    if set { bit } else { 0 }
}

/// The tag of a PDU that starts a task. The reserved tag names no task (§11.2.1.8), so nothing could be answered.
fn task_tag(pdu: &'static str, wire: U32) -> Result<Itt, DecodeError> {
    match Itt(wire.get()) {
        Itt::RESERVED => Err(DecodeError::field(pdu, "Initiator Task Tag", Itt::RESERVED.0)),
        itt => Ok(itt),
    }
}

const OPCODE_MASK: u8 = 0x3f;
/// I bit, first byte of a request.
const IMMEDIATE: u8 = 0x40;
/// F bit, second byte.
const FINAL: u8 = 0x80;
/// Where F would be in a PDU that is always alone: sent as 1. It tells nothing, so it is not looked at.
const ALWAYS_ONE: u8 = FINAL;
/// C bit of text and login.
const CONTINUE: u8 = 0x40;
