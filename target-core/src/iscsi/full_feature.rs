//! Full feature phase of a connection: what each request leads to (RFC 7143 §4.2, §11). The rules of one topic each
//! live beside it: window, tasks, management, text_exchange; what commands say is in task_events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{
    AsyncEvent, AsyncMessage, Function, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode,
    NopIn, NopOut, Reject, RejectReason, Request, Response, ScsiCommand, TaskManagementRequest,
    TaskManagementResponse, TextRequest, TextResponse, TmfResponse,
};
use iscsi_proto::{Ahs, BHS_LEN, Cid, DecodeError, IscsiName, Itt, Lun, Sn, Ttt};
use tracing::debug;

use super::event::{Action, CloseReason, Order, PeerMisbehaved, Start};
use super::management::PendingTmfs;
use super::registry::{Admitted, Node};
use super::tasks::TaskTable;
use super::text_exchange::{TextExchange, TextStep};
use super::window::{Arrival, CommandWindow};
use super::{Asker, LinkInfo, SessionParams, SessionType, answer_text};
use crate::control::{Directory, Parameters};
use crate::datamover::{Notify, Numbering};
use crate::scsi::Sense;

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
    params: SessionParams,
    limits: Parameters,
    window: CommandWindow<Ordered>,
    pub(super) stat_sn: Sn,
    pub(super) tasks: TaskTable,
    tmfs: PendingTmfs,
    text: TextExchange,
    last_heard: Instant,
    ping: Option<Ping>,
    last_ping: u32,
    ending: Option<Ending>,
}

/// A request that waits its turn in CmdSN order.
#[derive(Debug)]
enum Ordered {
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

/// A NOP-In that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Ping {
    ttt: Ttt,
    deadline: Instant,
}

