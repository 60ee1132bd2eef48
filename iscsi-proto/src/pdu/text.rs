//! Text Request (§11.10) and Text Response (§11.11). The data segment holds text keys.
//!
//! That F and C exclude each other is for the receiver's state machine to say: it has an answer for it.

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{CONTINUE, FINAL, flag, immediate_bit, is_immediate, task_tag};
use crate::{BHS_LEN, DecodeError, Itt, Lun, Sn, Ttt};

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

impl TextRequest {
    pub(super) const OPCODE: u8 = 0x04;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &TextRequestWire = transmute_ref!(bhs);
        Ok(Self {
            immediate: is_immediate(wire.opcode),
            is_final: wire.flags & FINAL != 0,
            continues: wire.flags & CONTINUE != 0,
            lun: Lun::from_bytes(wire.lun),
            itt: task_tag("Text Request", wire.itt)?,
            ttt: Ttt(wire.ttt.get()),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(TextRequestWire {
            opcode: Self::OPCODE | immediate_bit(self.immediate),
            flags: flag(FINAL, self.is_final) | flag(CONTINUE, self.continues),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl TextResponse {
    pub(super) const OPCODE: u8 = 0x24;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &TextResponseWire = transmute_ref!(bhs);
        Self {
            is_final: wire.flags & FINAL != 0,
            continues: wire.flags & CONTINUE != 0,
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(TextResponseWire {
            opcode: Self::OPCODE,
            flags: flag(FINAL, self.is_final) | flag(CONTINUE, self.continues),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct TextRequestWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    _reserved32: [u8; 16],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct TextResponseWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    _reserved36: [u8; 12],
}
