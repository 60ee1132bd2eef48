//! An initiator's end of one session: it sends, and keeps count of what is outstanding. What it hears is in `hearing.rs`,
//! what it does about silence in `patience.rs`, about connections that end in `leaving.rs`, a single connection in `leg.rs`, a single command in `task.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use iscsi_proto::pdu::{
    DataOut, Function, LogoutReason, LogoutRequest, NopOut, Request, ScsiCommand, TaskAttribute,
    TaskManagementRequest, TextRequest,
};
use iscsi_proto::{Cid, Itt, Lun, Sn, Ttt};
use iser_transport::Opened;
use tokio::time::Instant;

use super::leaving::Parting;
use super::ledger::Check;
use super::leg::Leg;
use super::login::Terms;
use super::model::Before;
use super::pipe::{Damage, Pdu};
use super::plan::Command;
use super::random::Random;
use super::scene::Scene;
use super::task::Task;
use super::wire::Fate;

/// A session in full feature phase.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) scene: Arc<Scene>,
    pub(crate) id: u8,
    pub(crate) random: Random,
    pub(crate) legs: Vec<Leg>,
    /// Connections that broke, and whose end the target cannot have heard of.
    pub(crate) ghosts: Vec<Leg>,
    /// Whose turn it is to be heard first.
    turn: usize,
    /// To be heard next.
    overtaken: Option<(u16, Pdu)>,
    pub(crate) terms: Terms,
    pub(crate) cmd_sn: Sn,
    pub(crate) exp_cmd_sn: Sn,
    pub(crate) max_cmd_sn: Sn,
    pub(crate) tasks: BTreeMap<u32, Task>,
    pub(crate) tmfs: BTreeMap<u32, Tmf>,
    pub(crate) pings: BTreeMap<u32, Ping>,
    /// Requests to reassign a task that has a connection, and the task of each.
    pub(crate) contested: BTreeMap<u32, u32>,
    /// Logouts of one connection that have not been answered, by tag.
    pub(crate) partings: BTreeMap<u32, Parting>,
    /// Logouts of one connection that were answered.
    pub(crate) parted: BTreeSet<u32>,
    /// Pings that fill a number that may have arrived: they may be answered or not.
    pub(crate) fillers: BTreeSet<u32>,
    /// Numbers that were sent and may not have arrived, with the connection they went by.
    pub(crate) under_way: VecDeque<(Sn, u16)>,
    /// Tags about which the target has said its last word.
    pub(crate) dead: BTreeSet<u32>,
    /// Tags of answered commands, to be used again.
    pub(crate) free: Vec<u32>,
    next_itt: u32,
    next_cid: u16,
    logout: Option<u16>,
    pub(crate) logged_out: bool,
    /// Something went wrong that only another session can mend.
    pub(crate) has_fallen: bool,
    /// The target wants the session to end.
    pub(crate) is_asked_to_leave: bool,
}

/// A task management request that has not been answered.
#[derive(Debug)]
pub(crate) struct Tmf {
    pub(crate) leg: u16,
    pub(crate) unit: usize,
    /// The same request under the tag it had before; that may have been heard or not.
    pub(crate) repeats: Option<u32>,
    /// When it was last said.
    pub(crate) said_at: Instant,
    pub(crate) function: Function,
    pub(crate) covers: Vec<u32>,
    pub(crate) sent_at: Instant,
    /// When, among all that happens at the same time.
    pub(crate) tick: u64,
    /// Some task that it concerns was not known to have arrived.
    pub(crate) is_early: bool,
    pub(crate) reset: Option<usize>,
}

/// A ping that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ping {
    pub(crate) leg: u16,
    pub(crate) cmd_sn: Sn,
    pub(crate) sent_at: Instant,
}

impl Session {
    pub(crate) fn new(scene: Arc<Scene>, id: u8, random: Random, leg: Leg, terms: Terms, cmd_sn: Sn) -> Self {
        let (exp_cmd_sn, max_cmd_sn) = leg.window;
        Self {
            scene,
            id,
            random,
            legs: vec![leg],
            ghosts: Vec::new(),
            turn: 0,
            overtaken: None,
            terms,
            cmd_sn,
            exp_cmd_sn,
            max_cmd_sn,
            tasks: BTreeMap::new(),
            tmfs: BTreeMap::new(),
            pings: BTreeMap::new(),
            contested: BTreeMap::new(),
            partings: BTreeMap::new(),
            parted: BTreeSet::new(),
            fillers: BTreeSet::new(),
            under_way: VecDeque::new(),
            dead: BTreeSet::new(),
            free: Vec::new(),
            next_itt: 1,
            next_cid: 1,
            logout: None,
            logged_out: false,
            has_fallen: false,
            is_asked_to_leave: false,
        }
    }

