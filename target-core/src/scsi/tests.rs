//! Commands through the whole engine, as an initiator sees them.

mod aborts;
mod bad_input;
mod cdrom;
mod durability;
mod erasure;
mod exclusive;
mod formats;
mod order;
mod parameters;
mod protection;
mod refusals;
mod transfers;
mod whereabouts;

use std::sync::Arc;

use super::testing::{Command, config, device, memory, nexus, run, sense, status, unit};
use super::{LogicalUnit, Status, TargetDevice, UnitConfig};

fn disk() -> Arc<TargetDevice> {
    device(&[unit(2048)])
}

/// A six-byte CDB of LBA and number of blocks.
fn six(opcode: u8, lba: u32, blocks: u8) -> Vec<u8> {
    let [_, high, middle, low] = lba.to_be_bytes();
    vec![opcode, high, middle, low, blocks, 0]
}

/// A ten-byte CDB of LBA and number of blocks.
fn ten(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    [
        &[opcode, flags][..],
        &lba.to_be_bytes(),
        &[0],
        &blocks.to_be_bytes(),
        &[0],
    ]
    .concat()
}

/// A twelve-byte CDB of LBA and number of blocks.
fn twelve(opcode: u8, flags: u8, lba: u32, blocks: u32) -> Vec<u8> {
    [
        &[opcode, flags][..],
        &lba.to_be_bytes(),
        &blocks.to_be_bytes(),
        &[0, 0],
    ]
    .concat()
}

/// A sixteen-byte CDB of LBA and number of blocks.
fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    [
        &[opcode, flags][..],
        &lba.to_be_bytes(),
        &blocks.to_be_bytes(),
        &[0, 0],
    ]
    .concat()
}

#[tokio::test]
async fn what_was_written_is_read_and_verified() {
    let device = disk();
    let data: Vec<u8> = (0..1200 * 512).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let (outcome, _) = run(&device, 0, &sixteen(0x8a, 0x18, 100, 1200), &data).await;
    assert_eq!(status(&outcome), Status::Good);
    let (outcome, read) = run(&device, 0, &sixteen(0x88, 0x08, 100, 1200), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    assert!(read == data);
    let (outcome, _) = run(&device, 0, &sixteen(0x8f, 0x02, 100, 1200), &data).await;
    assert_eq!(status(&outcome), Status::Good);
    let mut wrong = data;
    wrong[600_000] ^= 1;
    let (outcome, _) = run(&device, 0, &sixteen(0x8f, 0x02, 100, 1200), &wrong).await;
    assert_eq!(
        (sense(&outcome).code, sense(&outcome).information),
        ((0x1d, 0), Some(600_000))
    );
}

#[tokio::test]
async fn ranges_beyond_the_medium_move_no_data() {
    let device = disk();
    for (lba, blocks) in [
        (2048, 1),
        (2047, 2),
        (2049, 0),
        (u64::MAX, 1),
        (u64::MAX - 1, u32::MAX),
    ] {
        for opcode in [0x88, 0x8a, 0x8f, 0x91, 0x93] {
            let (outcome, data) = run(&device, 0, &sixteen(opcode, 0, lba, blocks), &[0; 512]).await;
            assert_eq!(sense(&outcome).code, (0x21, 0x00), "{opcode:#04x} {lba} {blocks}");
            assert!(data.is_empty());
        }
    }
}

#[tokio::test]
async fn allocation_lengths_cut_parameter_data() {
    let device = disk();
    for allocation in [0_u16, 1, 4, 0xffff] {
        let [high, low] = allocation.to_be_bytes();
        for (cdb, whole) in [
            (vec![0x12, 0, 0, high, low, 0], 96),
            (vec![0x12, 1, 0xb0, high, low, 0], 64),
            (vec![0x5a, 0, 0x3f, 0, 0, 0, 0, high, low, 0], 88),
            (
                vec![0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0],
                32,
            ),
        ] {
            let (outcome, data) = run(&device, 0, &cdb, &[]).await;
            assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
            assert_eq!(data.len(), whole.min(usize::from(allocation)), "{cdb:02x?}");
        }
    }
    let (outcome, _) = run(&device, 0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0], &[]).await;
    assert_eq!(sense(&outcome).code, (0x24, 0x00));
}

