//! Login Request (§11.12) and Login Response (§11.13).
//!
//! Which stage may follow which, and that T and C exclude each other, is for the login itself: it answers with a
//! status of its own.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned, transmute, transmute_ref};

use super::{CONTINUE, flag, immediate_bit, task_tag};
use crate::{BHS_LEN, Cid, DecodeError, Isid, Itt, Sn, Tsih};

/// Login Request. The data segment holds text keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginRequest {
    /// T bit: ready to leave the current stage for the next.
    pub transit: bool,
    /// C bit: the text continues in the next request.
    pub continues: bool,
    /// CSG.
    pub current_stage: LoginStage,
    /// NSG. Without `transit` the field is reserved: it is read as `current_stage` and sent as 0.
    pub next_stage: LoginStage,
    /// Highest protocol version the initiator speaks; 0 today.
    pub version_max: u8,
    /// Lowest protocol version the initiator speaks.
    pub version_min: u8,
    /// Initiator part of the session identifier.
    pub isid: Isid,
    /// 0 for a new session, else the session to join.
    pub tsih: Tsih,
    /// Initiator Task Tag, the same in the whole login.
    pub itt: Itt,
    /// Connection identifier.
    pub cid: Cid,
    /// First CmdSN of the session (or the current one).
    pub cmd_sn: Sn,
    /// Acknowledges responses before it.
    pub exp_stat_sn: Sn,
}

/// Stage codes of CSG and NSG (§11.12.3); 2 is reserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoginStage {
    /// 0
    Security,
    /// 1
    Operational,
    /// 3
    FullFeature,
}

/// Login Response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginResponse {
    /// T bit: the target agrees to leave the stage.
    pub transit: bool,
    /// C bit: the text continues in the next response.
    pub continues: bool,
    /// CSG.
    pub current_stage: LoginStage,
    /// NSG. Without `transit` the field is reserved: it is read as `current_stage` and sent as 0.
    pub next_stage: LoginStage,
    /// Version-max; 0.
    pub version_max: u8,
    /// Version-active; 0.
    pub version_active: u8,
    /// As requested.
    pub isid: Isid,
    /// Set in the last response of a leading login.
    pub tsih: Tsih,
    /// As requested.
    pub itt: Itt,
    /// Status sequence number.
    pub stat_sn: Sn,
    /// Next CmdSN expected.
    pub exp_cmd_sn: Sn,
    /// Last CmdSN of the window.
    pub max_cmd_sn: Sn,
    /// Status class and detail.
    pub status: LoginStatus,
}

/// Status-Class and Status-Detail of §11.13.5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoginStatus {
    /// 0x0000
    Success,
    /// 0x0101
    TargetMovedTemporarily,
    /// 0x0102
    TargetMovedPermanently,
    /// 0x0200
    InitiatorError,
    /// 0x0201
    AuthenticationFailure,
    /// 0x0202
    AuthorizationFailure,
    /// 0x0203
    NotFound,
    /// 0x0204
    TargetRemoved,
    /// 0x0205
    UnsupportedVersion,
    /// 0x0206
    TooManyConnections,
    /// 0x0207
    MissingParameter,
    /// 0x0208
    CannotIncludeInSession,
    /// 0x0209
    SessionTypeNotSupported,
    /// 0x020a
    SessionDoesNotExist,
    /// 0x020b
    InvalidDuringLogin,
    /// 0x0300
    TargetError,
    /// 0x0301
    ServiceUnavailable,
    /// 0x0302
    OutOfResources,
    /// Anything else: class, detail.
    Other(u8, u8),
}

impl LoginRequest {
    pub(super) const OPCODE: u8 = 0x03;

    /// The I bit says nothing here: a login is always immediate (§11.12), whatever the bit is.
    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &RequestWire = transmute_ref!(bhs);
        let (current_stage, next_stage) = decode_stages("Login Request", wire.flags)?;
        Ok(Self {
            transit: wire.flags & TRANSIT != 0,
            continues: wire.flags & CONTINUE != 0,
            current_stage,
            next_stage,
            version_max: wire.version_max,
            version_min: wire.version_min,
            isid: Isid(wire.isid),
            tsih: Tsih(wire.tsih.get()),
            itt: task_tag("Login Request", wire.itt)?,
            cid: Cid(wire.cid.get()),
            cmd_sn: Sn(wire.cmd_sn.get()),
            exp_stat_sn: Sn(wire.exp_stat_sn.get()),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        transmute!(RequestWire {
            opcode: Self::OPCODE | immediate_bit(true),
            flags: encode_stages(self.transit, self.continues, self.current_stage, self.next_stage),
            version_max: self.version_max,
            version_min: self.version_min,
            isid: self.isid.0,
            tsih: self.tsih.0.into(),
            itt: self.itt.0.into(),
            cid: self.cid.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..FromZeros::new_zeroed()
        })
    }
}

impl LoginResponse {
    pub(super) const OPCODE: u8 = 0x23;

