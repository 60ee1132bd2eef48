//! Full feature phase of a connection: what each request leads to (RFC 7143 §4.2, §11). The rules of one topic each
//! live beside it: window, tasks, management, keepalive, text_exchange. What commands say is in task_events, task
//! management requests in task_management, orders from outside in ending.

use std::collections::VecDeque;
use std::time::Instant;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{
    LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, NopIn, NopOut, Reject, RejectReason,
    Request, Response, ScsiCommand, TextRequest, TextResponse,
};
use iscsi_proto::{Ahs, BHS_LEN, Cid, DecodeError, IscsiName, Itt, Lun, Sn, Ttt};
use tracing::debug;

use super::ending::Ending;
use super::event::{Action, CloseReason, PeerMisbehaved, Start};
use super::keepalive::Keepalive;
use super::management::PendingTmfs;
use super::registry::{Admitted, Node};
use super::tasks::{StuckTask, TaskTable};
use super::text_exchange::{TextExchange, TextStep};
use super::window::{Arrival, CommandWindow};
use super::{Asker, LinkInfo, SessionParams, SessionType, answer_text};
use crate::control::{Directory, Parameters};
use crate::datamover::{Notify, Numbering};
use crate::scsi::{Sense, Status};

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) link: LinkInfo,
    pub(super) initiator: IscsiName,
    pub(super) cid: Cid,
    pub(super) admitted: Admitted,
}

/// The phase.
#[derive(Debug)]
pub(super) struct FullFeature {
    identity: Identity,
    pub(super) params: SessionParams,
    pub(super) limits: Parameters,
    pub(super) window: CommandWindow<Ordered>,
    stat_sn: Sn,
    pub(super) tasks: TaskTable,
    /// Commands that were aborted and whose end has not been heard of: a store operation may keep them.
    pub(super) abandoned: usize,
    pub(super) tmfs: PendingTmfs,
    text: TextExchange,
    keepalive: Keepalive,
    pub(super) ending: Option<Ending>,
}

/// A request that waits its turn in CmdSN order.
#[derive(Debug)]
pub(super) enum Ordered {
    Command {
        pdu: ScsiCommand,
        ahs: Ahs,
        immediate: Option<IoBuf>,
    },
    Control {
        pdu: Request,
        data: Bytes,
    },
}

impl FullFeature {
    pub(super) fn new(
        identity: Identity,
        params: SessionParams,
        directory: &Directory,
        cmd_sn: Sn,
        stat_sn: Sn,
        now: Instant,
    ) -> Self {
        let limits = match &identity.admitted.nexus {
            Some((_, target)) => target.parameters.clone(),
            None => directory.discovery_parameters.clone(),
        };
        Self {
            window: CommandWindow::new(cmd_sn, limits.command_window.max(1)),
            keepalive: Keepalive::new(limits.nop_interval, limits.nop_timeout, now),
            identity,
            params,
            limits,
            stat_sn,
            tasks: TaskTable::default(),
            abandoned: 0,
            tmfs: PendingTmfs::default(),
            text: TextExchange::default(),
            ending: None,
        }
    }

    pub(super) fn max_cmd_sn(&self) -> Sn {
        self.window.max_cmd_sn()
    }

    /// What every PDU carries; the StatSN is not consumed.
    pub(super) fn numbering(&self) -> Numbering {
        Numbering {
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.window.exp_cmd_sn(),
            max_cmd_sn: self.window.max_cmd_sn(),
        }
    }

    /// What every response carries; the StatSN is consumed.
    pub(super) fn respond(&mut self) -> Numbering {
        let numbering = self.numbering();
        self.stat_sn.advance();
        numbering
    }

    pub(super) fn notify(
        &mut self,
        notify: Notify,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.keepalive.heard(now);
        match notify {
            Notify::Command { pdu, ahs, immediate } => {
                self.command_arrived(pdu, ahs, immediate, node, now, actions);
            }
            Notify::Control { pdu, data } => self.control_arrived(pdu, data, node, now, actions),
            Notify::Malformed { bhs, error } => self.malformed(&bhs, error, actions),
            Notify::DataDigestError { bhs } => self.reject(&bhs, RejectReason::DataDigestError, actions),
            Notify::DataOut { itt, result } => self.tasks.deliver(itt, result, now),
            Notify::Released(itt) => {
                self.tmfs.released(itt);
                self.answer_tmfs(now, actions);
            }
            Notify::StrayDataOut { bhs } => self.reject(&bhs, RejectReason::ProtocolError, actions),
            // Signs of life alone: a task's data count when a wish is fulfilled, and at level 0 nothing is kept for
            // retransmission that an ExpStatSN could let go of.
            Notify::Unsolicited { .. } | Notify::ExpStatSn(_) => {}
            Notify::Closed(closed) => actions.push_back(Action::Close(CloseReason::Transport(closed))),
        }
    }

