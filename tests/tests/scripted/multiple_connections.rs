//! Sessions of several connections (RFC 7143 §4.2.2.1, §4.2.5, §6.3, §7.5, §11.14).

use std::time::Duration;

use backstores::{Matching, StoreOp};
use iscsi_proto::Cid;
use iscsi_proto::pdu::{
    Function, LoginStage, LoginStatus, LogoutReason, LogoutResponse, LogoutResponseCode, NopIn, NopOut,
    Request, ScsiResponse, TaskManagementResponse, TmfResponse,
};
use target_core::iscsi::CloseReason;
use tests::script::{Initiator, Keys, Target, cdb};
use tokio::io::AsyncWriteExt;

const TO_FULL_FEATURE: (LoginStage, Option<LoginStage>) =
    (LoginStage::Operational, Some(LoginStage::FullFeature));

/// A target that lets a session have four connections.
async fn target() -> Target {
    Target::builder().set("MaxConnections", "4").start().await
}

async fn leading(target: &Target) -> Initiator {
    let keys = Keys::normal().with("MaxConnections", "4");
    Initiator::log_in_with(target, 1, keys).await
}

/// Two connections of one session, nothing outstanding.
async fn pair(target: &Target) -> (Initiator, Initiator) {
    let first = leading(target).await;
    let second = Initiator::join(target, &first, 1).await;
    (first, second)
}

async fn log_out(initiator: &mut Initiator, reason: LogoutReason, cid: u16) -> LogoutResponseCode {
    let mut request = initiator.logout_request(reason);
    request.cid = Cid(cid);
    initiator.send(Request::Logout(request), &[]).await;
    initiator.expect::<LogoutResponse>().await.0.response
}

#[tokio::test]
async fn connections_share_a_session_and_a_disk() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let sessions = target.node().sessions();
    assert_eq!((sessions.len(), sessions[0].connections), (1, 2));
    second.cmd_sn = first.cmd_sn;
    second.write(3, &[7; 512]).await;
    first.cmd_sn = second.cmd_sn;
    assert_eq!(
        first.read(3, 1).await,
        [7; 512],
        "no unit attention: the nexus is the same"
    );
    assert_eq!(target.ended(1).await, [CloseReason::Joined(first.tsih.0)]);
}

#[tokio::test]
async fn what_concerns_the_whole_session_is_irrelevant_when_a_connection_joins() {
    let target = target().await;
    let first = leading(&target).await;
    let mut second = Initiator::connect(&target).await;
    second.join_request(&first, 1);
    let keys = Keys::normal()
        .with("MaxBurstLength", "4096")
        .with("HeaderDigest", "CRC32C");
    let answers = second.login(keys).await;
    let answer = |key| {
        answers
            .iter()
            .find(|pair| pair.key == key)
            .map(|pair| &*pair.value)
    };
    assert_eq!(answer("MaxBurstLength"), Some("Irrelevant"));
    assert_eq!(answer("HeaderDigest"), Some("CRC32C"));
    second.cmd_sn = first.cmd_sn;
    second.write(0, &[1; 8192]).await;
}

#[tokio::test]
async fn commands_run_in_order_across_connections() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let next = first.cmd_sn;
    // The second of both commands arrives first, and waits.
    second.cmd_sn = next.plus(1);
    let (late, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    second.ping().await;
    first.cmd_sn = next;
    let data = [9; 512];
    let write = first
        .command(cdb::write_10(0, 1))
        .write(&data)
        .immediate_data(512);
    write.run().await.good();
    // Simple tasks may run side by side, so only that it runs at all is certain.
    second.end_of(late, &[], 512).await.good();
}

#[tokio::test]
async fn a_status_goes_by_the_connection_of_its_command_and_counts_there() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let before = first.exp_stat_sn;
    for _ in 0..3 {
        second.cmd_sn = first.cmd_sn;
        second.read(0, 1).await;
        first.cmd_sn = second.cmd_sn;
    }
    first.ping().await;
    assert_eq!(
        first.exp_stat_sn,
        before.next(),
        "only the ping was answered there"
    );
}

#[tokio::test]
async fn a_task_tag_is_in_use_on_all_connections() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, _) = first.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    second.cmd_sn = first.cmd_sn;
    second
        .command(cdb::read_10(1, 1))
        .read(512)
        .with(|pdu| pdu.itt = itt)
        .start()
        .await;
    let (reject, _) = second.expect::<iscsi_proto::pdu::Reject>().await;
    assert_eq!(reject.reason, iscsi_proto::pdu::RejectReason::TaskInProgress);
    target.store(0).resume();
    first.end_of(itt, &[], 512).await.good();
}

#[tokio::test]
async fn a_task_is_aborted_by_way_of_another_connection() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, cmd_sn) = first.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    second.cmd_sn = first.cmd_sn;
    let tmf = second.manage(Function::AbortTask, Some((itt, cmd_sn))).await;
    assert_eq!(second.managed(tmf).await, TmfResponse::Complete);
    target.store(0).resume();
    first.ping().await;
}

#[tokio::test]
async fn a_task_management_response_does_not_overtake_a_status_on_another_connection() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let (itt, cmd_sn) = first.command(cdb::test_unit_ready()).start().await;
    // Heard, and not yet acknowledged.
    first.expect::<ScsiResponse>().await;
    second.cmd_sn = first.cmd_sn;
    let tmf = second.manage(Function::AbortTask, Some((itt, cmd_sn))).await;
    let (question, _) = first.expect::<NopIn>().await;
    let answer = NopOut {
        immediate: true,
        lun: first.lun,
        itt: iscsi_proto::Itt::RESERVED,
        ttt: question.ttt,
        cmd_sn: first.cmd_sn,
        exp_stat_sn: first.exp_stat_sn,
    };
    first.send(Request::NopOut(answer), &[]).await;
    assert_eq!(second.managed(tmf).await, TmfResponse::TaskDoesNotExist);
}

