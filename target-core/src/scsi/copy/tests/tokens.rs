//! POPULATE TOKEN, WRITE USING TOKEN and RECEIVE ROD TOKEN INFORMATION.

use std::time::Duration;

use super::*;
use crate::scsi::testing::{Command, nexus};

async fn populate(device: &Arc<TargetDevice>, lun: u16, ranges: &[(u64, u32)]) -> Vec<u8> {
    let outcome = send(device, lun, 0x10, 77, &populate_list(ranges)).await;
    assert_eq!(status(&outcome), Status::Good);
    let (_, told) = run(device, lun, &in_cdb(0x07, 77, 1024), &[]).await;
    assert_eq!((told.len(), told[4], told[5], told[15]), (550, 0x10, 0x01, 0xf1));
    assert_eq!(told[32..38], [0, 0, 0x02, 0x02, 0, 0]);
    told[38..].to_vec()
}

async fn write_using(device: &Arc<TargetDevice>, lun: u16, list: &[u8]) -> Outcome {
    send(device, lun, 0x11, 78, list).await
}

/// COPY OPERATION STATUS and TRANSFER COUNT.
async fn told(device: &Arc<TargetDevice>, lun: u16, list: u32) -> (u8, u64) {
    let (outcome, told) = run(device, lun, &in_cdb(0x07, list, 1024), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    (told[5], u64::from_be_bytes(told[16..24].try_into().unwrap()))
}

#[tokio::test]
async fn what_a_token_stands_for_is_written_elsewhere_in_parts() {
    let (device, _) = pair(8192);
    write(&device, 0, 0, &pattern(1, 0, 5000)).await;
    let token = populate(&device, 0, &[(1000, 3000), (0, 100)]).await;
    assert_eq!(told(&device, 0, 77).await, (1, 3100));
    let list = write_list(0, 2900, &token, &[(50, 120), (0, 10)]);
    assert_eq!(status(&write_using(&device, 1, &list).await), Status::Good);
    assert_eq!(told(&device, 1, 78).await, (1, 130));
    let whole = [pattern(1, 1000, 3000), pattern(1, 0, 100)].concat();
    assert!(read(&device, 1, 50, 120).await == whole[2900 * 512..3020 * 512]);
    assert!(read(&device, 1, 0, 10).await == whole[3020 * 512..3030 * 512]);
    let more = write_list(2, 3000, &token, &[(200, 200)]);
    assert_eq!(status(&write_using(&device, 1, &more).await), Status::Good);
    assert_eq!(told(&device, 1, 78).await, (3, 100), "there was no more");
    assert!(read(&device, 1, 200, 100).await == whole[3000 * 512..]);
    assert_eq!(
        code(&write_using(&device, 1, &more).await),
        (5, 0x23, 0x09),
        "deleted"
    );
}

#[tokio::test]
async fn a_token_may_be_used_by_another_nexus_and_on_its_own_unit() {
    let (device, _) = pair(64);
    write(&device, 0, 0, &pattern(1, 0, 8)).await;
    let token = populate(&device, 0, &[(0, 8)]).await;
    let list = write_list(0, 0, &token, &[(20, 8)]);
    let command = Command::new(0, &out_cdb(0x11, 1, list.len())).sending(&list);
    assert_eq!(status(&command.run(&device, &nexus(2)).await.0), Status::Good);
    assert!(read(&device, 0, 20, 8).await == pattern(1, 0, 8));
    device.unmap(0).unwrap();
    assert_eq!(code(&write_using(&device, 1, &list).await), (5, 0x23, 0x06));
}

#[tokio::test]
async fn the_first_write_to_its_blocks_revokes_a_token_and_no_other_write_does() {
    let list = [
        &[0, 22, 0, 16, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let write_same = [0x41, 0, 0, 0, 0, 12, 0, 0, 2, 0];
    let (device, [one, _]) = pair(64);
    let extended = extended_copy_list(1, &[&one], &[block_segment(0, 0, 1, 50, 10)]);
    for (cdb, data) in [
        (rw(0x8a, 9, 2), vec![1; 1024]),
        (unmap.to_vec(), list.clone()),
        (write_same.to_vec(), vec![0; 512]),
        (out_cdb(0, 0, extended.len()), extended),
    ] {
        let token = populate(&device, 0, &[(10, 10), (30, 1)]).await;
        write(&device, 0, 0, &[9; 10 * 512]).await;
        write(&device, 0, 20, &[9; 10 * 512]).await;
        write(&device, 1, 10, &[9; 512]).await;
        let order = write_list(0, 0, &token, &[(0, 11)]);
        assert_eq!(status(&write_using(&device, 1, &order).await), Status::Good);
        let (outcome, _) = run(&device, 0, &cdb, &data).await;
        assert_eq!(status(&outcome), Status::Good, "{cdb:02x?} {outcome:?}");
        assert_eq!(
            code(&write_using(&device, 1, &order).await),
            (5, 0x23, 0x06),
            "{cdb:02x?}"
        );
    }
    let token = populate(&device, 0, &[(0, 10)]).await;
    let onto_itself = write_list(0, 0, &token, &[(9, 10)]);
    assert_eq!(
        code(&write_using(&device, 0, &onto_itself).await),
        (5, 0x23, 0x06)
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_that_nobody_uses_expires() {
    let (device, _) = pair(64);
    let token = populate(&device, 0, &[(0, 8)]).await;
    let order = write_list(0, 0, &token, &[(0, 8)]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(status(&write_using(&device, 1, &order).await), Status::Good);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(code(&write_using(&device, 1, &order).await), (5, 0x23, 0x07));
}

#[tokio::test]
async fn the_well_known_token_writes_as_many_zeroes_as_are_wanted() {
    let (device, _) = pair(8192);
    write(&device, 0, 0, &pattern(1, 0, 8000)).await;
    let mut zero = vec![0xff, 0xff, 0x00, 0x01, 0, 0, 0x01, 0xf8];
    zero.resize(512, 0);
    let order = write_list(0, 1 << 30, &zero, &[(10, 7000), (7999, 1)]);
    assert_eq!(status(&write_using(&device, 0, &order).await), Status::Good);
    assert_eq!(told(&device, 0, 78).await, (1, 7001));
    let left = read(&device, 0, 0, 8000).await;
    assert!(left[..10 * 512] == pattern(1, 0, 10));
    assert!(left[10 * 512..7010 * 512].iter().all(|byte| *byte == 0));
    assert!(left[7010 * 512..7999 * 512] == pattern(1, 7010, 989));
    assert_eq!(left[7999 * 512..], [0; 512]);
}

#[tokio::test]
async fn tokens_that_are_none_are_told_apart() {
    let (device, _) = pair(64);
    let token = populate(&device, 0, &[(0, 8)]).await;
    for (at, expected) in [
        (1, (5, 0x23, 0x01)),
        (6, (5, 0x23, 0x0a)),
        (8, (5, 0x23, 0x04)),
        (63, (5, 0x23, 0x05)),
        (511, (5, 0x23, 0x05)),
    ] {
        let mut forged = token.clone();
        forged[at] ^= 0x40;
        let outcome = write_using(&device, 1, &write_list(0, 0, &forged, &[(0, 8)])).await;
        assert_eq!(code(&outcome), expected, "{at}");
    }
    let beyond = write_list(0, 8, &token, &[(0, 1)]);
    assert_eq!(code(&write_using(&device, 1, &beyond).await), (5, 0x26, 0x00));
    assert_eq!(read(&device, 1, 0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn with_immed_the_copy_goes_on_behind_its_status() {
    let (device, [_, two]) = pair(8192);
    write(&device, 0, 0, &pattern(1, 0, 5000)).await;
    let token = populate(&device, 0, &[(0, 5000)]).await;
    let order = write_list(3, 0, &token, &[(0, 5000)]);
    assert_eq!(status(&write_using(&device, 1, &order).await), Status::Good);
    let again = write_list(1, 0, &token, &[(0, 1)]);
    let first = told(&device, 1, 78).await;
    if first.0 == 0x12 {
        assert_eq!(code(&write_using(&device, 1, &again).await), (5, 0x00, 0x16));
    }
    while told(&device, 1, 78).await.0 == 0x12 {
        tokio::task::yield_now().await;
    }
    assert_eq!(told(&device, 1, 78).await, (1, 5000));
    assert!(read(&device, 1, 0, 5000).await == pattern(1, 0, 5000));
    assert_eq!(code(&write_using(&device, 1, &again).await), (5, 0x23, 0x09));
    assert_eq!(two.tasks().len(), 0);
}

#[tokio::test]
async fn lists_of_every_wrong_length_write_and_name_nothing() {
    let (device, _) = pair(64);
    let token = populate(&device, 0, &[(0, 8)]).await;
    for (action, whole) in [
        (0x10, populate_list(&[(0, 8)])),
        (0x11, write_list(0, 0, &token, &[(0, 8)])),
    ] {
        assert_eq!(status(&send(&device, 1, action, 5, &[]).await), Status::Good);
        for len in 1..whole.len() {
            let outcome = send(&device, 1, action, 5, &whole[..len]).await;
            assert_eq!(code(&outcome), (5, 0x1a, 0), "{action:#x} {len}");
        }
        let (outcome, _) = run(&device, 1, &in_cdb(0x07, 5, 1024), &[]).await;
        assert_eq!(code(&outcome), (5, 0x24, 0), "there was no copy");
    }
}

#[tokio::test]
async fn allocation_lengths_cut_what_is_told() {
    let (device, _) = pair(64);
    populate(&device, 0, &[(0, 8)]).await;
    for allocation in [0_u32, 1, 4, 36, 550, 0xffff] {
        let (_, told) = run(&device, 0, &in_cdb(0x07, 77, allocation), &[]).await;
        assert_eq!(told.len(), (allocation as usize).min(550));
    }
    let (_, status_alone) = run(&device, 0, &in_cdb(0x05, 77, 1024), &[]).await;
    assert_eq!(
        (status_alone.len(), status_alone[3], status_alone[5]),
        (32, 28, 1)
    );
}
