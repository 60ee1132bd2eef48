//! NOP-Out (§11.18) and NOP-In (§11.19). Ping data is the data segment.

use crate::{Itt, Lun, Sn, Ttt};

/// NOP-Out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopOut {
    /// I bit.
    pub immediate: bool,
    /// As in the NOP-In answered; else any.
    pub lun: Lun,
    /// Reserved when no answer is wanted.
    pub itt: Itt,
    /// Tag of the NOP-In answered, else reserved.
    pub ttt: Ttt,
    /// Command sequence number.
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
}

/// NOP-In.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NopIn {
    /// Any when `ttt` is not reserved.
    pub lun: Lun,
    /// Tag of the NOP-Out answered, else reserved.
    pub itt: Itt,
    /// Reserved when no answer is wanted.
    pub ttt: Ttt,
    /// Status sequence number; consumed only by an answer.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
}
