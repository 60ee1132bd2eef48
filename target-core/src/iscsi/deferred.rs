//! Task management requests that came before commands they concern: a command may be overtaken on another connection, or
//! have been refused because it arrived damaged. Such a request waits until all commands before it are here
//! (RFC 7143 §4.2.3.3), and that for a second at most: a command that was lost on its way must not keep an abort from
//! happening.

use std::collections::VecDeque;
use std::time::Instant;

use iscsi_proto::pdu::TaskManagementRequest;
use iscsi_proto::{Itt, Sn};

use super::event::{Action, LinkId};
use super::full_feature::FullFeature;
use super::management::RELEASE_PATIENCE;

/// Those that wait, in the order they came. Bounded together with the requests that wait for their answer.
#[derive(Debug, Default)]
pub(super) struct DeferredTmfs(VecDeque<Deferred>);

#[derive(Debug)]
struct Deferred {
    link: LinkId,
    pdu: TaskManagementRequest,
    deadline: Instant,
}

impl DeferredTmfs {
    pub(super) fn add(&mut self, link: LinkId, pdu: TaskManagementRequest, now: Instant) {
        let deadline = now + RELEASE_PATIENCE;
        self.0.push_back(Deferred { link, pdu, deadline });
    }

    pub(super) fn contains(&self, itt: Itt) -> bool {
        self.0.iter().any(|deferred| deferred.pdu.itt == itt)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|deferred| deferred.deadline)
    }

    pub(super) fn connection_lost(&mut self, link: LinkId) {
        self.0.retain(|deferred| deferred.link != link);
    }
}

impl FullFeature {
    /// Whether commands that were sent before this number may still come.
    pub(super) fn misses_commands_before(&self, cmd_sn: Sn) -> bool {
        self.window.exp_cmd_sn().precedes(cmd_sn)
    }

    /// Does what waited long enough.
    pub(super) fn run_deferred(&mut self, now: Instant, actions: &mut VecDeque<Action>) {
        while let Some(first) = self.deferred.0.front() {
            if first.deadline > now && self.misses_commands_before(first.pdu.cmd_sn) {
                return;
            }
            if let Some(Deferred { link, pdu, .. }) = self.deferred.0.pop_front() {
                self.manage(link, &pdu, now, actions);
            }
        }
    }
}
