//! Nexuses, the LUN map and task management, by what an initiator is told.

use super::*;
use crate::scsi::testing::{Command, TestMemory, connection, device, nexus, sense, status, unit};
use crate::scsi::{NonVolatileMemory, Outcome, Status};
use crate::transfer::TaskEvent;

/// TEST UNIT READY: the code it is told, or `None` when all is well.
async fn told(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, lun: u16) -> Option<(u8, u8)> {
    let (outcome, _) = Command::new(lun, &[0x00]).run(device, nexus).await;
    match outcome {
        Outcome::Status {
            status: Status::Good, ..
        } => None,
        _ => Some(sense(&outcome).code),
    }
}

/// A device with two units, on which two nexuses have been told all there was.
async fn settled() -> (Arc<TargetDevice>, Arc<NexusId>, Arc<NexusId>) {
    let device = device(&[unit(64), unit(64)]);
    let (one, two) = (nexus(1), nexus(2));
    for nexus in [&one, &two] {
        device.attach(nexus);
        for lun in [0, 1] {
            assert_eq!(told(&device, nexus, lun).await, Some((0x29, 0x00)));
        }
    }
    (device, one, two)
}

/// A write that waits for its Data-Out, and the other end of its transfer.
fn pending_write(
    device: &Arc<TargetDevice>,
    nexus: &Arc<NexusId>,
) -> (
    impl Future<Output = Ended> + use<>,
    crate::scsi::testing::Connection,
    AbortSignal,
) {
    let (setup, connection) = connection(0, 512, vec![0; 512], 0);
    let abort = setup.abort.clone();
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: Bytes::from_static(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 1,
    };
    (
        device.execute(nexus, task, Transfer::new(setup)),
        connection,
        abort,
    )
}

#[tokio::test]
async fn a_new_nexus_is_told_once_on_every_unit() {
    let (device, one, two) = settled().await;
    for (nexus, lun) in [(&one, 0), (&one, 1), (&two, 0), (&two, 1)] {
        assert_eq!(told(&device, nexus, lun).await, None);
    }
}

#[tokio::test]
async fn inquiry_runs_past_an_attention_and_leaves_it() {
    let device = device(&[unit(64)]);
    let one = nexus(1);
    device.attach(&one);
    let (outcome, _) = Command::new(0, &[0x12, 0, 0, 0, 36, 0])
        .expecting(36)
        .run(&device, &one)
        .await;
    assert_eq!(status(&outcome), Status::Good);
    assert_eq!(told(&device, &one, 0).await, Some((0x29, 0x00)));
}

#[tokio::test]
async fn a_changed_map_is_told_until_it_was_read() {
    let (device, one, two) = settled().await;
    assert!(device.map(2, unit(64)));
    assert!(!device.map(2, unit(64)));
    assert!(!device.map(0x4000, unit(64)));
    assert_eq!(told(&device, &one, 0).await, Some((0x3f, 0x0e)));
    let report_luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let (outcome, luns) = Command::new(1, &report_luns)
        .expecting(256)
        .run(&device, &two)
        .await;
    assert_eq!((status(&outcome), luns.len()), (Status::Good, 32));
    assert_eq!(told(&device, &two, 0).await, None);
    assert_eq!(told(&device, &two, 1).await, None);
    assert_eq!(told(&device, &two, 2).await, Some((0x29, 0x00)));
}

#[tokio::test]
async fn an_unmapped_unit_is_gone_and_its_tasks_with_it() {
    let (device, one, _) = settled().await;
    let (_write, _connection, abort) = pending_write(&device, &one);
    assert!(device.unmap(0).is_some());
    assert!(abort.is_fired());
    assert_eq!(told(&device, &one, 0).await, Some((0x25, 0x00)));
    assert_eq!(told(&device, &one, 1).await, Some((0x3f, 0x0e)));
    assert!(device.unmap(0).is_none());
}

