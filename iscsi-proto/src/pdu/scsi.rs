//! SCSI Command (§11.3) and SCSI Response (§11.4).

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{ALWAYS_ONE, FINAL, flag, immediate_bit, is_immediate, task_tag};
use crate::{BHS_LEN, DecodeError, Itt, Lun, Sn};

/// SCSI Command. The first sixteen CDB bytes are here; the rest of a longer CDB is in an AHS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiCommand {
    /// I bit: not counted in CmdSN, delivered at once.
    pub immediate: bool,
    /// F bit: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R bit: the command expects Data-In.
    pub read: bool,
    /// W bit: the command expects to send Data-Out.
    pub write: bool,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command priority 0–15 (§11.3.2.1 byte 2 is reserved at level 0; iSCSIProtocolLevel 2 puts it there).
    pub priority: u8,
    /// Addressed logical unit.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes.
    pub expected_len: u32,
    /// Command sequence number.
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
    /// The CDB, zero-padded.
    pub cdb: [u8; 16],
}

/// Task attribute of §11.3.1, in wire order. Values 5–7 are reserved.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TaskAttribute {
    /// 0: treated as simple.
    Untagged,
    /// 1
    Simple,
    /// 2
    Ordered,
    /// 3
    HeadOfQueue,
    /// 4: auto contingent allegiance.
    Aca,
}

/// SCSI Response. Sense data is the data segment, behind a two-byte SenseLength (§11.4.7.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiResponse {
    /// Task answered.
    pub itt: Itt,
    /// iSCSI service response.
    pub response: ScsiResponseCode,
    /// SAM status byte; meaningful with `CompletedAtTarget`.
    pub status: u8,
    /// Residual of the (write or unidirectional read) transfer.
    pub residual: Residual,
    /// Residual of the read part of a bidirectional command.
    pub bidi_read_residual: Residual,
    /// SNACK tag; 0 unless a SNACK changed it.
    pub snack_tag: u32,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// Data-In and R2T PDUs sent for the command.
    pub exp_data_sn: u32,
}

/// §11.4.3.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScsiResponseCode {
    /// 0x00
    CompletedAtTarget,
    /// 0x01
    TargetFailure,
    /// 0x80–0xff
    Vendor(u8),
}

/// Difference between what was expected and what was moved (§11.4.1, §11.4.5).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual {
    /// Both agree.
    #[default]
    None,
    /// U bit: so many bytes fewer than expected were moved.
    Underflow(u32),
    /// O bit: so many bytes more than expected would have been moved.
    Overflow(u32),
}

impl ScsiCommand {
    pub(super) const OPCODE: u8 = 0x01;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &CommandWire = transmute_ref!(bhs);
        let is_final = wire.flags & FINAL != 0;
        let write = wire.flags & WRITE != 0;
        // Who sends no data cannot announce more of it (§11.3.1).
        if !is_final && !write {
            return Err(DecodeError::field(SCSI_COMMAND, "F without W", 0));
        }
        Ok(Self {
            immediate: is_immediate(wire.opcode),
            is_final,
            read: wire.flags & READ != 0,
            write,
            attribute: TaskAttribute::decode(wire.flags & ATTRIBUTE_MASK)?,
            priority: wire.priority >> PRIORITY_SHIFT,
            lun: Lun::from_bytes(wire.lun),
            itt: task_tag(SCSI_COMMAND, wire.itt)?,
            expected_len: wire.expected_len.get(),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
            cdb: wire.cdb,
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(CommandWire {
            opcode: Self::OPCODE | immediate_bit(self.immediate),
            flags: flag(FINAL, self.is_final)
                | flag(READ, self.read)
                | flag(WRITE, self.write)
                | self.attribute.encode(),
            priority: self.priority << PRIORITY_SHIFT,
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            expected_len: self.expected_len.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            cdb: self.cdb,
            ..FromZeros::new_zeroed()
        })
    }
}

impl TaskAttribute {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Self::Untagged,
            1 => Self::Simple,
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            4 => Self::Aca,
            _ => return Err(DecodeError::field(SCSI_COMMAND, "ATTR", code as u32)),
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Untagged => 0,
            Self::Simple => 1,
            Self::Ordered => 2,
            Self::HeadOfQueue => 3,
            Self::Aca => 4,
        }
    }
}

impl ScsiResponse {
    pub(super) const OPCODE: u8 = 0x21;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &ResponseWire = transmute_ref!(bhs);
        // The bits of the bidirectional residual stand two places above their siblings.
        let bidi_flags = wire.flags >> BIDI_SHIFT;
        Ok(Self {
            itt: Itt(wire.itt.get()),
            response: ScsiResponseCode::decode(wire.response)?,
            status: wire.status,
            residual: Residual::decode(SCSI_RESPONSE, wire.flags, wire.residual)?,
            bidi_read_residual: Residual::decode(SCSI_RESPONSE, bidi_flags, wire.bidi_read_residual)?,
            snack_tag: wire.snack_tag.get(),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            exp_data_sn: wire.exp_data_sn.get(),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        let (residual_flag, residual) = self.residual.encode();
        let (bidi_flag, bidi_read_residual) = self.bidi_read_residual.encode();
        transmute!(ResponseWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE | residual_flag | bidi_flag << BIDI_SHIFT,
            response: self.response.encode(),
            status: self.status,
            itt: self.itt.0.into(),
            snack_tag: self.snack_tag.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            exp_data_sn: self.exp_data_sn.into(),
            bidi_read_residual,
            residual,
            ..FromZeros::new_zeroed()
        })
    }
}

impl ScsiResponseCode {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0x00 => Self::CompletedAtTarget,
            0x01 => Self::TargetFailure,
            0x80..=0xff => Self::Vendor(code),
            _ => return Err(DecodeError::field(SCSI_RESPONSE, "Response", code as u32)),
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::CompletedAtTarget => 0x00,
            Self::TargetFailure => 0x01,
            Self::Vendor(code) => code,
        }
    }
}

impl Residual {
    /// The O and U bits stand at the same place in SCSI Response and Data-In. The count is reserved without them.
    pub(super) fn decode(pdu: &'static str, flags: u8, count: U32) -> Result<Self, DecodeError> {
        match flags & (OVERFLOW | UNDERFLOW) {
            0 => Ok(Self::None),
            UNDERFLOW => Ok(Self::Underflow(count.get())),
            OVERFLOW => Ok(Self::Overflow(count.get())),
            both => Err(DecodeError::field(pdu, "O and U", both.into())),
        }
    }

    pub(super) fn encode(self) -> (u8, U32) {
        match self {
            Self::None => (0, U32::ZERO),
            Self::Underflow(count) => (UNDERFLOW, count.into()),
            Self::Overflow(count) => (OVERFLOW, count.into()),
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct CommandWire {
    opcode: u8,
    flags: u8,
    priority: u8,
    _reserved3: u8,
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    expected_len: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    cdb: [u8; 16],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct ResponseWire {
    opcode: u8,
    flags: u8,
    response: u8,
    status: u8,
    _lengths: [u8; 4],
    _reserved8: [u8; 8],
    itt: U32,
    snack_tag: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    exp_data_sn: U32,
    bidi_read_residual: U32,
    residual: U32,
}

const SCSI_COMMAND: &str = "SCSI Command";
const SCSI_RESPONSE: &str = "SCSI Response";

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE_MASK: u8 = 0x07;
const PRIORITY_SHIFT: u8 = 4;

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const BIDI_SHIFT: u8 = 2;
