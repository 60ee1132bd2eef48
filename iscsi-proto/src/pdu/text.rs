//! Text Request (§11.10) and Text Response (§11.11). The data segment holds text keys.

use crate::{Itt, Lun, Sn, Ttt};

/// Text Request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextRequest {
    /// I bit.
    pub immediate: bool,
    /// F bit: the initiator has no more to say.
    pub is_final: bool,
    /// C bit: the text continues in the next request.
    pub continues: bool,
    /// As in the response before, else any.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Reserved in the first request, then as the response gave it.
    pub ttt: Ttt,
    /// Command sequence number.
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
}

/// Text Response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextResponse {
    /// F bit: the target has no more to say.
    pub is_final: bool,
    /// C bit: the text continues in the next response.
    pub continues: bool,
    /// As the target likes when `ttt` is set.
    pub lun: Lun,
    /// As requested.
    pub itt: Itt,
    /// Reserved when `is_final`.
    pub ttt: Ttt,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
}
