//! Task Management Function Request (§11.5) and Response (§11.6); RFC 7144 §5 adds the last four functions.

use crate::{Itt, Lun, Sn};

/// Task Management Function Request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagementRequest {
    /// I bit.
    pub immediate: bool,
    /// What is to be done.
    pub function: Function,
    /// Logical unit, for functions that address one.
    pub lun: Lun,
    /// Tag of this request.
    pub itt: Itt,
    /// Task meant by ABORT TASK and TASK REASSIGN, else reserved.
    pub referenced_itt: Itt,
    /// Command sequence number.
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
    /// CmdSN of the task meant by ABORT TASK.
    pub ref_cmd_sn: Sn,
    /// TASK REASSIGN: first data PDU not received.
    pub exp_data_sn: u32,
}

/// Function codes in wire order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Function {
    /// 1
    AbortTask,
    /// 2
    AbortTaskSet,
    /// 3
    ClearAca,
    /// 4
    ClearTaskSet,
    /// 5
    LogicalUnitReset,
    /// 6
    TargetWarmReset,
    /// 7
    TargetColdReset,
    /// 8
    TaskReassign,
    /// 9 (RFC 7144)
    QueryTask,
    /// 10 (RFC 7144)
    QueryTaskSet,
    /// 11 (RFC 7144)
    ITNexusReset,
    /// 12 (RFC 7144)
    QueryAsyncEvent,
    /// A value no standard gives a meaning.
    Unknown(u8),
}

/// Task Management Function Response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskManagementResponse {
    /// Outcome.
    pub response: TmfResponse,
    /// RFC 7144 §5.2: additional response information, 0 otherwise.
    pub additional: u32,
    /// As requested.
    pub itt: Itt,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
}

/// §11.6.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TmfResponse {
    /// 0
    Complete,
    /// 1
    TaskDoesNotExist,
    /// 2
    LunDoesNotExist,
    /// 3
    TaskStillAllegiant,
    /// 4
    ReassignNotSupported,
    /// 5
    NotSupported,
    /// 6
    AuthorizationFailed,
    /// 7 (RFC 7144)
    Succeeded,
    /// 255
    Rejected,
}
