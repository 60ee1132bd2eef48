//! Tasks that outlive their connection, at ErrorRecoveryLevel 2 (RFC 7143 §7.2.2, §7.4, §11.5): set adrift when it is
//! lost, taken up by TASK REASSIGN on another one, ended when nobody does so in time.
//!
//! A task adrift goes on inside the target. What it says is kept until somebody can hear it: at most one wish for
//! Data-Out, the Data-In that its connection might have had in flight, and its end. What the mover kept for it is kept by
//! the session's loop.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{ScsiResponse, TaskManagementRequest, TmfResponse};
use iscsi_proto::{Cid, Itt, Lun};

use super::event::{Action, LinkId};
use super::full_feature::{FullFeature, Item};
use super::task_events::aborted;
use super::tasks::Origin;
use crate::datamover::{Numbering, Unsent};
use crate::transfer::TaskEvent;

/// What a lost connection left, besides its tasks that still run.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Lost connections, and until when they are remembered.
    cids: BTreeMap<u16, Instant>,
    /// Commands that have ended, and whose status was not acknowledged.
    ended: BTreeMap<u32, Ended>,
}

/// A task whose connection is gone.
#[derive(Debug)]
pub(super) struct Adrift {
    /// The connection that it had.
    cid: Cid,
    pub(super) until: Instant,
    /// What it has said since. Bounded by what it may have in flight.
    said: Vec<TaskEvent>,
}

#[derive(Debug)]
struct Ended {
    cid: Cid,
    origin: Origin,
    response: ScsiResponse,
    data: Bytes,
    until: Instant,
}

impl Leftovers {
    /// Whether a connection was lost a short time ago.
    pub(super) fn has(&self, cid: Cid) -> bool {
        self.cids.contains_key(&cid.0)
    }

    /// A new connection has this CID.
    pub(super) fn forget_connection(&mut self, cid: Cid) {
        self.cids.remove(&cid.0);
    }

    /// Everything that a connection left goes. Gives the tags of what had ended, and whether the connection was known.
    fn forget_all_of(&mut self, cid: Cid) -> (Vec<Itt>, bool) {
        (
            self.take(|ended| ended.cid == cid),
            self.cids.remove(&cid.0).is_some(),
        )
    }

    /// A new command has this tag. Whether there was something under it.
    pub(super) fn forget_task(&mut self, itt: Itt) -> bool {
        self.ended.remove(&itt.0).is_some()
    }

    /// A command is aborted, if its unit is the one meant. Whether there was something of it.
    pub(super) fn abort_task(&mut self, itt: Itt, addressed: impl Fn(Lun) -> bool) -> bool {
        let ended = self.ended.get(&itt.0);
        ended.is_some_and(|ended| addressed(ended.origin.lun)) && self.forget_task(itt)
    }

    /// Commands are aborted. Gives the tags of those among them that had ended.
    pub(super) fn abort(&mut self, concerns: impl Fn(&Origin) -> bool) -> Vec<Itt> {
        self.take(|ended| concerns(&ended.origin))
    }

    fn take(&mut self, unwanted: impl Fn(&Ended) -> bool) -> Vec<Itt> {
        let mut gone = Vec::new();
        self.ended.retain(|itt, ended| {
            let stays = !unwanted(ended);
            if !stays {
                gone.push(Itt(*itt));
            }
            stays
        });
        gone
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let cids = self.cids.values().copied();
        cids.chain(self.ended.values().map(|ended| ended.until)).min()
    }
}

impl Adrift {
    pub(super) fn of(cid: Cid, until: Instant) -> Self {
        let said = Vec::new();
        Self { cid, until, said }
    }

    /// Whether its end was heard.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.said.last(), Some(TaskEvent::Done { .. }))
    }

    /// Keeps what the task says.
    pub(super) fn hear(&mut self, event: TaskEvent) {
        self.said.push(event);
    }
}

impl FullFeature {
    /// A connection is gone, and its tasks may be taken up by another until then.
    pub(super) fn set_adrift(&mut self, link: LinkId, until: Instant, actions: &mut VecDeque<Action>) {
        let state = self.links.get_mut(link);
        let cid = state.cid;
        self.leftovers.cids.insert(cid.0, until);
        let unacknowledged = state.retained.take().into_iter();
        let mut surrendered = Vec::new();
        for (response, data, origin) in unacknowledged.flat_map(super::retained::Retained::into_commands) {
            surrendered.push(response.itt);
            let ended = Ended {
                cid,
                origin,
                response,
                data,
                until,
            };
            self.leftovers.ended.insert(ended.response.itt.0, ended);
        }
        for itt in self.tasks.tags(|task| task.link == link && task.adrift.is_none()) {
            surrendered.push(itt);
            self.tasks.set_adrift(itt, Adrift::of(cid, until));
        }
        // A command that waits behind a hole has not begun: its number does not count as received, and it is sent again.
        for ordered in self.window.forget(|ordered| ordered.link == link) {
            if let Item::Command { pdu, .. } = ordered.item {
                tracing::debug!(itt = pdu.itt.0, "a command is to be sent again");
            }
        }
        self.deferred.connection_lost(link);
        self.tmfs.connection_lost(link, &surrendered);
        actions.push_back(Action::Surrender(link, surrendered));
    }

