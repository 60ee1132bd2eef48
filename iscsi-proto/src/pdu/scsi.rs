//! SCSI Command (§11.3) and SCSI Response (§11.4).

use crate::{Itt, Lun, Sn};

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
