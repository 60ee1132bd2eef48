//! FORMAT UNIT and SANITIZE: what becomes of the medium, of the command, and of all others meanwhile.

use std::ops::Range;

use async_trait::async_trait;
use backstores::{
    Abilities, BlockStore, Durability, Fault, FaultStore, Geometry, IoBuf, Matching, StoreError,
    StoreErrorKind, StoreOp,
};
use iscsi_proto::Lun;
use iscsi_proto::pdu::Function;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::*;
use crate::scsi::testing::{connection, faulty};
use crate::scsi::{MarkRequest, Outcome, SanitizeMark, SanitizeWork, ScsiTask, Sense, TaskAttribute};
use crate::transfer::{TaskEvent, Transfer};

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const BLOCK_ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
const EXIT_FAILURE_MODE: [u8; 10] = [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0];

/// SANITIZE with OVERWRITE and its parameter list.
fn overwrite(flags: u8, head: u8, pattern: &[u8]) -> ([u8; 10], Vec<u8>) {
    let list = [&[head, 0, 0, u8::try_from(pattern.len()).unwrap()][..], pattern].concat();
    let len = u8::try_from(list.len()).unwrap();
    ([0x48, 0x01 | flags, 0, 0, 0, 0, 0, 0, len, 0], list)
}

async fn good(device: &Arc<TargetDevice>, cdb: &[u8], data: &[u8]) {
    let (outcome, _) = run(device, 0, cdb, data).await;
    assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}: {outcome:?}");
}

async fn refusal(device: &Arc<TargetDevice>, cdb: &[u8]) -> Sense {
    sense(&run(device, 0, cdb, &[]).await.0)
}

async fn ended(device: &Arc<TargetDevice>) -> bool {
    device.unit(0).unwrap().erasure().ended().await.is_ok()
}

