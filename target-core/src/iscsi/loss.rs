//! A session loses a connection (RFC 7143 §7.5, §7.6): what ends with it, and how long a session without any is kept.
//!
//! At ErrorRecoveryLevel 0 and 1 the tasks of a connection end with it, and their nexus is told by a unit attention; at
//! level 2 they may be taken up by another. So long a session also outlives its last connection: for Time2Wait and
//! Time2Retain together.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use iscsi_proto::Lun;

use super::event::{Action, CloseReason, LinkId};
use super::full_feature::{FullFeature, Item};

/// What becomes of the tasks of a connection that leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// They end without a status.
    End,
    /// Another connection may take them up until then.
    Adrift { until: Instant },
}

/// A session without a connection.
#[derive(Debug)]
pub(super) struct Orphaned {
    pub(super) deadline: Instant,
    kept: Duration,
    last: CloseReason,
}

impl FullFeature {
    /// A connection has failed, or is given up by us.
    pub(super) fn lose(
        &mut self,
        link: LinkId,
        reason: CloseReason,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let kept = self.kept_without_connection();
        let is_last = self.links.len() == 1;
        if is_last && kept.is_zero() {
            return actions.push_back(Action::Close(reason));
        }
        let fate = self.fate_of_lost(now);
        self.part(link, fate, reason.clone(), now, actions);
        if is_last {
            self.orphaned = Some(Orphaned {
                deadline: now + kept,
                kept,
                last: reason,
            });
        }
    }

    /// What becomes of the tasks of a connection that is lost, or is removed for recovery.
    pub(super) fn fate_of_lost(&self, now: Instant) -> Fate {
        let kept = self.kept_without_connection();
        if self.params.error_recovery_level < 2 || kept.is_zero() {
            return Fate::End;
        }
        Fate::Adrift { until: now + kept }
    }

    /// Takes a connection out; its tasks meet their fate. The session goes on.
    pub(super) fn part(
        &mut self,
        link: LinkId,
        fate: Fate,
        reason: CloseReason,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match fate {
            Fate::End => self.end_allegiant(link, actions),
            Fate::Adrift { until } => self.set_adrift(link, until, actions),
        }
        self.links.remove(link);
        actions.push_back(Action::Disconnect(link, reason));
        self.answer_tmfs(now, actions);
        self.end_if_due(now, actions);
    }

    /// Ends the session when no connection came back in time. Returns whether it did.
    pub(super) fn give_up_if_due(&mut self, now: Instant, actions: &mut VecDeque<Action>) -> bool {
        let Some(orphaned) = self.orphaned.take_if(|orphaned| orphaned.deadline <= now) else {
            return false;
        };
        let Orphaned { kept, last, .. } = orphaned;
        actions.push_back(Action::Close(CloseReason::NotTakenUp {
            waited: kept,
            last: Box::new(last),
        }));
        true
    }

    /// §13.15: time to come back begins after the time to wait. With one connection and level 0 nothing is left that a
    /// new session would not have.
    fn kept_without_connection(&self) -> Duration {
        let (wait, retain) = (self.params.time_to_wait, self.params.time_to_retain);
        let is_plain = self.params.max_connections == 1 && self.params.error_recovery_level == 0;
        if retain == 0 || is_plain || self.ending.is_some() {
            return Duration::ZERO;
        }
        Duration::from_secs(u64::from(wait) + u64::from(retain))
    }

    /// §7.5: tasks that run and those that wait behind a hole end without a status. What they leave to be told are unit
    /// attentions.
    fn end_allegiant(&mut self, link: LinkId, actions: &mut VecDeque<Action>) {
        let mut cleared: Vec<Lun> = Vec::new();
        let ended = self.tasks.tags(|task| task.link == link && task.adrift.is_none());
        for itt in &ended {
            let Some(task) = self.tasks.remove(*itt) else {
                continue;
            };
            task.abort.fire();
            self.abandoned += 1;
            self.task_ended(task.immediate);
            cleared.push(task.lun);
        }
        for ordered in self.window.withdraw(|_, ordered| ordered.link == link) {
            if let Item::Command { pdu, .. } = ordered.item {
                cleared.push(pdu.lun);
            }
        }
        self.deferred.connection_lost(link);
        self.tmfs.connection_lost(link, &ended);
        self.tell_cleared(cleared, actions);
    }

    /// The nexus is told, once for each unit, that tasks ended.
    pub(super) fn tell_cleared(&self, mut cleared: Vec<Lun>, actions: &mut VecDeque<Action>) {
        cleared.sort_unstable_by_key(|lun| lun.to_bytes());
        cleared.dedup();
        if !cleared.is_empty() {
            actions.push_back(Action::TellCleared(cleared));
        }
    }
}
