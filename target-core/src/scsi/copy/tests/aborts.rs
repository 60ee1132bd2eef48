//! Copies that are aborted, at every end, while a store is busy.

use backstores::{BlockStore, FaultStore, Matching, StoreOp};
use iscsi_proto::Lun;
use iscsi_proto::pdu::Function;
use tokio::task::JoinHandle;

use super::*;
use crate::scsi::testing::{Command, nexus};
use crate::transfer::AbortSignal;

/// Two units of 8192 blocks whose stores can be stopped.
fn stoppable() -> (Arc<TargetDevice>, [Arc<LogicalUnit>; 2], [Arc<FaultStore>; 2]) {
    let stores = [memory(8192), memory(8192)].map(FaultStore::new);
    let units = [1, 2].map(|name| {
        let store = Arc::clone(&stores[usize::from(name) - 1]) as Arc<dyn BlockStore>;
        LogicalUnit::new(name_config(name), store)
    });
    (device(&units), units, stores)
}

fn start(device: &Arc<TargetDevice>, cdb: &[u8], data: &[u8]) -> (JoinHandle<Outcome>, AbortSignal) {
    let command = Command::new(0, cdb).sending(data);
    let abort = command.abort.clone();
    let ended = command.begin(device, &nexus(1));
    (tokio::spawn(async move { ended.await.0 }), abort)
}

#[tokio::test]
async fn an_abort_stops_a_copy_at_the_piece_that_the_store_has() {
    let (device, [one, two], [_, target]) = stoppable();
    write(&device, 0, 0, &pattern(1, 0, 4096)).await;
    target.hold(Matching::op(StoreOp::Write));
    let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 4096, 0, 0)]);
    let (copy, abort) = start(&device, &out_cdb(0, 0, list.len()), &list);
    target.until_held(1).await;
    abort.fire();
    // Until the store lets go of it, the piece keeps others off its blocks, and off no others.
    let beside = Command::new(1, &rw(0x88, 4096, 1)).expecting(512);
    assert_eq!(status(&beside.run(&device, &nexus(1)).await.0), Status::Good);
    target.resume();
    assert_eq!(copy.await.unwrap(), Outcome::Aborted);
    assert_eq!(
        target.unflushed_blocks(),
        512,
        "one chunk was with the store, and nothing after it"
    );
    assert_eq!((one.tasks().len(), two.tasks().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_piece_is_a_fence_on_the_unit_it_is_written_to() {
    let (device, [one, two], [_, target]) = stoppable();
    target.hold(Matching::op(StoreOp::Write).touching(0..512));
    let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 4096, 0, 0)]);
    let (copy, abort) = start(&device, &out_cdb(0, 0, list.len()), &list);
    target.until_held(1).await;
    abort.fire();
    let stale = Command::new(1, &rw(0x8a, 0, 1)).sending(&[7; 512]);
    assert_eq!(status(&stale.run(&device, &nexus(1)).await.0), Status::Busy);
    target.resume();
    assert_eq!(copy.await.unwrap(), Outcome::Aborted);
    write(&device, 1, 0, &[7; 512]).await;
    assert_eq!(read(&device, 1, 0, 1).await, [7; 512]);
}

#[tokio::test]
async fn a_reset_of_the_other_unit_fails_the_copy_and_leaves_the_command_its_status() {
    let (device, [one, two], [source, target]) = stoppable();
    for (held, op, lun) in [(&target, StoreOp::Write, 1), (&target, StoreOp::Read, 1)] {
        if op == StoreOp::Read {
            source.hold(Matching::op(op));
        } else {
            held.hold(Matching::op(op));
        }
        let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 4096, 0, 0)]);
        let (copy, _) = start(&device, &out_cdb(0, 0, list.len()), &list);
        if op == StoreOp::Read {
            source.until_held(1).await;
        } else {
            held.until_held(1).await;
        }
        let lun = Lun::from_number(lun).unwrap();
        device.manage(&nexus(1), Function::LogicalUnitReset, lun);
        source.resume();
        target.resume();
        assert_eq!(code(&copy.await.unwrap()), (0x0a, 0x0d, 0x01));
    }
}

