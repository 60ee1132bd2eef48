//! What an initiator hears, held against the rules.

use iscsi_proto::pdu::{
    AsyncEvent, DataIn, Function, LogoutResponseCode, NopOut, R2t, Reject, RejectReason, Request, Response,
    TaskManagementResponse, TmfResponse,
};
use iscsi_proto::{Itt, Lun, Sn, Ttt};
use tokio::time::Instant;

use super::leaving::Parting;
use super::ledger::Check;
use super::pipe::{Damage, Pdu};
use super::session::{Ping, Session};
use super::task::{Answer, Task};

impl Session {
    /// Takes in what arrived.
    pub(crate) fn heard(&mut self, leg: u16, pdu: &Pdu) {
        if pdu.damage != Damage::None {
            // Where it can be asked for again, it is as if it had not come.
            if !self.recovers() {
                self.fall("a digest does not match");
            }
            return;
        }
        let response = match Response::decode(&pdu.bhs) {
            Ok(response) => response,
            Err(error) => return self.violated(Check::Protocol, format_args!("no PDU: {error}")),
        };
        match response {
            Response::DataIn(pdu_in) => {
                self.numbers(leg, pdu_in.exp_cmd_sn, pdu_in.max_cmd_sn);
                if self.recovers() {
                    return self.data_in_again(leg, &pdu_in, &pdu.data);
                }
                if let Some(status) = pdu_in.status {
                    self.stat_sn(leg, status.stat_sn);
                }
                if self.has_fallen {
                    return;
                }
                let max_recv = self.leg(leg).map_or(0, |leg| leg.max_recv);
                let max_burst = self.terms.max_burst;
                let Some(task) = self.task(leg, pdu_in.itt, "Data-In") else {
                    return;
                };
                if let Err(problem) = task.data_in(&pdu_in, &pdu.data, max_recv, max_burst) {
                    self.missed(Check::DataIn, format_args!("{}: {problem}", pdu_in.itt));
                }
                if let Some(status) = pdu_in.status.filter(|_| !self.has_fallen) {
                    let answer = Answer::of(status.status, status.residual, &[]);
                    self.answered(pdu_in.itt, &answer);
                }
            }
            Response::ScsiResponse(response) => {
                self.numbers(leg, response.exp_cmd_sn, response.max_cmd_sn);
                if !self.is_new(leg, response.stat_sn) || !self.is_complete(leg, &response) {
                    return;
                }
                self.stat_sn(leg, response.stat_sn);
                if self.has_fallen {
                    return;
                }
                if self.task(leg, response.itt, "SCSI Response").is_some() {
                    let answer = Answer::of(response.status, response.residual, &pdu.data);
                    self.answered(response.itt, &answer);
                }
            }
            Response::R2t(r2t) => {
                // Its numbers may be older than the last ones: it may have waited for its turn.
                self.know_of(leg, r2t.stat_sn);
                if self.recovers() {
                    return self.r2t_again(leg, &r2t);
                }
                let Some(task) = self.task(leg, r2t.itt, "R2T") else {
                    return;
                };
                match task.r2t(&r2t) {
                    Ok((from, to)) => self.data_out(r2t.itt.0, r2t.ttt, from, to),
                    Err(problem) => self.missed(Check::DataOut, format_args!("{}: {problem}", r2t.itt)),
                }
            }
            Response::TaskManagement(response) => {
                self.numbers(leg, response.exp_cmd_sn, response.max_cmd_sn);
                // It is the last word on its tasks: what was said before it comes first.
                if self.is_new(leg, response.stat_sn) && self.is_next(leg, response.stat_sn) {
                    self.stat_sn(leg, response.stat_sn);
                    if !self.has_fallen {
                        self.managed(leg, &response);
                    }
                }
            }
            Response::NopIn(nop) => {
                self.numbers(leg, nop.exp_cmd_sn, nop.max_cmd_sn);
                if nop.ttt != Ttt::RESERVED {
                    self.know_of(leg, nop.stat_sn);
                    self.pong(leg, nop.ttt);
                } else if self.is_new(leg, nop.stat_sn) {
                    self.stat_sn(leg, nop.stat_sn);
                    let is_known = self.pings.remove(&nop.itt.0).is_some() || self.fillers.remove(&nop.itt.0);
                    if (!is_known && !self.recovers()) || pdu.data != b"ping" {
                        self.violated(Check::AnsweredOnce, "a NOP-In that answers no ping");
                    }
                }
            }
            Response::Reject(reject) => {
                self.numbers(leg, reject.exp_cmd_sn, reject.max_cmd_sn);
                if self.is_new(leg, reject.stat_sn) {
                    self.stat_sn(leg, reject.stat_sn);
                    self.rejected(leg, &reject, &pdu.data);
                }
            }
            Response::Logout(response) => {
                self.numbers(leg, response.exp_cmd_sn, response.max_cmd_sn);
                if !self.is_new(leg, response.stat_sn) || !self.is_next(leg, response.stat_sn) {
                    return;
                }
                self.stat_sn(leg, response.stat_sn);
                self.note(format_args!("<- {:#x} {:?}", response.itt.0, response.response));
                if self.recovers() && self.parted.contains(&response.itt.0) {
                    return;
                }
                match self.partings.remove(&response.itt.0) {
                    Some(parting) => {
                        self.parted.insert(response.itt.0);
                        self.parted(&parting, response.response);
                    }
                    None => self.logged_out = true,
                }
            }
            Response::AsyncMessage(message) => {
                self.numbers(leg, message.exp_cmd_sn, message.max_cmd_sn);
                if self.is_new(leg, message.stat_sn) {
                    self.stat_sn(leg, message.stat_sn);
                    self.told(&message.event);
                }
            }
            Response::Text(text) => {
                self.numbers(leg, text.exp_cmd_sn, text.max_cmd_sn);
                if self.is_new(leg, text.stat_sn) {
                    self.stat_sn(leg, text.stat_sn);
                    let is_known = self.pings.remove(&text.itt.0).is_some();
                    let name = format!("TargetName={}\0", self.scene.target);
                    if (!is_known && !self.recovers()) || !pdu.data.starts_with(name.as_bytes()) {
                        self.violated(Check::AnsweredOnce, "a Text Response that answers no question");
                    }
                }
            }
            // The login was said twice; see `login.rs`.
            Response::Login(_) if self.terms.is_lossy => {}
            Response::Login(_) => self.violated(Check::Protocol, "an unasked Login Response"),
        }
    }