    fn command_arrived(
        &mut self,
        pdu: ScsiCommand,
        ahs: Ahs,
        immediate: Option<IoBuf>,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let (itt, cmd_sn) = (pdu.itt, pdu.cmd_sn);
        if !pdu.immediate && !self.window.expects(cmd_sn) {
            debug!(
                cmd_sn = cmd_sn.0,
                "a duplicate, or outside the command window: ignored"
            );
            return self.forget(itt, actions);
        }
        if let Some(reason) = self.refusal(&pdu) {
            // §7.3: the CmdSN of a command that is rejected does not count as received.
            self.reject(&Request::ScsiCommand(pdu).encode(), reason, actions);
            return self.forget(itt, actions);
        }
        if pdu.immediate {
            return self.start(pdu, ahs, immediate, actions);
        }
        self.in_order(
            cmd_sn,
            Ordered::Command { pdu, ahs, immediate },
            node,
            now,
            actions,
        );
    }

    /// Why a command cannot be taken at all.
    fn refusal(&self, pdu: &ScsiCommand) -> Option<RejectReason> {
        if self.params.session_type == SessionType::Discovery {
            return Some(RejectReason::CommandNotSupported);
        }
        if pdu.itt == Itt::RESERVED {
            return Some(RejectReason::InvalidPduField);
        }
        if self.is_in_use(pdu.itt) {
            return Some(RejectReason::TaskInProgress);
        }
        let too_many = pdu.immediate && self.tasks.immediate() >= IMMEDIATE_MAX;
        too_many.then_some(RejectReason::ImmediateCommandReject)
    }

    /// Whether a command has this tag, running or waiting behind a hole.
    pub(super) fn is_in_use(&self, itt: Itt) -> bool {
        let waits = |item: &Ordered| matches!(item, Ordered::Command { pdu, .. } if pdu.itt == itt);
        self.tasks.get(itt).is_some() || self.window.early().any(waits)
    }

    /// A command will not be begun: the mover need not keep what it keeps for one, unless another has the same tag.
    fn forget(&self, itt: Itt, actions: &mut VecDeque<Action>) {
        if !self.is_in_use(itt) {
            actions.push_back(Action::End(itt));
        }
    }

    fn control_arrived(
        &mut self,
        pdu: Request,
        data: Bytes,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu.cmd_sn() {
            Some(cmd_sn) if !pdu.immediate() && !is_answer_to_ping(&pdu) => {
                self.in_order(cmd_sn, Ordered::Control { pdu, data }, node, now, actions);
            }
            _ => self.control(pdu, &data, node, now, actions),
        }
    }

    fn in_order(
        &mut self,
        cmd_sn: Sn,
        item: Ordered,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match self.window.arrive(cmd_sn, item) {
            Arrival::Next(item) => {
                self.run_ordered(item, node, now, actions);
                self.run_ready(node, now, actions);
            }
            Arrival::Early => debug!(cmd_sn = cmd_sn.0, "a command waits for those before it"),
            Arrival::Ignored => debug!(
                cmd_sn = cmd_sn.0,
                "a duplicate, or outside the command window: ignored"
            ),
        }
    }

    pub(super) fn run_ready(&mut self, node: &Node, now: Instant, actions: &mut VecDeque<Action>) {
        while let Some(item) = self.window.next_ready() {
            self.run_ordered(item, node, now, actions);
        }
    }

    fn run_ordered(&mut self, item: Ordered, node: &Node, now: Instant, actions: &mut VecDeque<Action>) {
        match item {
            Ordered::Command { pdu, ahs, immediate } => self.start(pdu, ahs, immediate, actions),
            Ordered::Control { pdu, data } => {
                // All but SCSI commands are done as soon as they are begun, as far as the window is concerned.
                self.window.open();
                self.control(pdu, &data, node, now, actions);
            }
        }
    }

