//! A connection before full feature phase: Login PDUs around the [`Login`] value, and the one deadline over all of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{LoginRequest, LoginResponse, LoginStatus, Request, Response};
use iscsi_proto::{Cid, DecodeError, Sn, Tsih};

use super::event::{Action, CloseReason, PeerMisbehaved};
use super::full_feature::{FullFeature, Identity};
use super::link::Link;
use super::registry::{Admitted, Refusal};
use super::{LinkId, LinkInfo, Login, LoginAnswer, LoginStep, PendingAdmission, SessionParams};
use crate::control::{Directory, Parameters};
use crate::datamover::Numbering;

/// The phase.
#[derive(Debug)]
pub(super) struct LoginPhase {
    link: LinkInfo,
    directory: Arc<Directory>,
    login: Option<Login>,
    pending: Option<(PendingAdmission, LoginRequest)>,
    /// The latest request, for answers to what is none.
    latest: Option<LoginRequest>,
    pub(super) deadline: Instant,
    stat_sn: Option<Sn>,
}

/// A login that is complete but for its last response, of a connection that joins a session: the session decides.
#[derive(Debug)]
pub struct JoiningLogin(Box<LoginPhase>);

impl LoginPhase {
    pub(super) fn new(
        link: LinkInfo,
        directory: Arc<Directory>,
        entropy: fn(&mut [u8]),
        now: Instant,
    ) -> Self {
        let deadline = now + directory.discovery_parameters.login_timeout;
        let login = Some(Login::new(link.clone(), Arc::clone(&directory), entropy));
        Self {
            link,
            directory,
            login,
            pending: None,
            latest: None,
            deadline,
            stat_sn: None,
        }
    }

    /// The deadline's length, for the log.
    pub(super) fn timeout(&self) -> std::time::Duration {
        self.directory.discovery_parameters.login_timeout
    }

    /// A request of any kind.
    pub(super) fn request(&mut self, pdu: &Request, text: &[u8], actions: &mut VecDeque<Action>) {
        let Request::Login(pdu) = pdu else {
            return self.misplaced(pdu.name(), actions);
        };
        self.latest = Some(pdu.clone());
        let Some(login) = self.login.take() else { return };
        match login.handle(pdu, text) {
            LoginStep::Continue(login, answer) => {
                self.login = Some(login);
                let response = self.response(pdu, &answer);
                actions.push_back(Action::Send(LinkId::LEADING, response, answer.text.into()));
            }
            LoginStep::Admit(pending) => {
                actions.push_back(Action::Admit(Box::new(pending.admission.clone())));
                self.pending = Some((pending, pdu.clone()));
            }
            LoginStep::Refuse(failure, answer) => {
                let response = self.response(pdu, &answer);
                actions.push_back(Action::Send(LinkId::LEADING, response, answer.text.into()));
                actions.push_back(Action::Close(CloseReason::LoginFailed(failure)));
            }
        }
    }

    /// §6.3: anything but a Login Request ends the connection, without a word before the login has begun, else with a
    /// Login Response that says so.
    pub(super) fn misplaced(&mut self, name: &'static str, actions: &mut VecDeque<Action>) {
        let misbehaved = match self.latest.take() {
            None => PeerMisbehaved::NotALogin(name),
            Some(latest) => {
                self.give_up(&latest, LoginStatus::InvalidDuringLogin, actions);
                PeerMisbehaved::DuringLogin(name)
            }
        };
        actions.push_back(Action::Close(CloseReason::Misbehaved(misbehaved)));
    }

    /// A header that is no PDU. Once the login has begun, the initiator is told that it was wrong.
    pub(super) fn malformed(&mut self, error: DecodeError, actions: &mut VecDeque<Action>) {
        if let Some(latest) = self.latest.take() {
            self.give_up(&latest, LoginStatus::InitiatorError, actions);
        }
        let misbehaved = PeerMisbehaved::Malformed(error);
        actions.push_back(Action::Close(CloseReason::Misbehaved(misbehaved)));
    }

    fn give_up(&mut self, latest: &LoginRequest, status: LoginStatus, actions: &mut VecDeque<Action>) {
        let answer = LoginAnswer {
            transit: false,
            continues: false,
            current_stage: latest.current_stage,
            next_stage: latest.current_stage,
            tsih: latest.tsih,
            status,
            text: Vec::new(),
        };
        let response = self.response(latest, &answer);
        actions.push_back(Action::Send(LinkId::LEADING, response, Bytes::new()));
    }