/// An order under way.
#[derive(Clone, Copy, Debug)]
struct Ending {
    order: Order,
    deadline: Instant,
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
            identity,
            params,
            limits,
            stat_sn,
            tasks: TaskTable::default(),
            tmfs: PendingTmfs::default(),
            text: TextExchange::default(),
            last_heard: now,
            ping: None,
            last_ping: 0,
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
        self.heard(now);
        match notify {
            Notify::Command { pdu, ahs, immediate } => {
                self.command_arrived(pdu, ahs, immediate, node, now, actions);
            }
            Notify::Control { pdu, data } => self.control_arrived(pdu, data, node, now, actions),
            Notify::Malformed { bhs, error } => self.malformed(&bhs, error, node, now, actions),
            Notify::DataDigestError { bhs } => self.data_digest_error(&bhs, node, now, actions),
            Notify::Unsolicited { itt } => self.tasks.data_progressed(itt, now),
            Notify::DataOut { itt, result } => self.tasks.deliver(itt, result),
            Notify::Released(itt) => {
                self.tmfs.released(itt);
                self.answer_tmfs(now, actions);
            }
            Notify::StrayDataOut { bhs } => self.reject(&bhs, RejectReason::ProtocolError, actions),
            // Nothing is kept for retransmission at level 0.
            Notify::ExpStatSn(_) => {}
            Notify::Closed(closed) => actions.push_back(Action::Close(CloseReason::Transport(closed))),
        }
    }

    /// Every PDU is a sign of life.
    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        if let Some(ping) = &mut self.ping {
            ping.deadline = now + self.limits.nop_timeout;
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
        if pdu.immediate {
            if self.tasks.immediate() >= IMMEDIATE_MAX {
                let bhs = Request::ScsiCommand(pdu).encode();
                return self.reject(&bhs, RejectReason::ImmediateCommandReject, actions);
            }
            return self.start(pdu, ahs, immediate, actions);
        }
        let cmd_sn = pdu.cmd_sn;
        self.in_order(
            cmd_sn,
            Ordered::Command { pdu, ahs, immediate },
            node,
            now,
            actions,
        );
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

    fn run_ready(&mut self, node: &Node, now: Instant, actions: &mut VecDeque<Action>) {
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
        let counted = !pdu.immediate;
        if self.identity.admitted.nexus.is_none() || self.is_draining() {
            let bhs = Request::ScsiCommand(pdu).encode();
            if counted {
                self.window.open();
            }
            return self.reject(&bhs, RejectReason::CommandNotSupported, actions);
        }
        let Some((task, abort)) = self.tasks.start(pdu.itt, pdu.lun, pdu.immediate) else {
            let bhs = Request::ScsiCommand(pdu).encode();
            if counted {
                self.window.open();
            }
            return self.reject(&bhs, RejectReason::TaskInProgress, actions);
        };
        if let Some(sense) = self.unsolicited_breach(&pdu, immediate.as_deref().map_or(0, <[u8]>::len)) {
            return self.fail_at_once(pdu.itt, sense, actions);
        }
        actions.push_back(Action::Start(Start {
            task,
            pdu,
            ahs,
            immediate,
            abort,
        }));
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
        if pdu.ttt != Ttt::RESERVED && self.ping.is_some_and(|ping| ping.ttt == pdu.ttt) {
            self.ping = None;
        }
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

    /// §11.5, §11.6.
    fn task_management(
        &mut self,
        pdu: &TaskManagementRequest,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let bhs = || Request::TaskManagement(pdu.clone()).encode();
        if self.tmfs.contains(pdu.itt) || self.tasks.get(pdu.itt).is_some() {
            return self.reject(&bhs(), RejectReason::TaskInProgress, actions);
        }
        if self.tmfs.len() >= IMMEDIATE_MAX {
            return self.reject(&bhs(), RejectReason::ImmediateCommandReject, actions);
        }
        if self.params.session_type == SessionType::Discovery {
            return self.reject(&bhs(), RejectReason::CommandNotSupported, actions);
        }
        match pdu.function {
            Function::AbortTask => self.abort_task(pdu, node, now, actions),
            Function::AbortTaskSet
            | Function::ClearAca
            | Function::ClearTaskSet
            | Function::LogicalUnitReset
            | Function::TargetWarmReset
            | Function::TargetColdReset => {
                let of_target = matches!(
                    pdu.function,
                    Function::TargetWarmReset | Function::TargetColdReset
                );
                let concerned = match pdu.function {
                    Function::ClearAca => Vec::new(),
                    _ => self
                        .tasks
                        .tags(|task| of_target || task.lun.number() == pdu.lun.number()),
                };
                self.drop_tasks(&concerned, actions);
                let drops_sessions = pdu.function == Function::TargetColdReset;
                self.tmfs.begin(pdu.itt, None, &concerned, drops_sessions, now);
                actions.push_back(Action::Manage {
                    itt: pdu.itt,
                    function: pdu.function,
                    lun: pdu.lun,
                });
            }
            Function::TaskReassign => {
                self.answer_tmf_at_once(pdu.itt, TmfResponse::ReassignNotSupported, now, actions);
            }
            Function::QueryTask
            | Function::QueryTaskSet
            | Function::ITNexusReset
            | Function::QueryAsyncEvent
            | Function::Unknown(_) => {
                self.answer_tmf_at_once(pdu.itt, TmfResponse::NotSupported, now, actions);
            }
        }
    }

    /// §11.6.1: a task that is here is aborted; one that may still be on its way counts as received and will not run;
    /// any other does not exist.
    fn abort_task(
        &mut self,
        pdu: &TaskManagementRequest,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let referenced = pdu.referenced_itt;
        if self
            .tasks
            .get(referenced)
            .is_some_and(|task| task.lun.number() == pdu.lun.number())
        {
            self.drop_tasks(&[referenced], actions);
            self.tmfs
                .begin(pdu.itt, Some(TmfResponse::Complete), &[referenced], false, now);
            return self.answer_tmfs(now, actions);
        }
        let waiting = |item: &Ordered| matches!(item, Ordered::Command { pdu, .. } if pdu.itt == referenced);
        let known = self.window.early().any(waiting);
        let to_come = self.tasks.get(referenced).is_none()
            && (known || !pdu.ref_cmd_sn.precedes(self.window.exp_cmd_sn()));
        let response = if to_come && pdu.ref_cmd_sn.precedes(pdu.cmd_sn.next()) {
            let (given_up, command) = self.window.give_up(pdu.ref_cmd_sn);
            if command.is_some() {
                actions.push_back(Action::End(referenced));
            }
            if given_up {
                TmfResponse::Complete
            } else {
                TmfResponse::TaskDoesNotExist
            }
        } else {
            TmfResponse::TaskDoesNotExist
        };
        self.answer_tmf_at_once(pdu.itt, response, now, actions);
        self.run_ready(node, now, actions);
    }

    fn answer_tmf_at_once(
        &mut self,
        itt: Itt,
        response: TmfResponse,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.tmfs.begin(itt, Some(response), &[], false, now);
        self.answer_tmfs(now, actions);
    }

    /// Tells tasks that they are aborted, and forgets them: whatever they still say is not heard.
    fn drop_tasks(&mut self, concerned: &[Itt], actions: &mut VecDeque<Action>) {
        for itt in concerned {
            if let Some(task) = self.tasks.remove(*itt) {
                task.abort.fire();
                self.task_ended(task.immediate);
                actions.push_back(Action::Release(*itt));
            }
        }
    }

    /// A command has left the table.
    pub(super) fn task_ended(&mut self, was_immediate: bool) {
        if !was_immediate {
            self.window.open();
        }
    }

    pub(super) fn managed(
        &mut self,
        itt: Itt,
        response: TmfResponse,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.tmfs.managed(itt, response);
        self.answer_tmfs(now, actions);
    }

    fn answer_tmfs(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        while let Some(due) = self.tmfs.take_due(now) {
            let numbering = self.respond();
            let response = TaskManagementResponse {
                response: due.response,
                additional: 0,
                itt: due.itt,
                stat_sn: numbering.stat_sn,
                exp_cmd_sn: numbering.exp_cmd_sn,
                max_cmd_sn: numbering.max_cmd_sn,
            };
            actions.push_back(Action::Send(Response::TaskManagement(response), Bytes::new()));
            if due.drops_sessions {
                actions.push_back(Action::DropSessions);
            }
        }
    }

    fn malformed(
        &mut self,
        bhs: &[u8; BHS_LEN],
        error: DecodeError,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        debug!(%error, "a PDU is rejected");
        let reason = match error {
            DecodeError::Opcode(_) => RejectReason::CommandNotSupported,
            DecodeError::Field { .. } | DecodeError::Ahs(_) => RejectReason::InvalidPduField,
        };
        // A command whose header makes sense but for its AHS has had its turn: no hole may stay behind.
        self.count_as_received(bhs, node, now, actions);
        self.reject(bhs, reason, actions);
    }

    fn data_digest_error(
        &mut self,
        bhs: &[u8; BHS_LEN],
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.reject(bhs, RejectReason::DataDigestError, actions);
        self.count_as_received(bhs, node, now, actions);
    }

    fn count_as_received(
        &mut self,
        bhs: &[u8; BHS_LEN],
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let Ok(pdu) = Request::decode(bhs) else { return };
        if let Some(cmd_sn) = pdu.cmd_sn().filter(|_| !pdu.immediate()) {
            self.window.give_up(cmd_sn);
            self.run_ready(node, now, actions);
        }
    }

    /// §11.17: the refused header goes back as data.
    fn reject(&mut self, bhs: &[u8; BHS_LEN], reason: RejectReason, actions: &mut VecDeque<Action>) {
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

    pub(super) fn order(&mut self, order: Order, now: Instant, actions: &mut VecDeque<Action>) {
        match order {
            Order::Logout { within } => {
                let within_s = u16::try_from(within.as_secs()).unwrap_or(u16::MAX);
                self.send_async(AsyncEvent::LogoutRequested { within_s }, actions);
                self.ending = Some(Ending {
                    order,
                    deadline: now + within,
                });
            }
            Order::Drain => {
                self.ending = Some(Ending {
                    order,
                    deadline: now + DRAIN_PATIENCE,
                });
                self.finish_drain(now, actions);
            }
            Order::Close | Order::TargetReset => self.drop_session(order, actions),
            Order::Reinstated => actions.push_back(Action::Close(CloseReason::Ordered(order))),
        }
    }

    fn is_draining(&self) -> bool {
        self.ending.is_some_and(|ending| ending.order == Order::Drain)
    }

    /// Drops the session once nothing runs any more, or patience ends.
    pub(super) fn finish_drain(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        if let Some(Ending {
            order: order @ Order::Drain,
            deadline,
        }) = self.ending
            && (self.tasks.is_empty() || deadline <= now)
        {
            self.drop_session(order, actions);
        }
    }

    fn drop_session(&mut self, order: Order, actions: &mut VecDeque<Action>) {
        let event = AsyncEvent::SessionDropped {
            time_to_wait: self.params.time_to_wait,
            time_to_retain: 0,
        };
        self.send_async(event, actions);
        actions.push_back(Action::Close(CloseReason::Ordered(order)));
    }

    fn send_async(&mut self, event: AsyncEvent, actions: &mut VecDeque<Action>) {
        let numbering = self.respond();
        let message = AsyncMessage {
            lun: Lun::ZERO,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            event,
        };
        actions.push_back(Action::Send(Response::AsyncMessage(message), Bytes::new()));
    }

    /// Whatever was due by `now`.
    pub(super) fn timeout(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.answer_tmfs(now, actions);
        if let Some(ping) = self.ping.filter(|ping| ping.deadline <= now) {
            debug!(ttt = ping.ttt.0, "a NOP-In was not answered");
            actions.push_back(Action::Close(CloseReason::Silent(self.limits.nop_timeout)));
            return;
        }
        if let Some((itt, since)) = self.tasks.longest_wait()
            && now >= since + self.limits.data_out_timeout
        {
            let waited = now.duration_since(since);
            actions.push_back(Action::Close(CloseReason::DataOutStuck { itt: itt.0, waited }));
            return;
        }
        match self.ending {
            Some(Ending {
                order: order @ Order::Logout { .. },
                deadline,
            }) if deadline <= now => {
                actions.push_back(Action::Close(CloseReason::Ordered(order)));
                return;
            }
            _ => self.finish_drain(now, actions),
        }
        if self.ping_due().is_some_and(|due| due <= now) {
            self.send_ping(now, actions);
        }
    }

    /// When [`Self::timeout`] is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let data = self
            .tasks
            .is_waiting_for_data()
            .then(|| self.tasks.longest_wait())
            .flatten();
        [
            self.tmfs.deadline(),
            self.ping.map(|ping| ping.deadline),
            self.ping_due(),
            data.map(|(_, since)| since + self.limits.data_out_timeout),
            self.ending.map(|ending| ending.deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn ping_due(&self) -> Option<Instant> {
        let wanted = !self.limits.nop_interval.is_zero() && self.ping.is_none();
        wanted.then(|| self.last_heard + self.limits.nop_interval)
    }

    /// §11.19: a NOP-In that wants an answer does not consume a StatSN.
    fn send_ping(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.last_ping = self.last_ping.wrapping_add(1) & 0x7fff_ffff;
        let ttt = Ttt(self.last_ping);
        self.ping = Some(Ping {
            ttt,
            deadline: now + self.limits.nop_timeout,
        });
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
const IMMEDIATE_MAX: usize = 16;
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
