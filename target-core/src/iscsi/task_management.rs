//! Task management requests (RFC 7143 §11.5, §11.6.1, §4.2.3): which commands of this session they concern, what is
//! asked of the device, and when the answer goes out. The waiting itself is in management.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::pdu::{
    Function, RejectReason, Request, Response, TaskManagementRequest, TaskManagementResponse, TmfResponse,
};
use iscsi_proto::{Itt, Lun};

use super::SessionType;
use super::event::Action;
use super::full_feature::{FullFeature, IMMEDIATE_MAX, Ordered};
use super::params::QUERIES_SINCE;
use super::registry::Node;
use crate::scsi::TmfOutcome;

impl FullFeature {
    pub(super) fn task_management(
        &mut self,
        pdu: &TaskManagementRequest,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let refused = if self.params.session_type == SessionType::Discovery {
            Some(RejectReason::CommandNotSupported)
        } else if self.tmfs.contains(pdu.itt) || self.is_in_use(pdu.itt) {
            Some(RejectReason::TaskInProgress)
        } else if self.tmfs.len() >= IMMEDIATE_MAX {
            Some(RejectReason::ImmediateCommandReject)
        } else {
            None
        };
        if let Some(reason) = refused {
            return self.reject(&Request::TaskManagement(pdu.clone()).encode(), reason, actions);
        }
        match pdu.function {
            Function::AbortTask => self.abort_task(pdu, now, actions),
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                let number = pdu.lun.number();
                self.abort_many(pdu, |lun| lun.number() == number, now, actions);
            }
            Function::QueryTask
            | Function::QueryTaskSet
            | Function::ITNexusReset
            | Function::QueryAsyncEvent
                if self.params.protocol_level < QUERIES_SINCE =>
            {
                self.answer_tmf_at_once(pdu.itt, TmfResponse::NotSupported, now, actions);
            }
            Function::TargetWarmReset | Function::TargetColdReset | Function::ITNexusReset => {
                self.abort_many(pdu, |_| true, now, actions);
            }
            Function::ClearAca | Function::QueryTaskSet | Function::QueryAsyncEvent => {
                self.abort_many(pdu, |_| false, now, actions);
            }
            Function::QueryTask => {
                let response = self.query_task(pdu);
                self.answer_tmf_at_once(pdu.itt, response, now, actions);
            }
            Function::TaskReassign => {
                self.answer_tmf_at_once(pdu.itt, TmfResponse::ReassignNotSupported, now, actions);
            }
            Function::Unknown(_) => {
                self.answer_tmf_at_once(pdu.itt, TmfResponse::NotSupported, now, actions);
            }
        }
        self.run_ready(node, now, actions);
    }

    /// §11.6.1: a task that is here is aborted; one that may still be on its way counts as received and will not run;
    /// any other does not exist.
    fn abort_task(&mut self, pdu: &TaskManagementRequest, now: Instant, actions: &mut VecDeque<Action>) {
        let referenced = pdu.referenced_itt;
        let addressed = |lun: Lun| lun.number() == pdu.lun.number();
        if self.tasks.get(referenced).is_some_and(|task| addressed(task.lun)) {
            self.drop_tasks(&[referenced], actions);
            self.tmfs.begin(
                pdu.itt,
                Some(TmfResponse::Complete.into()),
                &[referenced],
                false,
                now,
            );
            return self.answer_tmfs(now, actions);
        }
        let waited = self.window.withdraw(|_, item| match item {
            Ordered::Command { pdu, .. } => pdu.itt == referenced && addressed(pdu.lun),
            Ordered::Control { .. } => false,
        });
        let response = if !waited.is_empty() {
            actions.push_back(Action::End(referenced));
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
        self.answer_tmf_at_once(pdu.itt, response, now, actions);
    }

    /// Whether the task is here, running or waiting its turn (SAM-5 §7.8): succeeded when it is.
    fn query_task(&self, pdu: &TaskManagementRequest) -> TmfResponse {
        let addressed = |lun: Lun| lun.number() == pdu.lun.number();
        let runs = self.tasks.get(pdu.referenced_itt);
        let mut waiting = self.window.early();
        let is_here = runs.is_some_and(|task| addressed(task.lun))
            || waiting.any(|item| match item {
                Ordered::Command { pdu: command, .. } => {
                    command.itt == pdu.referenced_itt && addressed(command.lun)
                }
                Ordered::Control { .. } => false,
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
        pdu: &TaskManagementRequest,
        concerns: impl Fn(Lun) -> bool,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let waited = self.window.withdraw(|cmd_sn, item| match item {
            Ordered::Command { pdu: command, .. } => concerns(command.lun) && cmd_sn.precedes(pdu.cmd_sn),
            Ordered::Control { .. } => false,
        });
        for item in waited {
            if let Ordered::Command { pdu, .. } = item {
                actions.push_back(Action::End(pdu.itt));
            }
        }
        let concerned = self.tasks.tags(|task| concerns(task.lun));
        self.drop_tasks(&concerned, actions);
        let drops_sessions = pdu.function == Function::TargetColdReset;
        self.tmfs.begin(pdu.itt, None, &concerned, drops_sessions, now);
        actions.push_back(Action::Manage {
            itt: pdu.itt,
            function: pdu.function,
            lun: pdu.lun,
        });
    }

    fn answer_tmf_at_once(
        &mut self,
        itt: Itt,
        response: TmfResponse,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        self.tmfs.begin(itt, Some(response.into()), &[], false, now);
        self.answer_tmfs(now, actions);
    }

    /// Tells tasks that they are aborted, and forgets them: whatever they still say is not heard, but for their end.
    fn drop_tasks(&mut self, concerned: &[Itt], actions: &mut VecDeque<Action>) {
        for itt in concerned {
            if let Some(task) = self.tasks.remove(*itt) {
                task.abort.fire();
                self.abandoned += 1;
                self.task_ended(task.immediate);
                actions.push_back(Action::Release(*itt));
            }
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

    /// Answers every request that has nothing to wait for any more.
    pub(super) fn answer_tmfs(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        while let Some(due) = self.tmfs.take_due(now) {
            let numbering = self.respond();
            let response = TaskManagementResponse {
                response: due.outcome.response,
                additional: due.outcome.additional,
                itt: due.itt,
                stat_sn: numbering.stat_sn,
                exp_cmd_sn: numbering.exp_cmd_sn,
                max_cmd_sn: numbering.max_cmd_sn,
            };
            actions.push_back(Action::Send(Response::TaskManagement(response), Bytes::new()));
            if due.drops_sessions {
                actions.push_back(Action::DropSessions);
            }
        }
    }
}