#[tokio::test]
async fn unmapped_and_zeroed_blocks_read_as_zeroes() {
    let device = disk();
    let list = [
        &[0, 22, 0, 16, 0, 0, 0, 0][..],
        &1_u64.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    let (outcome, _) = run(&device, 0, &sixteen(0x93, 0, 0, 4), &[0xa6; 512]).await;
    assert_eq!(status(&outcome), Status::Good);
    let (outcome, _) = run(&device, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).await;
    assert_eq!(status(&outcome), Status::Good);
    let (outcome, _) = run(&device, 0, &sixteen(0x93, 0x01, 3, 1), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    let (_, read) = run(&device, 0, &sixteen(0x88, 0, 0, 4), &[]).await;
    let blocks: Vec<u8> = read.chunks(512).map(|block| block[0]).collect();
    assert_eq!(blocks, [0xa6, 0, 0xa6, 0]);
    for len in [256, 1024] {
        let (outcome, _) = run(&device, 0, &sixteen(0x93, 0, 0, 4), &vec![1; len]).await;
        assert_eq!(sense(&outcome).code, (0x24, 0x00), "{len}");
    }
}

#[tokio::test]
async fn an_ejected_medium_comes_back_and_prevention_keeps_it() {
    let removable = UnitConfig {
        removable: true,
        ..config()
    };
    let device = device(&[LogicalUnit::new(removable, memory(16))]);
    let code = |outcome| sense(&outcome).code;
    assert_eq!(
        status(&run(&device, 0, &[0x1e, 0, 0, 0, 1, 0], &[]).await.0),
        Status::Good
    );
    for flags in [0x02, 0x03] {
        assert_eq!(
            code(run(&device, 0, &[0x1b, 0, 0, 0, flags, 0], &[]).await.0),
            (0x53, 0x02)
        );
    }
    assert_eq!(
        status(&run(&device, 0, &[0x1e, 0, 0, 0, 0, 0], &[]).await.0),
        Status::Good
    );
    assert_eq!(
        status(&run(&device, 0, &[0x1b, 0, 0, 0, 2, 0], &[]).await.0),
        Status::Good
    );
    assert_eq!(code(run(&device, 0, &[0; 6], &[]).await.0), (0x3a, 0x00));
    assert_eq!(
        status(&run(&device, 0, &[0x1b, 0, 0, 0, 3, 0], &[]).await.0),
        Status::Good
    );
    assert_eq!(status(&run(&device, 0, &[0; 6], &[]).await.0), Status::Good);
}

#[tokio::test]
async fn an_aborted_write_writes_nothing() {
    let device = disk();
    let command = Command::new(0, &sixteen(0x8a, 0, 0, 1)).sending(&[7; 512]);
    command.abort.fire();
    command.run(&device, &nexus(1)).await;
    assert_eq!(run(&device, 0, &sixteen(0x88, 0, 0, 1), &[]).await.1, [0; 512]);
}

#[tokio::test]
async fn software_write_protection_is_told_and_enforced() {
    let device = disk();
    let other = nexus(2);
    device.attach(&other);
    assert_eq!(
        sense(&Command::new(0, &[0; 6]).run(&device, &other).await.0)
            .code
            .0,
        0x29
    );
    let page = |swp| [0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, swp, 0, 0, 0, 0, 0, 0, 0];
    let select = [0x15, 0x10, 0, 0, 16, 0];
    assert_eq!(
        status(&run(&device, 0, &select, &page(0x08)).await.0),
        Status::Good
    );
    assert_eq!(
        sense(&Command::new(0, &[0; 6]).run(&device, &other).await.0).code,
        (0x2a, 0x01)
    );
    assert_eq!(
        run(&device, 0, &[0x1a, 0x08, 0x0a, 0, 0xff, 0], &[]).await.1[2],
        0x90
    );
    let (outcome, _) = run(&device, 0, &sixteen(0x8a, 0, 0, 1), &[1; 512]).await;
    assert_eq!(sense(&outcome).code, (0x27, 0x00));
    assert_eq!(status(&run(&device, 0, &select, &page(0)).await.0), Status::Good);
    let (outcome, _) = run(&device, 0, &sixteen(0x8a, 0, 0, 1), &[1; 512]).await;
    assert_eq!(status(&outcome), Status::Good);
    let (outcome, _) = run(&device, 0, &[0x15, 0x11, 0, 0, 16, 0], &page(0)).await;
    assert_eq!(sense(&outcome).code, (0x24, 0x00));
}

#[tokio::test]
async fn absent_units_answer_what_an_initiator_scans_with() {
    let device = disk();
    let (_, inquiry) = run(&device, 5, &[0x12, 0, 0, 0, 96, 0], &[]).await;
    assert_eq!(inquiry[0], 0x7f);
    let (_, luns) = run(&device, 5, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]).await;
    assert_eq!(luns, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (_, told) = run(&device, 5, &[0x03, 0, 0, 0, 18, 0], &[]).await;
    assert_eq!((told[2], told[12]), (0x05, 0x25));
}

#[tokio::test]
async fn a_command_is_offered_where_it_works_and_only_there() {
    let thick = UnitConfig {
        thin: false,
        ..config()
    };
    let removable = UnitConfig {
        removable: true,
        ..config()
    };
    let device = device(&[
        LogicalUnit::new(thick, memory(16)),
        LogicalUnit::new(removable, memory(16)),
    ]);
    const NOTHING_TO_UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];
    for lun in [0, 1] {
        for cdb in [&NOTHING_TO_UNMAP[..], &ALLOW] {
            let ask = [0xa3, 0x0c, 1, cdb[0], 0, 0, 0, 0, 1, 0, 0, 0];
            let (_, support) = run(&device, lun, &ask, &[]).await;
            let (outcome, _) = run(&device, lun, cdb, &[]).await;
            if lun == 0 {
                assert_eq!(support[1], 0x01, "{cdb:02x?}");
                assert_eq!(sense(&outcome).code, (0x20, 0x00), "{cdb:02x?}");
            } else {
                assert_eq!(support[1], 0x03, "{cdb:02x?}");
                assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
            }
        }
    }
    let bad_unmap = [0x42, 0x01, 0, 0, 0, 0, 0, 0, 0, 0];
    let (outcome, _) = run(&device, 0, &bad_unmap, &[]).await;
    assert_eq!(
        sense(&outcome).code,
        (0x20, 0x00),
        "the code comes before its fields"
    );
}
