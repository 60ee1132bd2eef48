//! The login phase (RFC 7143 §6.3, §6.2) as a value that each Login Request consumes: stages, continuation, limits.
//!
//! Pure: no clock (the deadline is the connection's), no registry (admission is asked for and answered). Names are
//! read in `identify.rs`, the security stage is `authenticate.rs`, the keys of the operational stage `negotiate.rs`.

use std::net::SocketAddr;
use std::sync::Arc;

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus};
use iscsi_proto::text::{self, KeyValue};
use iscsi_proto::{Cid, Isid, Itt, Tsih, keys};

use super::SessionParams;
use super::authenticate::{Authentication, chap_required};
use super::identify::{Identity, reached_by};
use super::negotiate::{Answers, Negotiation};
use super::refusal::{Refusal, excerpt};
use crate::control::{ChapPolicy, Directory, Target};
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
    /// Keys that are negotiated, with the value we want: of numbers the smaller holds, a boolean is Yes when both
    /// want it, of a list the initiator must offer ours.
    pub values: Vec<(&'static str, String)>,
    /// Numbers that each side declares, with our value, told to an initiator that has declared its own: the most common one
    /// gives up a login in which it hears a key that it does not know. Its value comes back in
    /// [`SessionParams::transport`].
    pub declared: Vec<(&'static str, String)>,
    /// Booleans that the initiator alone declares. Its value comes back in [`SessionParams::transport`].
    pub heard: &'static [&'static str],
    /// The transport has lengths of its own in place of both sides' MaxRecvDataSegmentLength.
    pub lengths: Option<&'static SegmentLengths>,
    /// PDUs of commands and their unsolicited data that the transport has room for at once, where each needs a place of its
    /// own. The command window is no larger than that allows.
    pub room: Option<u16>,
    /// The transport itself protects what it carries and loses nothing: digests are always None, and there is nothing to
    /// recover (ErrorRecoveryLevel 0).
    pub reliable: bool,
}

/// Negotiated keys (of [`TransportKeys::values`]) that say how long a data segment may be.
#[derive(Clone, Copy, Debug)]
pub struct SegmentLengths {
    /// For segments that we receive.
    pub receive: &'static str,
    /// For segments that we send.
    pub send: &'static str,
    /// What holds when the initiator does not speak of them, bytes.
    pub default: u32,
}

/// A login in progress.
#[derive(Debug)]
pub struct Login {
    link: LinkInfo,
    directory: Arc<Directory>,
    entropy: fn(&mut [u8]),
    /// What must not change from one request to the next; `None` before the first.
    header: Option<Header>,
    stage: LoginStage,
    requests: usize,
    /// Text bytes taken in the whole login.
    text_len: usize,
    /// The pieces so far of a text that goes on.
    received: Vec<u8>,
    /// What of the answer did not fit into one response.
    unsent: Vec<u8>,
    peer: Option<Box<Peer>>,
    /// InitiatorName and TargetName as they were said, for failures.
    said: (Option<String>, Option<String>),
}

/// Fields of the header that stay as they are (§6.3, §11.12).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Header {
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
    itt: Itt,
}

