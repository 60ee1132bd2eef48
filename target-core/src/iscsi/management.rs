//! Task management bookkeeping (RFC 7143 §11.5, §11.6): which requests wait for what before they are answered.
//!
//! A function has done its work when the tasks concerned have been told; what remains is to let the initiator finish
//! the Data-Out it was asked for (§4.2.3.3), and that for a second at most: initiators that abort fast never answer.
//! Nothing here ever waits for a store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use iscsi_proto::Itt;
use iscsi_proto::pdu::TmfResponse;

use crate::scsi::TmfOutcome;

/// Requests that have not been answered.
#[derive(Debug, Default)]
pub(super) struct PendingTmfs {
    pending: Vec<PendingTmf>,
}

#[derive(Debug)]
struct PendingTmf {
    itt: Itt,
    /// `None` until the device has answered.
    outcome: Option<TmfOutcome>,
    /// Tasks whose Data-Out is being let go of.
    releasing: BTreeSet<u32>,
    deadline: Instant,
    drops_sessions: bool,
}

/// An answer that is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DueTmf {
    pub(super) itt: Itt,
    pub(super) outcome: TmfOutcome,
    /// TARGET COLD RESET: the sessions go as well.
    pub(super) drops_sessions: bool,
}

impl PendingTmfs {
    pub(super) fn begin(
        &mut self,
        itt: Itt,
        outcome: Option<TmfOutcome>,
        releasing: &[Itt],
        drops_sessions: bool,
        now: Instant,
    ) {
        let releasing = releasing.iter().map(|itt| itt.0).collect();
        let deadline = now + RELEASE_PATIENCE;
        self.pending.push(PendingTmf {
            itt,
            outcome,
            releasing,
            deadline,
            drops_sessions,
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

    /// The next request that can be answered, in the order they came.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<DueTmf> {
        let is_due = |pending: &PendingTmf| {
            pending.outcome.is_some() && (pending.releasing.is_empty() || pending.deadline <= now)
        };
        let pending = self.pending.remove(self.pending.iter().position(is_due)?);
        let outcome = pending.outcome.expect("checked above");
        Some(DueTmf {
            itt: pending.itt,
            outcome,
            drops_sessions: pending.drops_sessions && outcome.response == TmfResponse::Complete,
        })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
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

    #[test]
    fn an_answer_waits_for_device_and_data_but_not_beyond_its_patience() {
        let (mut tmfs, now) = (PendingTmfs::default(), Instant::now());
        tmfs.begin(Itt(9), None, &[Itt(1), Itt(2)], false, now);
        tmfs.released(Itt(1));
        tmfs.managed(Itt(9), TmfResponse::Complete.into());
        assert_eq!(tmfs.take_due(now), None);
        let due = DueTmf {
            itt: Itt(9),
            outcome: TmfResponse::Complete.into(),
            drops_sessions: false,
        };
        assert_eq!(tmfs.take_due(now + RELEASE_PATIENCE), Some(due));
        assert_eq!(tmfs.len(), 0);
    }
}
