//! SNACK Request (§11.16).

use crate::{Itt, Lun, Sn, Ttt};

/// SNACK Request. At ErrorRecoveryLevel 0 it is a protocol error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snack {
    /// What is missing.
    pub kind: SnackType,
    /// LUN of the Data-In acknowledged.
    pub lun: Lun,
    /// Task, or reserved.
    pub itt: Itt,
    /// Target Transfer Tag or SNACK tag.
    pub ttt: Ttt,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
    /// First missing number.
    pub begin_run: u32,
    /// How many are missing; 0 means all that follow.
    pub run_length: u32,
}

/// §11.16.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SnackType {
    /// 0
    DataOrR2t,
    /// 1
    Status,
    /// 2
    DataAck,
    /// 3
    RData,
}
