//! Commands that have their blocks to themselves: COMPARE AND WRITE, ORWRITE, WRITE AND VERIFY, WRITE ATOMIC.

use backstores::{Fault, FaultStore, Matching, StoreErrorKind, StoreOp};

use super::*;
use crate::scsi::testing::faulty;

/// COMPARE AND WRITE of `blocks` blocks.
fn compare_and_write(flags: u8, lba: u64, blocks: u8) -> Vec<u8> {
    let mut cdb = sixteen(0x89, flags, lba, 0);
    cdb[13] = blocks;
    cdb
}

/// WRITE ATOMIC (16) of `blocks` blocks.
fn write_atomic(lba: u64, blocks: u16) -> Vec<u8> {
    let mut cdb = sixteen(0x9c, 0, lba, 0);
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Begins a command of another nexus each.
fn start(
    device: &Arc<TargetDevice>,
    isid: u8,
    cdb: &[u8],
    data: &[u8],
) -> tokio::task::JoinHandle<crate::scsi::Outcome> {
    let command = Command::new(0, cdb).sending(data).begin(device, &nexus(isid));
    tokio::spawn(async move { command.await.0 })
}

/// What the store is being asked for.
fn asked(store: &FaultStore) -> Vec<StoreOp> {
    store.held().into_iter().map(|held| held.op).collect()
}

async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

async fn read(device: &Arc<TargetDevice>, lba: u64, blocks: u32) -> Vec<u8> {
    let (outcome, data) = run(device, 0, &sixteen(0x88, 0, lba, blocks), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    data
}

#[tokio::test]
async fn compare_and_write_writes_where_it_finds_what_was_expected() {
    let device = disk();
    for blocks in [1, 7, 255] {
        let len = usize::from(blocks) * 512;
        let data = [vec![0; len], vec![blocks; len]].concat();
        let cdb = compare_and_write(0x18, 100, blocks);
        let (outcome, _) = run(&device, 0, &cdb, &data).await;
        assert_eq!(status(&outcome), Status::Good);
        assert!(read(&device, 100, u32::from(blocks)).await == data[len..]);
        assert_eq!(read(&device, 100 + u64::from(blocks), 1).await, [0; 512]);
        run(&device, 0, &sixteen(0x93, 0x01, 100, 255), &[]).await;
    }
}

#[tokio::test]
async fn compare_and_write_tells_the_first_difference_and_writes_nothing() {
    let device = disk();
    run(&device, 0, &ten(0x2a, 0, 8, 2), &[7; 1024]).await;
    let mut data = [[7; 1024], [9; 1024]].concat();
    data[1000] = 8;
    data[1010] = 8;
    let (outcome, _) = run(&device, 0, &compare_and_write(0, 8, 2), &data).await;
    let told = sense(&outcome);
    assert_eq!((told.key as u8, told.code), (0x0e, (0x1d, 0x00)));
    assert_eq!(told.information, Some(1000));
    assert_eq!(read(&device, 8, 2).await, [7; 1024]);
}

#[tokio::test]
async fn compare_and_write_takes_twice_its_blocks_and_no_other_length() {
    let device = disk();
    assert_eq!(
        status(&run(&device, 0, &compare_and_write(0, 0, 0), &[]).await.0),
        Status::Good
    );
    for (blocks, len) in [(0, 512), (1, 512), (1, 1023), (1, 1025), (1, 1536), (2, 1024)] {
        let (outcome, _) = run(&device, 0, &compare_and_write(0, 0, blocks), &vec![0; len]).await;
        let told = sense(&outcome);
        let field = told.field.unwrap();
        assert_eq!(
            (told.code, field.byte),
            ((0x24, 0x00), 13),
            "{blocks} blocks, {len} bytes"
        );
    }
    let (outcome, _) = run(&device, 0, &compare_and_write(0, 2047, 2), &[0; 2048]).await;
    assert_eq!(sense(&outcome).code, (0x21, 0x00));
}

#[tokio::test]
async fn compare_and_write_of_large_blocks_takes_as_many_as_block_limits_says() {
    let options = backstores::StoreOptions {
        block_size: Some(4096),
        ..backstores::StoreOptions::default()
    };
    let source = backstores::StoreSource::Memory { size: 1 << 20 };
    let store = backstores::open(&source, options).unwrap();
    let device = device(&[LogicalUnit::new(config(), store)]);
    let (_, limits) = run(&device, 0, &[0x12, 1, 0xb0, 0, 64, 0], &[]).await;
    assert_eq!(limits[5], 32);
    for (blocks, expected) in [(32, Status::Good), (33, Status::CheckCondition)] {
        let data = vec![0; 2 * usize::from(blocks) * 4096];
        let (outcome, _) = run(&device, 0, &compare_and_write(0, 0, blocks), &data).await;
        assert_eq!(status(&outcome), expected, "{blocks}");
        if expected == Status::CheckCondition {
            let field = sense(&outcome).field.unwrap();
            assert_eq!((field.in_cdb, field.byte), (true, 13));
        }
    }
}

#[tokio::test]
async fn of_two_who_compare_and_write_at_once_one_wins() {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Read));
    let commands = [1, 2].map(|mark| {
        let data = [[0; 512], [mark; 512]].concat();
        start(&device, mark, &compare_and_write(0, 5, 1), &data)
    });
    store.until_held(1).await;
    settle().await;
    assert_eq!(asked(&store), [StoreOp::Read], "the other waits");
    store.resume();
    let mut ends = Vec::new();
    for command in commands {
        ends.push(status(&command.await.unwrap()));
    }
    assert_eq!(ends, [Status::Good, Status::CheckCondition]);
    assert_eq!(read(&device, 5, 1).await, [1; 512]);
}

