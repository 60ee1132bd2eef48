//! Sessions whose connections arrive on different data cores (RFC 7143 §6.3.1, §11.14): over real sockets and threads, a
//! connection that joins a session is handed to the core of that session, and lives there.

use backstores::{Matching, StoreOp};
use iscsi_proto::Cid;
use iscsi_proto::pdu::{
    Function, LogoutReason, LogoutResponse, LogoutResponseCode, Request, TaskAttribute, TmfResponse,
};
use target_core::iscsi::CloseReason;
use tests::script::{Initiator, Keys, Target, cdb};
use tokio::io::AsyncWriteExt;

/// Two cores: connections go to the first, the second, the first, …
async fn target() -> Target {
    Target::builder()
        .set("MaxConnections", "2")
        .cores(2)
        .start()
        .await
}

/// A session: its first connection is on the first core, its second has arrived on the second.
async fn pair(target: &Target) -> (Initiator, Initiator) {
    let keys = Keys::normal().with("MaxConnections", "2");
    let first = Initiator::log_in_with(target, 1, keys).await;
    let second = Initiator::join(target, &first, 1).await;
    assert_eq!(target.ended(1).await, [CloseReason::Joined(first.tsih.0)]);
    assert_eq!(connections(target), 2);
    (first, second)
}

fn connections(target: &Target) -> usize {
    let sessions = target.node().sessions();
    assert_eq!(sessions.len(), 1);
    sessions[0].connections
}

async fn log_out(initiator: &mut Initiator, reason: LogoutReason, cid: u16) -> LogoutResponseCode {
    let mut request = initiator.logout_request(reason);
    request.cid = Cid(cid);
    initiator.send(Request::Logout(request), &[]).await;
    initiator.expect::<LogoutResponse>().await.0.response
}

/// Writes by one connection and reads by the other, both ways, with data that need R2Ts and several Data-In.
async fn exchange(one: &mut Initiator, other: &mut Initiator) {
    for round in 0..8_u8 {
        let (theirs, ours) = (vec![round + 1; 64 * 512], vec![round + 101; 3 * 512]);
        other.cmd_sn = one.cmd_sn;
        other.write(100, &theirs).await;
        one.cmd_sn = other.cmd_sn;
        assert_eq!(one.read(100, 64).await, theirs);
        one.write(7, &ours).await;
        other.cmd_sn = one.cmd_sn;
        assert_eq!(other.read(7, 3).await, ours);
        one.cmd_sn = other.cmd_sn;
    }
}

#[tokio::test]
async fn a_connection_is_handed_to_the_core_of_its_session_and_uses_its_buffers() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    exchange(&mut first, &mut second).await;
    target.store(0).hold(Matching::op(StoreOp::Write));
    second.cmd_sn = first.cmd_sn;
    let data = vec![9; 8 * 512];
    let (itt, _) = second.command(cdb::write_10(0, 8)).write(&data).start().await;
    let release = async {
        target.store(0).until_held(1).await;
        let in_use = target.in_use();
        assert!(in_use[0] > 0 && in_use[1] == 0, "{in_use:?}");
        target.store(0).resume();
    };
    let (end, ()) = tokio::join!(second.end_of(itt, &data, 4096), release);
    assert_eq!(end.status, 0);
    first.cmd_sn = second.cmd_sn;
    assert_eq!(first.read(0, 8).await, data);
}

#[tokio::test]
async fn commands_run_in_order_although_they_arrive_on_two_cores() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    for round in 1..=50_u8 {
        let next = first.cmd_sn;
        second.cmd_sn = next;
        first.cmd_sn = next.plus(1);
        // The read is sent first, and comes behind the write.
        let read = first.command(cdb::read_10(0, 1)).read(512);
        let read = read.with(|pdu| pdu.attribute = TaskAttribute::Ordered);
        let (read, _) = read.start().await;
        second.write(0, &[round; 512]).await;
        assert_eq!(first.end_of(read, &[], 512).await.data, [round; 512]);
    }
}

#[tokio::test]
async fn either_connection_may_be_lost_and_another_comes_in_its_place() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    second.socket.shutdown().await.expect("a connected socket");
    second.expect_closed().await;
    first.write(3, &[1; 512]).await;
    assert_eq!(connections(&target), 1);
    let mut third = Initiator::join(&target, &first, 2).await;
    exchange(&mut first, &mut third).await;
    // The session goes on although the connection that it began with is gone.
    first.socket.shutdown().await.expect("a connected socket");
    first.expect_closed().await;
    third.cmd_sn = first.cmd_sn;
    assert_eq!(third.read(7, 1).await, [108; 512]);
    let mut fourth = Initiator::join(&target, &third, 3).await;
    fourth.cmd_sn = third.cmd_sn;
    exchange(&mut fourth, &mut third).await;
    assert_eq!(connections(&target), 2);
}

#[tokio::test]
async fn each_reason_to_log_out_means_the_same_across_cores() {
    let target = target().await;
    let (mut first, mut second) = pair(&target).await;
    let recovery = LogoutReason::RemoveConnectionForRecovery;
    let refused = log_out(&mut first, recovery, 1).await;
    assert_eq!(refused, LogoutResponseCode::RecoveryNotSupported);
    let close = LogoutReason::CloseConnection;
    assert_eq!(log_out(&mut first, close, 1).await, LogoutResponseCode::Success);
    second.expect_closed().await;
    assert_eq!(connections(&target), 1);
    let mut third = Initiator::join(&target, &first, 2).await;
    assert_eq!(log_out(&mut third, close, 2).await, LogoutResponseCode::Success);
    third.expect_closed().await;
    let mut fourth = Initiator::join(&target, &first, 3).await;
    exchange(&mut first, &mut fourth).await;
    let session = log_out(&mut fourth, LogoutReason::CloseSession, 0).await;
    assert_eq!(session, LogoutResponseCode::Success);
    first.expect_closed().await;
    fourth.expect_closed().await;
    assert_eq!(target.node().sessions().len(), 0);
    target.ended(4).await;
    assert_eq!(target.in_use(), [0, 0]);
}

#[tokio::test]
async fn tasks_go_on_by_a_connection_that_arrived_on_another_core() {
    let target = Target::builder()
        .set("MaxConnections", "2")
        .set("ErrorRecoveryLevel", "2")
        .cores(2)
        .start()
        .await;
    let keys = Keys::normal()
        .with("MaxConnections", "2")
        .with("ErrorRecoveryLevel", "2");
    let mut first = Initiator::log_in_with(&target, 1, keys).await;
    let mut second = Initiator::join(&target, &first, 1).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, cmd_sn) = first.command(cdb::read_10(0, 4)).read(2048).start().await;
    target.store(0).until_held(1).await;
    second.cmd_sn = first.cmd_sn;
    let removed = log_out(&mut second, LogoutReason::RemoveConnectionForRecovery, 0).await;
    assert_eq!(removed, LogoutResponseCode::Success);
    first.expect_closed().await;
    let tmf = second.manage(Function::TaskReassign, Some((itt, cmd_sn))).await;
    assert_eq!(second.managed(tmf).await, TmfResponse::Complete);
    target.store(0).resume();
    assert_eq!(second.end_of(itt, &[], 512).await.data, [0; 2048]);
}