    /// Whether what is lost on the way ends the session: session recovery (RFC 7143 §7.1.4.4) is all there is at level 0.
    pub(crate) fn falls(&self) -> bool {
        self.terms.is_lossy && !self.recovers()
    }

    pub(crate) fn fall(&mut self, why: impl std::fmt::Display) {
        if !self.has_fallen {
            self.note(format_args!("falls: {why}"));
        }
        self.has_fallen = true;
    }

    /// A rule is broken, unless what the wire did explains it.
    pub(crate) fn missed(&mut self, check: Check, detail: impl std::fmt::Display) {
        if self.falls() {
            self.fall(detail);
        } else {
            self.violated(check, detail);
        }
    }

    /// Whether the target was told to end this session.
    pub(crate) fn is_ordered(&self) -> bool {
        self.scene.is_ordered(self.terms.tsih)
    }

    /// What comes next, on whichever connection; `None` for its end. Never ready without a connection.
    pub(crate) async fn recv(&mut self) -> (u16, Option<Pdu>) {
        let (legs, turn) = (&mut self.legs, &mut self.turn);
        if let Some((leg, pdu)) = self.overtaken.take() {
            return (leg, Some(pdu));
        }
        let overtaken = &mut self.overtaken;
        poll_fn(|cx| {
            let count = legs.len();
            for step in 0..count {
                let place = (*turn + step) % count;
                if let Poll::Ready(pdu) = legs[place].poll_recv(cx) {
                    *turn = place + 1;
                    let cid = legs[place].cid;
                    *overtaken = legs[place].overtaken().map(|pdu| (cid, pdu));
                    return Poll::Ready((cid, pdu));
                }
            }
            Poll::Pending
        })
        .await
    }

