//! The login phase (RFC 7143 §6.3, §6.2) as a value that each Login Request consumes.
//!
//! Pure: no clock (the deadline is the connection's), no registry (admission is asked for and answered).

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus};
use iscsi_proto::{Cid, Tsih};

use super::SessionParams;
use crate::control::{Directory, Target};
use crate::nexus::InitiatorPort;

/// What is known of a connection before its first PDU.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The initiator's end.
    pub peer: SocketAddr,
    /// Transport name for logs: "tcp", later others.
    pub transport: &'static str,
    /// Keys that only this transport negotiates.
    pub keys: TransportKeys,
}

/// Negotiation keys that a transport brings (none for TCP).
#[derive(Clone, Debug, Default)]
pub struct TransportKeys {
    /// Key and the value the transport answers or declares.
    pub values: Vec<(&'static str, String)>,
}

/// A login in progress.
#[derive(Debug)]
pub struct Login {}

/// What to send back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginAnswer {
    /// T bit.
    pub transit: bool,
    /// C bit.
    pub continues: bool,
    /// CSG.
    pub current_stage: LoginStage,
    /// NSG.
    pub next_stage: LoginStage,
    /// TSIH to show.
    pub tsih: Tsih,
    /// Status.
    pub status: LoginStatus,
    /// Text keys, encoded.
    pub text: Vec<u8>,
}

/// The result of one Login Request.
#[derive(Debug)]
pub enum LoginStep {
    /// Answer and wait for the next request.
    Continue(Login, LoginAnswer),
    /// Everything is agreed; the registry must admit the session before the last answer goes out.
    Admit(PendingAdmission),
    /// Answer and close.
    Refuse(LoginFailure, LoginAnswer),
}

/// Who wants in, with what was agreed.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Initiator port.
    pub initiator: InitiatorPort,
    /// Target of a normal session; `None` for discovery.
    pub target: Option<Arc<Target>>,
    /// TSIH asked for: new, or a session to join.
    pub tsih: Tsih,
    /// Connection identifier.
    pub cid: Cid,
    /// The CHAP name proved, if any.
    pub authenticated_as: Option<String>,
    /// What was agreed.
    pub params: SessionParams,
}

/// A login that waits for admission.
#[derive(Debug)]
pub struct PendingAdmission {
    /// For the registry.
    pub admission: Admission,
    /// The last answer, but for its TSIH.
    pub answer: LoginAnswer,
}

/// Why a login failed, for the log (and later API and UI): who, what, and what would help.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{reason}; {fix}")]
pub struct LoginFailure {
    /// Status sent.
    pub status: LoginStatus,
    /// What happened, naming the culprit (name, key, value).
    pub reason: String,
    /// What would change it.
    pub fix: String,
    /// Initiator name, if it was said.
    pub initiator: Option<String>,
    /// Target name, if it was said.
    pub target: Option<String>,
}

impl Login {
    /// A login that has seen nothing. `entropy` fills buffers with random bytes (CHAP identifiers and challenges).
    #[must_use]
    pub fn new(link: LinkInfo, directory: Arc<Directory>, entropy: fn(&mut [u8])) -> Self {
        let _ = (link, directory, entropy);
        Self {}
    }

    /// One Login Request with its data segment.
    #[must_use]
    pub fn handle(self, request: &LoginRequest, text: &[u8]) -> LoginStep {
        let _ = (request, text);
        todo!()
    }
}

impl PendingAdmission {
    /// The last answer, once the registry gave the session its TSIH.
    #[must_use]
    pub fn admitted(self, tsih: Tsih) -> (LoginAnswer, SessionParams) {
        (LoginAnswer { tsih, ..self.answer }, self.admission.params)
    }

    /// The last answer when the registry refused.
    #[must_use]
    pub fn refused(self, status: LoginStatus, reason: String, fix: String) -> (LoginFailure, LoginAnswer) {
        let failure = LoginFailure {
            status,
            reason,
            fix,
            initiator: Some(self.admission.initiator.name.to_string()),
            target: self.admission.target.map(|target| target.name.to_string()),
        };
        (
            failure,
            LoginAnswer {
                status,
                transit: false,
                text: Vec::new(),
                ..self.answer
            },
        )
    }
}