#[tokio::test]
async fn other_writes_wait_for_an_exclusive_command_on_their_blocks_alone() {
    let unmap = [
        &[0, 22, 0, 16, 0, 0, 0, 0][..],
        &5_u64.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    let block = [3; 512];
    let same: [(Vec<u8>, &[u8]); 4] = [
        (ten(0x2a, 0, 5, 1), &block),
        (sixteen(0x93, 0x01, 4, 2), &[]),
        (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap),
        (ten(0x2e, 0, 5, 1), &block),
    ];
    for (cdb, data) in same {
        let (device, store) = faulty(64);
        store.hold(Matching::all());
        let first = start(&device, 1, &sixteen(0x8b, 0, 5, 1), &[1; 512]);
        store.until_held(1).await;
        let second = start(&device, 2, &cdb, data);
        let beside = start(&device, 3, &ten(0x2a, 0, 6, 1), &[4; 512]);
        settle().await;
        assert_eq!(asked(&store), [StoreOp::Read, StoreOp::Write], "{cdb:02x?}");
        assert_eq!(store.held()[1].range, Some(6 * 512..7 * 512));
        store.resume();
        for command in [first, second, beside] {
            assert_eq!(status(&command.await.unwrap()), Status::Good);
        }
    }
}

#[tokio::test]
async fn orwrite_adds_bits_and_takes_none() {
    let device = disk();
    let old: Vec<u8> = (0..600 * 512).map(|i| u8::try_from(i % 241).unwrap()).collect();
    let new: Vec<u8> = (0..600 * 512).map(|i| u8::try_from(i % 199).unwrap()).collect();
    run(&device, 0, &sixteen(0x8a, 0, 3, 600), &old).await;
    let (outcome, _) = run(&device, 0, &sixteen(0x8b, 0x18, 3, 600), &new).await;
    assert_eq!(status(&outcome), Status::Good);
    let both: Vec<u8> = old.iter().zip(&new).map(|(a, b)| a | b).collect();
    assert!(read(&device, 3, 600).await == both);
    assert_eq!(read(&device, 603, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_compare_and_write_that_is_aborted_before_it_writes_writes_nothing() {
    let (device, store) = faulty(64);
    store.hold(Matching::op(StoreOp::Read));
    let command = Command::new(0, &compare_and_write(0, 5, 1)).sending(&[[0; 512], [1; 512]].concat());
    let abort = command.abort.clone();
    let command = tokio::spawn(command.begin(&device, &nexus(1)));
    store.until_held(1).await;
    abort.fire();
    store.resume();
    command.await.unwrap();
    assert_eq!(read(&device, 5, 1).await, [0; 512]);
}

#[tokio::test]
async fn write_and_verify_reaches_the_medium_and_reads_it_again() {
    for (cdb, bytes) in [
        (ten(0x2e, 0x10, 5, 2), 1024),
        (twelve(0xae, 0x02, 5, 2), 1024),
        (sixteen(0x8e, 0x12, 5, 2), 1024),
    ] {
        let (device, store) = faulty(64);
        let (outcome, _) = run(&device, 0, &cdb, &vec![6; bytes]).await;
        assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
        assert_eq!(store.unflushed_blocks(), 0);
        assert_eq!(read(&device, 5, 2).await, [6; 1024]);
        store.inject(
            Matching::op(StoreOp::Read),
            0,
            1,
            Fault::Fail(StoreErrorKind::Medium),
        );
        let (outcome, _) = run(&device, 0, &cdb, &vec![6; bytes]).await;
        assert_eq!(sense(&outcome).code, (0x11, 0x00), "it was read");
    }
    let device = disk();
    for bytchk in [0x04, 0x06] {
        let (outcome, _) = run(&device, 0, &ten(0x2e, bytchk, 5, 1), &[6; 512]).await;
        let field = sense(&outcome).field.unwrap();
        assert_eq!((field.byte, field.bit), (1, Some(2)));
    }
}

#[tokio::test]
async fn write_atomic_writes_whole_physical_blocks_within_its_limit() {
    let device = disk();
    let whole = vec![5; 512 * 512];
    let (outcome, _) = run(&device, 0, &write_atomic(8, 512), &whole).await;
    assert_eq!(status(&outcome), Status::Good);
    assert!(read(&device, 8, 512).await == whole);
    assert_eq!(
        status(&run(&device, 0, &write_atomic(8, 0), &[]).await.0),
        Status::Good
    );
    for (lba, blocks, byte) in [(9, 8, 2), (8, 7, 12), (8, 520, 12), (8, 0xfff8, 12)] {
        let (outcome, _) = run(&device, 0, &write_atomic(lba, blocks), &[6; 8 * 512]).await;
        let told = sense(&outcome);
        let expected = if blocks == 0xfff8 { (0x21, 0) } else { (0x24, 0) };
        assert_eq!(told.code, expected, "{lba} {blocks}");
        if let Some(field) = told.field {
            assert_eq!(field.byte, byte, "{lba} {blocks}");
        }
    }
    let boundary = {
        let mut cdb = write_atomic(8, 8);
        cdb[11] = 8;
        cdb
    };
    let (outcome, _) = run(&device, 0, &boundary, &[6; 8 * 512]).await;
    assert_eq!(sense(&outcome).field.unwrap().byte, 11);
    assert!(
        read(&device, 8, 512).await == whole,
        "nothing of all that was written"
    );
}

#[tokio::test]
async fn a_short_atomic_write_writes_nothing() {
    let device = disk();
    let (outcome, _) = run(&device, 0, &write_atomic(0, 8), &[6; 7 * 512]).await;
    assert_eq!(sense(&outcome).code, (0x24, 0x00));
    assert_eq!(read(&device, 0, 8).await, [0; 8 * 512]);
}

#[tokio::test]
async fn write_atomic_exists_only_over_a_store_that_can_do_it() {
    let (device, _) = faulty(64);
    let (outcome, _) = run(&device, 0, &write_atomic(0, 8), &[6; 8 * 512]).await;
    assert_eq!(sense(&outcome).code, (0x20, 0x00));
    let (_, limits) = run(&device, 0, &[0x12, 1, 0xb0, 0, 64, 0], &[]).await;
    assert_eq!(limits[44..], [0; 20]);
}