    pub(super) fn decode(bhs: &[u8; BHS_LEN]) -> Result<Self, DecodeError> {
        let wire: &ResponseWire = transmute_ref!(bhs);
        let (current_stage, next_stage) = decode_stages("Login Response", wire.flags)?;
        Ok(Self {
            transit: wire.flags & TRANSIT != 0,
            continues: wire.flags & CONTINUE != 0,
            current_stage,
            next_stage,
            version_max: wire.version_max,
            version_active: wire.version_active,
            isid: Isid(wire.isid),
            tsih: Tsih(wire.tsih.get()),
            itt: Itt(wire.itt.get()),
            stat_sn: Sn(wire.stat_sn.get()),
            exp_cmd_sn: Sn(wire.exp_cmd_sn.get()),
            max_cmd_sn: Sn(wire.max_cmd_sn.get()),
            status: LoginStatus::from_class_and_detail(wire.status_class, wire.status_detail),
        })
    }

    pub(super) fn encode(&self) -> [u8; BHS_LEN] {
        let (status_class, status_detail) = self.status.class_and_detail();
        transmute!(ResponseWire {
            opcode: Self::OPCODE,
            flags: encode_stages(self.transit, self.continues, self.current_stage, self.next_stage),
            version_max: self.version_max,
            version_active: self.version_active,
            isid: self.isid.0,
            tsih: self.tsih.0.into(),
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            status_class,
            status_detail,
            ..FromZeros::new_zeroed()
        })
    }
}

impl LoginStatus {
    /// What two status bytes mean.
    #[must_use]
    pub const fn from_class_and_detail(class: u8, detail: u8) -> Self {
        match (class, detail) {
            (0, 0) => Self::Success,
            (1, 1) => Self::TargetMovedTemporarily,
            (1, 2) => Self::TargetMovedPermanently,
            (2, 0) => Self::InitiatorError,
            (2, 1) => Self::AuthenticationFailure,
            (2, 2) => Self::AuthorizationFailure,
            (2, 3) => Self::NotFound,
            (2, 4) => Self::TargetRemoved,
            (2, 5) => Self::UnsupportedVersion,
            (2, 6) => Self::TooManyConnections,
            (2, 7) => Self::MissingParameter,
            (2, 8) => Self::CannotIncludeInSession,
            (2, 9) => Self::SessionTypeNotSupported,
            (2, 10) => Self::SessionDoesNotExist,
            (2, 11) => Self::InvalidDuringLogin,
            (3, 0) => Self::TargetError,
            (3, 1) => Self::ServiceUnavailable,
            (3, 2) => Self::OutOfResources,
            _ => Self::Other(class, detail),
        }
    }

    /// The two status bytes. A class other than 0 ends the login; a class of 1 redirects it.
    #[must_use]
    pub const fn class_and_detail(self) -> (u8, u8) {
        match self {
            Self::Success => (0, 0),
            Self::TargetMovedTemporarily => (1, 1),
            Self::TargetMovedPermanently => (1, 2),
            Self::InitiatorError => (2, 0),
            Self::AuthenticationFailure => (2, 1),
            Self::AuthorizationFailure => (2, 2),
            Self::NotFound => (2, 3),
            Self::TargetRemoved => (2, 4),
            Self::UnsupportedVersion => (2, 5),
            Self::TooManyConnections => (2, 6),
            Self::MissingParameter => (2, 7),
            Self::CannotIncludeInSession => (2, 8),
            Self::SessionTypeNotSupported => (2, 9),
            Self::SessionDoesNotExist => (2, 10),
            Self::InvalidDuringLogin => (2, 11),
            Self::TargetError => (3, 0),
            Self::ServiceUnavailable => (3, 1),
            Self::OutOfResources => (3, 2),
            Self::Other(class, detail) => (class, detail),
        }
    }
}

/// CSG and NSG of the flags byte.
fn decode_stages(pdu: &'static str, flags: u8) -> Result<(LoginStage, LoginStage), DecodeError> {
    let current = LoginStage::decode(pdu, "CSG", (flags >> CSG_SHIFT) & STAGE_MASK)?;
    let next = match flags & TRANSIT {
        0 => current,
        _ => LoginStage::decode(pdu, "NSG", flags & STAGE_MASK)?,
    };
    Ok((current, next))
}

fn encode_stages(transit: bool, continues: bool, current: LoginStage, next: LoginStage) -> u8 {
    let next = if transit { TRANSIT | next.encode() } else { 0 };
    flag(CONTINUE, continues) | current.encode() << CSG_SHIFT | next
}

impl LoginStage {
    fn decode(pdu: &'static str, field: &'static str, code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            _ => Err(DecodeError::field(pdu, field, code.into())),
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct RequestWire {
    opcode: u8,
    flags: u8,
    version_max: u8,
    version_min: u8,
    _lengths: [u8; 4],
    isid: [u8; 6],
    tsih: U16,
    itt: U32,
    cid: U16,
    _reserved22: [u8; 2],
    cmd_sn: U32,
    exp_stat_sn: U32,
    _reserved32: [u8; 16],
}

#[derive(FromBytes, Immutable, IntoBytes, Unaligned)]
#[repr(C)]
struct ResponseWire {
    opcode: u8,
    flags: u8,
    version_max: u8,
    version_active: u8,
    _lengths: [u8; 4],
    isid: [u8; 6],
    tsih: U16,
    itt: U32,
    _reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    status_class: u8,
    status_detail: u8,
    _reserved38: [u8; 10],
}

const TRANSIT: u8 = 0x80;
const CSG_SHIFT: u8 = 2;
const STAGE_MASK: u8 = 0x03;
