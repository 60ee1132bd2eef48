//! NOP-Out (§11.18) and NOP-In (§11.19). Ping data is the data segment.

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{ALWAYS_ONE, immediate_bit, is_immediate};
use crate::{BHS_LEN, Itt, Lun, Sn, Ttt};

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

impl NopOut {
    pub(super) const OPCODE: u8 = 0x00;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &NopOutWire = transmute_ref!(bhs);
        Self {
            immediate: is_immediate(wire.opcode),
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(NopOutWire {
            opcode: Self::OPCODE | immediate_bit(self.immediate),
            flags: ALWAYS_ONE,
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl NopIn {
    pub(super) const OPCODE: u8 = 0x20;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &NopInWire = transmute_ref!(bhs);
        Self {
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(NopInWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
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
struct NopOutWire {
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
struct NopInWire {
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
