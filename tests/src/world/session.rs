//! An initiator's end of one session: it sends, keeps count of what is outstanding, and holds every answer against the
//! rules. What belongs to one command is in `task.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use iscsi_proto::pdu::{
    AsyncEvent, DataOut, Function, LogoutReason, LogoutRequest, NopOut, Reject, RejectReason, Request,
    Response, ScsiCommand, TaskManagementRequest, TaskManagementResponse, TmfResponse,
};
use iscsi_proto::{Cid, Itt, Lun, Sn, Ttt};
use iser_transport::Opened;
use tokio::time::Instant;

use super::ledger::Check;
use super::login::Terms;
use super::pipe::{Pdu, Receiver, Sender};
use super::plan::Command;
use super::random::Random;
use super::scene::Scene;
use super::task::{Answer, Task};

/// A session in full feature phase.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) scene: Arc<Scene>,
    pub(crate) id: u8,
    pub(crate) random: Random,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) terms: Terms,
    pub(crate) cmd_sn: Sn,
    pub(crate) exp_stat_sn: Sn,
    pub(crate) exp_cmd_sn: Sn,
    pub(crate) max_cmd_sn: Sn,
    pub(crate) tasks: BTreeMap<u32, Task>,
    pub(crate) tmfs: BTreeMap<u32, Tmf>,
    pub(crate) pings: BTreeMap<u32, Instant>,
    /// Tags about which the target has said its last word.
    dead: BTreeSet<u32>,
    /// Tags of answered commands, to be used again.
    free: Vec<u32>,
    next_itt: u32,
    pub(crate) logged_out: bool,
}

/// A task management request that has not been answered.
#[derive(Debug)]
pub(crate) struct Tmf {
    function: Function,
    covers: Vec<u32>,
    sent_at: Instant,
    reset: Option<usize>,
}

impl Session {
    #[expect(clippy::too_many_arguments, reason = "what a login leaves behind")]
    pub(crate) fn new(
        scene: Arc<Scene>,
        id: u8,
        random: Random,
        (sender, receiver): (Sender, Receiver),
        terms: Terms,
        cmd_sn: Sn,
        exp_stat_sn: Sn,
        (exp_cmd_sn, max_cmd_sn): (Sn, Sn),
    ) -> Self {
        Self {
            scene,
            id,
            random,
            sender,
            receiver,
            terms,
            cmd_sn,
            exp_stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            tasks: BTreeMap::new(),
            tmfs: BTreeMap::new(),
            pings: BTreeMap::new(),
            dead: BTreeSet::new(),
            free: Vec::new(),
            next_itt: 1,
            logged_out: false,
        }
    }

    fn violated(&self, check: Check, detail: impl std::fmt::Display) {
        let (id, tsih) = (self.id, self.terms.tsih.0);
        self.scene
            .ledger
            .violated(check, format_args!("initiator {id} session {tsih}: {detail}"));
    }

    fn note(&self, what: impl std::fmt::Display) {
        let (id, tsih) = (self.id, self.terms.tsih.0);
        self.scene.ledger.note(format_args!("i{id} s{tsih} {what}"));
    }

    /// Whether the window lets another command out.
    pub(crate) fn may_send(&self) -> bool {
        !self.max_cmd_sn.precedes(self.cmd_sn) && self.tasks.len() < QUEUE_DEPTH
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.tmfs.is_empty() && self.pings.is_empty()
    }

    fn itt(&mut self) -> u32 {
        if self.random.percent(20)
            && let Some(itt) = self.free.pop()
        {
            return itt;
        }
        self.next_itt += 1;
        self.next_itt
    }

    fn send(&mut self, request: &Request, data: Vec<u8>, damaged: bool) {
        let pdu = Pdu {
            damaged: damaged && !self.terms.rdma,
            ..Pdu::new(request.encode(), data)
        };
        self.sender.send(pdu);
    }