    pub(crate) fn leg(&mut self, cid: u16) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.cid == cid)
    }

    /// A connection to say something on.
    pub(crate) fn any_leg(&mut self) -> u16 {
        let open: Vec<u16> = self
            .legs
            .iter()
            .filter(|leg| !leg.is_closing)
            .map(|leg| leg.cid)
            .collect();
        match open.len() {
            0 => 0,
            1 => open[0],
            _ => self.random.pick(&open),
        }
    }

    /// Whether another connection may join, and its CID.
    pub(crate) fn vacant_cid(&mut self) -> Option<u16> {
        // The target may hear of a link's end later than of another's beginning; it does when it answers the logout.
        let is_lost = |parting: &&Parting| self.legs.iter().all(|leg| leg.cid != parting.cid);
        let lost = match self.terms.rdma {
            Some(_) => self.partings.values().filter(is_lost).count(),
            None => 0,
        };
        if self.legs.len() + lost >= self.terms.max_connections || self.logged_out {
            return None;
        }
        self.next_cid += 1;
        Some(self.next_cid)
    }

    pub(crate) fn violated(&self, check: Check, detail: impl std::fmt::Display) {
        let (id, tsih) = (self.id, self.terms.tsih.0);
        self.scene
            .ledger
            .violated(check, format_args!("initiator {id} session {tsih}: {detail}"));
    }

    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let (id, tsih) = (self.id, self.terms.tsih.0);
        self.scene.ledger.note(format_args!("i{id} s{tsih} {what}"));
    }

    /// Whether the window lets another command out.
    pub(crate) fn may_send(&self) -> bool {
        !self.max_cmd_sn.precedes(self.cmd_sn) && self.tasks.len() < QUEUE_DEPTH
    }

    /// Whether RDMA goes on over several connections.
    pub(crate) fn moves_by_several(&self) -> bool {
        self.terms.rdma.is_some() && self.legs.len() > 1
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        let is_answered = self.tasks.is_empty() && self.tmfs.is_empty() && self.contested.is_empty();
        is_answered && self.pings.is_empty() && self.partings.is_empty()
    }

    /// A tag that was never used.
    pub(crate) fn fresh_itt(&mut self) -> u32 {
        self.next_itt += 1;
        self.next_itt
    }

    fn itt(&mut self) -> u32 {
        // Where something may come twice, a tag that is used again soon could be taken for the old one's.
        if !self.recovers()
            && self.random.percent(20)
            && let Some(itt) = self.free.pop()
        {
            return itt;
        }
        self.fresh_itt()
    }

    pub(crate) fn send(&mut self, leg: u16, request: &Request, data: Vec<u8>) {
        if let Some(leg) = self.leg(leg) {
            leg.send(request, data);
        }
    }

    /// What is acknowledged on a connection.
    pub(crate) fn exp_stat_sn(&mut self, leg: u16) -> Sn {
        self.leg(leg).map_or(Sn(0), |leg| leg.exp_stat_sn)
    }

    /// The next number, which goes by this connection.
    fn number(&mut self, leg: u16) -> Sn {
        let cmd_sn = self.cmd_sn.advance();
        self.under_way.push_back((cmd_sn, leg));
        cmd_sn
    }

    /// Sends a command with what data may go at once.
    pub(crate) fn command(&mut self, unit: usize, command: Command) {
        let leg = self.any_leg();
        self.command_on(leg, unit, command);
    }

    /// The same on a connection of choice. Returns its tag.
    pub(crate) fn command_on(&mut self, leg: u16, unit: usize, command: Command) -> u32 {
        let itt = self.itt();
        let cmd_sn = self.number(leg);
        let mut task = Task::new(&self.scene, unit, command, cmd_sn, leg);
        task.behind = self.changes_before(&task);
        let data = &task.command.data_out;
        let (mut immediate, mut unsolicited) = (0, 0);
        if task.command.is_write() {
            let first_burst = self.terms.first_burst.min(data.len());
            if self.terms.immediate_data && self.random.percent(80) {
                immediate = first_burst.min(self.terms.max_send);
            }
            if !self.terms.initial_r2t && self.random.percent(60) {
                unsolicited = first_burst - immediate;
            }
        }
        task.first = (immediate, unsolicited);
        // Whatever else is fetched by RDMA, nobody here sees it.
        task.asked_to = if self.terms.rdma.is_some() {
            data.len()
        } else {
            immediate + unsolicited
        };
        self.note(format_args!(
            "-> {itt:#x} on {leg} cmdsn {} lun {unit} {:?} announced {} immediate {immediate}",
            cmd_sn.0, task.command.kind, task.command.announced
        ));
        self.tasks.insert(itt, task);
        self.say(itt);
        itt
    }

    /// Outstanding changes that a command must run behind: an ordered one behind all, most others behind those that are
    /// ordered themselves.
    fn changes_before(&self, behind: &Task) -> Vec<Before> {
        let attribute = behind.command.attribute;
        let is_ordered = |task: &Task| {
            let older = task.command.attribute == TaskAttribute::Ordered;
            attribute == TaskAttribute::Ordered || (older && attribute != TaskAttribute::HeadOfQueue)
        };
        let model = self.scene.model(behind.unit);
        let of_unit = self.tasks.values().filter(|task| task.unit == behind.unit);
        let older = of_unit.filter(|task| is_ordered(task) && !task.aborting);
        older.filter_map(|task| model.before(task.change?)).collect()
    }

    /// Sends a command once more, as it was: the target has not received it.
    pub(crate) fn retry(&mut self, itt: u32) {
        self.note(format_args!("-> {itt:#x} again"));
        self.say(itt);
    }

    fn say(&mut self, itt: u32) {
        let damaged = self.random.percent(1);
        let said = self.scene.tick();
        let Some(task) = self.tasks.get_mut(&itt) else {
            return;
        };
        task.said_at = Instant::now();
        task.said = said;
        let (immediate, unsolicited) = task.first;
        let damaged = damaged && immediate > 0 && self.terms.rdma.is_none();
        let (leg, unit) = (task.leg, task.unit);
        let mut pdu = ScsiCommand {
            immediate: false,
            is_final: unsolicited == 0,
            read: task.command.is_read(),
            write: task.command.is_write(),
            attribute: task.command.attribute,
            priority: 0,
            lun: lun(unit),
            itt: Itt(itt),
            expected_len: task.command.announced as u32,
            cmd_sn: task.cmd_sn,
            exp_stat_sn: Sn(0),
            cdb: task.command.cdb,
        };
        let first = task.command.data_out[..immediate].to_vec();
        let opened = self.terms.rdma.is_some().then(|| Opened {
            room: if pdu.read { task.command.announced } else { 0 },
            data_out: task.command.data_out.clone(),
            unasked: immediate + unsolicited,
        });
        pdu.exp_stat_sn = self.exp_stat_sn(leg);
        self.put(
            itt,
            leg,
            Pdu {
                damage: if damaged { Damage::Data } else { Damage::None },
                opened,
                ..Pdu::new(Request::ScsiCommand(pdu).encode(), first)
            },
        );
        if unsolicited > 0 {
            self.data_out(itt, Ttt::RESERVED, immediate, immediate + unsolicited);
        }
    }

    /// Sends a PDU of a task.
    fn put(&mut self, itt: u32, leg: u16, pdu: Pdu) {
        let fate = self.leg(leg).map(|leg| leg.put(pdu));
        if let Some(task) = self.tasks.get_mut(&itt) {
            task.damaged |= fate == Some(Fate::DataDamaged);
        }
    }

    /// Sends a run of a task's data, cut as agreed.
    pub(crate) fn data_out(&mut self, itt: u32, ttt: Ttt, from: usize, to: usize) {
        let (mut at, mut data_sn) = (from, 0);
        while at < to {
            let len = (to - at).min(self.terms.max_send);
            let damaged = self.random.below(400) == 0 && self.terms.rdma.is_none();
            let Some(task) = self.tasks.get_mut(&itt) else {
                return;
            };
            let data = task.command.data_out[at..at + len].to_vec();
            let (leg, unit) = (task.leg, task.unit);
            let request = Request::DataOut(DataOut {
                is_final: at + len == to,
                lun: lun(unit),
                itt: Itt(itt),
                ttt,
                exp_stat_sn: self.exp_stat_sn(leg),
                data_sn,
                offset: at as u32,
            });
            let damage = if damaged { Damage::Data } else { Damage::None };
            let pdu = Pdu::new(request.encode(), data);
            self.put(itt, leg, Pdu { damage, ..pdu });
            at += len;
            data_sn += 1;
        }
    }

    /// Sends a task management request for immediate delivery.
    pub(crate) fn manage(&mut self, function: Function, unit: usize) {
        let concerned = |task: &Task| task.unit == unit && !task.aborting;
        let mut covers: Vec<u32> = self
            .tasks
            .iter()
            .filter(|(_, task)| concerned(task))
            .map(|(itt, _)| *itt)
            .collect();
        if function == Function::AbortTask {
            if covers.is_empty() {
                return;
            }
            covers = vec![self.random.pick(&covers)];
        }
        self.manage_tasks(function, unit, covers);
    }

    pub(crate) fn manage_tasks(&mut self, function: Function, unit: usize, covers: Vec<u32>) -> u32 {
        let leg = self.any_leg();
        self.manage_on(leg, function, unit, covers)
    }

    /// The same on a connection of choice.
    pub(crate) fn manage_on(&mut self, leg: u16, function: Function, unit: usize, covers: Vec<u32>) -> u32 {
        let itt = self.fresh_itt();
        let (referenced_itt, ref_cmd_sn) = match function {
            Function::AbortTask | Function::TaskReassign => (Itt(covers[0]), self.tasks[&covers[0]].cmd_sn),
            _ => (Itt::RESERVED, Sn(0)),
        };
        for covered in &covers {
            let task = self.tasks.get_mut(covered).expect("chosen among them");
            if function == Function::TaskReassign {
                task.moving_to = Some(leg);
            } else {
                task.aborting = true;
            }
        }
        if !matches!(function, Function::AbortTask | Function::TaskReassign) {
            // It may come before an earlier request that concerns one of its tasks alone.
            let others = self.tasks.values_mut().filter(|task| task.unit == unit);
            let others = others.filter(|task| task.aborting);
            others.for_each(|task| task.may_be_gone = true);
        }
        // Where nothing is missing it does not matter which of both is said.
        let exp_data_sn = match function {
            Function::TaskReassign if self.random.percent(50) => self.tasks[&covers[0]].next_data_sn(),
            _ => 0,
        };
        let reset = matches!(function, Function::ClearTaskSet | Function::LogicalUnitReset)
            .then(|| self.scene.reset_begins(self.id, unit));
        let request = Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function,
            lun: lun(unit),
            itt: Itt(itt),
            referenced_itt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(leg),
            ref_cmd_sn,
            exp_data_sn,
        });
        self.note(format_args!(
            "-> {itt:#x} on {leg} {function:?} lun {unit} of {covers:x?}"
        ));
        self.send(leg, &request, Vec::new());
        let exp_cmd_sn = self.exp_cmd_sn;
        let is_early = covers
            .iter()
            .any(|itt| !self.tasks[itt].cmd_sn.precedes(exp_cmd_sn));
        let tmf = Tmf {
            leg,
            unit,
            repeats: None,
            said_at: Instant::now(),
            function,
            covers,
            sent_at: Instant::now(),
            tick: self.scene.tick(),
            is_early,
            reset,
        };
        self.tmfs.insert(itt, tmf);
        itt
    }

    /// Sends a ping that takes its turn among the commands.
    pub(crate) fn ping(&mut self) {
        let leg = self.any_leg();
        let cmd_sn = self.number(leg);
        let itt = self.ping_as(leg, cmd_sn);
        let sent_at = Instant::now();
        self.pings.insert(itt, Ping { leg, cmd_sn, sent_at });
    }

    /// Asks about the target, in turn among the commands. It is answered as a ping is.
    pub(crate) fn ask(&mut self) {
        let leg = self.any_leg();
        let cmd_sn = self.number(leg);
        let itt = self.fresh_itt();
        let request = Request::Text(TextRequest {
            immediate: false,
            is_final: true,
            continues: false,
            lun: Lun::ZERO,
            itt: Itt(itt),
            ttt: Ttt::RESERVED,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn(leg),
        });
        self.note(format_args!("-> {itt:#x} on {leg} cmdsn {} asks", cmd_sn.0));
        self.send(leg, &request, b"SendTargets=\0".to_vec());
        let sent_at = Instant::now();
        self.pings.insert(itt, Ping { leg, cmd_sn, sent_at });
    }

    /// Sends a ping with a number of its own choice; its tag.
    pub(crate) fn ping_as(&mut self, leg: u16, cmd_sn: Sn) -> u32 {
        let itt = self.fresh_itt();
        let request = Request::NopOut(NopOut {
            immediate: false,
            lun: Lun::ZERO,
            itt: Itt(itt),
            ttt: Ttt::RESERVED,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn(leg),
        });
        self.send(leg, &request, b"ping".to_vec());
        itt
    }

    /// Asks to end the session. Where PDUs are lost it must not be one that waits for others.
    pub(crate) fn log_out(&mut self) {
        let leg = self.any_leg();
        let is_open = !self.max_cmd_sn.precedes(self.cmd_sn);
        let cmd_sn = (!self.recovers() && is_open).then(|| self.number(leg));
        self.note(format_args!("-> logout on {leg}"));
        self.logout_as(leg, LogoutReason::CloseSession, leg, cmd_sn);
        self.logout = Some(leg);
    }

    /// Says once more that the session is to end; by another connection when the first one is gone.
    pub(crate) fn log_out_again(&mut self) {
        let Some(leg) = self.logout else { return };
        let leg = match self.leg(leg) {
            Some(_) => leg,
            None => self.any_leg(),
        };
        self.logout_as(leg, LogoutReason::CloseSession, leg, None);
    }

    pub(crate) fn logout_as(
        &mut self,
        leg: u16,
        reason: LogoutReason,
        cid: u16,
        cmd_sn: Option<Sn>,
    ) -> (u32, Request) {
        let itt = self.fresh_itt();
        let request = Request::Logout(LogoutRequest {
            immediate: cmd_sn.is_none(),
            reason,
            itt: Itt(itt),
            cid: Cid(cid),
            cmd_sn: cmd_sn.unwrap_or(self.cmd_sn),
            exp_stat_sn: self.exp_stat_sn(leg),
        });
        self.send(leg, &request, Vec::new());
        (itt, request)
    }

    /// What is still open when the connection is gone.
    pub(crate) fn abandon(&mut self) {
        for (_, task) in std::mem::take(&mut self.tasks) {
            if let Some(change) = task.change {
                self.scene.lost(self.id, task.unit, change);
            }
        }
    }
}

pub(crate) fn lun(unit: usize) -> Lun {
    Lun::from_number(unit as u16).expect("few units")
}

/// Commands that an initiator keeps outstanding.
const QUEUE_DEPTH: usize = 24;
