//! Aborts while the store is busy, fences, and what is left of a nexus or a unit that is gone.

use std::time::Duration;

use backstores::{CHUNK, Matching, StoreOp};
use iscsi_proto::Lun;
use iscsi_proto::pdu::{Function, TmfResponse};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::scsi::testing::faulty;
use crate::scsi::{Outcome, ScsiTask, TaskAttribute};
use crate::transfer::{AbortSignal, TaskEvent, Transfer};

type Ended = (Outcome, Vec<u8>);

fn start(device: &Arc<TargetDevice>, command: Command) -> JoinHandle<Ended> {
    tokio::spawn(command.begin(device, &nexus(1)))
}

/// One block, full of `mark`.
fn write(lba: u32, mark: u8) -> Command {
    Command::new(0, &ten(0x2a, 0, lba, 1)).sending(&[mark; 512])
}

fn read(lba: u32) -> Command {
    Command::new(0, &ten(0x28, 0, lba, 1)).expecting(512)
}

/// A write to block 0 that was aborted while the store had begun it, and did not let go of it.
async fn abandoned_write() -> (Arc<TargetDevice>, Arc<backstores::FaultStore>, JoinHandle<Ended>) {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Write).touching(0..512));
    let command = write(0, 0xaa);
    let abort = command.abort.clone();
    let stale = start(&device, command);
    store.until_held(1).await;
    abort.fire();
    (device, store, stale)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_store_still_holds_makes_overlapping_commands_busy_after_two_seconds() {
    let (device, _store, _stale) = abandoned_write().await;
    for command in [read(0), write(0, 1)] {
        let begin = Instant::now();
        let (outcome, data) = command.run(&device, &nexus(1)).await;
        assert_eq!(status(&outcome), Status::Busy);
        assert_eq!((begin.elapsed(), data), (Duration::from_secs(2), Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_store_still_holds_stops_nobody_beside_it() {
    let (device, _store, _stale) = abandoned_write().await;
    let begin = Instant::now();
    let ordered = write(1, 1).with(TaskAttribute::Ordered);
    assert_eq!(status(&ordered.run(&device, &nexus(1)).await.0), Status::Good);
    assert_eq!(read(1).run(&device, &nexus(1)).await.1, [1; 512]);
    let flush = Command::new(0, &ten(0x35, 0, 0, 0));
    assert_eq!(status(&flush.run(&device, &nexus(1)).await.0), Status::Good);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stale_write_never_lands_on_a_newer_one() {
    let (device, store, stale) = abandoned_write().await;
    let newer = start(&device, write(0, 0xbb));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(store.held().len(), 1, "the newer write is not with the store yet");
    store.resume();
    assert_eq!(stale.await.unwrap().0, Outcome::Aborted);
    assert_eq!(status(&newer.await.unwrap().0), Status::Good);
    assert_eq!(read(0).run(&device, &nexus(1)).await.1, [0xbb; 512]);
}

#[tokio::test]
async fn a_flush_that_was_aborted_holds_up_no_write() {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Flush));
    let flush = Command::new(0, &ten(0x35, 0, 0, 0));
    let abort = flush.abort.clone();
    let flush = start(&device, flush);
    store.until_held(1).await;
    abort.fire();
    assert_eq!(status(&write(0, 1).run(&device, &nexus(1)).await.0), Status::Good);
    store.resume();
    assert_eq!(flush.await.unwrap().0, Outcome::Aborted);
}

#[tokio::test]
async fn a_write_that_is_aborted_half_way_asks_for_no_more_and_leaves_the_task_set() {
    let (device, store) = faulty(4 * CHUNK as u64 / 512);
    let len = u32::try_from(4 * CHUNK).unwrap();
    let (setup, mut connection) = crate::scsi::testing::connection(0, len, Vec::new(), 0);
    let abort = setup.abort.clone();
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: sixteen(0x8a, 0, 0, len / 512).into(),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 1,
    };
    let command = tokio::spawn(device.execute(&nexus(1), task, Transfer::new(setup)));
    let mut answer = async |mark: u8, expected_offset: u32| {
        let Some(TaskEvent::Get {
            offset,
            mut buf,
            reply,
            ..
        }) = connection.event().await
        else {
            panic!("no Get");
        };
        assert_eq!(offset, expected_offset);
        buf.fill(mark);
        reply.send(Ok(buf)).unwrap();
    };
    answer(1, 0).await;
    answer(2, 0x4_0000).await;
    // The third piece is on its way when the abort comes.
    let third = connection.event().await;
    abort.fire();
    command.await.unwrap();
    drop(third);
    let Some(TaskEvent::Done { outcome, .. }) = connection.event().await else {
        panic!("it asked for more");
    };
    assert_eq!(outcome, Outcome::Aborted);
    assert_eq!(device.unit(0).unwrap().tasks().len(), 0);
    assert!(store.held().is_empty());
    let (_, untouched) = run(&device, 0, &sixteen(0x88, 0, 2 * CHUNK as u64 / 512, 1), &[]).await;
    assert_eq!(untouched, [0; 512]);
}

#[tokio::test]
async fn a_read_that_is_aborted_in_the_store_delivers_nothing() {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Read));
    let command = read(0);
    let abort = command.abort.clone();
    let command = start(&device, command);
    store.until_held(1).await;
    abort.fire();
    store.resume();
    assert_eq!(command.await.unwrap(), (Outcome::Aborted, Vec::new()));
    assert_eq!(device.unit(0).unwrap().tasks().len(), 0);
}

