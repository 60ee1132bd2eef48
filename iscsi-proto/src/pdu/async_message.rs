//! Asynchronous Message (§11.9).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::ALWAYS_ONE;
use crate::{BHS_LEN, Itt, Lun, Sn};

/// Asynchronous Message. Sense data of a SCSI event is the data segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AsyncMessage {
    /// Logical unit of a SCSI event.
    pub lun: Lun,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// What happened.
    pub event: AsyncEvent,
}

/// §11.9.1 with the parameters each event has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AsyncEvent {
    /// 0: sense data are in the data segment.
    Scsi,
    /// 1: the initiator must log out within so many seconds.
    LogoutRequested {
        /// Parameter3, seconds.
        within_s: u16,
    },
    /// 2: the target will drop this connection.
    ConnectionDropped {
        /// Parameter1.
        cid: u16,
        /// Parameter2: Time2Wait, seconds.
        time_to_wait: u16,
        /// Parameter3: Time2Retain, seconds.
        time_to_retain: u16,
    },
    /// 3: the target will drop all connections of the session.
    SessionDropped {
        /// Parameter2: Time2Wait, seconds.
        time_to_wait: u16,
        /// Parameter3: Time2Retain, seconds.
        time_to_retain: u16,
    },
    /// 4: the initiator must start a text negotiation within so many seconds.
    NegotiationRequested {
        /// Parameter3, seconds.
        within_s: u16,
    },
    /// 5: all tasks of a logical unit were terminated.
    TasksTerminated,
    /// Anything else.
    Other {
        /// AsyncEvent field.
        code: u8,
        /// AsyncVCode field.
        vendor_code: u8,
        /// Parameters 1 to 3.
        parameters: [u16; 3],
    },
}

impl AsyncMessage {
    pub(super) const OPCODE: u8 = 0x32;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Self {
        let wire: &AsyncMessageWire = transmute_ref!(bhs);
        Self {
            lun: Lun::from_bytes(wire.lun),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            event: AsyncEvent::decode(wire.event, wire.vendor_code, wire.parameters.map(U16::get)),
        }
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        let (event, vendor_code, parameters) = self.event.encode();
        transmute!(AsyncMessageWire {
            opcode: Self::OPCODE,
            flags: ALWAYS_ONE,
            lun: self.lun.to_bytes(),
            itt: Itt::RESERVED.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            event,
            vendor_code,
            parameters: parameters.map(U16::new),
            ..FromZeros::new_zeroed()
        })
    }
}

impl AsyncEvent {
    /// Parameters that an event does not have are reserved and ignored.
    const fn decode(code: u8, vendor_code: u8, parameters: [u16; 3]) -> Self {
        let [first, second, third] = parameters;
        match code {
            0 => Self::Scsi,
            1 => Self::LogoutRequested { within_s: third },
            2 => Self::ConnectionDropped {
                cid: first,
                time_to_wait: second,
                time_to_retain: third,
            },
            3 => Self::SessionDropped {
                time_to_wait: second,
                time_to_retain: third,
            },
            4 => Self::NegotiationRequested { within_s: third },
            5 => Self::TasksTerminated,
            _ => Self::Other {
                code,
                vendor_code,
                parameters,
            },
        }
    }

    const fn encode(self) -> (u8, u8, [u16; 3]) {
        match self {
            Self::Scsi => (0, 0, [0; 3]),
            Self::LogoutRequested { within_s } => (1, 0, [0, 0, within_s]),
            Self::ConnectionDropped {
                cid,
                time_to_wait,
                time_to_retain,
            } => (2, 0, [cid, time_to_wait, time_to_retain]),
            Self::SessionDropped {
                time_to_wait,
                time_to_retain,
            } => (3, 0, [0, time_to_wait, time_to_retain]),
            Self::NegotiationRequested { within_s } => (4, 0, [0, 0, within_s]),
            Self::TasksTerminated => (5, 0, [0; 3]),
            Self::Other {
                code,
                vendor_code,
                parameters,
            } => (code, vendor_code, parameters),
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct AsyncMessageWire {
    opcode: u8,
    flags: u8,
    _reserved2: [u8; 2],
    _lengths: [u8; 4],
    lun: [u8; 8],
    itt: U32,
    _reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    event: u8,
    vendor_code: u8,
    parameters: [U16; 3],
    _reserved44: [u8; 4],
}
