//! Full feature phase of a session: what each request leads to (RFC 7143 §4.2, §11). The rules of one topic each live
//! beside it: link, window, tasks, management, keepalive, text_exchange. What NOP-Out, text and logout lead to is in
//! requests and logout, what commands say in task_events, task management requests in task_management, orders from
//! outside in ending, connections that come and go in joining and loss. Commands as they arrive are in commands.

use std::collections::VecDeque;
use std::time::Instant;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{Reject, RejectReason, Request, Response, ScsiCommand};
use iscsi_proto::{Ahs, BHS_LEN, DecodeError, IscsiName, Itt, Sn};
use tracing::debug;

use super::SessionParams;
use super::deferred::DeferredTmfs;
use super::ending::Ending;
use super::event::{Action, CloseReason, LinkId, PeerMisbehaved};
use super::link::{Link, Links};
use super::loss::Orphaned;
use super::management::PendingTmfs;
use super::reassign::Leftovers;
use super::registry::{Admitted, Node};
use super::tasks::{StuckTask, TaskTable};
use super::window::{Arrival, CommandWindow};
use crate::control::Parameters;
use crate::datamover::{Notify, Numbering};

/// Who is at the other end.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) initiator: IscsiName,
    pub(super) admitted: Admitted,
}

/// The phase.
#[derive(Debug)]
pub(super) struct FullFeature {
    pub(super) identity: Identity,
    /// What was agreed for the whole session.
    pub(super) params: SessionParams,
    pub(super) limits: Parameters,
    pub(super) window: CommandWindow<Ordered>,
    pub(super) links: Links,
    pub(super) tasks: TaskTable,
    /// Commands that were aborted and whose end has not been heard of: a store operation may keep them.
    pub(super) abandoned: usize,
    pub(super) tmfs: PendingTmfs,
    pub(super) deferred: DeferredTmfs,
    pub(super) leftovers: Leftovers,
    pub(super) ending: Option<Ending>,
    /// Since the last connection was lost.
    pub(super) orphaned: Option<Orphaned>,
}

/// A request that waits its turn in CmdSN order, which goes across all connections.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) link: LinkId,
    pub(super) item: Item,
}

/// What waits.
#[derive(Debug)]
pub(super) enum Item {
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
    pub(super) fn new(identity: Identity, leading: Link, limits: Parameters, cmd_sn: Sn) -> Self {
        let params = leading.params.clone();
        let mut links = Links::default();
        links.add(leading);
        Self {
            window: CommandWindow::new(cmd_sn, params.command_window),
            identity,
            params,
            limits,
            links,
            tasks: TaskTable::default(),
            abandoned: 0,
            tmfs: PendingTmfs::default(),
            deferred: DeferredTmfs::default(),
            leftovers: Leftovers::default(),
            ending: None,
            orphaned: None,
        }
    }

    pub(super) fn max_cmd_sn(&self) -> Sn {
        self.window.max_cmd_sn()
    }

    /// What every PDU on a connection carries; the StatSN is not consumed.
    pub(super) fn numbering(&self, link: LinkId) -> Numbering {
        Numbering {
            stat_sn: self.links.get(link).stat_sn,
            exp_cmd_sn: self.window.exp_cmd_sn(),
            max_cmd_sn: self.window.max_cmd_sn(),
        }
    }

    /// What every response on a connection carries; the StatSN is consumed.
    pub(super) fn respond(&mut self, link: LinkId) -> Numbering {
        Numbering {
            stat_sn: self.links.get_mut(link).stat_sn.advance(),
            exp_cmd_sn: self.window.exp_cmd_sn(),
            max_cmd_sn: self.window.max_cmd_sn(),
        }
    }