#[tokio::test]
async fn a_reset_is_answered_while_the_store_holds_a_write() {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Write));
    let stale = start(&device, write(0, 1));
    store.until_held(1).await;
    let answer = device.manage(&nexus(1), Function::LogicalUnitReset, Lun::ZERO);
    assert_eq!(answer, TmfResponse::Complete.into());
    assert_eq!(store.held().len(), 1, "nobody waited for the store");
    assert_eq!(
        status(&Command::new(0, &[0; 6]).run(&device, &nexus(1)).await.0),
        Status::Good
    );
    store.resume();
    assert_eq!(stale.await.unwrap().0, Outcome::Aborted);
}

#[tokio::test]
async fn a_unit_that_is_unmapped_under_a_write_ends_with_the_last_operation() {
    let (device, store) = faulty(64);
    device.attach(&nexus(1));
    Command::new(0, &[0; 6]).run(&device, &nexus(1)).await;
    store.hold(Matching::op(StoreOp::Write));
    let stale = start(&device, write(0, 7));
    store.until_held(1).await;
    let unit = device.unmap(0).unwrap();
    let (outcome, _) = read(0).run(&device, &nexus(1)).await;
    assert_eq!(sense(&outcome).code, (0x25, 0x00));
    store.resume();
    assert_eq!(stale.await.unwrap().0, Outcome::Aborted);
    assert_eq!((unit.tasks().len(), Arc::strong_count(&unit)), (0, 1));
    assert_eq!(
        store.unflushed_blocks(),
        1,
        "what the store had begun it finished"
    );
}

#[tokio::test]
async fn prevention_ends_with_its_nexus_and_with_a_reset() {
    let removable = UnitConfig {
        removable: true,
        ..config()
    };
    let device = device(&[LogicalUnit::new(removable, memory(16))]);
    let (one, two) = (nexus(1), nexus(2));
    for nexus in [&one, &two] {
        device.attach(nexus);
    }
    let command = |cdb: &[u8; 6]| Command::new(0, cdb);
    let (prevent, eject, load) = (
        [0x1e, 0, 0, 0, 1, 0],
        [0x1b, 0, 0, 0, 2, 0],
        [0x1b, 0, 0, 0, 3, 0],
    );
    for nexus in [&one, &two] {
        let told = sense(&command(&[0; 6]).run(&device, nexus).await.0);
        assert_eq!(told.code, (0x29, 0x00));
        assert_eq!(
            status(&command(&prevent).run(&device, nexus).await.0),
            Status::Good
        );
    }
    device.detach(&one);
    let (outcome, _) = command(&eject).run(&device, &two).await;
    assert_eq!(
        sense(&outcome).code,
        (0x53, 0x02),
        "the other nexus still prevents"
    );
    let allow = [0x1e, 0, 0, 0, 0, 0];
    for cdb in [&allow, &eject, &load, &prevent] {
        assert_eq!(status(&command(cdb).run(&device, &two).await.0), Status::Good);
    }
    device.manage(&two, Function::LogicalUnitReset, Lun::ZERO);
    let told = sense(&command(&eject).run(&device, &two).await.0);
    assert_eq!(told.code, (0x29, 0x03));
    assert_eq!(status(&command(&eject).run(&device, &two).await.0), Status::Good);
}

#[tokio::test]
async fn an_abort_that_fires_twice_ends_a_command_once() {
    let (device, _) = faulty(64);
    let command = write(0, 1);
    let abort: AbortSignal = command.abort.clone();
    abort.fire();
    abort.fire();
    assert_eq!(command.run(&device, &nexus(1)).await.0, Outcome::Aborted);
    assert_eq!(device.unit(0).unwrap().tasks().len(), 0);
}