    /// Sends a command with what data may go at once.
    pub(crate) fn command(&mut self, unit: usize, command: Command) {
        let itt = self.itt();
        let cmd_sn = self.cmd_sn.advance();
        let mut task = Task::new(&self.scene, unit, command, cmd_sn);
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
        let request = Request::ScsiCommand(ScsiCommand {
            immediate: false,
            is_final: unsolicited == 0,
            read: task.command.is_read(),
            write: task.command.is_write(),
            attribute: task.command.attribute,
            priority: 0,
            lun: lun(unit),
            itt: Itt(itt),
            expected_len: task.command.announced as u32,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: task.command.cdb,
        });
        let damaged = immediate > 0 && self.random.percent(1) && !self.terms.rdma;
        task.damaged = damaged;
        task.asked_to = immediate + unsolicited;
        let first = data[..immediate].to_vec();
        let opened = self.terms.rdma.then(|| Opened {
            room: if task.command.is_read() {
                task.command.announced
            } else {
                0
            },
            data_out: data.clone(),
            unasked: immediate + unsolicited,
        });
        if self.terms.rdma {
            // Whatever else is fetched, nobody here sees it.
            task.asked_to = data.len();
        }
        self.note(format_args!(
            "-> {itt:#x} cmdsn {} lun {unit} {:?} announced {} immediate {immediate}",
            cmd_sn.0, task.command.kind, task.command.announced
        ));
        self.sender.send(Pdu {
            damaged,
            opened,
            ..Pdu::new(request.encode(), first)
        });
        self.tasks.insert(itt, task);
        if unsolicited > 0 {
            self.data_out(itt, Ttt::RESERVED, immediate, immediate + unsolicited);
        }
    }

    /// Sends a run of a task's data, cut as agreed.
    fn data_out(&mut self, itt: u32, ttt: Ttt, from: usize, to: usize) {
        let (mut at, mut data_sn) = (from, 0);
        while at < to {
            let len = (to - at).min(self.terms.max_send);
            let damaged = self.random.below(400) == 0 && !self.terms.rdma;
            let Some(task) = self.tasks.get_mut(&itt) else {
                return;
            };
            task.damaged |= damaged;
            let data = task.command.data_out[at..at + len].to_vec();
            let request = Request::DataOut(DataOut {
                is_final: at + len == to,
                lun: lun(task.unit),
                itt: Itt(itt),
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                offset: at as u32,
            });
            self.send(&request, data, damaged);
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

    fn manage_tasks(&mut self, function: Function, unit: usize, covers: Vec<u32>) {
        self.next_itt += 1;
        let itt = self.next_itt;
        let (referenced_itt, ref_cmd_sn) = match function {
            Function::AbortTask => (Itt(covers[0]), self.tasks[&covers[0]].cmd_sn),
            _ => (Itt::RESERVED, Sn(0)),
        };
        for covered in &covers {
            let task = self.tasks.get_mut(covered).expect("chosen among them");
            task.aborting = true;
        }
        let reset = matches!(function, Function::ClearTaskSet | Function::LogicalUnitReset)
            .then(|| self.scene.reset_begins(self.id, unit));
        let request = Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function,
            lun: lun(unit),
            itt: Itt(itt),
            referenced_itt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn,
            exp_data_sn: 0,
        });
        self.note(format_args!("-> {itt:#x} {function:?} lun {unit} of {covers:x?}"));
        self.send(&request, Vec::new(), false);
        let tmf = Tmf {
            function,
            covers,
            sent_at: Instant::now(),
            reset,
        };
        self.tmfs.insert(itt, tmf);
    }

    /// Sends a ping that takes its turn among the commands.
    pub(crate) fn ping(&mut self) {
        let cmd_sn = self.cmd_sn.advance();
        self.ping_as(cmd_sn);
    }

    fn ping_as(&mut self, cmd_sn: Sn) {
        self.next_itt += 1;
        let request = Request::NopOut(NopOut {
            immediate: false,
            lun: Lun::ZERO,
            itt: Itt(self.next_itt),
            ttt: Ttt::RESERVED,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        });
        self.pings.insert(self.next_itt, Instant::now());
        self.send(&request, b"ping".to_vec(), false);
    }

