//! SCSI commands as they arrive and begin (RFC 7143 §4.2.2.1, §11.3): which are refused, which wait for their turn, and
//! which end before they reach the device.

use std::collections::VecDeque;
use std::time::Instant;

use backstores::IoBuf;
use iscsi_proto::pdu::{RejectReason, Request, ScsiCommand};
use iscsi_proto::{Ahs, Itt};
use tracing::debug;

use super::SessionType;
use super::event::{Action, LinkId, Start};
use super::full_feature::{FullFeature, IMMEDIATE_MAX, Item, Ordered};
use super::registry::Node;
use crate::scsi::{Sense, Status};

impl FullFeature {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a command, and what all events have"
    )]
    pub(super) fn command_arrived(
        &mut self,
        link: LinkId,
        pdu: ScsiCommand,
        ahs: Ahs,
        immediate: Option<IoBuf>,
        node: &Node,
        now: Instant,
        actions: &mut VecDeque<Action>,
    ) {
        let (itt, cmd_sn) = (pdu.itt, pdu.cmd_sn);
        if !pdu.immediate && !self.window.expects(cmd_sn) {
            debug!(
                cmd_sn = cmd_sn.0,
                "a duplicate, or outside the command window: ignored"
            );
            return self.forget(link, itt, actions);
        }
        if let Some(reason) = self.refusal(&pdu) {
            // §7.3: the CmdSN of a command that is rejected does not count as received.
            self.reject(link, &Request::ScsiCommand(pdu).encode(), reason, actions);
            return self.forget(link, itt, actions);
        }
        if pdu.immediate {
            return self.start(link, pdu, ahs, immediate, actions);
        }
        let item = Item::Command { pdu, ahs, immediate };
        self.in_order(cmd_sn, Ordered { link, item }, node, now, actions);
    }

    /// Why a command cannot be taken at all.
    fn refusal(&self, pdu: &ScsiCommand) -> Option<RejectReason> {
        if self.params.session_type == SessionType::Discovery {
            return Some(RejectReason::CommandNotSupported);
        }
        if pdu.itt == Itt::RESERVED {
            return Some(RejectReason::InvalidPduField);
        }
        if self.is_in_use(pdu.itt) {
            return Some(RejectReason::TaskInProgress);
        }
        let too_many = pdu.immediate && self.tasks.immediate() >= IMMEDIATE_MAX;
        too_many.then_some(RejectReason::ImmediateCommandReject)
    }

    /// Whether a command has this tag, running or waiting behind a hole, on whatever connection (§11.2.1.8).
    pub(super) fn is_in_use(&self, itt: Itt) -> bool {
        self.tasks.get(itt).is_some() || self.window.early().any(|ordered| ordered.is_command(itt))
    }

    /// A command will not be begun: the mover need not keep what it keeps for one, unless another of its connection has
    /// the same tag.
    fn forget(&self, link: LinkId, itt: Itt, actions: &mut VecDeque<Action>) {
        let runs = self.tasks.get(itt).is_some_and(|task| task.link == link);
        let mut early = self.window.early();
        if !runs && !early.any(|ordered| ordered.link == link && ordered.is_command(itt)) {
            actions.push_back(Action::End(link, itt));
        }
    }

    /// Begins a SCSI command whose turn it is.
    pub(super) fn start(
        &mut self,
        link: LinkId,
        pdu: ScsiCommand,
        ahs: Ahs,
        immediate: Option<IoBuf>,
        actions: &mut VecDeque<Action>,
    ) {
        if let Some(retained) = &mut self.links.get_mut(link).retained
            && retained.reuse(pdu.itt)
        {
            actions.push_back(Action::Forget(link, pdu.itt));
        }
        if self.leftovers.forget_task(pdu.itt) {
            actions.push_back(Action::Discard(pdu.itt));
        }
        let (task, abort) = self.tasks.start(link, &pdu);
        let unfit = if self.is_draining() || self.abandoned >= usize::from(self.params.command_window) {
            // What was aborted still costs memory as long as its store operation runs; that too has its bound.
            Some((Status::Busy, None))
        } else {
            let immediate_len = immediate.as_deref().map_or(0, <[u8]>::len);
            let breach = self.unsolicited_breach(&pdu, immediate_len);
            breach.map(|sense| (Status::CheckCondition, Some(sense)))
        };
        match unfit {
            Some((status, sense)) => self.fail_at_once(&pdu, status, sense, actions),
            None => actions.push_back(Action::Start(Start {
                link,
                task,
                pdu,
                ahs,
                immediate,
                abort,
            })),
        }
    }

    /// Data that come with or behind a command although the negotiation forbids it (§11.4.7.2).
    fn unsolicited_breach(&self, pdu: &ScsiCommand, immediate_len: usize) -> Option<Sense> {
        let first_burst = usize::try_from(self.params.first_burst_len).expect("32 bits fit");
        let expected = usize::try_from(pdu.expected_len).expect("32 bits fit");
        let immediate_allowed =
            self.params.immediate_data && pdu.write && immediate_len <= first_burst.min(expected);
        let follows = !pdu.is_final && self.params.initial_r2t;
        let breach = (immediate_len > 0 && !immediate_allowed) || follows;
        breach.then_some(Sense::UNEXPECTED_UNSOLICITED_DATA)
    }
}