/// The initiator, once its first request is complete.
#[derive(Debug)]
struct Peer {
    identity: Identity,
    authentication: Authentication,
    negotiation: Negotiation,
}

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
        Self {
            link,
            directory,
            entropy,
            header: None,
            stage: LoginStage::Security,
            requests: 0,
            text_len: 0,
            received: Vec::new(),
            unsent: Vec::new(),
            peer: None,
            said: (None, None),
        }
    }

    /// One Login Request with its data segment.
    #[must_use]
    pub fn handle(mut self, request: &LoginRequest, text: &[u8]) -> LoginStep {
        match self.advance(request, text) {
            Ok(Progress::Answer(answer)) => LoginStep::Continue(self, answer),
            Ok(Progress::Agreed(pending)) => LoginStep::Admit(*pending),
            Err(refusal) => self.refuse(request, refusal),
        }
    }

    fn advance(&mut self, request: &LoginRequest, text: &[u8]) -> Result<Progress, Refusal> {
        self.check_limits(text)?;
        self.check_header(request)?;
        if !self.unsent.is_empty() {
            // §6.2: while an answer goes on, the requests that fetch it say nothing.
            if request.continues || !text.is_empty() {
                return Err(Refusal::protocol(
                    "the initiator sent keys before it had taken the whole answer",
                ));
            }
            return self.reply(request);
        }
        self.received.extend_from_slice(text);
        if request.continues {
            return Ok(Progress::Answer(self.empty_answer(request)));
        }
        let text = std::mem::take(&mut self.received);
        let pairs = text::parse_pairs(&text).map_err(|error| {
            Refusal::protocol(format!("the initiator's login text is malformed: {error}"))
        })?;
        for (key, value) in self.take(&pairs)? {
            text::push_pair(&mut self.unsent, &key, &value);
        }
        self.reply(request)
    }

    /// One complete text; gives the answers to it.
    fn take(&mut self, pairs: &[KeyValue]) -> Result<Answers, Refusal> {
        let mut answers = Answers::new();
        if self.peer.is_none() {
            answers.extend(self.meet(pairs)?);
        }
        let peer = self.peer.as_mut().expect("the first complete text sets the peer");
        for pair in pairs {
            peer.negotiation.note(pair)?;
        }
        let is_security = |pair: &&KeyValue| {
            pair.key == "AuthMethod"
                || keys::spec(&pair.key)
                    .is_some_and(|spec| matches!(spec.kind, keys::KeyKind::Authentication(_)))
        };
        let (security, others): (Vec<_>, Vec<_>) = pairs.iter().partition(is_security);
        let (security, others) = (owned(&security), owned(&others));
        match self.stage {
            LoginStage::Security => {
                let policy = peer.identity.chap(&self.directory);
                answers.extend(peer.authentication.step(policy, &security, self.entropy)?);
            }
            LoginStage::Operational | LoginStage::FullFeature => {
                if let Some(pair) = security.first() {
                    return Err(Refusal::protocol(format!(
                        "the initiator sent {} outside the security stage",
                        pair.key
                    )));
                }
                answers.extend(peer.negotiation.declare());
            }
        }
        answers.extend(peer.negotiation.answer(self.stage, &others));
        Ok(answers)
    }

    /// The first complete text says who is who. Gives what we say of ourselves.
    fn meet(&mut self, pairs: &[KeyValue]) -> Result<Answers, Refusal> {
        let said = |key| {
            pairs
                .iter()
                .find(|pair| pair.key == key)
                .map(|pair| excerpt(&pair.value))
        };
        self.said = (said("InitiatorName"), said("TargetName"));
        let identity = Identity::from_first_request(&self.directory, &self.link, pairs)?;
        if self.stage != LoginStage::Security
            && matches!(identity.chap(&self.directory), ChapPolicy::Required { .. })
        {
            return Err(chap_required("the initiator skipped the security stage"));
        }
        let mut answers = Answers::new();
        if let Some(target) = &identity.target {
            // §13.9: due in the first response of a normal session.
            let group = reached_by(&self.directory, target, self.link.local)?;
            answers.push(("TargetPortalGroupTag".to_owned(), group.0.to_string()));
            if let Some(alias) = &target.alias {
                answers.push(("TargetAlias".to_owned(), alias.clone()));
            }
        }
        let parameters = identity.parameters(&self.directory).clone();
        let leading = self.header.is_none_or(|header| header.tsih == Tsih::NEW);
        let keys = self.link.keys.clone();
        let negotiation = Negotiation::new(parameters, leading, keys, identity.session_type());
        self.peer = Some(Box::new(Peer {
            identity,
            authentication: Authentication::Unspoken,
            negotiation,
        }));
        Ok(answers)
    }

    /// Sends as much of the answer as fits, and leaves the stage when both sides are ready.
    fn reply(&mut self, request: &LoginRequest) -> Result<Progress, Refusal> {
        let mut answer = self.empty_answer(request);
        let rest = self.unsent.split_off(self.unsent.len().min(MAX_RESPONSE_TEXT));
        answer.text = std::mem::replace(&mut self.unsent, rest);
        answer.continues = !self.unsent.is_empty();
        let peer = self
            .peer
            .as_ref()
            .expect("there are answers only after a complete text");
        if !request.transit || answer.continues {
            return Ok(Progress::Answer(answer));
        }
        if self.stage == LoginStage::Security
            && !peer
                .authentication
                .may_leave(peer.identity.chap(&self.directory))?
        {
            return Ok(Progress::Answer(answer));
        }
        self.stage = request.next_stage;
        answer.transit = true;
        answer.next_stage = request.next_stage;
        match request.next_stage {
            LoginStage::Security | LoginStage::Operational => Ok(Progress::Answer(answer)),
            LoginStage::FullFeature => {
                let admission = Admission {
                    initiator: InitiatorPort {
                        name: peer.identity.initiator.clone(),
                        isid: request.isid,
                    },
                    target: peer.identity.target.clone(),
                    tsih: request.tsih,
                    cid: request.cid,
                    authenticated_as: peer.authentication.name(),
                    params: peer.negotiation.conclude()?,
                };
                Ok(Progress::Agreed(Box::new(PendingAdmission { admission, answer })))
            }
        }
    }

    fn check_limits(&mut self, text: &[u8]) -> Result<(), Refusal> {
        self.requests += 1;
        self.text_len += text.len();
        if self.requests > MAX_REQUESTS {
            return Err(Refusal::protocol(format!(
                "the login took more than {MAX_REQUESTS} requests"
            )));
        }
        if self.text_len > MAX_LOGIN_TEXT {
            return Err(Refusal::protocol(format!(
                "the initiator sent more than {MAX_LOGIN_TEXT} bytes of keys in one login"
            )));
        }
        Ok(())
    }

    /// What the header of each request must be (§6.3, §11.12).
    fn check_header(&mut self, request: &LoginRequest) -> Result<(), Refusal> {
        if request.version_min > PROTOCOL_VERSION {
            return Err(Refusal::new(
                LoginStatus::UnsupportedVersion,
                format!(
                    "the initiator speaks iSCSI protocol versions {} to {}, and only version 0 exists here",
                    request.version_min, request.version_max
                ),
                "use an initiator that speaks version 0 of the protocol",
            ));
        }
        let header = Header {
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
            itt: request.itt,
        };
        match self.header {
            None => {
                self.header = Some(header);
                self.stage = request.current_stage;
            }
            Some(first) if first != header => {
                return Err(Refusal::protocol(
                    "the initiator changed ISID, TSIH, CID or task tag in the middle of a login",
                ));
            }
            Some(_) => {}
        }
        check_stages(request, self.stage)
    }

    fn empty_answer(&self, request: &LoginRequest) -> LoginAnswer {
        LoginAnswer {
            transit: false,
            continues: false,
            current_stage: self.stage,
            next_stage: self.stage,
            tsih: request.tsih,
            status: LoginStatus::Success,
            text: Vec::new(),
        }
    }

    fn refuse(self, request: &LoginRequest, refusal: Refusal) -> LoginStep {
        let Refusal {
            status,
            reason,
            fix,
            target_address,
        } = refusal;
        let mut text = Vec::new();
        if let Some(address) = target_address {
            text::push_pair(&mut text, "TargetAddress", &address);
        }
        let answer = LoginAnswer {
            current_stage: request.current_stage,
            next_stage: request.current_stage,
            status,
            text,
            ..self.empty_answer(request)
        };
        let (initiator, target) = self.said;
        let failure = LoginFailure {
            status,
            reason,
            fix,
            initiator,
            target,
        };
        LoginStep::Refuse(failure, answer)
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

/// What a request that breaks no rule leads to.
enum Progress {
    Answer(LoginAnswer),
    Agreed(Box<PendingAdmission>),
}

/// The rules for T, C, CSG and NSG (§6.3, §11.12.1 to §11.12.3).
fn check_stages(request: &LoginRequest, stage: LoginStage) -> Result<(), Refusal> {
    if request.current_stage == LoginStage::FullFeature {
        return Err(Refusal::protocol(
            "the initiator claims to be in full feature phase already",
        ));
    }
    if request.current_stage != stage {
        return Err(Refusal::protocol(format!(
            "the initiator is in the stage {:?}, and the login in the stage {stage:?}",
            request.current_stage
        )));
    }
    if request.transit && request.continues {
        return Err(Refusal::protocol(
            "the initiator set T and C in one login request",
        ));
    }
    let forward = match request.next_stage {
        LoginStage::Security => false,
        LoginStage::Operational => stage == LoginStage::Security,
        LoginStage::FullFeature => true,
    };
    if request.transit && !forward {
        return Err(Refusal::protocol(format!(
            "the initiator wants to go from the stage {stage:?} to the stage {:?}",
            request.next_stage
        )));
    }
    Ok(())
}

fn owned(pairs: &[&KeyValue]) -> Vec<KeyValue> {
    pairs.iter().map(|pair| (*pair).clone()).collect()
}

/// The version of the protocol there is.
const PROTOCOL_VERSION: u8 = 0;
/// Text in one response, bytes: what every initiator takes before it declared more (§13.12).
const MAX_RESPONSE_TEXT: usize = 8192;
/// Text that one login may send, bytes.
const MAX_LOGIN_TEXT: usize = 64 * 1024;
/// Requests that one login may take. The longest real ones take seven.
const MAX_REQUESTS: usize = 64;

#[cfg(test)]
mod tests;
