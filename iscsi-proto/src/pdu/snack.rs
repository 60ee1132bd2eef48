//! SNACK Request (§11.16).

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::ALWAYS_ONE;
use crate::{BHS_LEN, DecodeError, Itt, Lun, Sn, Ttt};

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

impl Snack {
    pub(super) const OPCODE: u8 = 0x10;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &SnackWire = transmute_ref!(bhs);
        Ok(Self {
            kind: SnackType::decode(wire.flags & TYPE_MASK)?,
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
            begin_run: wire.begin_run.get(),
            run_length: wire.run_length.get(),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(SnackWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE | self.kind.encode(),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            begin_run: self.begin_run.into(),
            run_length: self.run_length.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl SnackType {
    const fn decode(code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Self::DataOrR2t,
            1 => Self::Status,
            2 => Self::DataAck,
            3 => Self::RData,
            _ => return Err(DecodeError::field("SNACK Request", "Type", code as u32)),
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::DataOrR2t => 0,
            Self::Status => 1,
            Self::DataAck => 2,
            Self::RData => 3,
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct SnackWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    _reserved24: [u8; 4],
    exp_stat_sn: U32,
    _reserved32: [u8; 8],
    begin_run: U32,
    run_length: U32,
}

const TYPE_MASK: u8 = 0x0f;
