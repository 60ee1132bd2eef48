//! SNACK (RFC 7143 §11.16): what the initiator misses is sent again, what it has is let go of. Responses are kept here,
//! Data-In and R2Ts by the mover. At level 0 nothing can be asked for again.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use iscsi_proto::Sn;
use iscsi_proto::pdu::{RejectReason, Request, Response, ScsiResponse, Snack, SnackType};

use super::event::{Action, CloseReason, LinkId, PeerMisbehaved};
use super::full_feature::FullFeature;
use super::tasks::Origin;
use crate::datamover::Unsent;

impl FullFeature {
    /// Sends a response that has its StatSN already, and keeps it until it is acknowledged, where it may be asked for.
    pub(super) fn say(&mut self, link: LinkId, pdu: Response, data: Bytes, actions: &mut VecDeque<Action>) {
        actions.push_back(self.kept(link, pdu, data, None));
    }

    /// The same for the status of a task, which another connection may take up.
    pub(super) fn say_status(
        &mut self,
        link: LinkId,
        pdu: ScsiResponse,
        data: Bytes,
        origin: Origin,
        actions: &mut VecDeque<Action>,
    ) {
        actions.push_back(self.kept(link, Response::ScsiResponse(pdu), data, Some(origin)));
    }

    fn kept(&mut self, link: LinkId, pdu: Response, data: Bytes, origin: Option<Origin>) -> Action {
        if let Some(retained) = &mut self.links.get_mut(link).retained {
            retained.keep(pdu.clone(), data.clone(), origin);
        }
        Action::Send(link, pdu, data)
    }

    /// The initiator has every response before this one.
    pub(super) fn acknowledged(
        &mut self,
        link: LinkId,
        exp_stat_sn: Sn,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let state = self.links.get_mut(link);
        state.acknowledge(exp_stat_sn);
        if let Some(retained) = &mut state.retained {
            let ended = retained.acknowledge(state.acknowledged);
            actions.extend(ended.into_iter().map(|itt| Action::Forget(link, itt)));
        }
        if self.tmfs.acknowledged(link, exp_stat_sn) {
            self.answer_tmfs(now, actions);
        }
    }

    pub(super) fn snack(&mut self, link: LinkId, pdu: &Snack, actions: &mut VecDeque<Action>) {
        let numbering = self.numbering(link);
        let Some(retained) = &self.links.get(link).retained else {
            let header = Request::Snack(pdu.clone()).encode();
            return self.reject(link, &header, RejectReason::SnackReject, actions);
        };
        match pdu.kind {
            SnackType::Status => match retained.again(Sn(pdu.begin_run), pdu.run_length, numbering) {
                Ok(again) => {
                    let send = |(pdu, data)| Action::Send(link, pdu, data);
                    actions.extend(again.into_iter().map(send));
                }
                Err(unsent) => self.not_sent_again(link, pdu, unsent, actions),
            },
            SnackType::DataAck | SnackType::DataOrR2t | SnackType::RData => {
                actions.push_back(Action::Snack(link, pdu.clone(), numbering));
            }
        }
    }

    /// The mover has done its part of a SNACK, or could not.
    pub(super) fn snacked(
        &mut self,
        link: LinkId,
        pdu: &Snack,
        result: Result<(), Unsent>,
        actions: &mut VecDeque<Action>,
    ) {
        if self.links.find(link).is_none() {
            return;
        }
        if let Err(unsent) = result {
            return self.not_sent_again(link, pdu, unsent, actions);
        }
        // §11.16.3: data that were cut anew are followed by a response with their tag, be it for the second time.
        if pdu.kind == SnackType::RData {
            let numbering = self.numbering(link);
            let retained = self.links.get(link).retained.as_ref();
            let again = retained.and_then(|retained| retained.again_of_task(pdu.itt, numbering));
            if let Some((response, data)) = again {
                actions.push_back(Action::Send(link, response, data));
            }
        }
    }

    fn not_sent_again(&mut self, link: LinkId, pdu: &Snack, unsent: Unsent, actions: &mut VecDeque<Action>) {
        let reason = match unsent {
            Unsent::Unknown => RejectReason::ProtocolError,
            Unsent::NotKept => RejectReason::SnackReject,
        };
        self.reject(link, &Request::Snack(pdu.clone()).encode(), reason, actions);
    }

    /// Gives up a connection whose responses nobody acknowledges.
    pub(super) fn check_retained(&mut self, link: LinkId, now: Instant, actions: &mut VecDeque<Action>) {
        let retained = self.links.find(link).and_then(|link| link.retained.as_ref());
        if retained.is_some_and(super::retained::Retained::is_too_much) {
            let misbehaved = PeerMisbehaved::AcknowledgesNothing;
            self.lose(link, CloseReason::Misbehaved(misbehaved), now, actions);
        }
    }

    /// Tasks have waited for Data-Out for a while: the mover looks whether something was lost.
    pub(super) fn look_for_lost_data(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        if self.params.error_recovery_level == 0 {
            return;
        }
        let patience = self.limits.data_out_timeout / LOOKS;
        for (link, itt) in self.tasks.find_waiting(now, patience) {
            actions.push_back(Action::LookAfter(link, itt));
        }
    }
}

/// How many times Data-Out are looked after before a connection that sends none is given up.
pub(super) const LOOKS: u32 = 8;
