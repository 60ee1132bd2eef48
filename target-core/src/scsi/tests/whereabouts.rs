//! What commands tell of blocks without moving them: GET LBA STATUS, PRE-FETCH, READ DEFECT DATA.

use super::*;
use crate::scsi::testing::faulty;

/// GET LBA STATUS.
fn get_lba_status(lba: u64, allocation: u32) -> Vec<u8> {
    sixteen(0x9e, 0x12, lba, allocation)
}

/// Runs of blocks as GET LBA STATUS told them: first block, number of blocks, PROVISIONING STATUS.
fn runs(parameters: &[u8]) -> Vec<(u64, u32, u8)> {
    let length = u32::from_be_bytes(parameters[..4].try_into().unwrap());
    assert_eq!(length as usize + 4, parameters.len());
    parameters[8..]
        .chunks(16)
        .map(|descriptor| {
            (
                u64::from_be_bytes(descriptor[..8].try_into().unwrap()),
                u32::from_be_bytes(descriptor[8..12].try_into().unwrap()),
                descriptor[12],
            )
        })
        .collect()
}

#[tokio::test]
async fn mapped_and_deallocated_runs_are_told_apart() {
    let device = disk();
    let status_from = async |lba, allocation| {
        let (outcome, data) = run(&device, 0, &get_lba_status(lba, allocation), &[]).await;
        assert_eq!(status(&outcome), Status::Good);
        data
    };
    assert_eq!(runs(&status_from(0, 512).await), [(0, 2048, 1)]);
    // Memory comes in pages of 128 blocks.
    run(&device, 0, &ten(0x2a, 0, 200, 1), &[1; 512]).await;
    run(&device, 0, &ten(0x2a, 0, 256, 1), &[1; 512]).await;
    let all = [(0, 128, 1), (128, 256, 0), (384, 1664, 1)];
    assert_eq!(runs(&status_from(0, 512).await), all);
    assert_eq!(
        runs(&status_from(130, 512).await),
        [(130, 254, 0), (384, 1664, 1)]
    );
    assert_eq!(runs(&status_from(2047, 512).await), [(2047, 1, 1)]);
    assert_eq!(runs(&status_from(0, 8 + 32).await), all[..2]);
    assert_eq!(runs(&status_from(0, 24).await), all[..1]);
    let (outcome, _) = run(&device, 0, &sixteen(0x93, 0x09, 100, 200), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    assert_eq!(
        runs(&status_from(0, 512).await),
        [(0, 256, 1), (256, 128, 0), (384, 1664, 1)],
        "half a page stays"
    );
}

#[tokio::test]
async fn short_allocation_lengths_cut_the_answer() {
    let device = disk();
    let whole = [
        0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 0, 0,
    ];
    for allocation in [0, 1, 4, 23, 24, 0xffff] {
        let (outcome, data) = run(&device, 0, &get_lba_status(0, allocation), &[]).await;
        assert_eq!(status(&outcome), Status::Good);
        assert_eq!(data, whole[..whole.len().min(allocation as usize)]);
    }
}

#[tokio::test]
async fn the_status_of_blocks_that_are_not_there_is_not_told() {
    let device = disk();
    for lba in [2048, u64::MAX] {
        let (outcome, _) = run(&device, 0, &get_lba_status(lba, 64), &[]).await;
        assert_eq!(sense(&outcome).code, (0x21, 0x00), "{lba}");
    }
    let thick = UnitConfig {
        thin: false,
        ..config()
    };
    let device = crate::scsi::testing::device(&[LogicalUnit::new(thick, memory(16))]);
    let (outcome, _) = run(&device, 0, &get_lba_status(0, 64), &[]).await;
    assert_eq!(sense(&outcome).code, (0x24, 0x00), "only thin units have it");
}

#[tokio::test]
async fn a_prefetch_meets_its_condition_where_no_medium_has_to_be_read() {
    let (slow, _) = faulty(64);
    let fast = device(&[unit(64)]);
    for cdb in [
        ten(0x34, 0, 0, 64),
        ten(0x34, 0x02, 8, 0),
        sixteen(0x90, 0, 0, 64),
        sixteen(0x90, 0x02, 64, 0),
    ] {
        assert_eq!(status(&run(&fast, 0, &cdb, &[]).await.0), Status::ConditionMet);
        assert_eq!(status(&run(&slow, 0, &cdb, &[]).await.0), Status::Good);
    }
    for cdb in [
        ten(0x34, 0, 0, 65),
        ten(0x34, 0, 65, 0),
        sixteen(0x90, 0, u64::MAX, 2),
    ] {
        assert_eq!(sense(&run(&fast, 0, &cdb, &[]).await.0).code, (0x21, 0x00));
    }
}

#[tokio::test]
async fn lists_of_defects_are_empty_in_every_format() {
    let device = disk();
    for asked in 0..32 {
        let ten = [0x37, 0, asked, 0, 0, 0, 0, 0, 0xff, 0];
        let twelve = [0xb7, asked, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0];
        let answers = [
            run(&device, 0, &ten, &[]).await,
            run(&device, 0, &twelve, &[]).await,
        ];
        if asked & 7 == 7 {
            for ((outcome, _), byte) in answers.iter().zip([2, 1]) {
                let field = sense(outcome).field.unwrap();
                assert_eq!((field.byte, field.bit), (byte, Some(2)));
            }
            continue;
        }
        assert_eq!(answers[0].1, [0, asked, 0, 0]);
        assert_eq!(answers[1].1, [0, asked, 0, 0, 0, 0, 0, 0]);
    }
}
