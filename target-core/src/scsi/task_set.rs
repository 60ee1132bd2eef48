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
        let mut losers: Vec<Arc<NexusId>> = Vec::new();
        for entry in &self.state().tasks {
            if entry.who.abort.is_fired() || !concerned(&entry.who.nexus) {
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
        self.0 != Access::Read || self.1 != Access::Read
    }

    fn is_exclusive(self) -> bool {
        self.0 == Access::Exclusive || self.1 == Access::Exclusive
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
mod tests {
    use super::TaskAttribute::{HeadOfQueue, Ordered, Simple};
    use super::*;
    use crate::scsi::testing::nexus;

    struct Set(Arc<TaskSet>);

    impl Set {
        fn enter(
            &self,
            attribute: TaskAttribute,
            blocks: Range<u64>,
            access: Access,
        ) -> (TaskTicket, AbortSignal) {
            let abort = AbortSignal::default();
            let who = TaskIdentity {
                nexus: nexus(1),
                tag: 0,
                attribute,
                abort: abort.clone(),
            };
            let ticket = self.0.enter(who, Some(Claim { blocks, access })).unwrap();
            (ticket, abort)
        }
    }

    /// Polls once: what became of it, or `None` while it waits.
    async fn ready_now(ticket: &mut TaskTicket) -> Option<Result<(), Failure>> {
        futures_util::FutureExt::now_or_never(ticket.ready())
    }

    fn set() -> Set {
        Set(Arc::default())
    }

    #[tokio::test]
    async fn simple_tasks_run_side_by_side_even_on_the_same_blocks() {
        let set = set();
        let (mut one, _) = set.enter(Simple, 0..8, Access::Write);
        let (mut two, _) = set.enter(Simple, 0..8, Access::Write);
        assert!(matches!(ready_now(&mut one).await, Some(Ok(()))));
        assert!(matches!(ready_now(&mut two).await, Some(Ok(()))));
        assert_eq!(set.0.len(), 2);
        drop((one, two));
        assert_eq!(set.0.len(), 0);
    }

    #[tokio::test]
    async fn an_ordered_task_waits_for_older_ones_and_holds_younger_ones() {
        let set = set();
        let (older, _) = set.enter(Simple, 0..1, Access::Read);
        let (mut ordered, _) = set.enter(Ordered, 1..2, Access::Read);
        let (mut younger, _) = set.enter(Simple, 2..3, Access::Read);
        let (mut urgent, _) = set.enter(HeadOfQueue, 3..4, Access::Read);
        assert!(matches!(ready_now(&mut urgent).await, Some(Ok(()))));
        let order = Mutex::new(Vec::new());
        let ((), (), ()) = tokio::join!(
            async {
                younger.ready().await.unwrap();
                order.lock().unwrap().push("younger");
            },
            async {
                ordered.ready().await.unwrap();
                order.lock().unwrap().push("ordered");
                drop(ordered);
            },
            async {
                tokio::task::yield_now().await;
                order.lock().unwrap().push("older");
                drop(older);
            },
        );
        assert_eq!(order.into_inner().unwrap(), ["older", "ordered", "younger"]);
    }

    #[tokio::test]
    async fn an_aborted_older_task_holds_an_ordered_one_no_longer() {
        let set = set();
        let (_stuck, abort) = set.enter(Simple, 0..1, Access::Write);
        let (mut ordered, _) = set.enter(Ordered, 1..2, Access::Read);
        let (ready, ()) = tokio::join!(ordered.ready(), async { abort.fire() });
        assert!(ready.is_ok());
    }

    #[tokio::test]
    async fn exclusive_blocks_keep_others_off_them_and_only_off_them() {
        let set = set();
        let (exclusive, _) = set.enter(Simple, 8..16, Access::Exclusive);
        let (mut reader, _) = set.enter(Simple, 15..17, Access::Read);
        let (mut neighbour, _) = set.enter(Simple, 16..17, Access::Write);
        assert!(matches!(ready_now(&mut neighbour).await, Some(Ok(()))));
        let ended = Mutex::new(false);
        tokio::join!(
            async {
                reader.ready().await.unwrap();
                assert!(*ended.lock().unwrap());
            },
            async {
                tokio::task::yield_now().await;
                *ended.lock().unwrap() = true;
                drop(exclusive);
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_that_does_not_open_ends_an_overlapping_task_with_busy() {
        let set = set();
        let (_stuck, abort) = set.enter(Simple, 0..8, Access::Write);
        abort.fire();
        let start = Instant::now();
        let (mut reader, _) = set.enter(Simple, 7..9, Access::Read);
        assert!(matches!(reader.ready().await, Err(Failure::Busy)));
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_that_opens_lets_the_task_run() {
        let set = set();
        let (stuck, abort) = set.enter(Simple, 0..8, Access::Write);
        abort.fire();
        let (mut writer, _) = set.enter(Simple, 0..1, Access::Write);
        let (ready, ()) = tokio::join!(writer.ready(), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(stuck);
        });
        assert!(ready.is_ok());
    }

    #[tokio::test]
    async fn a_fence_stops_nobody_beside_it_and_two_reads_need_none() {
        let set = set();
        let (_writing, abort) = set.enter(Simple, 0..8, Access::Write);
        abort.fire();
        let (mut beside, _) = set.enter(Ordered, 8..16, Access::Write);
        assert!(matches!(ready_now(&mut beside).await, Some(Ok(()))));
        let (_reading, abort) = set.enter(HeadOfQueue, 100..108, Access::Read);
        abort.fire();
        let (mut reader, _) = set.enter(HeadOfQueue, 100..108, Access::Read);
        assert!(matches!(ready_now(&mut reader).await, Some(Ok(()))));
    }

    #[tokio::test(start_paused = true)]
    async fn blocks_claimed_late_respect_fences_too() {
        let set = set();
        let (_stuck, abort) = set.enter(Simple, 0..8, Access::Write);
        abort.fire();
        let (mut unmap, _) = set.enter(Simple, 0..0, Access::Write);
        unmap.ready().await.unwrap();
        let claim = |blocks| Claim {
            blocks,
            access: Access::Write,
        };
        assert!(unmap.claim(claim(8..9)).await.is_ok());
        assert!(matches!(unmap.claim(claim(4..9)).await, Err(Failure::Busy)));
    }

    #[tokio::test]
    async fn a_waiting_task_that_is_aborted_leaves_at_once() {
        let set = set();
        let (_older, _) = set.enter(Simple, 0..8, Access::Write);
        let (mut ordered, abort) = set.enter(Ordered, 0..8, Access::Write);
        let (ready, ()) = tokio::join!(ordered.ready(), async { abort.fire() });
        assert!(matches!(ready, Err(Failure::Aborted)));
    }

    #[tokio::test]
    async fn an_abort_reaches_the_tasks_of_the_nexus_and_counts_losers_once() {
        let set = set();
        let enter = |isid| {
            let abort = AbortSignal::default();
            let who = TaskIdentity {
                nexus: nexus(isid),
                tag: 0,
                attribute: Simple,
                abort: abort.clone(),
            };
            (set.0.enter(who, None).unwrap(), abort)
        };
        let (_one, first) = enter(1);
        let (_two, second) = enter(1);
        let (_three, other) = enter(2);
        let losers = set.0.abort(|owner| *owner == nexus(1));
        assert_eq!(losers, [nexus(1)]);
        assert!(first.is_fired() && second.is_fired() && !other.is_fired());
        assert_eq!(set.0.abort(|_| true), [nexus(2)]);
    }

    #[tokio::test]
    async fn a_full_set_takes_no_more() {
        let set = set();
        let tasks: Vec<_> = (0..4096).map(|_| set.enter(Simple, 0..1, Access::Read)).collect();
        let who = TaskIdentity {
            nexus: nexus(1),
            tag: 0,
            attribute: Simple,
            abort: AbortSignal::default(),
        };
        assert!(matches!(
            set.0.enter(who.clone(), None),
            Err(Failure::TaskSetFull)
        ));
        drop(tasks);
        assert!(set.0.enter(who, None).is_ok());
    }
}
