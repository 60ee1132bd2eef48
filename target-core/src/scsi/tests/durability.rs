//! What a power cut may take: nothing that was promised by FUA, by a write cache that is off, or by a flush.

use backstores::{Fault, FaultStore, Matching, StoreErrorKind, StoreOp};

use super::*;
use crate::scsi::testing::faulty;

/// Writes block 0 so that it rests in the volatile cache.
async fn leave_in_cache(device: &Arc<TargetDevice>, store: &FaultStore) {
    let (outcome, _) = run(device, 0, &ten(0x2a, 0, 0, 1), &[1; 512]).await;
    assert_eq!(status(&outcome), Status::Good);
    assert_eq!(store.unflushed_blocks(), 1);
}

/// Caching mode page with WCE as said, for MODE SELECT (6).
async fn set_write_cache(device: &Arc<TargetDevice>, enabled: bool) {
    let mut list = vec![0; 4 + 20];
    list[4..7].copy_from_slice(&[0x08, 0x12, if enabled { 0x04 } else { 0 }]);
    let (outcome, _) = run(device, 0, &[0x15, 0x10, 0, 0, 24, 0], &list).await;
    assert_eq!(status(&outcome), Status::Good);
}

#[tokio::test]
async fn writes_rest_in_the_cache_until_it_is_synchronized() {
    for synchronize in [ten(0x35, 0, 0, 0), sixteen(0x91, 0x02, 0, 1)] {
        let (device, store) = faulty(64);
        leave_in_cache(&device, &store).await;
        assert_eq!(status(&run(&device, 0, &synchronize, &[]).await.0), Status::Good);
        assert_eq!(store.unflushed_blocks(), 0);
    }
}

#[tokio::test]
async fn force_unit_access_reaches_the_medium_before_the_answer() {
    let (device, store) = faulty(64);
    for (lba, write) in (0..).zip([
        ten(0x2a, 0x08, 0, 1),
        twelve(0xaa, 0x08, 1, 1),
        sixteen(0x8a, 0x08, 2, 1),
    ]) {
        let (outcome, _) = run(&device, 0, &write, &[9; 512]).await;
        assert_eq!(status(&outcome), Status::Good);
        assert_eq!(store.unflushed_blocks(), 0, "{write:02x?}");
        store.power_cut(lba);
        store.power_on();
        let (_, read) = run(&device, 0, &sixteen(0x88, 0, lba, 1), &[]).await;
        assert_eq!(read, [9; 512]);
    }
}

#[tokio::test]
async fn the_bit_of_fua_belongs_to_the_lba_in_six_byte_writes() {
    let (device, store) = faulty(0x08_0001);
    let (outcome, _) = run(&device, 0, &six(0x0a, 0x08_0000, 1), &[9; 512]).await;
    assert_eq!(status(&outcome), Status::Good);
    assert_eq!(store.unflushed_blocks(), 1);
}

#[tokio::test]
async fn a_read_with_fua_returns_only_what_the_medium_holds() {
    let (device, store) = faulty(64);
    leave_in_cache(&device, &store).await;
    run(&device, 0, &ten(0x28, 0, 0, 1), &[]).await;
    assert_eq!(store.unflushed_blocks(), 1);
    let (_, read) = run(&device, 0, &ten(0x28, 0x08, 0, 1), &[]).await;
    assert_eq!((read, store.unflushed_blocks()), (vec![1; 512], 0));
}

#[tokio::test]
async fn with_the_write_cache_off_nothing_that_was_acknowledged_can_be_lost() {
    let (device, store) = faulty(64);
    leave_in_cache(&device, &store).await;
    set_write_cache(&device, false).await;
    assert_eq!(store.unflushed_blocks(), 0, "what came before");
    let unmap_one = [
        &[0, 22, 0, 16, 0, 0, 0, 0][..],
        &[0; 8],
        &[0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    let commands: [(Vec<u8>, &[u8]); 6] = [
        (six(0x0a, 0, 1), &[2; 512]),
        (ten(0x2a, 0, 0, 1), &[3; 512]),
        (ten(0x42, 0, 0, 24), &unmap_one),
        (ten(0x41, 0, 0, 1), &[4; 512]),
        (ten(0x41, 0x08, 0, 1), &[0; 512]),
        (sixteen(0x93, 0x01, 0, 1), &[]),
    ];
    for (cdb, data) in commands {
        assert_eq!(status(&run(&device, 0, &cdb, data).await.0), Status::Good);
        assert_eq!(store.unflushed_blocks(), 0, "{cdb:02x?}");
    }
    set_write_cache(&device, true).await;
    leave_in_cache(&device, &store).await;
}

#[tokio::test]
async fn a_stop_flushes_unless_told_not_to() {
    let (device, store) = faulty(64);
    leave_in_cache(&device, &store).await;
    run(&device, 0, &[0x1b, 0, 0, 0, 0x04, 0], &[]).await;
    assert_eq!(store.unflushed_blocks(), 1);
    run(&device, 0, &[0x1b, 0, 0, 0, 0x00, 0], &[]).await;
    assert_eq!(store.unflushed_blocks(), 0);
}

#[tokio::test]
async fn a_flush_that_fails_is_told_even_with_immed() {
    let (device, store) = faulty(64);
    leave_in_cache(&device, &store).await;
    store.inject(
        Matching::op(StoreOp::Flush),
        0,
        1,
        Fault::Fail(StoreErrorKind::Medium),
    );
    let (outcome, _) = run(&device, 0, &ten(0x35, 0x02, 0, 0), &[]).await;
    assert_eq!(sense(&outcome).code, (0x0c, 0x00));
}