    /// Begins a SCSI command whose turn it is.
    fn start(
        &mut self,
        pdu: ScsiCommand,
        ahs: Ahs,
        immediate: Option<IoBuf>,
        actions: &mut VecDeque<Action>,
    ) {
        let (task, abort) = self.tasks.start(pdu.itt, pdu.lun, pdu.immediate);
        let unfit = if self.is_draining() || self.abandoned >= usize::from(self.limits.command_window.max(1))
        {
            // What was aborted still costs memory as long as its store operation runs; that too has its bound.
            Some((Status::Busy, None))
        } else {
            let immediate_len = immediate.as_deref().map_or(0, <[u8]>::len);
            let breach = self.unsolicited_breach(&pdu, immediate_len);
            breach.map(|sense| (Status::CheckCondition, Some(sense)))
        };
        match unfit {
            Some((status, sense)) => self.fail_at_once(&pdu, status, sense, actions),
            None => actions.push_back(Action::Start(Start {
                task,
                pdu,
                ahs,
                immediate,
                abort,
            })),
        }
    }

    /// Data that come with or behind a command although the negotiation forbids it (§11.4.7.2).
    fn unsolicited_breach(&self, pdu: &ScsiCommand, immediate_len: usize) -> Option<Sense> {
        let first_burst = usize::try_from(self.params.first_burst_len).expect("32 bits fit");
        let expected = usize::try_from(pdu.expected_len).expect("32 bits fit");
        let immediate_allowed =
            self.params.immediate_data && pdu.write && immediate_len <= first_burst.min(expected);
        let follows = !pdu.is_final && self.params.initial_r2t;
        let breach = (immediate_len > 0 && !immediate_allowed) || follows;
        breach.then_some(Sense::UNEXPECTED_UNSOLICITED_DATA)
    }

    fn control(
        &mut self,
        pdu: Request,
        data: &[u8],
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu {
            Request::NopOut(pdu) => self.nop_out(&pdu, data, actions),
            Request::TaskManagement(pdu) => self.task_management(&pdu, node, now, actions),
            Request::Text(pdu) => self.text(&pdu, data, node, actions),
            Request::Logout(pdu) => self.logout(&pdu, actions),
            // At level 0 nothing can be asked for again (§11.16).
            Request::Snack(_) => self.reject(&pdu.encode(), RejectReason::SnackReject, actions),
            Request::Login(_) => {
                let misbehaved = PeerMisbehaved::LoginInFullFeature;
                actions.push_back(Action::Close(CloseReason::Misbehaved(misbehaved)));
            }
            Request::ScsiCommand(_) | Request::DataOut(_) => {
                self.reject(&pdu.encode(), RejectReason::ProtocolError, actions);
            }
        }
    }