    pub(super) fn notify(
        &mut self,
        link: LinkId,
        notify: Notify,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let Some(state) = self.links.find(link) else {
            return;
        };
        state.keepalive.heard(now);
        if let Some(exp_stat_sn) = exp_stat_sn(&notify) {
            self.acknowledged(link, exp_stat_sn, now, actions);
        }
        match notify {
            Notify::Command { pdu, ahs, immediate } => {
                self.command_arrived(link, pdu, ahs, immediate, node, now, actions);
            }
            Notify::Control { pdu, data } => self.control_arrived(link, pdu, data, node, now, actions),
            Notify::Malformed { bhs, error } => self.malformed(link, &bhs, error, actions),
            Notify::DataDigestError { bhs } => {
                self.reject(link, &bhs, RejectReason::DataDigestError, actions);
            }
            Notify::DataOut { itt, result } => self.tasks.deliver(itt, result, now),
            Notify::Released(itt) => {
                self.tmfs.released(itt);
                self.answer_tmfs(now, actions);
            }
            Notify::OutOfPlace { bhs } => self.reject(link, &bhs, RejectReason::ProtocolError, actions),
            // Where data are asked for again and again, each of them is progress; else a wish that is fulfilled.
            Notify::ExpStatSn(_) if self.params.error_recovery_level > 0 => self.tasks.data_came(now),
            Notify::Unsolicited { .. } | Notify::ExpStatSn(_) => {}
            Notify::Closed(closed) => self.lose(link, CloseReason::Transport(closed), now, actions),
        }
        self.check_retained(link, now, actions);
    }

    fn control_arrived(
        &mut self,
        link: LinkId,
        pdu: Request,
        data: Bytes,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu.cmd_sn() {
            Some(cmd_sn) if !pdu.immediate() && !is_answer_to_ping(&pdu) => {
                let item = Item::Control { pdu, data };
                self.in_order(cmd_sn, Ordered { link, item }, node, now, actions);
            }
            _ => self.control(link, pdu, &data, node, now, actions),
        }
    }

