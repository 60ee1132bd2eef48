//! What an initiator does about a connection that broke, at ErrorRecoveryLevel 2 (RFC 7143 §7.2.2, §7.4): it has the target
//! take leave of it, and goes on with its tasks on another one.

use iscsi_proto::Itt;
use iscsi_proto::pdu::{Function, Request, TaskManagementRequest, TmfResponse};

use super::ledger::Check;
use super::session::{Session, Tmf, lun};

impl Session {
    pub(crate) fn reassigns(&self) -> bool {
        self.terms.level > 1
    }

    /// The target has taken leave of a broken connection, and kept its tasks: they go on elsewhere.
    pub(crate) fn leg_is_lost(&mut self, cid: u16) {
        self.pings.retain(|_, ping| ping.leg != cid);
        self.settle_tmfs_of(cid);
        for itt in self.tasks_of(cid).into_iter().chain(self.tasks_moving_to(cid)) {
            let task = self.tasks.get_mut(&itt).expect("found above");
            // It may have ended, and its status have gone with the connection while the abort was on its way.
            task.may_be_gone |= task.aborting;
            // It may have been asked for on yet another connection.
            let mut tmfs = self.tmfs.values();
            let is_asked_for =
                tmfs.any(|tmf| tmf.function == Function::TaskReassign && tmf.covers.contains(&itt));
            if !task.aborting && !is_asked_for {
                let unit = task.unit;
                self.manage_tasks(Function::TaskReassign, unit, vec![itt]);
            }
        }
        self.fill_numbers_of(cid);
    }

    /// A TASK REASSIGN that was sent on a connection is answered.
    pub(crate) fn reassigned(&mut self, leg: u16, tmf: &Tmf, response: TmfResponse) {
        let itt = tmf.covers[0];
        let excused = self
            .tasks
            .get(&itt)
            .is_none_or(|task| task.may_be_gone || task.aborting || self.is_excused(task));
        let exp_cmd_sn = self.exp_cmd_sn;
        let Some(task) = self.tasks.get_mut(&itt) else {
            // It was answered meanwhile.
            return;
        };
        if task.leg == leg && task.moving_to.is_none() {
            // It was asked for twice.
            return;
        }
        match response {
            TmfResponse::Complete => {
                task.leg = leg;
                task.moving_to = None;
            }
            // Said twice, and heard twice.
            TmfResponse::TaskStillAllegiant if task.leg == leg => task.moving_to = None,
            TmfResponse::TaskDoesNotExist if task.aborting => task.leg = leg,
            TmfResponse::TaskDoesNotExist if !task.cmd_sn.precedes(exp_cmd_sn) => {
                task.leg = leg;
                task.moving_to = None;
                self.retry(itt);
            }
            // The command was said again, and came behind the request: this answer was lost on its way, and is older.
            TmfResponse::TaskDoesNotExist if tmf.is_early || task.said > tmf.tick => task.moving_to = None,
            TmfResponse::TaskDoesNotExist if excused => task.leg = leg,
            other => self.violated(
                Check::AnsweredOnce,
                format_args!("the reassignment of {itt:#x} is answered {other:?}"),
            ),
        }
    }

    /// Asks for a task by a connection that is not its own, while its own is alive: that must not be granted (§11.5.1). Done
    /// where no connection is going to be lost meanwhile.
    pub(crate) fn contest(&mut self) {
        let is_certain = self.legs.iter().all(|leg| !leg.is_closing && !leg.is_spoiled);
        let is_quiet = self.tmfs.is_empty() && self.partings.is_empty() && self.terms.rdma.is_none();
        if !self.reassigns() || !is_certain || !is_quiet {
            return;
        }
        let mut tasks = self.tasks.iter();
        let arrived = tasks.find(|(_, task)| !task.aborting && task.cmd_sn.precedes(self.exp_cmd_sn));
        let Some((task, home, unit)) = arrived.map(|(itt, task)| (*itt, task.leg, task.unit)) else {
            return;
        };
        let Some(other) = self.legs.iter().map(|leg| leg.cid).find(|cid| *cid != home) else {
            return;
        };
        let itt = self.fresh_itt();
        let request = Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function: Function::TaskReassign,
            lun: lun(unit),
            itt: Itt(itt),
            referenced_itt: Itt(task),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn(other),
            ref_cmd_sn: self.tasks[&task].cmd_sn,
            exp_data_sn: 0,
        });
        self.note(format_args!("-> {itt:#x} on {other} wants {task:#x} of {home}"));
        self.contested.insert(itt, task);
        self.send(other, &request, Vec::new());
    }

    /// Such a request is answered; the task may have ended meanwhile.
    pub(crate) fn contest_ends(&self, task: u32, response: TmfResponse) {
        self.note(format_args!("<- {task:#x} {response:?}"));
        if !matches!(
            response,
            TmfResponse::TaskStillAllegiant | TmfResponse::TaskDoesNotExist
        ) {
            let detail = format_args!("{task:#x} has a connection, and is reassigned: {response:?}");
            self.violated(Check::Allegiance, detail);
        }
    }

    /// Whether a task is on this connection, be it that the word of it was lost.
    pub(crate) fn is_allegiant(&mut self, itt: u32, leg: u16) -> bool {
        let Some(task) = self.tasks.get_mut(&itt) else {
            return false;
        };
        if task.moving_to == Some(leg) {
            task.leg = leg;
        }
        task.leg == leg
    }
}
