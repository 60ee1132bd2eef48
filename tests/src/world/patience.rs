//! What an initiator does about silence.

use std::time::Duration;

use iscsi_proto::pdu::Function;
use tokio::time::Instant;

use super::ledger::Check;
use super::session::Session;

impl Session {
    /// Looks for what is late. Commands that somebody else's reset may have ended are aborted, as initiators do.
    pub(crate) fn overdue(&mut self, ending: bool) {
        if self.recovers() {
            self.recover();
        }
        let now = Instant::now();
        if self.falls() {
            return self.fall_when_late(now);
        }
        // Where PDUs are lost it takes as long as it takes to get through.
        let patience = MANAGEMENT_PATIENCE * if self.recovers() { 12 } else { 1 };
        let late: Vec<u32> = self
            .tmfs
            .iter()
            .filter(|(_, tmf)| tmf.said_at <= now && now - tmf.sent_at > patience)
            .map(|(itt, _)| *itt)
            .collect();
        for itt in late {
            let Some(tmf) = self.forget_tmf(itt) else {
                continue;
            };
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
        if self
            .pings
            .values()
            .any(|ping| now - ping.sent_at > COMMAND_PATIENCE)
        {
            self.pings.clear();
            self.violated(Check::AnsweredOnce, "a ping is not answered");
        }
        if self
            .partings
            .values()
            .any(|parting| now - parting.sent_at > patience)
        {
            self.partings.clear();
            self.violated(Check::AnsweredOnce, "the logout of a connection is not answered");
        }
        let old: Vec<(u32, bool)> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.aborting && self.legs.iter().any(|leg| leg.cid == task.leg))
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

    /// At level 0 whatever is not answered may have been lost: nobody waits for it longer than that.
    fn fall_when_late(&mut self, now: Instant) {
        let tasks = self.tasks.values().map(|task| task.sent_at);
        let tmfs = self.tmfs.values().map(|tmf| tmf.sent_at);
        let pings = self.pings.values().map(|ping| ping.sent_at);
        let partings = self.partings.values().map(|parting| parting.sent_at);
        let mut all = tasks.chain(tmfs).chain(pings).chain(partings);
        if all.any(|sent_at| now - sent_at > LOSSY_PATIENCE) {
            self.fall("something is not answered");
        }
    }
}

/// How long anything may take where PDUs are lost for ever.
const LOSSY_PATIENCE: Duration = Duration::from_secs(4);
/// How long task management may take: the patience for Data-Out that is owed, the network, and some.
const MANAGEMENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a command may take: longer than stores hold and fences stand.
const COMMAND_PATIENCE: Duration = Duration::from_secs(120);
