//! SCSI Data-Out and Data-In (§11.7), Ready To Transfer (§11.8).

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{ALWAYS_ONE, FINAL, Residual, flag};
use crate::{BHS_LEN, DecodeError, Itt, Lun, Sn, Ttt};

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
    /// Present when the S bit is set: this PDU ends the command with a status and consumes a StatSN. Implies
    /// `is_final`.
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

impl DataOut {
    pub(super) const OPCODE: u8 = 0x05;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &DataOutWire = transmute_ref!(bhs);
        Self {
            is_final: wire.flags & FINAL != 0,
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
            data_sn: wire.data_sn.get(),
            offset: wire.offset.get(),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(DataOutWire {
            opcode: Self::OPCODE,
            flags: flag(FINAL, self.is_final),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            data_sn: self.data_sn.into(),
            offset: self.offset.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl DataIn {
    pub(super) const OPCODE: u8 = 0x25;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &DataInWire = transmute_ref!(bhs);
        let is_final = wire.flags & FINAL != 0;
        let has_status = wire.flags & STATUS != 0;
        // Nothing of a command comes after its status (§11.7.3).
        if has_status && !is_final {
            return Err(DecodeError::field(DATA_IN, "F with S", 0));
        }
        let status = match has_status {
            true => Some(DataInStatus {
                status: wire.status,
                stat_sn: Sn(wire.stat_sn.get()),
                residual: Residual::decode(DATA_IN, wire.flags, wire.residual)?,
            }),
            false => None,
        };
        Ok(Self {
            is_final,
            acknowledge: wire.flags & ACKNOWLEDGE != 0,
            status,
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(wire.ttt.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            data_sn: wire.data_sn.get(),
            offset: wire.offset.get(),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        debug_assert!(
            self.status.is_none() || self.is_final,
            "a status ends its command"
        );
        let mut wire = DataInWire {
            opcode: Self::OPCODE,
            flags: flag(FINAL, self.is_final) | flag(ACKNOWLEDGE, self.acknowledge),
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            data_sn: self.data_sn.into(),
            offset: self.offset.into(),
            ..FromZeros::new_zeroed()
        };
        if let Some(end) = &self.status {
            let (residual_flag, residual) = end.residual.encode();
            wire.flags |= STATUS | residual_flag;
            wire.status = end.status;
            wire.stat_sn = end.stat_sn.0.into();
            wire.residual = residual;
        }
        transmute!(wire)
    }
}

impl R2t {
    pub(super) const OPCODE: u8 = 0x31;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &R2tWire = transmute_ref!(bhs);
        let (ttt, desired_len) = (wire.ttt.get(), wire.desired_len.get());
        if ttt == Ttt::RESERVED.0 {
            return Err(DecodeError::field("R2T", "Target Transfer Tag", ttt));
        }
        if desired_len == 0 {
            return Err(DecodeError::field(
                "R2T",
                "Desired Data Transfer Length",
                desired_len,
            ));
        }
        Ok(Self {
            lun: Lun::from_bytes(wire.lun),
            itt: Itt(wire.itt.get()),
            ttt: Ttt(ttt),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            r2t_sn: wire.r2t_sn.get(),
            offset: wire.offset.get(),
            desired_len,
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(R2tWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
            lun: self.lun.to_bytes(),
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            r2t_sn: self.r2t_sn.into(),
            offset: self.offset.into(),
            desired_len: self.desired_len.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct DataOutWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    _reserved24: [u8; 4],
    exp_stat_sn: U32,
    _reserved32: [u8; 4],
    data_sn: U32,
    offset: U32,
    _reserved44: [u8; 4],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct DataInWire {
    opcode: u8,
    flags: u8,
    _reserved2: u8,
    status: u8,
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    data_sn: U32,
    offset: U32,
    residual: U32,
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct R2tWire {
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
    r2t_sn: U32,
    offset: U32,
    desired_len: U32,
}

const DATA_IN: &str = "SCSI Data-In";
const ACKNOWLEDGE: u8 = 0x40;
const STATUS: u8 = 0x01;