#[tokio::test]
async fn a_task_that_was_handed_over_can_be_aborted_before_it_is_polled() {
    let (device, one, two) = settled().await;
    let (write, connection, abort) = pending_write(&device, &one);
    assert_eq!(
        device.manage(&two, Function::AbortTaskSet, Lun::ZERO),
        TmfResponse::Complete.into()
    );
    assert!(!abort.is_fired(), "the tasks of another nexus");
    assert_eq!(
        device.manage(&one, Function::AbortTaskSet, Lun::ZERO),
        TmfResponse::Complete.into()
    );
    let (_, ended) = tokio::join!(write, connection.serve());
    assert_eq!(ended.0, Outcome::Aborted);
    assert_eq!(told(&device, &one, 0).await, None);
}

#[tokio::test]
async fn a_cleared_task_set_is_told_to_those_who_lost_tasks() {
    let (device, one, two) = settled().await;
    let (_write, _connection, abort) = pending_write(&device, &one);
    let (_own, _own_connection, own_abort) = pending_write(&device, &two);
    device.manage(&two, Function::ClearTaskSet, Lun::ZERO);
    assert!(abort.is_fired() && own_abort.is_fired());
    assert_eq!(told(&device, &one, 0).await, Some((0x2f, 0x00)));
    assert_eq!(told(&device, &two, 0).await, None);
}

#[tokio::test]
async fn a_reset_is_told_to_every_nexus_of_the_unit() {
    let (device, one, two) = settled().await;
    let (_write, _connection, abort) = pending_write(&device, &two);
    device.manage(&one, Function::LogicalUnitReset, Lun::ZERO);
    assert!(abort.is_fired());
    for nexus in [&one, &two] {
        assert_eq!(told(&device, nexus, 0).await, Some((0x29, 0x03)));
        assert_eq!(told(&device, nexus, 1).await, None);
    }
    device.manage(&one, Function::TargetWarmReset, Lun::ZERO);
    assert_eq!(told(&device, &two, 1).await, Some((0x29, 0x00)));
}

#[tokio::test]
async fn functions_that_cannot_be_done_say_so() {
    let (device, one, _) = settled().await;
    let absent = Lun::from_number(9).unwrap();
    assert_eq!(
        device.manage(&one, Function::LogicalUnitReset, absent),
        TmfResponse::LunDoesNotExist.into()
    );
    assert_eq!(
        device.manage(&one, Function::ClearAca, Lun::ZERO),
        TmfResponse::NotSupported.into()
    );
}

#[tokio::test]
async fn a_query_of_the_task_set_tells_of_ones_own_tasks_alone() {
    let (device, one, two) = settled().await;
    let (_write, _connection, _abort) = pending_write(&device, &one);
    let query = |nexus| device.manage(nexus, Function::QueryTaskSet, Lun::ZERO);
    assert_eq!(query(&one), TmfResponse::Succeeded.into());
    assert_eq!(query(&two), TmfResponse::Complete.into());
}

#[tokio::test]
async fn a_query_for_events_shows_the_next_attention_and_takes_none_away() {
    let (device, one, two) = settled().await;
    let query = |nexus| device.manage(nexus, Function::QueryAsyncEvent, Lun::ZERO);
    assert_eq!(query(&two), TmfResponse::Complete.into());
    device.raise(0, UnitAttention::CapacityChanged, Some(&one));
    let found = |additional| TmfOutcome {
        response: TmfResponse::Succeeded,
        additional,
    };
    assert_eq!(query(&two), found(0x16_2a_09), "one, unit attention, 2A/09");
    device.raise(0, UnitAttention::ModeParametersChanged, None);
    assert_eq!(query(&two), found(0x26_2a_09), "more than one");
    assert_eq!(query(&one), found(0x16_2a_01));
    assert_eq!(told(&device, &two, 0).await, Some((0x2a, 0x09)));
}

