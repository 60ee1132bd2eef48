//! A connection before full feature phase: Login PDUs around the [`Login`] value, and the one deadline over all of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{LoginRequest, LoginResponse, LoginStatus, Request, Response};
use iscsi_proto::{DecodeError, Sn, Tsih};

use super::event::{Action, CloseReason, PeerMisbehaved};
use super::full_feature::{FullFeature, Identity};
use super::registry::{Admitted, Refusal};
use super::{LinkInfo, Login, LoginAnswer, LoginStep, PendingAdmission};
use crate::control::Directory;

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
                actions.push_back(Action::Send(response, answer.text.into()));
            }
            LoginStep::Admit(pending) => {
                actions.push_back(Action::Admit(Box::new(pending.admission.clone())));
                self.pending = Some((pending, pdu.clone()));
            }
            LoginStep::Refuse(failure, answer) => {
                let response = self.response(pdu, &answer);
                actions.push_back(Action::Send(response, answer.text.into()));
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
        actions.push_back(Action::Send(response, Bytes::new()));
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
                let identity = Identity {
                    link: self.link.clone(),
                    initiator: initiator.name,
                    cid,
                    admitted,
                };
                let stat_sn = self.stat_sn.unwrap_or(pdu.exp_stat_sn).next();
                let full = FullFeature::new(
                    identity,
                    params.clone(),
                    &self.directory,
                    pdu.cmd_sn,
                    stat_sn,
                    now,
                );
                let Response::Login(mut response) = self.response(&pdu, &answer) else {
                    unreachable!("a login is answered by a Login Response")
                };
                response.max_cmd_sn = full.max_cmd_sn();
                actions.push_back(Action::Send(Response::Login(response), answer.text.into()));
                actions.push_back(Action::Enable(params));
                Some(full)
            }
            Err(Refusal { status, reason, fix }) => {
                let (failure, answer) = pending.refused(status, reason, fix);
                let response = self.response(&pdu, &answer);
                actions.push_back(Action::Send(response, Bytes::new()));
                actions.push_back(Action::Close(CloseReason::LoginFailed(failure)));
                None
            }
        }
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
