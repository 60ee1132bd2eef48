//! What is counted of the data path: exactly what initiators did, by unit, initiator, session and transport, and once.

use std::time::Duration;

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{Function, NopIn, NopOut, Request, TmfResponse};
use iscsi_proto::{Itt, Lun};
use target_core::metrics::{Gathered, LunCounts, TransportRow};
use tests::script::{Disk, INITIATOR, Initiator, Keys, TARGET, Target, cdb};

const OTHER: &str = "iqn.2026-11.org.example:another-host";

fn lun(gathered: &Gathered, lun: u16) -> &LunCounts {
    let row = gathered.luns.iter().find(|row| row.lun == lun);
    &row.expect("the unit was used").counts
}

fn initiator_at<'a>(gathered: &'a Gathered, name: &str, lun: u16) -> Option<&'a LunCounts> {
    let rows = &mut gathered.initiators.iter();
    let row = rows.find(|row| row.lun == lun && row.initiator.as_str() == name)?;
    assert_eq!(row.target.as_str(), TARGET);
    Some(&row.counts)
}

fn tcp(gathered: &Gathered) -> &TransportRow {
    let [row] = &gathered.transports[..] else {
        panic!("one transport: {:?}", gathered.transports)
    };
    assert_eq!(row.transport, "tcp");
    row
}

/// What one kind came to: commands and bytes.
fn did(kind: &target_core::metrics::KindCounts) -> (u64, u64) {
    (kind.latency.count(), kind.bytes)
}

async fn four_disks() -> Target {
    let builder = (0..4).fold(Target::builder(), |builder, _| builder.disk(Disk::default()));
    builder.start().await
}

#[tokio::test]
async fn seven_reads_of_one_initiator_are_seven_reads_everywhere() {
    let target = four_disks().await;
    let mut one = Initiator::log_in(&target).await;
    let keys = Keys::normal().with("InitiatorName", OTHER);
    let mut other = Initiator::log_in_with(&target, 2, keys).await;
    let third = Lun::from_number(3).unwrap();
    (one.lun, other.lun) = (third, third);
    one.clear_attentions().await;
    other.clear_attentions().await;
    for _ in 0..7 {
        one.read(0, 8).await;
    }
    other.write(8, &[0x5a; 1024]).await;

    let gathered = target.node().counts();
    let all = lun(&gathered, 3);
    assert_eq!((did(&all.read), did(&all.write)), ((7, 28_672), (1, 1024)));
    assert_eq!(all.read.queue_wait.count(), 7);
    assert_eq!(all.read.store.count(), 7);
    assert_eq!((all.in_flight, all.failed, all.unit_attentions), (0, 0, 2));
    let ones = initiator_at(&gathered, INITIATOR, 3).unwrap();
    assert_eq!((did(&ones.read), did(&ones.write)), ((7, 28_672), (0, 0)));
    let others = initiator_at(&gathered, OTHER, 3).unwrap();
    assert_eq!((did(&others.read), did(&others.write)), ((0, 0), (1, 1024)));
    // The write was asked for with an R2T.
    assert_eq!((ones.r2t_wait.count(), others.r2t_wait.count()), (0, 1));
    // LUN 0 was only asked whether it is ready; 1 and 2 were never spoken to.
    assert_eq!(did(&lun(&gathered, 0).other), (4, 0));
    let numbers: Vec<u16> = gathered.luns.iter().map(|row| row.lun).collect();
    assert_eq!(numbers, [0, 3]);
    let [first, second] = &gathered.sessions[..] else {
        panic!("two sessions")
    };
    assert_eq!(
        (did(&first.counts.read), did(&second.counts.read)),
        ((7, 28_672), (0, 0))
    );
    assert_eq!(did(&tcp(&gathered).counts.read), (7, 28_672));
}

#[tokio::test]
async fn what_an_initiator_did_stays_in_the_total_of_the_unit_when_it_goes() {
    let target = Target::start().await;
    let mut staying = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut twin = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let keys = Keys::normal().with("InitiatorName", OTHER);
    let mut going = Initiator::log_in_with(&target, 3, keys).await;
    staying.read(0, 1).await;
    twin.read(0, 2).await;
    going.read(0, 4).await;
    twin.log_out().await;
    going.log_out().await;
    target.ended(2).await;

    let gathered = target.node().counts();
    assert_eq!(did(&lun(&gathered, 0).read), (3, 3584));
    assert!(initiator_at(&gathered, OTHER, 0).is_none());
    // Its counters do not go back because one of its two sessions ended.
    let here = initiator_at(&gathered, INITIATOR, 0).unwrap();
    assert_eq!(did(&here.read), (2, 1536));
    assert_eq!(gathered.sessions.len(), 1);
    staying.log_out().await;
    target.ended(3).await;
    let gathered = target.node().counts();
    assert_eq!((gathered.initiators.len(), gathered.sessions.len()), (0, 0));
    assert_eq!(did(&lun(&gathered, 0).read), (3, 3584));
    assert_eq!(did(&tcp(&gathered).counts.read), (3, 3584));
}

#[tokio::test]
async fn a_unit_that_is_taken_away_takes_its_series_along() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.read(0, 1).await;
    let unit = target.device().unmap(0).unwrap();
    let gathered = target.node().counts();
    assert_eq!((gathered.luns.len(), gathered.initiators.len()), (0, 0));
    assert_eq!(did(&tcp(&gathered).counts.read), (1, 512));
    // What is sent to numbers without a unit has no series of its own.
    for number in 0..40 {
        initiator.lun = Lun::from_number(number).unwrap();
        initiator.command(cdb::read_10(0, 1)).read(512).run().await;
    }
    assert!(target.device().map(0, unit));
    let gathered = target.node().counts();
    assert_eq!((gathered.luns.len(), gathered.initiators.len()), (1, 1));
    assert_eq!(did(&tcp(&gathered).counts.read), (41, 512));
}