    /// Asks to end the session.
    pub(crate) fn log_out(&mut self) {
        self.next_itt += 1;
        let cmd_sn = self.cmd_sn.advance();
        let request = Request::Logout(LogoutRequest {
            immediate: false,
            reason: LogoutReason::CloseSession,
            itt: Itt(self.next_itt),
            cid: Cid(0),
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        });
        self.note("-> logout");
        self.send(&request, Vec::new(), false);
    }

    /// What is still open when the connection is gone.
    pub(crate) fn abandon(&mut self) {
        for (_, task) in std::mem::take(&mut self.tasks) {
            if let Some(change) = task.change {
                self.scene.lost(self.id, task.unit, change);
            }
        }
    }

    /// Takes in what arrived.
    pub(crate) fn heard(&mut self, pdu: &Pdu) {
        let response = match Response::decode(&pdu.bhs) {
            Ok(response) => response,
            Err(error) => return self.violated(Check::Protocol, format_args!("no PDU: {error}")),
        };
        match response {
            Response::DataIn(pdu_in) => {
                self.numbers(pdu_in.exp_cmd_sn, pdu_in.max_cmd_sn);
                if let Some(status) = pdu_in.status {
                    self.stat_sn(status.stat_sn);
                }
                let (max_recv, max_burst) = (self.terms.max_recv, self.terms.max_burst);
                let Some(task) = self.task(pdu_in.itt, "Data-In") else {
                    return;
                };
                if let Err(problem) = task.data_in(&pdu_in, &pdu.data, max_recv, max_burst) {
                    self.violated(Check::DataIn, format_args!("{}: {problem}", pdu_in.itt));
                }
                if let Some(status) = pdu_in.status {
                    let answer = Answer::of(status.status, status.residual, &[]);
                    self.answered(pdu_in.itt, &answer);
                }
            }
            Response::ScsiResponse(response) => {
                self.numbers(response.exp_cmd_sn, response.max_cmd_sn);
                self.stat_sn(response.stat_sn);
                if self.task(response.itt, "SCSI Response").is_some() {
                    let answer = Answer::of(response.status, response.residual, &pdu.data);
                    self.answered(response.itt, &answer);
                }
            }
            Response::R2t(r2t) => {
                // Its numbers may be older than the last ones: it may have waited for its turn.
                let Some(task) = self.task(r2t.itt, "R2T") else {
                    return;
                };
                match task.r2t(&r2t) {
                    Ok((from, to)) => self.data_out(r2t.itt.0, r2t.ttt, from, to),
                    Err(problem) => self.violated(Check::DataOut, format_args!("{}: {problem}", r2t.itt)),
                }
            }
            Response::TaskManagement(response) => {
                self.numbers(response.exp_cmd_sn, response.max_cmd_sn);
                self.stat_sn(response.stat_sn);
                self.managed(&response);
            }
            Response::NopIn(nop) => {
                self.numbers(nop.exp_cmd_sn, nop.max_cmd_sn);
                if nop.ttt == Ttt::RESERVED {
                    self.stat_sn(nop.stat_sn);
                    if self.pings.remove(&nop.itt.0).is_none() || pdu.data != b"ping" {
                        self.violated(Check::AnsweredOnce, "a NOP-In that answers no ping");
                    }
                } else {
                    self.pong(nop.ttt);
                }
            }
            Response::Reject(reject) => {
                self.numbers(reject.exp_cmd_sn, reject.max_cmd_sn);
                self.stat_sn(reject.stat_sn);
                self.rejected(&reject, &pdu.data);
            }
            Response::Logout(response) => {
                self.numbers(response.exp_cmd_sn, response.max_cmd_sn);
                self.stat_sn(response.stat_sn);
                self.note("<- logged out");
                self.logged_out = true;
            }
            Response::AsyncMessage(message) => {
                self.stat_sn(message.stat_sn);
                if !matches!(message.event, AsyncEvent::LogoutRequested { .. }) {
                    self.violated(Check::Protocol, format_args!("{:?}", message.event));
                }
            }
            Response::Login(_) | Response::Text(_) => {
                self.violated(Check::Protocol, format_args!("an unasked {}", response.name()));
            }
        }
    }

