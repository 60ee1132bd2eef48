//! What an initiator does about connections that end: those that it logs out, those that break, and what they leave.

use iscsi_proto::Sn;
use iscsi_proto::pdu::{Function, LogoutReason, Request};
use tokio::time::Instant;

use super::session::{Session, Tmf};
use super::task::Task;

/// A logout of one connection that has not been answered.
#[derive(Clone, Debug)]
pub(crate) struct Parting {
    pub(crate) cid: u16,
    /// The connection that it was sent on.
    pub(crate) by: u16,
    pub(crate) request: Request,
    pub(crate) sent_at: Instant,
    pub(crate) said_at: Instant,
}

impl Parting {
    /// Whether it is one after which tasks may be taken up by another connection.
    pub(crate) fn keeps_tasks(&self) -> bool {
        let Request::Logout(pdu) = &self.request else {
            return false;
        };
        pdu.reason == LogoutReason::RemoveConnectionForRecovery
    }
}

impl Session {
    /// Asks to end one connection, by way of itself or of another; it is answered sooner or later.
    pub(crate) fn part(&mut self, by: u16, reason: LogoutReason, cid: u16) {
        let (itt, request) = self.logout_as(by, reason, cid, None);
        self.note(format_args!("-> {itt:#x} {reason:?} of {cid} on {by}"));
        let now = Instant::now();
        let parting = Parting {
            cid,
            by,
            request,
            sent_at: now,
            said_at: now,
        };
        self.partings.insert(itt, parting);
        if let Some(leg) = self.leg(cid) {
            leg.is_closing = true;
        }
    }

    /// A connection breaks. What went by it is open until the target is known to have noticed.
    pub(crate) fn lose_leg(&mut self, cid: u16) {
        self.note(format_args!("connection {cid} breaks"));
        let is_heard_of = !self.reassigns() || self.random.percent(50);
        let place = self.legs.iter().position(|leg| leg.cid == cid);
        if let Some(place) = place.filter(|_| !is_heard_of) {
            self.ghosts.push(self.legs.remove(place));
        }
        self.forget_leg(cid);
    }

    /// A connection is gone.
    pub(crate) fn forget_leg(&mut self, cid: u16) {
        self.legs.retain(|leg| leg.cid != cid);
        self.pings.retain(|_, ping| ping.leg != cid);
        // Its answer may be gone as well, or be another one now.
        self.contested.clear();
    }

    /// The target has taken leave of a connection: its tasks have ended without a status, its requests are answered by
    /// nothing, and numbers that it may have lost are filled.
    pub(crate) fn leg_is_over(&mut self, cid: u16) {
        self.pings.retain(|_, ping| ping.leg != cid);
        let (moving, over): (Vec<u32>, Vec<u32>) = self.tasks_of(cid).into_iter().partition(|itt| {
            let moving_to = self.tasks[itt].moving_to;
            moving_to.is_some_and(|other| other != cid)
        });
        for itt in over {
            let task = self.tasks.remove(&itt).expect("found above");
            task.aborted(&self.scene);
            self.dead.insert(itt);
        }
        self.settle_tmfs_of(cid);
        // What was about to move there has ended if it had, and is adrift if not. What was about to move away has ended
        // if it had not.
        for itt in self.tasks_moving_to(cid).into_iter().chain(moving) {
            let task = self.tasks.get_mut(&itt).expect("found above");
            task.may_be_gone = true;
            let unit = task.unit;
            if !task.aborting {
                self.manage_tasks(Function::AbortTask, unit, vec![itt]);
            }
        }
        self.fill_numbers_of(cid);
    }

    /// Requests that a connection has taken with it are answered by nothing.
    pub(crate) fn settle_tmfs_of(&mut self, cid: u16) {
        let unanswered: Vec<u32> = self
            .tmfs
            .iter()
            .filter(|(_, tmf)| tmf.leg == cid)
            .map(|(itt, _)| *itt)
            .collect();
        for itt in unanswered {
            // One may have left with another that repeats it.
            let Some(tmf) = self.forget_tmf(itt) else {
                continue;
            };
            // Whether it was done nobody knows.
            for covered in tmf.covers {
                if tmf.function == Function::TaskReassign {
                    continue;
                }
                if let Some(task) = self.tasks.get_mut(&covered) {
                    task.may_be_gone = true;
                    let unit = task.unit;
                    self.manage_tasks(Function::AbortTask, unit, vec![covered]);
                }
            }
        }
    }

    /// A task management request is not waited for any more, nor is what it repeats.
    pub(crate) fn forget_tmf(&mut self, itt: u32) -> Option<Tmf> {
        let tmf = self.tmfs.remove(&itt)?;
        let mut before = tmf.repeats;
        let mut resets: Vec<usize> = tmf.reset.into_iter().collect();
        while let Some(repeated) = before.and_then(|itt| self.tmfs.remove(&itt)) {
            before = repeated.repeats;
            resets.extend(repeated.reset);
        }
        resets.into_iter().for_each(|reset| self.scene.reset_ended(reset));
        Some(tmf)
    }

    /// Numbers that a connection may have lost are filled, but for those of commands that are going to be sent again.
    pub(crate) fn fill_numbers_of(&mut self, cid: u16) {
        self.under_way
            .retain(|(cmd_sn, _)| !cmd_sn.precedes(self.exp_cmd_sn));
        for place in 0..self.under_way.len() {
            let (cmd_sn, leg) = self.under_way[place];
            if leg == cid && !self.is_command(cmd_sn) {
                let leg = self.any_leg();
                self.under_way[place].1 = leg;
                self.fill(leg, cmd_sn);
            }
        }
    }

    /// Whether a number is one of a command that is going to be sent again, should it be lost.
    pub(crate) fn is_command(&self, cmd_sn: Sn) -> bool {
        let mut tasks = self.tasks.values();
        tasks.any(|task| task.cmd_sn == cmd_sn && !task.aborting)
    }

    /// Fills a number. A command that had it and is to be aborted will not be there when its abort comes later.
    pub(crate) fn fill(&mut self, leg: u16, cmd_sn: Sn) {
        let aborting = self.tasks.values_mut().filter(|task| task.cmd_sn == cmd_sn);
        aborting.for_each(|task| task.may_be_gone = true);
        let itt = self.ping_as(leg, cmd_sn);
        self.fillers.insert(itt);
    }

    pub(crate) fn tasks_of(&self, cid: u16) -> Vec<u32> {
        let of_leg = self.tasks.iter().filter(|(_, task)| task.leg == cid);
        of_leg.map(|(itt, _)| *itt).collect()
    }

    /// Tasks of connections that are gone, which were to go on with this one.
    pub(crate) fn tasks_moving_to(&self, cid: u16) -> Vec<u32> {
        let moving = |task: &Task| task.leg != cid && task.moving_to == Some(cid);
        let moving = self.tasks.iter().filter(|(_, task)| moving(task));
        moving.map(|(itt, _)| *itt).collect()
    }
}