    pub(super) fn in_order(
        &mut self,
        cmd_sn: Sn,
        ordered: Ordered,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match self.window.arrive(cmd_sn, ordered) {
            Arrival::Next(ordered) => {
                self.run_ordered(ordered, node, now, actions);
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
        loop {
            // Between the commands before them and those behind.
            self.run_deferred(now, actions);
            let Some(ordered) = self.window.next_ready() else {
                return;
            };
            self.run_ordered(ordered, node, now, actions);
        }
    }

    fn run_ordered(
        &mut self,
        Ordered { link, item }: Ordered,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match item {
            Item::Command { pdu, ahs, immediate } => self.start(link, pdu, ahs, immediate, actions),
            Item::Control { pdu, data } => {
                // All but SCSI commands are done as soon as they are begun, as far as the window is concerned.
                self.window.open();
                self.control(link, pdu, &data, node, now, actions);
            }
        }
    }

    fn control(
        &mut self,
        link: LinkId,
        pdu: Request,
        data: &[u8],
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu {
            Request::NopOut(pdu) => self.nop_out(link, &pdu, data, actions),
            Request::TaskManagement(pdu) => self.task_management(link, &pdu, node, now, actions),
            Request::Text(pdu) => self.text(link, &pdu, data, node, actions),
            Request::Logout(pdu) => self.logout(link, &pdu, now, actions),
            Request::Snack(pdu) => self.snack(link, &pdu, actions),
            Request::Login(_) => {
                let misbehaved = PeerMisbehaved::LoginInFullFeature;
                self.lose(link, CloseReason::Misbehaved(misbehaved), now, actions);
            }
            Request::ScsiCommand(_) | Request::DataOut(_) => {
                self.reject(link, &pdu.encode(), RejectReason::ProtocolError, actions);
            }
        }
    }

    /// §7.3: whatever CmdSN such a PDU carries does not count as received.
    fn malformed(
        &mut self,
        link: LinkId,
        bhs: &[u8; BHS_LEN],
        error: DecodeError,
        actions: &mut VecDeque<Action>,
    ) {
        debug!(%error, "a PDU is rejected");
        let reason = match error {
            DecodeError::Opcode(_) => RejectReason::CommandNotSupported,
            DecodeError::Field { .. } | DecodeError::Ahs(_) => RejectReason::InvalidPduField,
        };
        self.reject(link, bhs, reason, actions);
    }

    /// A command has left the table.
    pub(super) fn task_ended(&mut self, was_immediate: bool) {
        if !was_immediate {
            self.window.open();
        }
    }

    /// Refuses a request for immediate delivery, or one whose turn it is. §7.3: the CmdSN of what is rejected does not
    /// count as received, whatever it asks for.
    pub(super) fn refuse(
        &mut self,
        link: LinkId,
        request: &Request,
        reason: RejectReason,
        actions: &mut VecDeque<Action>,
    ) {
        if request.cmd_sn().is_some() && !request.immediate() {
            self.window.take_back();
        }
        self.reject(link, &request.encode(), reason, actions);
    }

    /// §11.17: the refused header goes back as data.
    pub(super) fn reject(
        &mut self,
        link: LinkId,
        bhs: &[u8; BHS_LEN],
        reason: RejectReason,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond(link);
        let reject = Reject {
            reason,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            data_sn: 0,
        };
        self.say(
            link,
            Response::Reject(reject),
            Bytes::copy_from_slice(bhs),
            actions,
        );
    }

    /// Whatever was due by `now`.
    pub(super) fn timeout(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.run_deferred(now, actions);
        self.answer_tmfs(now, actions);
        if self.give_up_if_due(now, actions) {
            return;
        }
        for link in self.links.ids() {
            self.look_after(link, now, actions);
        }
        self.end_adrift(now, actions);
        self.look_for_lost_data(now, actions);
        if let Some(StuckTask { itt, link, waited }) =
            self.tasks.find_stuck(now, self.limits.data_out_timeout)
        {
            let reason = CloseReason::DataOutStuck { itt: itt.0, waited };
            return self.lose(link, reason, now, actions);
        }
        self.end_if_due(now, actions);
    }

    fn adrift_deadline(&self) -> Option<Instant> {
        if self.params.error_recovery_level < 2 {
            return None;
        }
        let deadlines = [self.tasks.adrift_until(), self.leftovers.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// When [`Self::timeout`] is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let keepalive = self
            .links
            .iter()
            .filter_map(|link| link.keepalive.deadline())
            .min();
        [
            self.tmfs.deadline(),
            self.deferred.deadline(),
            self.adrift_deadline(),
            keepalive,
            self.tasks.look_for_stuck(),
            self.tasks.look_for_waiting(),
            self.ending.map(|ending| ending.deadline),
            self.orphaned.as_ref().map(|orphaned| orphaned.deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Ordered {
    /// Whether it is a command with this tag.
    pub(super) fn is_command(&self, itt: Itt) -> bool {
        matches!(&self.item, Item::Command { pdu, .. } if pdu.itt == itt)
    }
}

/// What the initiator acknowledges thereby.
fn exp_stat_sn(notify: &Notify) -> Option<Sn> {
    match notify {
        Notify::Command { pdu, .. } => Some(pdu.exp_stat_sn),
        Notify::Control { pdu, .. } => Some(pdu.exp_stat_sn()),
        Notify::ExpStatSn(exp_stat_sn) => Some(*exp_stat_sn),
        Notify::Closed(_)
        | Notify::DataDigestError { .. }
        | Notify::DataOut { .. }
        | Notify::Malformed { .. }
        | Notify::Released(_)
        | Notify::OutOfPlace { .. }
        | Notify::Unsolicited { .. } => None,
    }
}

/// §11.18.1: a NOP-Out that answers a NOP-In names no task and moves no CmdSN.
fn is_answer_to_ping(pdu: &Request) -> bool {
    matches!(pdu, Request::NopOut(nop) if nop.itt == Itt::RESERVED)
}

/// Commands and task management requests for immediate delivery that may be under way at once, beyond the window
/// (§4.2.2.1 lets us refuse more).
pub const IMMEDIATE_MAX: usize = 16;
