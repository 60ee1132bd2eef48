//! Task management requests (RFC 7143 §11.5, §11.6.1, §4.2.3): which commands of this session they concern, what is
//! asked of the device, and when the answer goes out. The waiting itself is in management.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{
    Function, RejectReason, Request, Response, TaskManagementRequest, TaskManagementResponse, TmfResponse,
};
use iscsi_proto::{Itt, Lun, Sn};

use super::SessionType;
use super::event::{Action, LinkId};
use super::full_feature::{FullFeature, IMMEDIATE_MAX, Item};
use super::management::BegunTmf;
use super::params::QUERIES_SINCE;
use super::registry::Node;
use super::tasks::Origin;
use crate::scsi::TmfOutcome;

impl FullFeature {
    pub(super) fn task_management(
        &mut self,
        link: LinkId,
        pdu: &TaskManagementRequest,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let refused = if self.params.session_type == SessionType::Discovery {
            Some(RejectReason::CommandNotSupported)
        } else if self.tmfs.contains(pdu.itt) || self.deferred.contains(pdu.itt) || self.is_in_use(pdu.itt) {
            Some(RejectReason::TaskInProgress)
        } else if self.tmfs.len() + self.deferred.len() >= IMMEDIATE_MAX {
            Some(RejectReason::ImmediateCommandReject)
        } else {
            None
        };
        if let Some(reason) = refused {
            let request = Request::TaskManagement(pdu.clone());
            return self.refuse(link, &request, reason, actions);
        }
        if is_of_many_tasks(pdu.function) && self.misses_commands_before(pdu.cmd_sn) {
            return self.deferred.add(link, pdu.clone(), now);
        }
        self.manage(link, pdu, now, actions);
        self.run_ready(node, now, actions);
    }

