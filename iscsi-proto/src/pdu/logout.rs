//! Logout Request (§11.14) and Logout Response (§11.15).

use crate::{Cid, Itt, Sn};

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