    /// The registry's word. Returns the next phase when the session was let in.
    pub(super) fn admission(
        &mut self,
        result: Result<Admitted, Refusal>,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) -> Option<FullFeature> {
        let (pending, pdu) = self.pending.take()?;
        match result {
            Ok(admitted) => {
                let cid = pending.admission.cid;
                let initiator = pending.admission.initiator.clone();
                let (answer, params) = pending.admitted(admitted.tsih);
                let limits = match &admitted.nexus {
                    Some((_, target)) => target.parameters.clone(),
                    None => self.directory.discovery_parameters.clone(),
                };
                let stat_sn = self.stat_sn.unwrap_or(pdu.exp_stat_sn).next();
                let leading = Link::new(
                    LinkId::LEADING,
                    cid,
                    self.link.clone(),
                    params.clone(),
                    stat_sn,
                    &limits,
                    now,
                );
                let identity = Identity {
                    initiator: initiator.name,
                    admitted,
                };
                let full = FullFeature::new(identity, leading, limits, pdu.cmd_sn);
                let Response::Login(mut response) = self.response(&pdu, &answer) else {
                    unreachable!("a login is answered by a Login Response")
                };
                response.max_cmd_sn = full.max_cmd_sn();
                actions.push_back(Action::Send(
                    LinkId::LEADING,
                    Response::Login(response),
                    answer.text.into(),
                ));
                actions.push_back(Action::Enable(LinkId::LEADING, params));
                Some(full)
            }
            Err(refusal) => {
                self.refused(LinkId::LEADING, (pending, pdu), refusal, actions, Action::Close);
                None
            }
        }
    }

    fn refused(
        &mut self,
        link: LinkId,
        (pending, pdu): (PendingAdmission, LoginRequest),
        Refusal { status, reason, fix }: Refusal,
        actions: &mut VecDeque<Action>,
        end: impl FnOnce(CloseReason) -> Action,
    ) {
        let (failure, answer) = pending.refused(status, reason, fix);
        let response = self.response(&pdu, &answer);
        actions.push_back(Action::Send(link, response, Bytes::new()));
        actions.push_back(end(CloseReason::LoginFailed(failure)));
    }

    /// Whether all is agreed, and the registry's word outstanding.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Login Requests are immediate: they do not move CmdSN (§11.12.8). StatSN begins where the initiator expects it.
    fn response(&mut self, pdu: &LoginRequest, answer: &LoginAnswer) -> Response {
        let stat_sn = self.stat_sn.get_or_insert(pdu.exp_stat_sn).advance();
        Response::Login(LoginResponse {
            transit: answer.transit,
            continues: answer.continues,
            current_stage: answer.current_stage,
            next_stage: answer.next_stage,
            version_max: 0,
            version_active: 0,
            isid: pdu.isid,
            tsih: if answer.tsih == Tsih::NEW {
                pdu.tsih
            } else {
                answer.tsih
            },
            itt: pdu.itt,
            stat_sn,
            exp_cmd_sn: pdu.cmd_sn,
            max_cmd_sn: pdu.cmd_sn,
            status: answer.status,
        })
    }
}

impl JoiningLogin {
    /// The login of a connection that was found the door to its session; `None` unless its admission is outstanding.
    pub(super) fn of(login: Box<LoginPhase>) -> Option<Self> {
        login.is_pending().then_some(Self(login))
    }

    /// CID of the new connection.
    pub(super) fn cid(&self) -> Cid {
        self.0.latest.as_ref().map_or(Cid(0), |request| request.cid)
    }

    /// The session takes the connection in. What concerns the whole session holds for it too; `numbering` is how the
    /// command window stands.
    pub(super) fn accept(
        mut self,
        id: LinkId,
        session: &SessionParams,
        limits: &Parameters,
        numbering: Numbering,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) -> Option<Link> {
        let (pending, pdu) = self.0.pending.take()?;
        let (answer, own) = pending.admitted(pdu.tsih);
        // What the connection itself said of them comes first.
        let transport = own.transport.iter().chain(&session.transport).cloned().collect();
        let params = SessionParams {
            header_digest: own.header_digest,
            data_digest: own.data_digest,
            max_recv_data_segment_len: own.max_recv_data_segment_len,
            max_send_data_segment_len: own.max_send_data_segment_len,
            transport,
            ..session.clone()
        };
        let Response::Login(mut response) = self.0.response(&pdu, &answer) else {
            unreachable!("a login is answered by a Login Response")
        };
        response.exp_cmd_sn = numbering.exp_cmd_sn;
        response.max_cmd_sn = numbering.max_cmd_sn;
        let stat_sn = response.stat_sn.next();
        let text = answer.text.into();
        actions.push_back(Action::Send(id, Response::Login(response), text));
        actions.push_back(Action::Enable(id, params.clone()));
        Some(Link::new(id, pdu.cid, self.0.link, params, stat_sn, limits, now))
    }

    /// The session does not take the connection in.
    pub(super) fn refuse(mut self, id: LinkId, refusal: Refusal, actions: &mut VecDeque<Action>) {
        if let Some(pending) = self.0.pending.take() {
            let end = |reason| Action::Disconnect(id, reason);
            self.0.refused(id, pending, refusal, actions, end);
        }
    }
}
