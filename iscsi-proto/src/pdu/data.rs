//! SCSI Data-Out and Data-In (§11.7), Ready To Transfer (§11.8).

use super::Residual;
use crate::{Itt, Lun, Sn, Ttt};

/// SCSI Data-Out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataOut {
    /// F bit: last of its sequence.
    pub is_final: bool,
    /// LUN of the R2T answered; meaningful when `ttt` is not reserved.
    pub lun: Lun,
    /// Task.
    pub itt: Itt,
    /// Tag of the R2T, or reserved for unsolicited data.
    pub ttt: Ttt,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
    /// Number of this PDU in its sequence.
    pub data_sn: u32,
    /// Where the data segment belongs in the whole transfer, bytes.
    pub offset: u32,
}

/// SCSI Data-In.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataIn {
    /// F bit: last of its sequence.
    pub is_final: bool,
    /// A bit: the target asks for a data acknowledgement (level 1 and above only).
    pub acknowledge: bool,
    /// Present when the S bit is set: this PDU ends the command with a status and consumes a StatSN.
    pub status: Option<DataInStatus>,
    /// LUN; needed only with the A bit.
    pub lun: Lun,
    /// Task.
    pub itt: Itt,
    /// Target Transfer Tag, reserved unless the A bit is set.
    pub ttt: Ttt,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// Number of this PDU within the command.
    pub data_sn: u32,
    /// Where the data segment belongs in the whole transfer, bytes.
    pub offset: u32,
}

/// What a Data-In with the S bit says about the end of the command. Only a status without sense fits (§11.7.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataInStatus {
    /// SAM status byte.
    pub status: u8,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Residual of the whole transfer.
    pub residual: Residual,
}

/// Ready To Transfer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct R2t {
    /// Logical unit of the task.
    pub lun: Lun,
    /// Task.
    pub itt: Itt,
    /// Our tag, to be repeated in each Data-Out. Never reserved.
    pub ttt: Ttt,
    /// The next StatSN, which an R2T does not consume.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// Number of this R2T within the command.
    pub r2t_sn: u32,
    /// Where the wanted data begin in the whole transfer, bytes.
    pub offset: u32,
    /// How many bytes are wanted; never 0.
    pub desired_len: u32,
}
