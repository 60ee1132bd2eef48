//! Task management bookkeeping (RFC 7143 §11.5, §11.6): which requests wait for what before they are answered.
//!
//! A function has done its work when the tasks concerned have been told; what remains is to let the initiator finish
//! the Data-Out it was asked for (§4.2.3.3), and that for a second at most: initiators that abort fast never answer.
//! In a session of several connections the answer must not overtake what was said before on the others (§4.2.2.3.3): it
//! waits until that is acknowledged, or the connection that owes it is given up. Nothing here ever waits for a store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use iscsi_proto::pdu::TmfResponse;
use iscsi_proto::{Itt, Sn};

use super::event::LinkId;
use crate::scsi::TmfOutcome;

/// Requests that have not been answered.
#[derive(Debug, Default)]
pub(super) struct PendingTmfs {
    pending: Vec<PendingTmf>,
}

/// A request as it begins.
#[derive(Debug)]
pub(super) struct BegunTmf<'a> {
    /// The connection it came by.
    pub(super) link: LinkId,
    pub(super) itt: Itt,
    /// `None` while the device has to answer.
    pub(super) outcome: Option<TmfOutcome>,
    /// Tasks whose Data-Out is being let go of.
    pub(super) releasing: &'a [Itt],
    /// What has to be acknowledged first, on other connections: all responses before these.
    pub(super) fence: Vec<(LinkId, Sn)>,
    pub(super) fence_patience: Duration,
    pub(super) drops_sessions: bool,
}

#[derive(Debug)]
struct PendingTmf {
    link: LinkId,
    itt: Itt,
    /// `None` until the device has answered.
    outcome: Option<TmfOutcome>,
    /// Tasks whose Data-Out is being let go of.
    releasing: BTreeSet<u32>,
    fence: Vec<(LinkId, Sn)>,
    deadline: Instant,
    /// A connection that owes an acknowledgement was asked, and is given up when it is silent; one that talks of other
    /// things does not keep us longer.
    fence_deadline: Instant,
    drops_sessions: bool,
}

/// An answer that is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DueTmf {
    pub(super) link: LinkId,
    pub(super) itt: Itt,
    pub(super) outcome: TmfOutcome,
    /// TARGET COLD RESET: the sessions go as well.
    pub(super) drops_sessions: bool,
}

impl PendingTmfs {
    pub(super) fn begin(&mut self, tmf: BegunTmf<'_>, now: Instant) {
        self.pending.push(PendingTmf {
            link: tmf.link,
            itt: tmf.itt,
            outcome: tmf.outcome,
            releasing: tmf.releasing.iter().map(|itt| itt.0).collect(),
            fence: tmf.fence,
            deadline: now + RELEASE_PATIENCE,
            fence_deadline: now + tmf.fence_patience,
            drops_sessions: tmf.drops_sessions,
        });
    }

    /// The device has done its part.
    pub(super) fn managed(&mut self, itt: Itt, outcome: TmfOutcome) {
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.itt == itt) {
            pending.outcome = Some(outcome);
        }
    }

    /// The mover has let go of a task.
    pub(super) fn released(&mut self, task: Itt) {
        for pending in &mut self.pending {
            pending.releasing.remove(&task.0);
        }
    }

    /// A connection has every response before this one. Whether that opened a fence.
    pub(super) fn acknowledged(&mut self, link: LinkId, exp_stat_sn: Sn) -> bool {
        let mut opened = false;
        for pending in &mut self.pending {
            let fences = pending.fence.len();
            pending
                .fence
                .retain(|(other, wanted)| *other != link || exp_stat_sn.precedes(*wanted));
            opened |= pending.fence.len() < fences;
        }
        opened
    }

    /// A connection is gone: its requests are answered by nothing, and nobody waits for what it owes.
    pub(super) fn connection_lost(&mut self, link: LinkId, tasks: &[Itt]) {
        self.pending.retain(|pending| pending.link != link);
        for pending in &mut self.pending {
            pending.fence.retain(|(other, _)| *other != link);
        }
        tasks.iter().for_each(|task| self.released(*task));
    }

    /// The next request that can be answered, in the order they came.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<DueTmf> {
        let is_due = |pending: &PendingTmf| {
            let releases = !pending.releasing.is_empty() && now < pending.deadline;
            let fenced = !pending.fence.is_empty() && now < pending.fence_deadline;
            pending.outcome.is_some() && !releases && !fenced
        };
        let pending = self.pending.remove(self.pending.iter().position(is_due)?);
        let outcome = pending.outcome.expect("checked above");
        Some(DueTmf {
            link: pending.link,
            itt: pending.itt,
            outcome,
            drops_sessions: pending.drops_sessions && outcome.response == TmfResponse::Complete,
        })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadline = |pending: &PendingTmf| {
            let release = (!pending.releasing.is_empty()).then_some(pending.deadline);
            let fence = (!pending.fence.is_empty()).then_some(pending.fence_deadline);
            release.max(fence)
        };
        self.pending.iter().filter_map(deadline).min()
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn contains(&self, itt: Itt) -> bool {
        self.pending.iter().any(|pending| pending.itt == itt)
    }
}

/// How long an answer waits for Data-Out that the initiator still owes.
pub(super) const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn abort<'a>(releasing: &'a [Itt], fence: &[(LinkId, Sn)]) -> BegunTmf<'a> {
        BegunTmf {
            link: LinkId(0),
            itt: Itt(9),
            outcome: None,
            releasing,
            fence: fence.to_vec(),
            fence_patience: Duration::from_secs(15),
            drops_sessions: false,
        }
    }

    const DUE: DueTmf = DueTmf {
        link: LinkId(0),
        itt: Itt(9),
        outcome: TmfOutcome {
            response: TmfResponse::Complete,
            additional: 0,
        },
        drops_sessions: false,
    };

    #[test]
    fn an_answer_waits_for_device_and_data_but_not_beyond_its_patience() {
        let (mut tmfs, now) = (PendingTmfs::default(), Instant::now());
        tmfs.begin(abort(&[Itt(1), Itt(2)], &[]), now);
        tmfs.released(Itt(1));
        tmfs.managed(Itt(9), TmfResponse::Complete.into());
        assert_eq!(tmfs.take_due(now), None);
        assert_eq!(tmfs.take_due(now + RELEASE_PATIENCE), Some(DUE));
        assert_eq!(tmfs.len(), 0);
    }

    #[test]
    fn an_answer_does_not_overtake_what_was_said_on_another_connection() {
        let (mut tmfs, now) = (PendingTmfs::default(), Instant::now());
        tmfs.begin(abort(&[], &[(LinkId(1), Sn(7)), (LinkId(2), Sn(3))]), now);
        tmfs.managed(Itt(9), TmfResponse::Complete.into());
        assert!(!tmfs.acknowledged(LinkId(1), Sn(6)));
        assert!(tmfs.acknowledged(LinkId(1), Sn(7)));
        assert_eq!(tmfs.take_due(now), None);
        tmfs.connection_lost(LinkId(2), &[]);
        assert_eq!(tmfs.take_due(now), Some(DUE));
    }
}