#[tokio::test]
async fn a_silent_connection_does_not_hold_task_management_up_for_ever() {
    let target = Target::builder()
        .set("MaxConnections", "4")
        .set("nop-timeout", "1s")
        .start()
        .await;
    let (mut first, mut second) = pair(&target).await;
    first.command(cdb::test_unit_ready()).start().await;
    first.expect::<ScsiResponse>().await;
    second.cmd_sn = first.cmd_sn;
    let tmf = second.manage(Function::LogicalUnitReset, None).await;
    let (response, _) = second.expect::<TaskManagementResponse>().await;
    assert_eq!((response.itt, response.response), (tmf, TmfResponse::Complete));
    first.expect::<NopIn>().await;
    first.expect_closed().await;
}

#[tokio::test]
async fn a_lost_connection_ends_its_tasks_and_not_the_session() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read).touching(0..512));
    second.cmd_sn = first.cmd_sn;
    second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    second.socket.shutdown().await.expect("a connected socket");
    second.expect_closed().await;
    let end = first.command(cdb::test_unit_ready()).run().await;
    assert_eq!(
        end.sense(),
        (0x6, 0x47, 0x7f),
        "SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT"
    );
    first.write(5, &[1; 512]).await;
    target.store(0).resume();
    assert_eq!(target.node().sessions()[0].connections, 1);
}

#[tokio::test]
async fn one_connection_is_logged_out_by_itself_or_by_another() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let mut third = Initiator::join(&target, &first, 2).await;
    let close = LogoutReason::CloseConnection;
    assert_eq!(
        log_out(&mut first, close, 9).await,
        LogoutResponseCode::CidNotFound
    );
    assert_eq!(log_out(&mut second, close, 1).await, LogoutResponseCode::Success);
    second.expect_closed().await;
    assert_eq!(log_out(&mut third, close, 0).await, LogoutResponseCode::Success);
    first.expect_closed().await;
    third.cmd_sn = first.cmd_sn;
    third.read(0, 1).await;
    assert_eq!(target.node().sessions()[0].connections, 1);
    assert_eq!(log_out(&mut third, close, 2).await, LogoutResponseCode::Success);
    third.expect_closed().await;
    assert_eq!(
        target.node().sessions().len(),
        0,
        "the last connection takes the session along"
    );
}

#[tokio::test]
async fn a_session_is_logged_out_by_any_connection() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let ended = log_out(&mut second, LogoutReason::CloseSession, 0).await;
    assert_eq!(ended, LogoutResponseCode::Success);
    first.expect_closed().await;
    second.expect_closed().await;
    assert_eq!(target.node().sessions().len(), 0);
}

#[tokio::test]
async fn there_are_as_many_connections_as_were_agreed() {
    let target = target().await;
    let keys = Keys::normal().with("MaxConnections", "2");
    let first = Initiator::log_in_with(&target, 1, keys).await;
    let _second = Initiator::join(&target, &first, 1).await;
    let mut third = Initiator::connect(&target).await;
    third.join_request(&first, 2);
    let (response, _) = third.login_step(TO_FULL_FEATURE, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::TooManyConnections);
    third.expect_closed().await;
}

#[tokio::test]
async fn a_connection_with_the_same_cid_takes_the_old_ones_place() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let mut again = Initiator::join(&target, &first, 1).await;
    second.expect_closed().await;
    first.ping().await;
    again.cmd_sn = first.cmd_sn;
    again.read(0, 1).await;
    assert_eq!(target.node().sessions()[0].connections, 2);
}

#[tokio::test]
async fn a_session_without_a_connection_can_be_taken_up_again() {
    let target = target().await;
    let mut first = leading(&target).await;
    first.socket.shutdown().await.expect("a connected socket");
    first.expect_closed().await;
    let mut again = Initiator::join(&target, &first, 0).await;
    assert_eq!(again.tsih, first.tsih);
    again.read(0, 1).await;
    assert_eq!(target.node().sessions().len(), 1);
}

#[tokio::test]
async fn a_session_that_nobody_takes_up_again_ends() {
    let target = Target::builder()
        .set("MaxConnections", "4")
        .set("DefaultTime2Wait", "0")
        .set("DefaultTime2Retain", "1")
        .start()
        .await;
    let keys = Keys::normal()
        .with("MaxConnections", "4")
        .with("DefaultTime2Wait", "0")
        .with("DefaultTime2Retain", "20");
    let mut first = Initiator::log_in_with(&target, 1, keys).await;
    first.socket.shutdown().await.expect("a connected socket");
    let ends = target.ended(1).await;
    let CloseReason::NotTakenUp { waited, .. } = &ends[0] else {
        panic!("{ends:?}")
    };
    assert_eq!(*waited, Duration::from_secs(1));
    assert_eq!(target.node().sessions().len(), 0);
}

#[tokio::test]
async fn a_new_session_takes_the_place_of_all_connections_of_the_old_one() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let mut new = leading(&target).await;
    first.expect_closed().await;
    second.expect_closed().await;
    new.ping().await;
    assert_eq!(target.node().sessions().len(), 1);
}

#[tokio::test]
async fn only_its_own_initiator_finds_the_way_into_a_session() {
    let target = target().await;
    let mut first = leading(&target).await;
    let mut stranger = Initiator::connect(&target).await;
    stranger.join_request(&first, 1);
    let keys = Keys::normal().with("InitiatorName", "iqn.2026-11.org.example:other");
    let (response, _) = stranger.login_step(TO_FULL_FEATURE, keys).await;
    assert_eq!(response.status, LoginStatus::SessionDoesNotExist);
    first.ping().await;
}
