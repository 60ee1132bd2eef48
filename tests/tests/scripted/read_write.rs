//! Reading and writing (RFC 7143 §4.2.5, §11.3, §11.7, §11.8): immediate, solicited and unsolicited data, in every mixture.

use backstores::StoreOptions;
use iscsi_proto::Lun;
use iscsi_proto::pdu::{Residual, TaskAttribute};
use tests::script::{Disk, Initiator, Keys, Target, cdb};

#[tokio::test]
async fn what_was_written_is_read() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(8192);
    initiator.write(5, &data).await;
    assert_eq!(initiator.read(5, 16).await, data);
    assert_eq!(initiator.read(4, 1).await, [0; 512], "the block before");
    assert_eq!(initiator.read(21, 1).await, [0; 512], "the block behind");
}

#[tokio::test]
async fn status_rides_on_the_last_piece_of_data() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in_with(
        &target,
        1,
        Keys::normal().with("MaxRecvDataSegmentLength", "4096"),
    )
    .await;
    let data = pattern(20_480);
    initiator.write(0, &data).await;
    let end = initiator
        .command(cdb::read_10(0, 40))
        .read(20_480)
        .run()
        .await
        .good();
    assert_eq!(end.data, data);
    assert_eq!(end.data_ins.len(), 5, "pieces of at most 4096 bytes");
    assert_eq!(end.exp_data_sn, None, "no response of its own");
    let finals: Vec<_> = end.data_ins.iter().map(|pdu| pdu.is_final).collect();
    assert_eq!(finals, [false, false, false, false, true]);
}

#[tokio::test]
async fn a_burst_of_data_in_ends_with_the_f_bit() {
    let target = Target::start().await;
    let keys = Keys::normal()
        .with("MaxRecvDataSegmentLength", "4096")
        .with("MaxBurstLength", "8192");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let end = initiator
        .command(cdb::read_10(0, 40))
        .read(20_480)
        .run()
        .await
        .good();
    let finals: Vec<_> = end.data_ins.iter().map(|pdu| pdu.is_final).collect();
    assert_eq!(finals, [false, true, false, true, true]);
}

#[tokio::test]
async fn immediate_data_need_no_r2t() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(4096);
    let end = initiator
        .command(cdb::write_10(0, 8))
        .write(&data)
        .immediate_data(4096)
        .run()
        .await
        .good();
    assert_eq!(end.r2ts.len(), 0);
    assert_eq!(initiator.read(0, 8).await, data);
}

#[tokio::test]
async fn what_immediate_data_leave_is_asked_for() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(4096);
    // Also a length that is no multiple of four, so that it is padded.
    for immediate in [1, 511, 512, 1000, 4095] {
        let end = initiator
            .command(cdb::write_10(8, 8))
            .write(&data)
            .immediate_data(immediate)
            .run()
            .await
            .good();
        let r2t = &end.r2ts[0];
        assert_eq!(usize::try_from(r2t.offset), Ok(immediate));
        assert_eq!(usize::try_from(r2t.desired_len), Ok(4096 - immediate));
        assert_eq!(end.exp_data_sn, Some(1), "one R2T");
        assert_eq!(initiator.read(8, 8).await, data, "{immediate} bytes immediate");
    }
}

#[tokio::test]
async fn no_r2t_asks_for_more_than_a_burst() {
    let target = Target::start().await;
    let keys = Keys::normal()
        .with("MaxBurstLength", "4096")
        .with("FirstBurstLength", "512")
        .with("MaxOutstandingR2T", "2");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let data = pattern(65_536);
    let end = initiator
        .command(cdb::write_10(0, 128))
        .write(&data)
        .in_pieces_of(1500)
        .run()
        .await
        .good();
    assert_eq!(end.r2ts.len(), 16);
    let mut next = 0;
    for (number, r2t) in end.r2ts.iter().enumerate() {
        assert_eq!(usize::try_from(r2t.r2t_sn), Ok(number));
        assert_eq!((r2t.offset, r2t.desired_len), (next, 4096));
        next += 4096;
    }
    let mut tags: Vec<_> = end.r2ts.iter().map(|r2t| r2t.ttt.0).collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 16, "every R2T has a tag of its own");
    assert_eq!(initiator.read(0, 128).await, data);
}

#[tokio::test]
async fn a_write_of_many_chunks_arrives_whole() {
    let target = Target::builder().disk(large()).start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(3 << 20);
    initiator.write(1, &data).await;
    let end = initiator
        .command(cdb::read_16(1, 6144))
        .read(3 << 20)
        .run()
        .await
        .good();
    assert!(end.data == data);
}

