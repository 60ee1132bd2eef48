//! Who waits for whom, without commands and stores.

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