    /// §11.5.1, TASK REASSIGN.
    pub(super) fn reassign(
        &mut self,
        link: LinkId,
        pdu: &TaskManagementRequest,
        actions: &mut VecDeque<Action>,
    ) {
        let itt = pdu.referenced_itt;
        let response = if self.params.error_recovery_level < 2 {
            TmfResponse::ReassignNotSupported
        } else if let Some(task) = self.tasks.get(itt) {
            if task.adrift.is_some() {
                TmfResponse::Complete
            } else {
                TmfResponse::TaskStillAllegiant
            }
        } else if self.leftovers.ended.contains_key(&itt.0) {
            TmfResponse::Complete
        } else {
            TmfResponse::TaskDoesNotExist
        };
        // The new allegiance holds from behind the response (§11.6).
        self.respond_tmf(link, pdu.itt, response.into(), actions);
        if response == TmfResponse::Complete {
            actions.push_back(Action::Adopt {
                link,
                itt,
                next_data_sn: pdu.exp_data_sn,
                numbering: self.numbering(link),
            });
        }
    }

    /// The new connection's mover has taken the task over, or could not.
    pub(super) fn adopted(
        &mut self,
        link: LinkId,
        itt: Itt,
        result: Result<(), Unsent>,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        if self.links.find(link).is_none() {
            // It was given up by the same PDU that asked for the task, and the mover has taken what it kept with it.
            return self.end_adopted_too_late(itt, actions);
        }
        if let Some(ended) = self.leftovers.ended.remove(&itt.0) {
            let Ended {
                response,
                data,
                origin,
                ..
            } = ended;
            if result.is_err() {
                self.respond_aborted(link, itt, 0, origin, actions);
            } else {
                let numbering = self.respond(link);
                let again = ScsiResponse {
                    stat_sn: numbering.stat_sn,
                    exp_cmd_sn: numbering.exp_cmd_sn,
                    max_cmd_sn: numbering.max_cmd_sn,
                    ..response
                };
                self.say_status(link, again, data, origin, actions);
            }
            return actions.push_back(Action::End(link, itt));
        }
        let Some(adrift) = self.tasks.take_up(itt, link, now, self.limits.data_out_timeout) else {
            return;
        };
        if result.is_err() {
            self.abort_with_status(&[itt], actions);
            // Its end was heard before, and is not heard again.
            self.abandoned -= usize::from(adrift.has_ended());
            return;
        }
        for event in adrift.said {
            self.task_event(event, now, actions);
        }
    }

    /// The connection that was to go on with a task is gone again, with what was needed for that.
    fn end_adopted_too_late(&mut self, itt: Itt, actions: &mut VecDeque<Action>) {
        self.leftovers.forget_task(itt);
        let lun = self.tasks.get(itt).map(|task| task.lun);
        self.drop_tasks(&[itt], actions);
        self.tell_cleared(lun.into_iter().collect(), actions);
    }

    /// A task without a connection is aborted, and its initiator is to hear of it by a status. What it had sent is kept as
    /// long as that status is. One that has ended already keeps its own.
    pub(super) fn abort_adrift(&mut self, itt: Itt) {
        let (cid, until) = match self.tasks.get(itt).and_then(|task| task.adrift.as_ref()) {
            Some(adrift) if !adrift.has_ended() => (adrift.cid, adrift.until),
            Some(_) | None => return,
        };
        let Some(task) = self.tasks.remove(itt) else {
            return;
        };
        task.abort.fire();
        self.abandoned += 1;
        self.task_ended(task.immediate);
        let origin = task.origin();
        let (response, data) = aborted(itt, task.missing, Numbering::default());
        let ended = Ended {
            cid,
            origin,
            response,
            data,
            until,
        };
        self.leftovers.ended.insert(itt.0, ended);
    }

    /// Another nexus has aborted a task without a connection. It says no more, and nobody can take it up.
    pub(super) fn aborted_adrift(&mut self, itt: Itt, now: Instant, actions: &mut VecDeque<Action>) {
        if let Some(task) = self.tasks.remove(itt) {
            self.task_ended(task.immediate);
            actions.push_back(Action::Discard(itt));
            self.end_if_due(now, actions);
        }
    }

    /// §7.5: the initiator closes a connection that is lost already, and gives up what it left. Whether there was one.
    pub(super) fn end_adrift_of(&mut self, cid: Cid, actions: &mut VecDeque<Action>) -> bool {
        let (ended, is_known) = self.leftovers.forget_all_of(cid);
        actions.extend(ended.into_iter().map(Action::Discard));
        let of_cid = |adrift: &Adrift| adrift.cid == cid;
        let over = self.tasks.tags(|task| task.adrift.as_deref().is_some_and(of_cid));
        self.give_up_adrift(&over, actions);
        is_known
    }

    fn give_up_adrift(&mut self, over: &[Itt], actions: &mut VecDeque<Action>) {
        let luns: Vec<Lun> = over
            .iter()
            .filter_map(|itt| Some(self.tasks.get(*itt)?.lun))
            .collect();
        self.drop_tasks(over, actions);
        self.tell_cleared(luns, actions);
    }

    /// Ends what nobody took up in time (§7.5): its nexus is told.
    pub(super) fn end_adrift(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        self.leftovers.cids.retain(|_, until| now < *until);
        let over = self.leftovers.take(|ended| ended.until <= now);
        actions.extend(over.into_iter().map(Action::Discard));
        let over = |adrift: &Adrift| adrift.until <= now;
        let over = self.tasks.tags(|task| task.adrift.as_deref().is_some_and(over));
        self.give_up_adrift(&over, actions);
    }
}