#[tokio::test]
async fn unsolicited_data_follow_the_command_when_that_was_agreed() {
    let target = Target::builder().set("InitialR2T", "No").start().await;
    let keys = Keys::normal()
        .with("InitialR2T", "No")
        .with("FirstBurstLength", "8192");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let data = pattern(16_384);
    for (immediate, unsolicited) in [(0, 8192), (4096, 4096), (100, 500), (8192, 0)] {
        let end = initiator
            .command(cdb::write_10(0, 32))
            .write(&data)
            .immediate_data(immediate)
            .unsolicited_data(unsolicited)
            .in_pieces_of(700)
            .run()
            .await
            .good();
        let first = end.r2ts.first().map(|r2t| r2t.offset);
        assert_eq!(
            first.map(usize::try_from),
            Some(Ok(immediate + unsolicited)),
            "{immediate} and {unsolicited}"
        );
        assert_eq!(initiator.read(0, 32).await, data);
    }
}

#[tokio::test]
async fn unsolicited_data_that_were_not_agreed_fail_the_command() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(4096);
    let end = initiator
        .command(cdb::write_10(0, 8))
        .write(&data)
        .unsolicited_data(4096)
        .run()
        .await;
    assert_eq!(end.sense(), (0xb, 0x0c, 0x0c));
    assert_eq!(end.residual, Residual::Underflow(4096));
    initiator.ping().await;
    assert_eq!(initiator.read(0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn immediate_data_that_were_not_agreed_fail_the_command() {
    let target = Target::builder().set("ImmediateData", "No").start().await;
    let keys = Keys::normal().with("ImmediateData", "Yes");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let end = initiator
        .command(cdb::write_10(0, 8))
        .write(&pattern(4096))
        .immediate_data(512)
        .run()
        .await;
    assert_eq!(end.sense(), (0xb, 0x0c, 0x0c));
    assert_eq!(initiator.read(0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn fewer_unsolicited_data_than_allowed_are_made_up_for_by_an_r2t() {
    let target = Target::builder().set("InitialR2T", "No").start().await;
    let keys = Keys::normal()
        .with("InitialR2T", "No")
        .with("FirstBurstLength", "8192");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    // The F bit may come before FirstBurstLength and the expected length are reached (§11.7.1).
    let data = pattern(16_384);
    let end = initiator
        .command(cdb::write_10(0, 32))
        .write(&data)
        .unsolicited_data(1024)
        .run()
        .await
        .good();
    assert_eq!(end.r2ts[0].offset, 1024);
    assert_eq!(initiator.read(0, 32).await, data);
}

#[tokio::test]
async fn many_commands_run_side_by_side_and_each_gets_its_own_data() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(64 * 512);
    initiator.write(0, &data).await;
    let mut waiting = Vec::new();
    for lba in 0..64 {
        let (itt, _) = initiator.command(cdb::read_10(lba, 1)).read(512).start().await;
        waiting.push((itt, usize::try_from(lba).unwrap() * 512));
    }
    for _ in 0..64 {
        let (pdu, got) = initiator.expect::<iscsi_proto::pdu::DataIn>().await;
        let at = waiting
            .iter()
            .position(|(itt, _)| *itt == pdu.itt)
            .expect("answered once");
        let (_, offset) = waiting.swap_remove(at);
        assert_eq!(got, data[offset..offset + 512]);
    }
}

#[tokio::test]
async fn a_failed_read_has_a_status_of_its_own() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).inject(
        backstores::Matching::op(backstores::StoreOp::Read),
        0,
        1,
        backstores::Fault::Fail(backstores::StoreErrorKind::Medium),
    );
    let end = initiator.command(cdb::read_10(7, 1)).read(512).run().await;
    assert_eq!(end.sense(), (0x3, 0x11, 0x00));
    assert_eq!(end.residual, Residual::Underflow(512));
    assert_eq!(end.data_ins.len(), 0);
    assert_eq!(initiator.read(7, 1).await, [0; 512], "the next one is good again");
}

#[tokio::test]
async fn nothing_moves_beyond_the_capacity() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for (lba, blocks) in [(2048, 1), (2047, 2), (u32::MAX, 1)] {
        let end = initiator
            .command(cdb::write_10(lba, blocks))
            .write(&pattern(usize::from(blocks) * 512))
            .run()
            .await;
        assert_eq!(end.sense(), (0x5, 0x21, 0x00));
        assert_eq!(end.r2ts.len(), 0, "no data were asked for");
        let end = initiator
            .command(cdb::read_10(lba, blocks))
            .read(1024)
            .run()
            .await;
        assert_eq!(end.sense(), (0x5, 0x21, 0x00));
    }
    initiator.write(2047, &pattern(512)).await;
    assert_eq!(initiator.read(2047, 1).await, pattern(512), "the last block");
}

#[tokio::test]
async fn a_read_only_disk_is_not_written() {
    let disk = Disk {
        options: StoreOptions {
            read_only: true,
            ..StoreOptions::default()
        },
        ..Disk::default()
    };
    let target = Target::builder().disk(disk).start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let end = initiator
        .command(cdb::write_10(0, 1))
        .write(&pattern(512))
        .run()
        .await;
    assert_eq!(end.sense(), (0x7, 0x27, 0x00));
    assert_eq!(end.r2ts.len(), 0);
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn every_lun_is_its_own_disk() {
    let target = Target::builder()
        .disk(Disk::default())
        .disk(Disk::default())
        .start()
        .await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.write(0, &pattern(512)).await;
    initiator.lun = Lun::from_number(1).unwrap();
    initiator.clear_attentions().await;
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
    initiator.lun = Lun::from_number(2).unwrap();
    let end = initiator.command(cdb::read_10(0, 1)).read(512).run().await;
    assert_eq!(end.sense(), (0x5, 0x25, 0x00), "there is no LUN 2");
}

#[tokio::test]
async fn an_acknowledged_write_outlives_a_power_cut_once_it_is_flushed() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.write(0, &pattern(512)).await;
    assert_eq!(target.store(0).unflushed_blocks(), 1);
    initiator.command(cdb::synchronize_cache_10()).run().await.good();
    assert_eq!(target.store(0).unflushed_blocks(), 0);
    // FUA: on the medium when it is acknowledged.
    let mut fua = cdb::write_10(1, 1);
    fua[1] = 0x08;
    initiator.command(fua).write(&pattern(512)).run().await.good();
    assert_eq!(target.store(0).unflushed_blocks(), 0);
    target.store(0).power_cut(1);
    target.store(0).power_on();
    assert_eq!(initiator.read(0, 1).await, pattern(512));
    assert_eq!(initiator.read(1, 1).await, pattern(512));
}

#[tokio::test]
async fn an_ordered_command_waits_for_those_before_it_and_holds_those_behind() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target
        .store(0)
        .hold(backstores::Matching::op(backstores::StoreOp::Read));
    let (first, _) = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    let (ordered, _) = initiator
        .command(cdb::read_10(1, 1))
        .read(512)
        .with(|pdu| pdu.attribute = TaskAttribute::Ordered)
        .start()
        .await;
    let (last, _) = initiator.command(cdb::read_10(2, 1)).read(512).start().await;
    initiator.ping().await;
    assert_eq!(target.store(0).held().len(), 1, "only the first one runs");
    target.store(0).resume();
    for itt in [first, ordered, last] {
        assert_eq!(initiator.end_of(itt, &[], 0).await.good().data.len(), 512);
    }
}