#[tokio::test]
async fn an_abort_counts_once_and_no_latency() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let command = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    assert_eq!(lun(&target.node().counts(), 0).in_flight, 1);
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    target.store(0).resume();
    while lun(&target.node().counts(), 0).aborted == 0 {
        initiator.ping().await;
    }
    initiator.ping().await;
    let gathered = target.node().counts();
    let counts = lun(&gathered, 0);
    assert_eq!(
        (counts.aborted, counts.in_flight, did(&counts.read)),
        (1, 0, (0, 0))
    );
    let requests = tcp(&gathered).link.task_management;
    assert_eq!((requests[0], requests.iter().sum::<u64>()), (1, 1));
}

#[tokio::test]
async fn a_reset_counts_for_its_unit() {
    let target = four_disks().await;
    let mut initiator = Initiator::log_in(&target).await;
    let itt = initiator.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    let gathered = target.node().counts();
    assert_eq!(lun(&gathered, 0).resets, 1);
    assert_eq!(tcp(&gathered).link.task_management[4], 1);
}

#[tokio::test]
async fn a_reservation_conflict_a_unit_attention_and_an_error_count_once_each() {
    let target = Target::start().await;
    let mut holder = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let keys = Keys::normal().with("InitiatorName", OTHER);
    let mut other = Initiator::log_in_with(&target, 2, keys).await;
    // RESERVE (6).
    holder.command(cdb::cdb(&[0x16])).run().await.good();
    let end = other.command(cdb::read_10(0, 1)).read(512).run().await;
    assert_eq!(end.status, 0x18);
    let end = holder.command(cdb::read_10(0x00ff_ffff, 1)).read(512).run().await;
    assert_eq!(end.sense(), (0x5, 0x21, 0x00));

    let gathered = target.node().counts();
    let others = initiator_at(&gathered, OTHER, 0).unwrap();
    assert_eq!(
        (others.conflicts, others.failed, others.unit_attentions),
        (1, 0, 1)
    );
    // Both were answered, and moved nothing; neither got so far as to wait.
    assert_eq!((did(&others.read), others.read.store.count()), ((1, 0), 0));
    let holders = initiator_at(&gathered, INITIATOR, 0).unwrap();
    assert_eq!(
        (holders.conflicts, holders.failed, holders.unit_attentions),
        (0, 1, 1)
    );
    assert_eq!(lun(&gathered, 0).conflicts, 1);
}

#[tokio::test]
async fn logins_count_by_how_they_end() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let mut refused = Initiator::connect(&target).await;
    let stages = (
        iscsi_proto::pdu::LoginStage::Operational,
        Some(iscsi_proto::pdu::LoginStage::FullFeature),
    );
    let keys = Keys::normal().with("TargetName", "iqn.2026-11.org.example:nowhere");
    refused.login_step(stages, keys).await;
    target.ended(1).await;
    initiator.ping().await;
    let rows: Vec<_> = target
        .node()
        .counts()
        .logins
        .iter()
        .map(|row| (row.transport, row.result, row.count))
        .collect();
    assert_eq!(rows, [("tcp", "not_found", 1), ("tcp", "success", 1)]);
}

#[tokio::test]
async fn digest_errors_count_by_part() {
    let target = Target::start().await;
    let keys = || {
        Keys::normal()
            .with("HeaderDigest", "CRC32C")
            .with("DataDigest", "CRC32C")
    };
    let mut initiator = Initiator::log_in_with(&target, 1, keys()).await;
    let ping = |initiator: &mut Initiator| NopOut {
        immediate: true,
        lun: Lun::ZERO,
        itt: initiator.itt(),
        ttt: iscsi_proto::Ttt::RESERVED,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
    };
    let request = Request::NopOut(ping(&mut initiator));
    let mut bytes = initiator.encode(&request, b"data");
    *bytes.last_mut().unwrap() ^= 1;
    initiator.send_raw(&bytes).await;
    initiator.expect::<iscsi_proto::pdu::Reject>().await;
    let link = tcp(&target.node().counts()).link.clone();
    assert_eq!((link.header_digest_errors, link.data_digest_errors), (0, 1));
    let request = Request::NopOut(ping(&mut initiator));
    let mut bytes = initiator.encode(&request, &[]);
    bytes[48] ^= 1;
    initiator.send_raw(&bytes).await;
    initiator.expect_closed().await;
    target.ended(1).await;
    let link = tcp(&target.node().counts()).link.clone();
    assert_eq!((link.header_digest_errors, link.data_digest_errors), (1, 1));
}

#[tokio::test]
async fn the_way_of_a_ping_of_ours_is_measured() {
    let target = Target::builder().set("nop-interval", "1").start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let (nop, _) = initiator.expect::<NopIn>().await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let answer = NopOut {
        immediate: true,
        lun: Lun::ZERO,
        itt: Itt::RESERVED,
        ttt: nop.ttt,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
    };
    initiator.send(Request::NopOut(answer), &[]).await;
    initiator.ping().await;
    let link = tcp(&target.node().counts()).link.clone();
    assert_eq!(link.nop_round_trip.count(), 1);
    assert!(link.nop_round_trip.sum >= 30_000_000, "nanoseconds");
}
