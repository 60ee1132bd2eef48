//! Limits of the CDB groups, comparisons, and Data-Out that is shorter or longer than the CDB says.

use backstores::{Fault, Matching, StoreErrorKind, StoreOp};
use iscsi_proto::pdu::Residual;

use super::*;
use crate::scsi::Outcome;
use crate::scsi::testing::faulty;

/// What a command wrote is what is on block `lba`.
async fn first_byte(device: &Arc<TargetDevice>, lba: u64) -> u8 {
    run(device, 0, &sixteen(0x88, 0, lba, 1), &[]).await.1[0]
}

#[tokio::test]
async fn the_last_block_is_reached_by_every_group_and_the_next_one_by_none() {
    let device = disk();
    let pairs = [
        (six(0x0a, 2047, 1), six(0x08, 2047, 1)),
        (ten(0x2a, 0, 2047, 1), ten(0x28, 0, 2047, 1)),
        (twelve(0xaa, 0, 2047, 1), twelve(0xa8, 0, 2047, 1)),
        (sixteen(0x8a, 0, 2047, 1), sixteen(0x88, 0, 2047, 1)),
    ];
    for (mark, (write, read)) in (1..).zip(pairs) {
        let data = [mark; 512];
        assert_eq!(status(&run(&device, 0, &write, &data).await.0), Status::Good);
        assert_eq!(run(&device, 0, &read, &[]).await.1, data);
    }
    let beyond = [
        (six(0x0a, 2047, 2), 2048),
        (six(0x08, 2048, 1), 2048),
        (six(0x08, 0x1f_ffff, 0), 0x1f_ffff),
        (ten(0x2a, 0, 2047, 2), 2048),
        (ten(0x28, 0, u32::MAX, u16::MAX), 0xffff_ffff),
        (twelve(0xaa, 0, 2047, 2), 2048),
        (twelve(0xa8, 0, 0, u32::MAX), 2048),
        (twelve(0xa8, 0, u32::MAX, u32::MAX), 0xffff_ffff),
    ];
    for (cdb, outside) in beyond {
        let (outcome, data) = run(&device, 0, &cdb, &[]).await;
        let told = sense(&outcome);
        assert_eq!(
            (told.code, told.information),
            ((0x21, 0x00), Some(outside)),
            "{cdb:02x?}"
        );
        assert!(data.is_empty(), "{cdb:02x?}");
    }
}

#[tokio::test]
async fn a_length_of_zero_is_256_blocks_in_six_bytes_and_none_in_more() {
    let device = disk();
    let data = vec![0x5a; 256 * 512];
    assert_eq!(
        status(&run(&device, 0, &six(0x0a, 8, 0), &data).await.0),
        Status::Good
    );
    assert!(run(&device, 0, &six(0x08, 8, 0), &[]).await.1 == data);
    assert_eq!(
        (first_byte(&device, 7).await, first_byte(&device, 264).await),
        (0, 0)
    );
    for cdb in [
        ten(0x28, 0, 8, 0),
        ten(0x2a, 0, 8, 0),
        twelve(0xa8, 0, 8, 0),
        twelve(0xaa, 0, 8, 0),
        sixteen(0x88, 0, 8, 0),
        sixteen(0x8a, 0, 8, 0),
    ] {
        let (outcome, data) = Command::new(0, &cdb).run(&device, &nexus(1)).await;
        assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
        assert!(data.is_empty(), "{cdb:02x?}");
    }
}

#[tokio::test]
async fn verify_without_data_only_needs_blocks_that_can_be_read() {
    let (device, store) = faulty(64);
    for cdb in [
        ten(0x2f, 0, 0, 64),
        twelve(0xaf, 0, 0, 64),
        sixteen(0x8f, 0, 0, 64),
    ] {
        let (outcome, _) = Command::new(0, &cdb).run(&device, &nexus(1)).await;
        assert_eq!(status(&outcome), Status::Good);
    }
    let bad_block = Matching::op(StoreOp::Read).touching(5 * 512..6 * 512);
    store.inject(bad_block, 0, 1, Fault::Fail(StoreErrorKind::Medium));
    let (outcome, _) = Command::new(0, &ten(0x2f, 0, 4, 8)).run(&device, &nexus(1)).await;
    assert_eq!(sense(&outcome).code, (0x11, 0x00));
}

#[tokio::test]
async fn verify_compares_one_block_with_each_of_a_run() {
    let device = disk();
    let (outcome, _) = run(&device, 0, &sixteen(0x93, 0, 8, 4), &[0x11; 512]).await;
    assert_eq!(status(&outcome), Status::Good);
    let compare_each = ten(0x2f, 0x06, 8, 4);
    assert_eq!(
        status(&run(&device, 0, &compare_each, &[0x11; 512]).await.0),
        Status::Good
    );
    let mut last_differs = [0x11; 512];
    last_differs[509] = 0x12;
    run(&device, 0, &ten(0x2a, 0, 11, 1), &last_differs).await;
    let (outcome, _) = run(&device, 0, &compare_each, &[0x11; 512]).await;
    assert_eq!(
        (sense(&outcome).code, sense(&outcome).information),
        ((0x1d, 0x00), Some(509))
    );
    let (outcome, _) = run(&device, 0, &compare_each, &[0x11; 511]).await;
    assert_eq!(sense(&outcome).code, (0x24, 0x00));
    let reserved = ten(0x2f, 0x04, 8, 4);
    let field = sense(&run(&device, 0, &reserved, &[]).await.0).field.unwrap();
    assert_eq!((field.in_cdb, field.byte, field.bit), (true, 1, Some(2)));
}

#[tokio::test]
async fn short_data_out_writes_the_whole_blocks_that_came() {
    let device = disk();
    let (outcome, _) = run(&device, 0, &ten(0x2a, 0, 0, 4), &[7; 3 * 512 + 100]).await;
    let expected = Outcome::Status {
        status: Status::Good,
        sense: None,
        residual: Residual::Overflow(412),
    };
    assert_eq!(outcome, expected);
    let (_, read) = run(&device, 0, &ten(0x28, 0, 0, 4), &[]).await;
    assert_eq!((&read[..1536], &read[1536..]), (&[7; 1536][..], &[0; 512][..]));
}

#[tokio::test]
async fn long_data_out_stops_where_the_cdb_ends() {
    let device = disk();
    let (outcome, _) = run(&device, 0, &ten(0x2a, 0, 0, 2), &[7; 4 * 512]).await;
    let expected = Outcome::Status {
        status: Status::Good,
        sense: None,
        residual: Residual::Underflow(1024),
    };
    assert_eq!(outcome, expected);
    assert_eq!(
        (first_byte(&device, 1).await, first_byte(&device, 2).await),
        (7, 0)
    );
}

#[tokio::test]
async fn a_write_that_the_store_tears_names_the_block() {
    let (device, store) = faulty(64);
    let torn = Fault::Tear {
        bytes: 1024,
        kind: StoreErrorKind::Medium,
    };
    store.inject(Matching::op(StoreOp::Write), 0, 1, torn);
    let (outcome, _) = run(&device, 0, &ten(0x2a, 0, 8, 4), &[7; 2048]).await;
    let told = sense(&outcome);
    assert_eq!((told.key as u8, told.code), (0x3, (0x0c, 0x00)));
    assert_eq!(told.information, Some(8));
}