    /// §11.18: a ping is echoed as far as the initiator takes data; an answer to ours ends its deadline.
    fn nop_out(&mut self, pdu: &NopOut, data: &[u8], actions: &mut VecDeque<Action>) {
        self.keepalive.answered(pdu.ttt);
        if pdu.itt == Itt::RESERVED {
            return;
        }
        let echo = &data[..data.len().min(self.max_send())];
        let numbering = self.respond();
        let response = NopIn {
            lun: Lun::ZERO,
            itt: pdu.itt,
            ttt: Ttt::RESERVED,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        actions.push_back(Action::Send(
            Response::NopIn(response),
            Bytes::copy_from_slice(echo),
        ));
    }

    fn text(&mut self, pdu: &TextRequest, data: &[u8], node: &Node, actions: &mut VecDeque<Action>) {
        let answer = match self.text.request(pdu, data) {
            TextStep::More(ttt) => return self.send_text(pdu, Vec::new(), false, false, ttt, actions),
            TextStep::GoOn => None,
            TextStep::Refused(why) => {
                debug!("{why}");
                return self.reject(
                    &Request::Text(pdu.clone()).encode(),
                    RejectReason::ProtocolError,
                    actions,
                );
            }
            TextStep::Complete(text) => match self.answer(&text, node, actions) {
                Some(answer) => Some(answer),
                None => {
                    return self.reject(
                        &Request::Text(pdu.clone()).encode(),
                        RejectReason::ProtocolError,
                        actions,
                    );
                }
            },
        };
        let segment = self.text.segment(pdu, answer, self.max_send());
        self.send_text(
            pdu,
            segment.text,
            segment.is_final,
            segment.continues,
            segment.ttt,
            actions,
        );
    }

    /// The answer to a complete text; `None` when it cannot be taken apart.
    fn answer(&mut self, text: &[u8], node: &Node, actions: &mut VecDeque<Action>) -> Option<Vec<u8>> {
        let interfaces = node.interfaces();
        let asker = Asker {
            initiator: &self.identity.initiator,
            local: self.identity.link.local,
            transport: self.identity.link.transport,
            peer: self.identity.link.peer.ip(),
            interfaces: &interfaces,
        };
        let target = self
            .identity
            .admitted
            .nexus
            .as_ref()
            .map(|(_, target)| &target.name);
        let outcome = answer_text(text, &node.directory(), target, &asker);
        let outcome = outcome
            .inspect_err(|error| debug!(%error, "a Text Request is refused"))
            .ok()?;
        if let Some(len) = outcome.max_send_data_segment_len {
            self.params.max_send_data_segment_len = len;
            actions.push_back(Action::Enable(self.params.clone()));
        }
        Some(outcome.text)
    }

    fn send_text(
        &mut self,
        pdu: &TextRequest,
        text: Vec<u8>,
        is_final: bool,
        continues: bool,
        ttt: Ttt,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond();
        let response = TextResponse {
            is_final,
            continues,
            lun: Lun::ZERO,
            itt: pdu.itt,
            ttt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        actions.push_back(Action::Send(Response::Text(response), text.into()));
    }

    /// §11.14. With one connection a session, closing either closes both.
    fn logout(&mut self, pdu: &LogoutRequest, actions: &mut VecDeque<Action>) {
        let response = match pdu.reason {
            LogoutReason::CloseSession => LogoutResponseCode::Success,
            LogoutReason::CloseConnection if pdu.cid == self.identity.cid => LogoutResponseCode::Success,
            LogoutReason::CloseConnection => LogoutResponseCode::CidNotFound,
            LogoutReason::RemoveConnectionForRecovery => LogoutResponseCode::RecoveryNotSupported,
        };
        let numbering = self.respond();
        let sent = LogoutResponse {
            response,
            itt: pdu.itt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            time_to_wait: self.params.time_to_wait,
            time_to_retain: 0,
        };
        actions.push_back(Action::Send(Response::Logout(sent), Bytes::new()));
        if response == LogoutResponseCode::Success {
            actions.push_back(Action::Close(CloseReason::LoggedOut));
        }
    }

    /// §7.3: whatever CmdSN such a PDU carries does not count as received.
    fn malformed(&mut self, bhs: &[u8; BHS_LEN], error: DecodeError, actions: &mut VecDeque<Action>) {
        debug!(%error, "a PDU is rejected");
        let reason = match error {
            DecodeError::Opcode(_) => RejectReason::CommandNotSupported,
            DecodeError::Field { .. } | DecodeError::Ahs(_) => RejectReason::InvalidPduField,
        };
        self.reject(bhs, reason, actions);
    }

    /// A command has left the table.
    pub(super) fn task_ended(&mut self, was_immediate: bool) {
        if !was_immediate {
            self.window.open();
        }
    }

    /// §11.17: the refused header goes back as data.
    pub(super) fn reject(
        &mut self,
        bhs: &[u8; BHS_LEN],
        reason: RejectReason,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond();
        let reject = Reject {
            reason,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            data_sn: 0,
        };
        actions.push_back(Action::Send(
            Response::Reject(reject),
            Bytes::copy_from_slice(bhs),
        ));
    }

    /// Whatever was due by `now`.
    pub(super) fn timeout(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.answer_tmfs(now, actions);
        if self.keepalive.is_overdue(now) {
            let reason = CloseReason::Silent(self.keepalive.patience());
            return actions.push_back(Action::Close(reason));
        }
        if let Some(StuckTask { itt, waited }) = self.tasks.find_stuck(now, self.limits.data_out_timeout) {
            let reason = CloseReason::DataOutStuck { itt: itt.0, waited };
            return actions.push_back(Action::Close(reason));
        }
        if self.end_if_due(now, actions) {
            return;
        }
        if let Some(ttt) = self.keepalive.ask(now) {
            self.send_ping(ttt, actions);
        }
    }

    /// When [`Self::timeout`] is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [
            self.tmfs.deadline(),
            self.keepalive.deadline(),
            self.tasks.look_for_stuck(),
            self.ending.map(|ending| ending.deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// §11.19: a NOP-In that wants an answer does not consume a StatSN.
    fn send_ping(&mut self, ttt: Ttt, actions: &mut VecDeque<Action>) {
        let numbering = self.numbering();
        let nop = NopIn {
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        actions.push_back(Action::Send(Response::NopIn(nop), Bytes::new()));
    }

    fn max_send(&self) -> usize {
        usize::try_from(self.params.max_send_data_segment_len).expect("32 bits fit")
    }
}

/// §11.18.1: a NOP-Out that answers a NOP-In names no task and moves no CmdSN.
fn is_answer_to_ping(pdu: &Request) -> bool {
    matches!(pdu, Request::NopOut(nop) if nop.itt == Itt::RESERVED)
}

/// Commands and task management requests for immediate delivery that may be under way at once, beyond the window
/// (§4.2.2.1 lets us refuse more).
pub(super) const IMMEDIATE_MAX: usize = 16;