    /// Does what a request asks for.
    pub(super) fn manage(
        &mut self,
        link: LinkId,
        pdu: &TaskManagementRequest,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        match pdu.function {
            Function::AbortTask => self.abort_task(link, pdu, now, actions),
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                let number = pdu.lun.number();
                self.abort_many(link, pdu, |lun| lun.number() == number, now, actions);
            }
            Function::QueryTask
            | Function::QueryTaskSet
            | Function::ITNexusReset
            | Function::QueryAsyncEvent
                if self.params.protocol_level < QUERIES_SINCE =>
            {
                self.answer_tmf_at_once(link, pdu.itt, TmfResponse::NotSupported, now, actions);
            }
            Function::TargetWarmReset | Function::TargetColdReset | Function::ITNexusReset => {
                self.abort_many(link, pdu, |_| true, now, actions);
            }
            Function::ClearAca | Function::QueryTaskSet | Function::QueryAsyncEvent => {
                self.abort_many(link, pdu, |_| false, now, actions);
            }
            Function::QueryTask => {
                let response = self.query_task(pdu);
                self.answer_tmf_at_once(link, pdu.itt, response, now, actions);
            }
            Function::TaskReassign => self.reassign(link, pdu, actions),
            Function::Unknown(_) => {
                self.answer_tmf_at_once(link, pdu.itt, TmfResponse::NotSupported, now, actions);
            }
        }
    }

    /// §11.6.1: a task that is here is aborted; one that may still be on its way counts as received and will not run;
    /// any other does not exist.
    fn abort_task(
        &mut self,
        link: LinkId,
        pdu: &TaskManagementRequest,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let referenced = pdu.referenced_itt;
        let addressed = |lun: Lun| lun.number() == pdu.lun.number();
        if self.tasks.get(referenced).is_some_and(|task| addressed(task.lun)) {
            let releasing = self.drop_tasks(&[referenced], actions);
            let tmf = BegunTmf {
                link,
                itt: pdu.itt,
                outcome: Some(TmfResponse::Complete.into()),
                releasing: &releasing,
                fence: self.fence(link, now, actions),
                fence_patience: self.limits.nop_timeout,
                drops_sessions: false,
            };
            self.tmfs.begin(tmf, now);
            return self.answer_tmfs(now, actions);
        }
        let waited = self.window.withdraw(|_, ordered| match &ordered.item {
            Item::Command { pdu, .. } => pdu.itt == referenced && addressed(pdu.lun),
            Item::Control { .. } => false,
        });
        let response = if self.leftovers.abort_task(referenced, addressed) {
            // It has ended, and nobody knows: with its status goes all that is left of it.
            actions.push_back(Action::Discard(referenced));
            TmfResponse::Complete
        } else if let Some(waited) = waited.first() {
            actions.push_back(Action::End(waited.link, referenced));
            TmfResponse::Complete
        } else if self.tasks.get(referenced).is_none()
            // Less, not less or equal: a task for immediate delivery is named by the CmdSN that the next command will
            // have (§11.5.5), and that command must run.
            && pdu.ref_cmd_sn.precedes(pdu.cmd_sn)
            && self.window.give_up(pdu.ref_cmd_sn)
        {
            TmfResponse::Complete
        } else {
            TmfResponse::TaskDoesNotExist
        };
        self.answer_tmf_at_once(link, pdu.itt, response, now, actions);
    }

    /// Whether the task is here, running or waiting its turn (SAM-5 §7.8): succeeded when it is.
    fn query_task(&self, pdu: &TaskManagementRequest) -> TmfResponse {
        let addressed = |lun: Lun| lun.number() == pdu.lun.number();
        let runs = self.tasks.get(pdu.referenced_itt);
        let mut waiting = self.window.early();
        let is_here = runs.is_some_and(|task| addressed(task.lun))
            || waiting.any(|ordered| match &ordered.item {
                Item::Command { pdu: command, .. } => {
                    command.itt == pdu.referenced_itt && addressed(command.lun)
                }
                Item::Control { .. } => false,
            });
        if is_here {
            TmfResponse::Succeeded
        } else {
            TmfResponse::Complete
        }
    }

    /// Functions that concern every task of this session that `concerns` picks by its logical unit, those included
    /// that wait behind a hole and were sent before the request (§4.2.3.2).
    fn abort_many(
        &mut self,
        link: LinkId,
        pdu: &TaskManagementRequest,
        concerns: impl Fn(Lun) -> bool,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let waited = self.window.withdraw(|cmd_sn, ordered| match &ordered.item {
            Item::Command { pdu: command, .. } => concerns(command.lun) && cmd_sn.precedes(pdu.cmd_sn),
            Item::Control { .. } => false,
        });
        for ordered in waited {
            if let Item::Command { pdu, .. } = ordered.item {
                actions.push_back(Action::End(ordered.link, pdu.itt));
            }
        }
        // Commands may have come that were sent later: by another connection, be it one that is gone, or where this
        // request was lost first and said again. The device makes no difference: the initiator is told of them, since it
        // will not take them for aborted.
        let is_concerned = |origin: &Origin| concerns(origin.lun) && !origin.overtook(pdu.cmd_sn);
        let is_later = |origin: &Origin| concerns(origin.lun) && origin.overtook(pdu.cmd_sn);
        let later = self.tasks.tags(|task| is_later(&task.origin()));
        let concerned = self.tasks.tags(|task| is_concerned(&task.origin()));
        self.abort_unheard(is_concerned, actions);
        let releasing = self.drop_tasks(&concerned, actions);
        self.abort_with_status(&later, actions);
        let tmf = BegunTmf {
            link,
            itt: pdu.itt,
            outcome: None,
            releasing: &releasing,
            fence: self.fence(link, now, actions),
            fence_patience: self.limits.nop_timeout,
            drops_sessions: pdu.function == Function::TargetColdReset,
        };
        self.tmfs.begin(tmf, now);
        actions.push_back(Action::Manage {
            itt: pdu.itt,
            function: pdu.function,
            lun: pdu.lun,
        });
    }

    /// Tasks have ended, and are aborted before their status is known to have been heard: once the answer is, no connection
    /// may take it up.
    fn abort_unheard(&mut self, concerns: impl Fn(&Origin) -> bool, actions: &mut VecDeque<Action>) {
        let gone = self.leftovers.abort(&concerns);
        actions.extend(gone.into_iter().map(Action::Discard));
        let retained = self.links.iter_mut().filter_map(|link| link.retained.as_mut());
        retained.for_each(|retained| retained.abort(&concerns));
    }

    fn answer_tmf_at_once(
        &mut self,
        link: LinkId,
        itt: Itt,
        response: TmfResponse,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let tmf = BegunTmf {
            link,
            itt,
            outcome: Some(response.into()),
            releasing: &[],
            fence: self.fence(link, now, actions),
            fence_patience: self.limits.nop_timeout,
            drops_sessions: false,
        };
        self.tmfs.begin(tmf, now);
        self.answer_tmfs(now, actions);
    }

    /// What has to be acknowledged on other connections before an answer goes out on this one; those that owe it are
    /// asked by a NOP-In (§4.2.2.3.3).
    fn fence(&mut self, link: LinkId, now: Instant, actions: &mut VecDeque<Action>) -> Vec<(LinkId, Sn)> {
        let others = self.links.iter_mut().filter(|other| other.id != link);
        let owing = others.filter(|other| other.acknowledged != other.stat_sn);
        let asked: Vec<_> = owing
            .map(|other| (other.id, other.stat_sn, other.keepalive.ask_now(now)))
            .collect();
        asked
            .into_iter()
            .map(|(other, wanted, ttt)| {
                self.send_ping(other, ttt, actions);
                (other, wanted)
            })
            .collect()
    }

    /// Tells tasks that they are aborted, and forgets them: whatever they still say is not heard, but for their end. Gives
    /// those whose mover has to let go of them.
    pub(super) fn drop_tasks(&mut self, concerned: &[Itt], actions: &mut VecDeque<Action>) -> Vec<Itt> {
        let mut releasing = Vec::new();
        for itt in concerned {
            let Some(task) = self.tasks.remove(*itt) else {
                continue;
            };
            task.abort.fire();
            self.abandoned += 1;
            self.task_ended(task.immediate);
            let Some(adrift) = task.adrift else {
                releasing.push(*itt);
                actions.push_back(Action::Release(task.link, *itt));
                continue;
            };
            // One that has ended already says so no more.
            self.abandoned -= usize::from(adrift.has_ended());
            actions.push_back(Action::Discard(*itt));
        }
        releasing
    }

    /// Ends tasks with ABORTED COMMAND, and lets go of them. One without a connection is told by the next that it has.
    pub(super) fn abort_with_status(&mut self, concerned: &[Itt], actions: &mut VecDeque<Action>) {
        for itt in concerned {
            let Some(task) = self.tasks.get(*itt) else {
                continue;
            };
            if task.adrift.is_some() {
                self.abort_adrift(*itt);
                continue;
            }
            let (link, missing, origin) = (task.link, task.missing, task.origin());
            self.drop_tasks(&[*itt], actions);
            self.respond_aborted(link, *itt, missing, origin, actions);
        }
    }

    /// The device has done its part.
    pub(super) fn managed(
        &mut self,
        itt: Itt,
        outcome: TmfOutcome,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.tmfs.managed(itt, outcome);
        self.answer_tmfs(now, actions);
    }

    pub(super) fn respond_tmf(
        &mut self,
        link: LinkId,
        itt: Itt,
        outcome: TmfOutcome,
        actions: &mut VecDeque<Action>,
    ) {
        let numbering = self.respond(link);
        let response = TaskManagementResponse {
            response: outcome.response,
            additional: outcome.additional,
            itt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
        };
        self.say(link, Response::TaskManagement(response), Bytes::new(), actions);
    }

    /// Answers every request that has nothing to wait for any more.
    pub(super) fn answer_tmfs(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        while let Some(due) = self.tmfs.take_due(now) {
            self.respond_tmf(due.link, due.itt, due.outcome, actions);
            if due.drops_sessions {
                actions.push_back(Action::DropSessions);
            }
        }
    }
}

/// Functions that concern tasks by their logical unit, and not by their tag.
fn is_of_many_tasks(function: Function) -> bool {
    match function {
        Function::AbortTaskSet
        | Function::ClearTaskSet
        | Function::ITNexusReset
        | Function::LogicalUnitReset
        | Function::TargetColdReset
        | Function::TargetWarmReset => true,
        Function::AbortTask
        | Function::ClearAca
        | Function::QueryAsyncEvent
        | Function::QueryTask
        | Function::QueryTaskSet
        | Function::TaskReassign
        | Function::Unknown(_) => false,
    }
}
