//! Task Management Function Request (§11.5) and Response (§11.6); RFC 7144 §5 adds the last four functions.

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{ALWAYS_ONE, immediate_bit, is_immediate, task_tag};
use crate::{BHS_LEN, DecodeError, Itt, Lun, Sn};

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
    /// Additional response information of RFC 7144, 24 bits; 0 otherwise.
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

impl TaskManagementRequest {
    pub(super) const OPCODE: u8 = 0x02;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &RequestWire = transmute_ref!(bhs);
        Ok(Self {
            immediate: is_immediate(wire.opcode),
            function: Function::decode(wire.flags & FUNCTION_MASK),
            lun: Lun::from_bytes(wire.lun),
            itt: task_tag("Task Management Function Request", wire.itt)?,
            referenced_itt: Itt(wire.referenced_itt.get()),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
            ref_cmd_sn: Sn(wire.ref_cmd_sn.get()),
            exp_data_sn: wire.exp_data_sn.get(),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(RequestWire {
            opcode: Self::OPCODE | immediate_bit(self.immediate),
            flags: ALWAYS_ONE | self.function.encode(),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            referenced_itt: self.referenced_itt.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ref_cmd_sn: self.ref_cmd_sn.0.into(),
            exp_data_sn: self.exp_data_sn.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl Function {
    /// Every code is a value: one without a meaning is answered "not supported" (§11.6.1), not rejected.
    const fn decode(code: u8) -> Self {
        match code {
            1 => Self::AbortTask,
            2 => Self::AbortTaskSet,
            3 => Self::ClearAca,
            4 => Self::ClearTaskSet,
            5 => Self::LogicalUnitReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            8 => Self::TaskReassign,
            9 => Self::QueryTask,
            10 => Self::QueryTaskSet,
            11 => Self::ITNexusReset,
            12 => Self::QueryAsyncEvent,
            other => Self::Unknown(other),
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::AbortTask => 1,
            Self::AbortTaskSet => 2,
            Self::ClearAca => 3,
            Self::ClearTaskSet => 4,
            Self::LogicalUnitReset => 5,
            Self::TargetWarmReset => 6,
            Self::TargetColdReset => 7,
            Self::TaskReassign => 8,
            Self::QueryTask => 9,
            Self::QueryTaskSet => 10,
            Self::ITNexusReset => 11,
            Self::QueryAsyncEvent => 12,
            Self::Unknown(other) => other & FUNCTION_MASK,
        }
    }
}

impl TaskManagementResponse {
    pub(super) const OPCODE: u8 = 0x22;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &ResponseWire = transmute_ref!(bhs);
        let [high, middle, low] = wire.additional;
        Ok(Self {
            response: TmfResponse::decode(wire.response)?,
            additional: u32::from_be_bytes([0, high, middle, low]),
            itt: Itt(wire.itt.get()),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        let [_, high, middle, low] = self.additional.to_be_bytes();
        transmute!(ResponseWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
            response: self.response.encode(),
            additional: [high, middle, low],
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl TmfResponse {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Self::Complete,
            1 => Self::TaskDoesNotExist,
            2 => Self::LunDoesNotExist,
            3 => Self::TaskStillAllegiant,
            4 => Self::ReassignNotSupported,
            5 => Self::NotSupported,
            6 => Self::AuthorizationFailed,
            7 => Self::Succeeded,
            255 => Self::Rejected,
            _ => {
                return Err(DecodeError::field(
                    "Task Management Function Response",
                    "Response",
                    code as u32,
                ));
            }
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::TaskDoesNotExist => 1,
            Self::LunDoesNotExist => 2,
            Self::TaskStillAllegiant => 3,
            Self::ReassignNotSupported => 4,
            Self::NotSupported => 5,
            Self::AuthorizationFailed => 6,
            Self::Succeeded => 7,
            Self::Rejected => 255,
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct RequestWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    referenced_itt: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    ref_cmd_sn: U32,
    exp_data_sn: U32,
    _reserved40: [u8; 8],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct ResponseWire {
    opcode: u8,
    flags: u8,
    response: u8,
    _reserved3: u8,
    _lengths: [u8; 4],
    additional: [u8; 3],
    _reserved11: [u8; 5],
    itt: U32,
    _reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    _reserved36: [u8; 12],
}

const FUNCTION_MASK: u8 = 0x7f;