async fn read(device: &Arc<TargetDevice>, lba: u32, blocks: u16) -> Vec<u8> {
    let (outcome, data) = run(device, 0, &ten(0x28, 0, lba, blocks), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    data
}

/// A unit whose sanitizing is held in the store.
async fn sanitizing(flags: u8) -> (Arc<TargetDevice>, Arc<FaultStore>) {
    let (device, store) = faulty(1024);
    good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
    store.hold(Matching::op(StoreOp::Write));
    let (cdb, list) = overwrite(0x80 | flags, 0x01, &[0xee]);
    good(&device, &cdb, &list).await;
    store.until_held(1).await;
    (device, store)
}

#[tokio::test]
async fn overwriting_writes_the_pattern_over_every_block() {
    for (head, pattern, expected) in [
        (0x01, &[1, 2, 3][..], [1, 2, 3, 1]),
        (0x82, &[0x0f], [0x0f; 4]),
        (0x9f, &[0x0f], [0x0f; 4]),
        (0x02, &[0x0f], [0x0f; 4]),
    ] {
        let (device, store) = faulty(1100);
        good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
        let (cdb, list) = overwrite(0, head, pattern);
        good(&device, &cdb, &list).await;
        assert_eq!(store.unflushed_blocks(), 0);
        for block in read(&device, 0, 1100).await.chunks(512) {
            assert_eq!(block[..4], expected, "{head:#04x}");
        }
    }
}

#[tokio::test]
async fn inverted_passes_alternate_and_the_last_is_not() {
    for (head, first_bytes) in [
        (0x82, &[0xf0, 0x0f][..]),
        (0x83, &[0x0f, 0xf0, 0x0f]),
        (0x02, &[0x0f, 0x0f]),
    ] {
        let (device, store) = faulty(64);
        store.hold(Matching::op(StoreOp::Flush));
        let (cdb, list) = overwrite(0x80, head, &[0x0f]);
        good(&device, &cdb, &list).await;
        for expected in first_bytes {
            store.until_held(1).await;
            let block = store.read(0, IoBuf::from_heap(512)).await.unwrap();
            assert_eq!(block[0], *expected, "{head:#04x}");
            store.release(store.held()[0].id);
        }
        assert!(ended(&device).await);
    }
}

#[tokio::test]
async fn block_erase_leaves_zeroes_and_no_space_taken() {
    let device = disk();
    good(&device, &ten(0x2a, 0, 500, 1), &[5; 512]).await;
    good(&device, &BLOCK_ERASE, &[]).await;
    assert_eq!(read(&device, 500, 1).await, [0; 512]);
    let (_, map) = run(&device, 0, &sixteen(0x9e, 0x12, 0, 64), &[]).await;
    assert_eq!(map[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 0, 0]);
}

#[tokio::test]
async fn block_erase_overwrites_what_it_gives_back() {
    let (device, store) = faulty(256);
    store.hold(Matching::op(StoreOp::Unmap));
    good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
    good(&device, &[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await;
    store.until_held(1).await;
    let buf = store.read(5 * 512, IoBuf::from_heap(512)).await.unwrap();
    assert_eq!(buf[..], [0; 512]);
    store.resume();
    assert!(ended(&device).await);
}

#[tokio::test]
async fn while_sanitizing_goes_on_others_hear_of_it_and_of_its_progress() {
    let (device, store) = sanitizing(0).await;
    store.release(store.held()[0].id);
    store.until_held(1).await;
    for cdb in [
        &TEST_UNIT_READY[..],
        &ten(0x28, 0, 0, 1),
        &ten(0x2a, 0, 0, 1),
        &[0x1b, 0, 0, 0, 1, 0],
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &BLOCK_ERASE,
        &EXIT_FAILURE_MODE,
        &[0x04, 0, 0, 0, 0, 0],
    ] {
        let told = refusal(&device, cdb).await;
        assert_eq!((told.key as u8, told.code), (0x02, (0x04, 0x1b)), "{cdb:02x?}");
        assert_eq!(told.progress, Some(0x8000), "half is done");
    }
    let (_, told) = run(&device, 0, &[0x03, 0, 0, 0, 18, 0], &[]).await;
    assert_eq!(
        (told[2], &told[12..18]),
        (0x02, &[0x04, 0x1b, 0, 0x80, 0x80, 0x00][..])
    );
    for cdb in [
        &[0x12, 0, 0, 0, 96, 0][..],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    ] {
        good(&device, cdb, &[]).await;
    }
    store.resume();
    assert!(ended(&device).await);
    good(&device, &TEST_UNIT_READY, &[]).await;
    assert_eq!(read(&device, 5, 1).await, [0xee; 512]);
}

#[tokio::test]
async fn neither_abort_nor_reset_nor_loss_of_the_nexus_ends_it() {
    let (device, store) = faulty(1024);
    let asker = nexus(2);
    device.attach(&asker);
    Command::new(0, &TEST_UNIT_READY).run(&device, &asker).await;
    store.hold(Matching::op(StoreOp::Write));
    let (cdb, list) = overwrite(0, 0x01, &[0xee]);
    let command = tokio::spawn(Command::new(0, &cdb).sending(&list).begin(&device, &asker));
    store.until_held(1).await;
    device.manage(&asker, Function::AbortTaskSet, Lun::ZERO);
    assert_eq!(
        command.await.unwrap().0,
        Outcome::Aborted,
        "it does not wait for the end"
    );
    device.manage(&nexus(1), Function::LogicalUnitReset, Lun::ZERO);
    device.detach(&asker);
    assert_eq!(refusal(&device, &TEST_UNIT_READY).await.code, (0x04, 0x1b));
    store.resume();
    assert!(ended(&device).await);
    assert!(read(&device, 0, 1024).await.iter().all(|byte| *byte == 0xee));
}

#[tokio::test]
async fn without_immed_the_answer_comes_at_the_end() {
    let (device, store) = faulty(1024);
    store.hold(Matching::op(StoreOp::Write));
    let (cdb, list) = overwrite(0, 0x01, &[0xee]);
    let command = tokio::spawn(Command::new(0, &cdb).sending(&list).begin(&device, &nexus(1)));
    store.until_held(1).await;
    let told = refusal(&device, &ten(0x28, 0, 0, 1)).await;
    assert_eq!(told.code, (0x04, 0x1b), "refused, not kept waiting");
    assert!(!command.is_finished());
    store.resume();
    assert_eq!(status(&command.await.unwrap().0), Status::Good);
}

#[tokio::test]
async fn older_writes_come_before_it_and_no_later_one_gets_between() {
    let (device, store) = faulty(1024);
    store.hold(Matching::op(StoreOp::Write));
    let begin =
        |cdb: &[u8], data: &[u8]| tokio::spawn(Command::new(0, cdb).sending(data).begin(&device, &nexus(1)));
    let older = begin(&ten(0x2a, 0, 5, 1), &[5; 512]);
    store.until_held(1).await;
    let (cdb, list) = overwrite(0x80, 0x01, &[0xee]);
    let sanitize = begin(&cdb, &list);
    let younger = begin(&ten(0x2a, 0, 5, 1), &[6; 512]);
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.held().len(), 1, "it waits for the older write");
    store.release(store.held()[0].id);
    assert_eq!(status(&older.await.unwrap().0), Status::Good);
    assert_eq!(status(&sanitize.await.unwrap().0), Status::Good);
    assert_eq!(sense(&younger.await.unwrap().0).code, (0x04, 0x1b));
    store.resume();
    assert!(ended(&device).await);
    assert_eq!(read(&device, 5, 1).await, [0xee; 512]);
}

#[tokio::test]
async fn a_command_that_names_its_blocks_late_is_refused_when_it_comes_too_late() {
    let (device, store) = faulty(1024);
    let (setup, mut unmap) = connection(0, 24, Vec::new(), 0);
    let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: cdb.to_vec().into(),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 9,
    };
    let command = device.execute(&nexus(1), task, Transfer::new(setup));
    let command = tokio::spawn(command);
    let Some(TaskEvent::Get { mut buf, reply, .. }) = unmap.event().await else {
        panic!("it asks for its list");
    };
    store.hold(Matching::op(StoreOp::Write));
    let (sanitize, list) = overwrite(0x80, 0x01, &[0xee]);
    good(&device, &sanitize, &list).await;
    buf.fill(0);
    buf[..4].copy_from_slice(&[0, 22, 0, 16]);
    buf[19] = 1;
    assert!(reply.send(Ok(buf)).is_ok());
    command.await.unwrap();
    assert_eq!(sense(&unmap.serve().await.0).code, (0x04, 0x1b));
    store.resume();
    assert!(ended(&device).await);
    assert_eq!(read(&device, 0, 1).await, [0xee; 512]);
}

#[tokio::test]
async fn a_failure_closes_the_medium_until_sanitizing_succeeds() {
    let (device, store) = sanitizing(0).await;
    store.inject(
        Matching::op(StoreOp::Write),
        0,
        1,
        Fault::Fail(StoreErrorKind::Medium),
    );
    store.resume();
    assert!(!ended(&device).await);
    for cdb in [&TEST_UNIT_READY[..], &ten(0x28, 0, 0, 1), &[0x04, 0, 0, 0, 0, 0]] {
        let told = refusal(&device, cdb).await;
        assert_eq!((told.key as u8, told.code), (0x03, (0x31, 0x03)), "{cdb:02x?}");
    }
    assert_eq!(refusal(&device, &EXIT_FAILURE_MODE).await.code, (0x24, 0x00));
    let with_ause = [0x48, 0x22, 0, 0, 0, 0, 0, 0, 0, 0];
    let field = refusal(&device, &with_ause).await.field.unwrap();
    assert_eq!((field.byte, field.bit), (1, Some(5)), "the restriction stays");
    good(&device, &BLOCK_ERASE, &[]).await;
    assert_eq!(read(&device, 5, 1).await, [0; 512]);
    good(&device, &EXIT_FAILURE_MODE, &[]).await;
}

#[tokio::test]
async fn with_ause_the_failure_can_be_left_behind() {
    let (device, store) = sanitizing(0x20).await;
    store.inject(
        Matching::op(StoreOp::Flush),
        0,
        1,
        Fault::Fail(StoreErrorKind::Medium),
    );
    store.resume();
    assert!(!ended(&device).await);
    assert_eq!(refusal(&device, &TEST_UNIT_READY).await.code, (0x31, 0x03));
    good(&device, &EXIT_FAILURE_MODE, &[]).await;
    good(&device, &TEST_UNIT_READY, &[]).await;
}

#[tokio::test]
async fn the_parameter_list_has_one_pattern_of_at_most_a_block() {
    let device = disk();
    for (action, len) in [(0x01, 0), (0x01, 4), (0x01, 517), (0x02, 1), (0x1f, 8)] {
        let [high, low] = u16::to_be_bytes(len);
        let cdb = [0x48, action, 0, 0, 0, 0, 0, high, low, 0];
        let (outcome, _) = run(&device, 0, &cdb, &vec![1; usize::from(len)]).await;
        let told = sense(&outcome);
        let field = told.field.unwrap();
        assert_eq!(
            (told.code, field.in_cdb, field.byte),
            ((0x24, 0x00), true, 7),
            "{action} {len}"
        );
    }
    let (cdb, list) = overwrite(0, 0x01, &[1, 2, 3]);
    let (outcome, _) = run(&device, 0, &cdb, &list[..6]).await;
    assert_eq!(sense(&outcome).code, (0x1a, 0x00), "less came than was announced");
    for (byte, bit) in [(1, 0x40), (2, 1), (6, 1)] {
        let mut reserved = cdb;
        reserved[byte] |= bit;
        let (outcome, _) = run(&device, 0, &reserved, &list).await;
        let field = sense(&outcome).field.unwrap();
        assert_eq!(usize::from(field.byte), byte);
    }
    good(&device, &TEST_UNIT_READY, &[]).await;
}

#[tokio::test]
async fn formatting_leaves_zeroes() {
    for (cdb, list) in [
        ([0x04, 0, 0, 0, 0, 0], &[][..]),
        ([0x04, 0x10, 0, 0, 0, 0], &[0, 0, 0, 0]),
        ([0x04, 0x38, 0, 0, 0, 0], &[0, 0x80, 0, 0, 0, 0, 0, 0]),
        ([0x04, 0x10, 0, 0, 0, 0], &[0, 0x02, 0, 0]),
    ] {
        let (device, store) = faulty(1024);
        good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
        good(&device, &cdb, list).await;
        assert!(ended(&device).await);
        assert_eq!(store.unflushed_blocks(), 0);
        assert_eq!(read(&device, 5, 1).await, [0; 512]);
    }
}

#[tokio::test]
async fn formatting_fills_every_block_with_the_pattern_that_was_sent() {
    let (device, store) = faulty(1100);
    let list = [0, 0x88, 0, 0, 0, 0x01, 0, 3, 1, 2, 3];
    good(&device, &[0x04, 0x10, 0, 0, 0, 0], &list).await;
    assert_eq!(store.unflushed_blocks(), 0);
    for block in read(&device, 0, 1100).await.chunks(512) {
        assert_eq!((&block[..4], &block[509..]), (&[1, 2, 3, 1][..], &[3, 1, 2][..]));
    }
}

#[tokio::test]
async fn a_format_under_way_is_told_and_a_failed_one_can_be_repeated() {
    let (device, store) = faulty(1024);
    store.hold(Matching::op(StoreOp::Unmap));
    good(&device, &[0x04, 0x10, 0, 0, 0, 0], &[0, 0x02, 0, 0]).await;
    store.until_held(1).await;
    let told = refusal(&device, &TEST_UNIT_READY).await;
    assert_eq!(
        (told.key as u8, told.code, told.progress),
        (0x02, (0x04, 0x04), Some(0))
    );
    store.inject(
        Matching::op(StoreOp::Unmap),
        0,
        1,
        Fault::Fail(StoreErrorKind::Medium),
    );
    store.resume();
    assert!(!ended(&device).await);
    assert_eq!(refusal(&device, &ten(0x28, 0, 0, 1)).await.code, (0x31, 0x01));
    good(&device, &[0x04, 0, 0, 0, 0, 0], &[]).await;
    good(&device, &ten(0x28, 0, 0, 1), &[]).await;
}

#[tokio::test]
async fn a_write_protected_medium_is_neither_formatted_nor_sanitized() {
    let device = disk();
    let page = [0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, 0x08, 0, 0, 0, 0, 0, 0, 0];
    good(&device, &[0x15, 0x10, 0, 0, 16, 0], &page).await;
    for cdb in [&[0x04, 0, 0, 0, 0, 0][..], &BLOCK_ERASE] {
        assert_eq!(refusal(&device, cdb).await.code, (0x27, 0x00));
    }
}

/// A device whose unit leaves marks, and where they arrive.
fn marking(
    left: Option<SanitizeMark>,
) -> (Arc<TargetDevice>, Arc<FaultStore>, UnboundedReceiver<MarkRequest>) {
    let (device, store) = faulty(64);
    let (keeper, requests) = mpsc::unbounded_channel();
    device.unit(0).unwrap().keep_sanitize_mark(keeper, left);
    (device, store, requests)
}

/// Answers the next request; what it was.
async fn keep(
    requests: &mut UnboundedReceiver<MarkRequest>,
    answer: Result<(), String>,
) -> Option<SanitizeMark> {
    let request = requests.recv().await.unwrap();
    assert_eq!(request.unit, "600102030405060708090a0b0c0d0e0f");
    request.done.send(answer).unwrap();
    request.mark
}

#[tokio::test]
async fn sanitizing_is_marked_before_it_is_acknowledged_and_until_it_has_succeeded() {
    let (device, store, mut requests) = marking(None);
    store.hold(Matching::op(StoreOp::Write));
    let (cdb, list) = overwrite(0xa0, 0x01, &[0xee]);
    let command = Command::new(0, &cdb).sending(&list).begin(&device, &nexus(1));
    let command = tokio::spawn(command);
    let request = requests.recv().await.unwrap();
    let work = SanitizeWork::Overwrite {
        pattern: vec![0xee],
        passes: 1,
        invert: false,
    };
    let mark = SanitizeMark {
        unrestricted: true,
        work: Some(work),
    };
    assert_eq!(request.mark, Some(mark));
    assert!(!command.is_finished(), "the mark is not durable yet");
    assert!(store.held().is_empty(), "nothing is erased before");
    request.done.send(Ok(())).unwrap();
    assert_eq!(status(&command.await.unwrap().0), Status::Good);
    store.until_held(1).await;
    assert!(requests.try_recv().is_err());
    store.resume();
    assert_eq!(keep(&mut requests, Ok(())).await, None);
    assert!(ended(&device).await);
}

#[tokio::test]
async fn without_its_mark_nothing_is_erased() {
    let (device, _, mut requests) = marking(None);
    good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
    let (command, _) = tokio::join!(
        run(&device, 0, &BLOCK_ERASE, &[]),
        keep(&mut requests, Err("no space".into()))
    );
    let told = sense(&command.0);
    assert_eq!((told.key as u8, told.code), (0x04, (0x44, 0x00)));
    assert_eq!(read(&device, 5, 1).await, [5; 512]);
}

#[tokio::test]
async fn what_a_restart_interrupted_begins_anew_and_gets_to_its_end() {
    for work in [
        SanitizeWork::EraseBlocks,
        SanitizeWork::Overwrite {
            pattern: vec![0xee],
            passes: 2,
            invert: true,
        },
    ] {
        let mark = SanitizeMark {
            unrestricted: false,
            work: Some(work.clone()),
        };
        let (device, store) = faulty(64);
        good(&device, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
        let (keeper, mut requests) = mpsc::unbounded_channel();
        let unit = device.unit(0).unwrap();
        unit.keep_sanitize_mark(keeper, Some(mark.clone()));
        assert_eq!(refusal(&device, &ten(0x28, 0, 5, 1)).await.code, (0x04, 0x1b));
        assert_eq!(keep(&mut requests, Ok(())).await, Some(mark));
        assert_eq!(keep(&mut requests, Ok(())).await, None);
        assert!(ended(&device).await);
        assert_eq!(store.unflushed_blocks(), 0);
        let expected = if work == SanitizeWork::EraseBlocks {
            0
        } else {
            0xee
        };
        assert_eq!(read(&device, 5, 1).await, [expected; 512]);
    }
}

#[tokio::test]
async fn a_failure_is_not_tried_again_by_a_restart() {
    let (device, store, mut requests) = marking(None);
    store.inject(
        Matching::op(StoreOp::Write),
        0,
        1,
        Fault::Fail(StoreErrorKind::Medium),
    );
    let (cdb, list) = overwrite(0, 0x01, &[0xee]);
    let marks = async {
        assert!(keep(&mut requests, Ok(())).await.unwrap().work.is_some());
        keep(&mut requests, Ok(())).await
    };
    let ((outcome, _), last) = tokio::join!(run(&device, 0, &cdb, &list), marks);
    assert_eq!(sense(&outcome).code, (0x31, 0x03));
    let failed = SanitizeMark {
        unrestricted: false,
        work: None,
    };
    assert_eq!(last, Some(failed));
}

#[tokio::test]
async fn a_medium_whose_mark_stays_is_closed_lest_a_restart_erases_it_again() {
    let (device, _, mut requests) = marking(None);
    let marks = async {
        keep(&mut requests, Ok(())).await;
        keep(&mut requests, Err("read-only file system".into())).await
    };
    let ((outcome, _), last) = tokio::join!(run(&device, 0, &BLOCK_ERASE, &[]), marks);
    assert_eq!(last, None);
    assert_eq!(sense(&outcome).code, (0x31, 0x03));
    assert_eq!(refusal(&device, &ten(0x2a, 0, 0, 0)).await.code, (0x31, 0x03));
}

#[tokio::test]
async fn a_medium_that_a_restart_found_failed_is_closed_until_that_is_done_again() {
    for unrestricted in [false, true] {
        let mark = SanitizeMark {
            unrestricted,
            work: None,
        };
        let (device, _, mut requests) = marking(Some(mark));
        assert_eq!(refusal(&device, &ten(0x28, 0, 0, 1)).await.code, (0x31, 0x03));
        if unrestricted {
            let exit = run(&device, 0, &EXIT_FAILURE_MODE, &[]);
            let ((exit, _), mark) = tokio::join!(exit, keep(&mut requests, Ok(())));
            assert_eq!((status(&exit), mark), (Status::Good, None));
        } else {
            assert_eq!(refusal(&device, &EXIT_FAILURE_MODE).await.code, (0x24, 0x00));
            let answers = async {
                keep(&mut requests, Ok(())).await;
                assert_eq!(keep(&mut requests, Ok(())).await, None);
            };
            let ((again, _), ()) = tokio::join!(run(&device, 0, &BLOCK_ERASE, &[]), answers);
            assert_eq!(status(&again), Status::Good);
        }
        good(&device, &ten(0x28, 0, 0, 1), &[]).await;
    }
}

#[tokio::test]
async fn a_medium_that_ends_with_the_process_leaves_no_mark() {
    let device = disk();
    let (keeper, _requests) = mpsc::unbounded_channel();
    let left = Some(SanitizeMark {
        unrestricted: false,
        work: Some(SanitizeWork::EraseBlocks),
    });
    device.unit(0).unwrap().keep_sanitize_mark(keeper, left);
    good(&device, &TEST_UNIT_READY, &[]).await;
    good(&device, &BLOCK_ERASE, &[]).await;
}

/// A store whose key can be replaced, after which everything reads as something else.
#[derive(Debug)]
struct Keyed(Arc<dyn BlockStore>);

#[async_trait]
impl BlockStore for Keyed {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        self.0.read(at, buf).await
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        self.0.write(at, buf, durability).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.0.unmap(range).await
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.0.write_zeroes(range, durability).await
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            key_erase: true,
            ..Abilities::default()
        }
    }

    async fn erase_key(&self) -> Result<(), StoreError> {
        let mut other = IoBuf::from_heap(512);
        other.fill(0xd7);
        self.0.write(5 * 512, other, Durability::Cached).await.map(drop)
    }
}

#[tokio::test]
async fn cryptographic_erase_replaces_the_key_where_there_is_one() {
    const CRYPTOGRAPHIC_ERASE: [u8; 10] = [0x48, 0x03, 0, 0, 0, 0, 0, 0, 0, 0];
    const SUPPORTED: [u8; 12] = [0xa3, 0x0c, 2, 0x48, 0, 0x03, 0, 0, 0, 64, 0, 0];
    let plain = disk();
    assert_eq!(run(&plain, 0, &SUPPORTED, &[]).await.1[1], 0x01);
    assert_eq!(refusal(&plain, &CRYPTOGRAPHIC_ERASE).await.code, (0x24, 0x00));

    let keyed = device(&[LogicalUnit::new(config(), Arc::new(Keyed(memory(64))))]);
    assert_eq!(run(&keyed, 0, &SUPPORTED, &[]).await.1[1], 0x03);
    good(&keyed, &ten(0x2a, 0, 5, 1), &[5; 512]).await;
    good(&keyed, &CRYPTOGRAPHIC_ERASE, &[]).await;
    assert_eq!(read(&keyed, 5, 1).await, [0xd7; 512]);
}