#[tokio::test]
async fn a_nexus_reset_ends_ones_own_tasks_on_every_unit_and_is_told_on_each() {
    let (device, one, two) = settled().await;
    let (_write, _connection, abort) = pending_write(&device, &one);
    let (_other, _other_connection, other_abort) = pending_write(&device, &two);
    device.manage(&one, Function::ITNexusReset, Lun::ZERO);
    assert!(abort.is_fired() && !other_abort.is_fired());
    for lun in [0, 1] {
        assert_eq!(told(&device, &one, lun).await, Some((0x29, 0x07)));
        assert_eq!(told(&device, &two, lun).await, None);
    }
}

#[tokio::test]
async fn functions_are_reported_as_far_as_the_nexus_may_use_them() {
    let (device, one, two) = settled().await;
    device.offer_queries(&two);
    let report = [0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];
    for (nexus, expected) in [(&one, [0xda, 0, 0, 0]), (&two, [0xde, 0x07, 0, 0])] {
        let (_, data) = Command::new(0, &report).expecting(4).run(&device, nexus).await;
        assert_eq!(data, expected);
    }
    // A new session of the same nexus has to agree anew.
    device.attach(&two);
    assert!(!device.offers_queries(&two));
}

#[tokio::test]
async fn a_lost_nexus_loses_its_tasks_and_nothing_else() {
    let (device, one, two) = settled().await;
    let (_write, _connection, abort) = pending_write(&device, &one);
    let (_other, _other_connection, other_abort) = pending_write(&device, &two);
    device.detach(&one);
    assert!(abort.is_fired() && !other_abort.is_fired());
    assert_eq!(told(&device, &two, 0).await, None);
}

#[tokio::test]
async fn a_late_detach_does_not_touch_the_session_that_took_over() {
    let (device, old, _) = settled().await;
    let young = nexus(1);
    device.attach(&young);
    let (mut write, mut connection, abort) = {
        assert_eq!(told(&device, &young, 0).await, Some((0x29, 0x00)));
        let (write, connection, abort) = pending_write(&device, &young);
        (Box::pin(write), connection, abort)
    };
    device.detach(&old);
    assert!(!abort.is_fired());
    tokio::select! {
        _ = &mut write => panic!("it waits for data"),
        event = connection.event() => assert!(matches!(event, Some(TaskEvent::Get { .. }))),
    }
}

/// SET TARGET PORT GROUPS for group 1.
async fn set_state(device: &Arc<TargetDevice>, by: &Arc<NexusId>, state: u8) -> Outcome {
    let list = [0, 0, 0, 0, state, 0, 0, 1];
    let set = Command::new(0, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]).sending(&list);
    set.run(device, by).await.0
}

#[tokio::test]
async fn states_that_a_nexus_set_are_those_of_the_next_device_of_that_name() {
    let memory = TestMemory::shared();
    let (device, one, two) = settled().await;
    device.remember(&memory).unwrap();
    assert_eq!(status(&set_state(&device, &one, 2).await), Status::Good);
    assert_eq!(told(&device, &two, 0).await, Some((0x2a, 0x06)));
    let again = crate::scsi::testing::device(&[unit(64)]);
    again.remember(&memory).unwrap();
    assert_eq!(again.port_groups(), device.port_groups());
    assert_eq!(again.port_groups()[0].state, AccessState::Standby);
    again.reset_access_states().await.unwrap();
    let reset = crate::scsi::testing::device(&[unit(64)]);
    reset.remember(&memory).unwrap();
    assert_eq!(reset.port_groups()[0].state, AccessState::ActiveOptimized);
    assert_eq!(reset.port_groups()[0].cause, StateCause::None);
}

#[tokio::test]
async fn a_state_that_cannot_be_kept_is_not_set() {
    let full = Arc::new(TestMemory::default());
    let memory: Arc<dyn NonVolatileMemory> = Arc::clone(&full) as _;
    let (device, one, two) = settled().await;
    device.remember(&memory).unwrap();
    full.is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(sense(&set_state(&device, &one, 2).await).code, (0x44, 0x00));
    assert_eq!(device.port_groups()[0].state, AccessState::ActiveOptimized);
    assert_eq!(told(&device, &two, 0).await, None);
    // What is so already need not be kept.
    assert_eq!(status(&set_state(&device, &one, 0).await), Status::Good);
}