#[tokio::test]
async fn copy_operation_abort_ends_a_copy_by_its_identifier() {
    let (device, [one, two], [_, target]) = stoppable();
    target.hold(Matching::op(StoreOp::Write));
    let list = extended_copy_list(9, &[&one, &two], &[block_segment(0, 1, 4096, 0, 0)]);
    let (copy, _) = start(&device, &out_cdb(0, 0, list.len()), &list);
    target.until_held(1).await;
    let cancel = |list: u8| [0x83, 0x1c, 0, 0, 0, list, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(code(&run(&device, 0, &cancel(8), &[]).await.0), (5, 0x24, 0));
    assert_eq!(status(&run(&device, 0, &cancel(9), &[]).await.0), Status::Good);
    target.resume();
    assert_eq!(code(&copy.await.unwrap()), (0x0a, 0x00, 0x00));
    assert_eq!(code(&run(&device, 0, &cancel(9), &[]).await.0), (5, 0x24, 0));
}

#[tokio::test]
async fn a_token_waits_for_writes_under_way_and_then_stands_for_what_they_wrote() {
    let (device, _, [source, _]) = stoppable();
    source.hold(Matching::op(StoreOp::Write).touching(0..512));
    let (older, _) = start(&device, &rw(0x8a, 0, 1), &[5; 512]);
    source.until_held(1).await;
    let list = populate_list(&[(0, 8)]);
    let (mut populate, _) = start(&device, &out_cdb(0x10, 77, list.len()), &list);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(futures_util::FutureExt::now_or_never(&mut populate).is_none());
    source.resume();
    assert_eq!(status(&older.await.unwrap()), Status::Good);
    assert_eq!(status(&populate.await.unwrap()), Status::Good);
    let (_, told) = run(&device, 0, &in_cdb(0x07, 77, 1024), &[]).await;
    let order = write_list(0, 0, &told[38..], &[(0, 8)]);
    assert_eq!(status(&send(&device, 1, 0x11, 78, &order).await), Status::Good);
    assert_eq!(read(&device, 1, 0, 1).await, [5; 512]);
}

#[tokio::test]
async fn a_write_during_the_copy_revokes_the_token_under_it() {
    let (device, _, [_, target]) = stoppable();
    let list = populate_list(&[(0, 4096)]);
    send(&device, 0, 0x10, 77, &list).await;
    let (_, told) = run(&device, 0, &in_cdb(0x07, 77, 1024), &[]).await;
    target.hold(Matching::op(StoreOp::Write));
    let order = write_list(0, 0, &told[38..], &[(0, 4096)]);
    let device_of_copy = Arc::clone(&device);
    let copy = tokio::spawn(async move { send(&device_of_copy, 1, 0x11, 78, &order).await });
    target.until_held(1).await;
    write(&device, 0, 4000, &[7; 512]).await;
    target.resume();
    assert_eq!(code(&copy.await.unwrap()), (5, 0x23, 0x06));
}

#[tokio::test]
async fn the_loss_of_its_nexus_ends_a_copy_in_the_background() {
    let (device, [_, two], [_, target]) = stoppable();
    let list = populate_list(&[(0, 4096)]);
    send(&device, 0, 0x10, 77, &list).await;
    let (_, told) = run(&device, 0, &in_cdb(0x07, 77, 1024), &[]).await;
    target.hold(Matching::op(StoreOp::Write));
    let order = write_list(1, 0, &told[38..], &[(0, 4096)]);
    assert_eq!(status(&send(&device, 1, 0x11, 78, &order).await), Status::Good);
    target.until_held(1).await;
    two.detach(&nexus(1));
    target.resume();
    while two.tasks().len() != 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(target.unflushed_blocks(), 512);
}