    /// The target says something by itself.
    fn told(&mut self, event: &AsyncEvent) {
        self.note(format_args!("<- {event:?}"));
        match event {
            AsyncEvent::LogoutRequested { .. } if self.is_ordered() => self.is_asked_to_leave = true,
            // Its end follows.
            AsyncEvent::SessionDropped { .. } if self.is_ordered() => {}
            other => self.violated(Check::Protocol, format_args!("{other:?}")),
        }
    }

    fn pong(&mut self, leg: u16, ttt: Ttt) {
        let request = Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(leg),
        });
        self.send(leg, &request, Vec::new());
    }

    /// A logout of one connection is answered.
    pub(crate) fn parted(&mut self, parting: &Parting, response: LogoutResponseCode) {
        let (cid, by) = (parting.cid, parting.by);
        if by != cid {
            // What is still on its way there is of no interest any more.
            self.legs.retain(|leg| leg.cid != cid);
        }
        match response {
            LogoutResponseCode::Success if self.reassigns() && parting.keeps_tasks() => self.leg_is_lost(cid),
            // The target may have noticed by itself that it is gone.
            LogoutResponseCode::Success | LogoutResponseCode::CidNotFound => self.leg_is_over(cid),
            // A session that is about to end keeps nothing.
            LogoutResponseCode::RecoveryNotSupported if self.is_ordered() => self.is_asked_to_leave = true,
            LogoutResponseCode::RecoveryNotSupported | LogoutResponseCode::CleanupFailed => {
                self.violated(Check::Protocol, format_args!("a logout is answered {response:?}"));
            }
        }
    }

    /// Whether a response was not received before. Where nothing is lost it never was.
    fn is_new(&mut self, leg: u16, stat_sn: Sn) -> bool {
        let recovers = self.recovers();
        let Some(leg) = self.leg(leg) else { return false };
        leg.know_of(stat_sn.next());
        !recovers || !leg.has(stat_sn)
    }

    /// Whether everything before a response was received.
    fn is_next(&mut self, leg: u16, stat_sn: Sn) -> bool {
        let recovers = self.recovers();
        let is_next = self.leg(leg).is_some_and(|leg| leg.exp_stat_sn == stat_sn);
        is_next || !recovers
    }

    fn know_of(&mut self, leg: u16, stat_sn: Sn) {
        if let Some(leg) = self.leg(leg) {
            leg.know_of(stat_sn);
        }
    }

    fn data_in_again(&mut self, leg: u16, pdu: &DataIn, data: &[u8]) {
        let max_recv = self.leg(leg).map_or(0, |leg| leg.max_recv);
        // Data that the new connection carries say as well as the response before them that the task has moved.
        let is_allegiant = self.is_allegiant(pdu.itt.0, leg);
        // What was asked for twice may come when it is not needed any more.
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else {
            return;
        };
        if !is_allegiant {
            return self.violated(
                Check::Allegiance,
                format_args!("Data-In for {} on {leg}", pdu.itt),
            );
        }
        if let Err(problem) = task.data_in_again(pdu, data, max_recv) {
            self.violated(Check::DataIn, format_args!("{}: {problem}", pdu.itt));
        }
        self.after_data_in(leg, pdu);
    }

    fn r2t_again(&mut self, leg: u16, r2t: &R2t) {
        if !self.is_allegiant(r2t.itt.0, leg) {
            return;
        }
        let task = self.tasks.get_mut(&r2t.itt.0).expect("looked up above");
        match task.r2t_again(r2t) {
            Ok(Some((from, to))) => self.data_out(r2t.itt.0, r2t.ttt, from, to),
            Ok(None) => {}
            Err(problem) => self.violated(Check::DataOut, format_args!("{}: {problem}", r2t.itt)),
        }
    }

    fn stat_sn(&mut self, leg: u16, stat_sn: Sn) {
        let recovers = self.recovers();
        let Some(leg) = self.leg(leg) else { return };
        if recovers {
            leg.receive(stat_sn);
            return;
        }
        let expected = std::mem::replace(&mut leg.exp_stat_sn, stat_sn.next());
        if stat_sn != expected {
            let (found, expected) = (stat_sn.0, expected.0);
            self.missed(
                Check::StatSn,
                format_args!("StatSN {found} instead of {expected}"),
            );
        }
    }

    /// On one connection the numbers never go back; another one may be slower.
    fn numbers(&mut self, leg: u16, exp: Sn, max: Sn) {
        let Some(leg) = self.leg(leg) else { return };
        let (old_exp, old_max) = std::mem::replace(&mut leg.window, (exp, max));
        if !self.terms.is_lossy && (exp.precedes(old_exp) || max.precedes(old_max)) {
            self.violated(
                Check::CommandWindow,
                format_args!(
                    "went back from {}..{} to {}..{}",
                    old_exp.0, old_max.0, exp.0, max.0
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
        if self.exp_cmd_sn.precedes(exp) {
            self.exp_cmd_sn = exp;
            self.under_way.retain(|(cmd_sn, _)| !cmd_sn.precedes(exp));
        }
        if self.max_cmd_sn.precedes(max) {
            self.max_cmd_sn = max;
        }
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

    fn task(&mut self, leg: u16, itt: Itt, what: &str) -> Option<&mut Task> {
        self.is_allegiant(itt.0, leg);
        if let Some(task) = self.tasks.get(&itt.0) {
            if task.leg == leg {
                return self.tasks.get_mut(&itt.0);
            }
            let theirs = task.leg;
            self.violated(
                Check::Allegiance,
                format_args!("{what} for {itt} of connection {theirs} comes on {leg}"),
            );
            return None;
        }
        if self.falls() && matches!(what, "R2T" | "Data-In") {
            // A response has overtaken it.
            self.fall(format_args!("{what} for {itt} comes too late"));
        } else if self.dead.contains(&itt.0)
            && self.leg(leg).is_some_and(|leg| leg.is_closing || leg.is_spoiled)
        {
            // A connection that the target has closed, or is about to, acknowledges nothing any more: no answer on another
            // one waits for its last words.
            self.note(format_args!("<- last words: {what} for {itt}"));
        } else if self.dead.contains(&itt.0) {
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

    fn managed(&mut self, leg: u16, response: &TaskManagementResponse) {
        if let Some(task) = self.contested.remove(&response.itt.0) {
            return self.contest_ends(task, response.response);
        }
        let Some(tmf) = self.forget_tmf(response.itt.0) else {
            if self.recovers() {
                // It was said twice, and answered twice.
                return;
            }
            return self.violated(
                Check::AnsweredOnce,
                format_args!("a task management response for {}", response.itt),
            );
        };
        self.note(format_args!("<- {:#x} {:?}", response.itt.0, response.response));
        if tmf.function == Function::TaskReassign {
            return self.reassigned(leg, &tmf, response.response);
        }
        match response.response {
            TmfResponse::Complete => {}
            TmfResponse::TaskDoesNotExist if tmf.function == Function::AbortTask => {
                let open = tmf.covers.iter().filter_map(|itt| self.tasks.get(itt));
                let unexcused = open
                    .filter(|task| !task.damaged && !task.may_be_gone && !self.is_excused(task))
                    // The logout of its connection ends it, and is answered there.
                    .filter(|task| !self.partings.values().any(|parting| parting.cid == task.leg))
                    .count();
                if unexcused > 0 {
                    let covers = &tmf.covers;
                    self.missed(
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

    pub(crate) fn is_excused(&self, task: &Task) -> bool {
        self.scene.may_be_reset(self.id, task.unit, task.start)
    }

    fn rejected(&mut self, leg: u16, reject: &Reject, header: &[u8]) {
        let refused = header.first_chunk().map(Request::decode);
        match refused {
            // Of what did not arrive as it was sent, the target has not taken the number: it is said again.
            Some(Ok(Request::ScsiCommand(pdu))) if self.recovers() => {
                if reject.reason != RejectReason::DataDigestError {
                    self.violated(
                        Check::Protocol,
                        format_args!("{} was rejected: {:?}", pdu.itt, reject.reason),
                    );
                }
                if self.tasks.get(&pdu.itt.0).is_some_and(|task| !task.aborting) {
                    self.retry(pdu.itt.0);
                }
            }
            // Said twice, or asked for twice.
            Some(Ok(Request::TaskManagement(_))) if self.recovers() => {}
            Some(Ok(Request::Snack(pdu)))
                if self.recovers() && reject.reason == RejectReason::ProtocolError =>
            {
                self.note(format_args!("<- no {:?} of {}", pdu.kind, pdu.itt));
            }
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
                    let itt = self.ping_as(leg, pdu.cmd_sn);
                    let sent_at = Instant::now();
                    let cmd_sn = pdu.cmd_sn;
                    self.pings.insert(itt, Ping { leg, cmd_sn, sent_at });
                }
                // Data-Out that follow a damaged command are strays, and R2Ts for it would be wrong.
                self.dead.insert(pdu.itt.0);
            }
            // Damaged, or sent when the task had ended.
            Some(Ok(Request::DataOut(_))) => {}
            // Its number is waited for.
            Some(Ok(pdu @ (Request::NopOut(_) | Request::Text(_))))
                if self.terms.is_lossy && reject.reason == RejectReason::DataDigestError =>
            {
                if let Some(Ping { cmd_sn, .. }) = self.pings.remove(&pdu.itt().0)
                    && !cmd_sn.precedes(self.exp_cmd_sn)
                {
                    let itt = self.ping_as(leg, cmd_sn);
                    let sent_at = Instant::now();
                    self.pings.insert(itt, Ping { leg, cmd_sn, sent_at });
                }
            }
            // A login that was said twice, and damaged.
            Some(Err(_)) if self.terms.is_lossy && reject.reason == RejectReason::CommandNotSupported => {}
            _ => self.violated(Check::Protocol, format_args!("rejected: {reject:?}")),
        }
    }
}