#[tokio::test]
async fn a_pool_that_is_dry_delays_and_fails_nobody() {
    let target = Target::builder().disk(large()).pool(1).start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = pattern(1 << 20);
    let mut waiting = Vec::new();
    for _ in 0..16 {
        let (itt, _) = initiator
            .command(cdb::read_10(0, 2048))
            .read(1 << 20)
            .start()
            .await;
        waiting.push(itt);
    }
    let mut left = waiting.len();
    while left > 0 {
        let (pdu, _) = initiator.expect::<iscsi_proto::pdu::DataIn>().await;
        left -= usize::from(pdu.status.is_some());
    }
    initiator.write(0, &data).await;
    assert!(initiator.read(0, 2048).await == data);
    initiator.ping().await;
    assert_eq!(target.pool().stats().in_use, 0, "every buffer came back");
}

/// More bytes at once than a connection may have in flight: shares must come free while every command waits for one.
#[tokio::test]
async fn forty_reads_of_a_mebibyte_at_once_all_end() {
    let target = Target::builder().disk(large()).start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let asked = initiator.cmd_sn;
    for _ in 0..40 {
        initiator
            .command(cdb::read_10(0, 2048))
            .read(1 << 20)
            .start()
            .await;
    }
    assert_eq!(initiator.cmd_sn, asked.plus(40));
    let (mut bytes, mut ended) = (0, 0);
    while ended < 40 {
        let (pdu, data) = initiator.expect::<iscsi_proto::pdu::DataIn>().await;
        bytes += data.len();
        ended += usize::from(pdu.status.is_some());
    }
    assert_eq!(bytes, 40 << 20);
}

fn large() -> Disk {
    Disk {
        size: 8 << 20,
        ..Disk::default()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from(at % 251).unwrap() ^ u8::try_from((at / 512) % 256).unwrap())
        .collect()
}
