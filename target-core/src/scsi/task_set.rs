//! The task set of a logical unit (SAM-5 §8): which tasks run, which wait for others, and which can be aborted.
//!
//! Simple tasks run side by side, in no promised order (the control mode page says unrestricted reordering). An
//! ordered task waits for all older ones and holds all younger ones; a head-of-queue task waits for nobody. Tasks that
//! need their blocks for themselves keep others off them.
//!
//! **Fence.** An aborted task whose store operation still runs stays here until that has ended. A later task that
//! overlaps its blocks, one of both writing, waits [`FENCE_PATIENCE`] at most and then ends with BUSY: a stale write
//! never lands after a newer one, and a stuck store stops nobody else.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::copy::RodWatch;
use super::table::Access;
use super::{Failure, TaskAttribute};
use crate::nexus::NexusId;
use crate::transfer::AbortSignal;

/// All tasks of one unit.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    /// Held for one scan of the tasks, never while waiting.
    state: Mutex<State>,
    /// Told whenever a task left or ceased to hold others, if somebody waits.
    changed: Notify,
    /// Who has to know of every change of the medium.
    watch: RodWatch,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`MAX_TASKS`]; in no order.
    tasks: Vec<Entry>,
    /// Next position in time.
    next: u64,
    waiting: usize,
}

/// Blocks that a task touches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Claim {
    /// The blocks.
    pub(crate) blocks: Range<u64>,
    /// What happens to them.
    pub(crate) access: Access,
}

/// Who a task is.
#[derive(Clone, Debug)]
pub(crate) struct TaskIdentity {
    /// Its nexus.
    pub(crate) nexus: Arc<NexusId>,
    /// Its task tag, for the log.
    pub(crate) tag: u32,
    /// Its attribute.
    pub(crate) attribute: TaskAttribute,
    /// How it is told of its abort.
    pub(crate) abort: AbortSignal,
}

#[derive(Debug)]
struct Entry {
    /// Position in time, and the name of the task here.
    seq: u64,
    who: TaskIdentity,
    claim: Option<Claim>,
    running: bool,
}

/// A place in the task set. Dropping it leaves the set, so it lives as long as the command's last store operation.
#[derive(Debug)]
pub(crate) struct TaskTicket {
    set: Arc<TaskSet>,
    seq: u64,
    abort: AbortSignal,
    must_wait: bool,
}

/// Why a task must wait.
#[derive(Debug)]
enum Obstacle {
    /// A task that is still in order; it ends, or is aborted.
    Task(AbortSignal),
    /// The store operation of an aborted task.
    Fence,
}

impl TaskSet {
    /// Enters a task. What is in its way, it waits for in [`TaskTicket::ready`]. TASK SET FULL when there are too many.
    pub(crate) fn enter(
        self: &Arc<Self>,
        who: TaskIdentity,
        claim: Option<Claim>,
    ) -> Result<TaskTicket, Failure> {
        let abort = who.abort.clone();
        let mut state = self.state();
        if state.tasks.len() >= MAX_TASKS {
            return Err(Failure::TaskSetFull);
        }
        let seq = state.next;
        state.next += 1;
        let running = state.obstacle(seq, &who, claim.as_ref(), true).is_none();
        if running {
            self.watch.task_runs(claim.as_ref());
        }
        state.tasks.push(Entry {
            seq,
            who,
            claim,
            running,
        });
        Ok(TaskTicket {
            set: Arc::clone(self),
            seq,
            abort,
            must_wait: !running,
        })
    }

    /// Fires the signals of all tasks whose nexus is `concerned`. Returns the nexuses that lost tasks, each once.
    pub(crate) fn abort(&self, concerned: impl Fn(&Arc<NexusId>) -> bool) -> Vec<Arc<NexusId>> {
        self.abort_where(|entry| concerned(&entry.who.nexus))
    }

    fn abort_where(&self, concerned: impl Fn(&Entry) -> bool) -> Vec<Arc<NexusId>> {
        let mut losers: Vec<Arc<NexusId>> = Vec::new();
        for entry in &self.state().tasks {
            if entry.who.abort.is_fired() || !concerned(entry) {
                continue;
            }
            entry.who.abort.fire();
            tracing::debug!(nexus = %entry.who.nexus.initiator, tag = entry.who.tag, "task aborted");
            if !losers.contains(&entry.who.nexus) {
                losers.push(Arc::clone(&entry.who.nexus));
            }
        }
        losers
    }

    /// Those that have to know of changes.
    pub(crate) fn watch(&self) -> &RodWatch {
        &self.watch
    }

    /// Whether a nexus has a task here that was not aborted.
    pub(crate) fn holds_task_of(&self, concerned: impl Fn(&Arc<NexusId>) -> bool) -> bool {
        let state = self.state();
        let mut tasks = state.tasks.iter();
        tasks.any(|entry| !entry.who.abort.is_fired() && concerned(&entry.who.nexus))
    }

    /// Tasks in the set, the aborted ones that have not left yet included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state().tasks.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }
}

