//! The protocol data units of RFC 7143 §11: one plain struct per PDU, no lifetime, no data segment inside.
//!
//! A data segment travels beside its header. Lengths (TotalAHSLength, DataSegmentLength) belong to framing and
//! are in [`Frame`](crate::Frame), not in these types.

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

use crate::{BHS_LEN, DecodeError};

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
    pub fn decode(_bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        todo!()
    }

    /// Writes a header; the length fields are zero and filled in by framing.
    #[must_use]
    pub fn encode(&self) -> [u8; BHS_LEN] {
        todo!()
    }
}

impl Response {
    /// Reads a header (scripted initiators and tests need this half).
    pub fn decode(_bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        todo!()
    }

    /// Writes a header; the length fields are zero and filled in by framing.
    #[must_use]
    pub fn encode(&self) -> [u8; BHS_LEN] {
        todo!()
    }
}
