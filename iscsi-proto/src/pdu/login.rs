//! Login Request (§11.12) and Login Response (§11.13).

use crate::{Cid, Isid, Itt, Sn, Tsih};

/// Login Request. The data segment holds text keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginRequest {
    /// T bit: ready to leave the current stage for the next.
    pub transit: bool,
    /// C bit: the text continues in the next request.
    pub continues: bool,
    /// CSG.
    pub current_stage: LoginStage,
    /// NSG; meaningful with `transit`.
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
    /// NSG; meaningful with `transit`.
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