impl State {
    /// What is in the way of a task. A task that `enters` waits for older ones, waiting or running; one that runs
    /// already and claims blocks looks at running ones only, since those that wait may wait for it.
    fn obstacle(
        &self,
        seq: u64,
        who: &TaskIdentity,
        claim: Option<&Claim>,
        enters: bool,
    ) -> Option<Obstacle> {
        let mut fence = false;
        for entry in &self.tasks {
            if entry.seq == seq || (enters && entry.seq > seq) || (!enters && !entry.running) {
                continue;
            }
            let overlap = overlap(claim, entry.claim.as_ref());
            if entry.who.abort.is_fired() {
                fence |= entry.running && overlap.is_some_and(Overlap::writes);
            } else if (enters && is_ordered(who.attribute, entry.who.attribute))
                || overlap.is_some_and(Overlap::is_exclusive)
            {
                return Some(Obstacle::Task(entry.who.abort.clone()));
            }
        }
        fence.then_some(Obstacle::Fence)
    }

    fn entry(&mut self, seq: u64) -> &mut Entry {
        self.tasks
            .iter_mut()
            .find(|entry| entry.seq == seq)
            .expect("a ticket's task is in the set")
    }
}

impl TaskTicket {
    /// Waits until nothing is in the task's way. BUSY when a fence does not open, `Aborted` when the task was aborted
    /// meanwhile.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        if mem::take(&mut self.must_wait) {
            self.wait(true).await?;
        }
        Ok(())
    }

    /// Claims blocks that were not known when the task entered, in place of what it claimed before, and waits for
    /// fences and exclusive tasks on them.
    pub(crate) async fn claim(&self, claim: Claim) -> Result<(), Failure> {
        self.set.state().entry(self.seq).claim = Some(claim);
        self.wait(false).await
    }

    /// [`TaskSet::abort`] for all tasks but this one.
    pub(crate) fn abort_others(&self, concerned: impl Fn(&Arc<NexusId>) -> bool) -> Vec<Arc<NexusId>> {
        self.set
            .abort_where(|entry| entry.seq != self.seq && concerned(&entry.who.nexus))
    }

    /// Claims nothing any more.
    pub(crate) fn release(&self) {
        let anyone_waits = {
            let mut state = self.set.state();
            state.entry(self.seq).claim = None;
            state.waiting != 0
        };
        if anyone_waits {
            self.set.changed.notify_waiters();
        }
    }

    async fn wait(&self, enters: bool) -> Result<(), Failure> {
        let mut patience_ends = None;
        loop {
            // Registered before the look, so that no change in between is missed.
            let changed = self.set.changed.notified();
            tokio::pin!(changed);
            let (obstacle, _waiting) = {
                let mut state = self.set.state();
                let entry = state.entry(self.seq);
                let (who, claim) = (entry.who.clone(), entry.claim.clone());
                let Some(obstacle) = state.obstacle(self.seq, &who, claim.as_ref(), enters) else {
                    state.entry(self.seq).running = true;
                    self.set.watch.task_runs(claim.as_ref());
                    return Ok(());
                };
                changed.as_mut().enable();
                state.waiting += 1;
                (obstacle, Waiting(&self.set))
            };
            match obstacle {
                Obstacle::Task(aborted) => tokio::select! {
                    () = self.abort.fired() => return Err(Failure::Aborted),
                    () = changed => {}
                    () = aborted.fired() => {}
                },
                Obstacle::Fence => {
                    let ends = *patience_ends.get_or_insert_with(|| Instant::now() + FENCE_PATIENCE);
                    tokio::select! {
                        () = self.abort.fired() => return Err(Failure::Aborted),
                        () = changed => {}
                        () = sleep_until(ends) => return Err(Failure::Busy),
                    }
                }
            }
        }
    }
}

impl Drop for TaskTicket {
    fn drop(&mut self) {
        let anyone_waits = {
            let mut state = self.set.state();
            let place = state.tasks.iter().position(|entry| entry.seq == self.seq);
            state
                .tasks
                .swap_remove(place.expect("a ticket's task is in the set"));
            state.waiting != 0
        };
        if anyone_waits {
            self.set.changed.notify_waiters();
        }
    }
}

/// Counts somebody who waits, however the wait ends.
struct Waiting<'a>(&'a TaskSet);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// Two claims on some of the same blocks.
#[derive(Clone, Copy)]
struct Overlap(Access, Access);

impl Overlap {
    fn writes(self) -> bool {
        self.0.writes() || self.1.writes()
    }

    fn is_exclusive(self) -> bool {
        let kept_still = self.0 == Access::ReadStill || self.1 == Access::ReadStill;
        self.0 == Access::Exclusive || self.1 == Access::Exclusive || (kept_still && self.writes())
    }
}

fn overlap(ours: Option<&Claim>, theirs: Option<&Claim>) -> Option<Overlap> {
    let (ours, theirs) = (ours?, theirs?);
    let common = ours.blocks.start.max(theirs.blocks.start)..ours.blocks.end.min(theirs.blocks.end);
    (!common.is_empty()).then_some(Overlap(ours.access, theirs.access))
}

/// Whether a task waits for an older one because of their attributes (SAM-5 §8.6).
fn is_ordered(ours: TaskAttribute, older: TaskAttribute) -> bool {
    match ours {
        TaskAttribute::HeadOfQueue => false,
        TaskAttribute::Ordered => true,
        TaskAttribute::Untagged | TaskAttribute::Simple | TaskAttribute::Aca => {
            older == TaskAttribute::Ordered
        }
    }
}

/// Tasks a unit takes at once, of all nexuses; the next one ends with TASK SET FULL.
pub(crate) const MAX_TASKS: usize = 4096;

/// How long a task waits for the store operation of an aborted one. Initiators give a command tens of seconds, and
/// repeat it after BUSY.
pub(crate) const FENCE_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