    fn pong(&mut self, ttt: Ttt) {
        let request = Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        });
        self.send(&request, Vec::new(), false);
    }

    fn stat_sn(&mut self, stat_sn: Sn) {
        if stat_sn != self.exp_stat_sn {
            let expected = self.exp_stat_sn.0;
            self.violated(
                Check::StatSn,
                format_args!("StatSN {} instead of {expected}", stat_sn.0),
            );
        }
        self.exp_stat_sn = stat_sn.next();
    }

    fn numbers(&mut self, exp: Sn, max: Sn) {
        if exp.precedes(self.exp_cmd_sn) || max.precedes(self.max_cmd_sn) {
            self.violated(
                Check::CommandWindow,
                format_args!(
                    "went back from {}..{} to {}..{}",
                    self.exp_cmd_sn.0, self.max_cmd_sn.0, exp.0, max.0
                ),
            );
        }
        if self.cmd_sn.precedes(exp) {
            self.violated(
                Check::CommandWindow,
                format_args!("ExpCmdSN {} when {} is to be sent next", exp.0, self.cmd_sn.0),
            );
        }
        let open = max.next().distance_from(exp);
        if open > u32::from(self.scene.command_window) {
            self.violated(Check::CommandWindow, format_args!("a window of {open}"));
        }
        (self.exp_cmd_sn, self.max_cmd_sn) = (exp, max);
    }

    /// The window at rest, when nothing is outstanding.
    pub(crate) fn check_window(&self) {
        let open = self.max_cmd_sn.next().distance_from(self.exp_cmd_sn);
        if open != u32::from(self.scene.command_window) {
            let size = self.scene.command_window;
            self.violated(
                Check::CommandWindow,
                format_args!("at rest {open} of {size} commands may be sent"),
            );
        }
    }

    fn task(&mut self, itt: Itt, what: &str) -> Option<&mut Task> {
        if self.tasks.contains_key(&itt.0) {
            return self.tasks.get_mut(&itt.0);
        }
        if self.dead.contains(&itt.0) {
            self.violated(
                Check::SilentAfterAbort,
                format_args!("{what} for {itt}, which was aborted"),
            );
        } else {
            self.violated(
                Check::AnsweredOnce,
                format_args!("{what} for {itt}, which is not outstanding"),
            );
        }
        None
    }

    fn answered(&mut self, itt: Itt, answer: &Answer) {
        let task = self.tasks.remove(&itt.0).expect("looked up by the caller");
        self.note(format_args!("<- {:#x} {answer:?}", itt.0));
        // A tag that a task management request names stays what it is until that is answered.
        if !task.aborting {
            self.free.push(itt.0);
        }
        for (check, problem) in task.finish(&self.scene, answer) {
            self.violated(check, format_args!("{itt} {:?}: {problem}", task.command.kind));
        }
    }

    fn managed(&mut self, response: &TaskManagementResponse) {
        let Some(tmf) = self.tmfs.remove(&response.itt.0) else {
            return self.violated(
                Check::AnsweredOnce,
                format_args!("a task management response for {}", response.itt),
            );
        };
        self.note(format_args!("<- {:#x} {:?}", response.itt.0, response.response));
        if let Some(reset) = tmf.reset {
            self.scene.reset_ended(reset);
        }
        match response.response {
            TmfResponse::Complete => {}
            TmfResponse::TaskDoesNotExist if tmf.function == Function::AbortTask => {
                let open = tmf.covers.iter().filter_map(|itt| self.tasks.get(itt));
                let unexcused = open
                    .filter(|task| !task.damaged && !self.is_excused(task))
                    .count();
                if unexcused > 0 {
                    let covers = &tmf.covers;
                    self.violated(
                        Check::AnsweredOnce,
                        format_args!("{covers:x?} does not exist and was not answered"),
                    );
                }
            }
            other => self.violated(Check::Protocol, format_args!("{:?}: {other:?}", tmf.function)),
        }
        for itt in tmf.covers {
            if let Some(task) = self.tasks.remove(&itt) {
                self.dead.insert(itt);
                task.aborted(&self.scene);
            }
        }
    }

    fn is_excused(&self, task: &Task) -> bool {
        self.scene.may_be_reset(self.id, task.unit, task.start)
    }

    fn rejected(&mut self, reject: &Reject, header: &[u8]) {
        let refused = header.first_chunk().map(Request::decode);
        match refused {
            Some(Ok(Request::ScsiCommand(pdu))) => {
                let Some(task) = self.tasks.get(&pdu.itt.0).filter(|task| task.damaged) else {
                    return self.violated(
                        Check::Protocol,
                        format_args!("{} was rejected: {:?}", pdu.itt, reject.reason),
                    );
                };
                debug_assert!(reject.reason == RejectReason::DataDigestError);
                task.refused(&self.scene);
                self.tasks.remove(&pdu.itt.0);
                // The CmdSN of a refused command does not count as received: the initiator fills the gap (RFC 7143
                // §7.3), unless it has done so by aborting the command.
                let mut tmfs = self.tmfs.values();
                if !tmfs.any(|tmf| tmf.function == Function::AbortTask && tmf.covers.contains(&pdu.itt.0)) {
                    self.ping_as(pdu.cmd_sn);
                }
                // Data-Out that follow a damaged command are strays, and R2Ts for it would be wrong.
                self.dead.insert(pdu.itt.0);
            }
            // Damaged, or sent when the task had ended.
            Some(Ok(Request::DataOut(_))) => {}
            _ => self.violated(Check::Protocol, format_args!("rejected: {reject:?}")),
        }
    }

    /// Looks for what is late. Commands that somebody else's reset may have ended are aborted, as initiators do.
    pub(crate) fn overdue(&mut self, ending: bool) {
        let now = Instant::now();
        let late: Vec<u32> = self
            .tmfs
            .iter()
            .filter(|(_, tmf)| now - tmf.sent_at > MANAGEMENT_PATIENCE)
            .map(|(itt, _)| *itt)
            .collect();
        for itt in late {
            let tmf = self.tmfs.remove(&itt).expect("found above");
            self.violated(
                Check::TaskManagementInTime,
                format_args!("{:?} {itt:#x} is not answered", tmf.function),
            );
            for covered in tmf.covers {
                if let Some(task) = self.tasks.remove(&covered) {
                    task.aborted(&self.scene);
                    self.dead.insert(covered);
                }
            }
        }
        if self.pings.values().any(|sent| now - *sent > COMMAND_PATIENCE) {
            self.pings.clear();
            self.violated(Check::AnsweredOnce, "a ping is not answered");
        }
        let old: Vec<(u32, bool)> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.aborting)
            .filter_map(|(itt, task)| {
                let excused = self.is_excused(task);
                let age = now - task.sent_at;
                let late = age > COMMAND_PATIENCE || (excused && ending && age > Duration::from_secs(3));
                late.then_some((*itt, excused))
            })
            .collect();
        for (itt, excused) in old {
            let task = &self.tasks[&itt];
            if !excused {
                let kind = &task.command.kind;
                self.violated(
                    Check::AnsweredOnce,
                    format_args!("{itt:#x} {kind:?} was never answered"),
                );
            }
            let unit = task.unit;
            self.manage_tasks(Function::AbortTask, unit, vec![itt]);
        }
    }
}

fn lun(unit: usize) -> Lun {
    Lun::from_number(unit as u16).expect("few units")
}

/// Commands that an initiator keeps outstanding.
const QUEUE_DEPTH: usize = 24;
/// How long task management may take: the patience for Data-Out that is owed, the network, and some.
const MANAGEMENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a command may take: longer than stores hold and fences stand.
const COMMAND_PATIENCE: Duration = Duration::from_secs(120);
