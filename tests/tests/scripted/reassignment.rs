//! ErrorRecoveryLevel 2 (RFC 7143 §6.3.4, §7.2.2, §7.4, §7.5, §11.5, §11.14): tasks go on by another connection.

use std::time::Duration;

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{
    DataIn, DataOut, Function, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Reject,
    Request, Response, ScsiResponse, TaskManagementRequest, TmfResponse,
};
use iscsi_proto::{Cid, Itt, Lun, Sn};
use tests::script::{Disk, Initiator, Keys, Pdu, Target, TargetBuilder, cdb};
use tokio::io::AsyncWriteExt;

fn builder() -> TargetBuilder {
    Target::builder()
        .set("MaxConnections", "4")
        .set("ErrorRecoveryLevel", "2")
        .set("DefaultTime2Wait", "0")
}

fn keys() -> Keys {
    Keys::normal()
        .with("MaxConnections", "4")
        .with("ErrorRecoveryLevel", "2")
        .with("DefaultTime2Wait", "0")
        .with("MaxRecvDataSegmentLength", "1024")
}

/// Two connections of one session, nothing outstanding.
async fn pair(target: &Target) -> (Initiator, Initiator) {
    let first = Initiator::log_in_with(target, 1, keys()).await;
    let second = join(target, &first, 1).await;
    (first, second)
}

async fn join(target: &Target, leading: &Initiator, cid: u16) -> Initiator {
    let mut initiator = Initiator::connect(target).await;
    initiator.join_request(leading, cid);
    let keys = Keys::normal().with("MaxRecvDataSegmentLength", "1024");
    initiator.login(keys).await;
    initiator
}

/// The connection breaks, and the target has noticed.
async fn lose(initiator: &mut Initiator) {
    initiator.socket.shutdown().await.expect("a connected socket");
    while initiator.hear_again().await.is_some() {}
}

async fn reassign(initiator: &mut Initiator, task: Itt, exp_data_sn: u32) -> TmfResponse {
    let itt = initiator.itt();
    let request = TaskManagementRequest {
        immediate: true,
        function: Function::TaskReassign,
        lun: initiator.lun,
        itt,
        referenced_itt: task,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
        ref_cmd_sn: Sn(0),
        exp_data_sn,
    };
    initiator.send(Request::TaskManagement(request), &[]).await;
    initiator.managed(itt).await
}

async fn remove(initiator: &mut Initiator, cid: u16) -> LogoutResponseCode {
    let mut request = initiator.logout_request(LogoutReason::RemoveConnectionForRecovery);
    request.cid = Cid(cid);
    initiator.send(Request::Logout(request), &[]).await;
    initiator.expect::<LogoutResponse>().await.0.response
}

/// Data-In and status of a read that goes on.
async fn rest_of(initiator: &mut Initiator) -> (Vec<u32>, Vec<u8>, ScsiResponse) {
    let (mut numbers, mut all) = (Vec::new(), Vec::new());
    loop {
        let Some(Pdu { response, data }) = initiator.hear().await else {
            panic!("the connection was closed");
        };
        match response {
            Response::DataIn(pdu) => {
                numbers.push(pdu.data_sn);
                all.extend(data);
            }
            Response::ScsiResponse(pdu) => return (numbers, all, pdu),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_read_goes_on_by_another_connection() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    first.write(0, &[3; 4096]).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 8)).read(4096).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    lose(&mut second).await;
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::Complete);
    target.store(0).resume();
    let (numbers, data, response) = rest_of(&mut first).await;
    assert_eq!((numbers, data), (vec![0, 1, 2, 3], vec![3; 4096]));
    assert_eq!((response.itt, response.status, response.exp_data_sn), (itt, 0, 4));
    // No task was lost, so there is nothing to be told.
    first.read(0, 1).await;
}

#[tokio::test]
async fn data_and_status_that_were_sent_in_vain_are_sent_again() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    first.write(0, &[4; 4096]).await;
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 8)).read(4096).start().await;
    first.cmd_sn = second.cmd_sn;
    // Two of four pieces are heard.
    second.expect::<DataIn>().await;
    second.expect::<DataIn>().await;
    lose(&mut second).await;
    assert_eq!(reassign(&mut first, itt, 2).await, TmfResponse::Complete);
    let (numbers, data, response) = rest_of(&mut first).await;
    assert_eq!((numbers, data), (vec![2, 3], vec![4; 2048]));
    assert_eq!((response.itt, response.status, response.exp_data_sn), (itt, 0, 4));
    // By now it is acknowledged.
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
}

#[tokio::test]
async fn a_write_goes_on_with_the_data_that_are_missing() {
    let target = builder().set("ImmediateData", "Yes").start().await;
    let (mut first, mut second) = pair(&target).await;
    second.cmd_sn = first.cmd_sn;
    let data = vec![5; 4096];
    let command = second
        .command(cdb::write_10(0, 8))
        .write(&data)
        .immediate_data(1024);
    let (itt, _) = command.start().await;
    first.cmd_sn = second.cmd_sn;
    let (r2t, _) = second.expect::<iscsi_proto::pdu::R2t>().await;
    let piece = DataOut {
        is_final: false,
        lun: second.lun,
        itt,
        ttt: r2t.ttt,
        exp_stat_sn: second.exp_stat_sn,
        data_sn: 0,
        offset: 1024,
    };
    second.send(Request::DataOut(piece), &data[1024..2048]).await;
    second.ping().await;
    lose(&mut second).await;
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::Complete);
    let end = first.end_of(itt, &data, 1024).await;
    assert_eq!(end.status, 0);
    let asked = (end.r2ts[0].r2t_sn, end.r2ts[0].offset, end.r2ts[0].desired_len);
    assert_eq!(
        asked,
        (r2t.r2t_sn + 1, 2048, 2048),
        "what is here is not asked for again"
    );
    assert_eq!(first.read(0, 8).await, data);
}

#[tokio::test]
async fn a_connection_is_removed_for_recovery_by_another() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    assert_eq!(
        reassign(&mut first, itt, 0).await,
        TmfResponse::TaskStillAllegiant
    );
    assert_eq!(remove(&mut first, 1).await, LogoutResponseCode::Success);
    second.expect_closed().await;
    assert_eq!(
        remove(&mut first, 1).await,
        LogoutResponseCode::Success,
        "it was there"
    );
    assert_eq!(remove(&mut first, 9).await, LogoutResponseCode::CidNotFound);
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::Complete);
    target.store(0).resume();
    let (_, data, _) = rest_of(&mut first).await;
    assert_eq!(data.len(), 512);
}

#[tokio::test]
async fn closing_a_connection_that_is_lost_ends_its_tasks() {
    let target = builder().set("command-window", "4").start().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, cmd_sn) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    lose(&mut second).await;
    let close = |initiator: &mut Initiator| {
        let request = initiator.logout_request(LogoutReason::CloseConnection);
        let cid = Cid(1);
        Request::Logout(LogoutRequest { cid, ..request })
    };
    let request = close(&mut first);
    first.send(request, &[]).await;
    let (closed, _) = first.expect::<LogoutResponse>().await;
    assert_eq!(closed.response, LogoutResponseCode::Success);
    assert_eq!(
        closed.max_cmd_sn,
        cmd_sn.plus(4),
        "its place in the window is free"
    );
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
    let request = close(&mut first);
    first.send(request, &[]).await;
    let (again, _) = first.expect::<LogoutResponse>().await;
    assert_eq!(again.response, LogoutResponseCode::CidNotFound);
    target.store(0).resume();
    let told = first.command(cdb::test_unit_ready()).run().await;
    assert_eq!(told.sense(), (0x6, 0x47, 0x7f));
}

#[tokio::test]
async fn a_connection_that_takes_the_old_ones_place_takes_up_its_tasks() {
    let target = Target::builder().set("ErrorRecoveryLevel", "2").start().await;
    let keys = Keys::normal().with("ErrorRecoveryLevel", "2");
    let mut first = Initiator::log_in_with(&target, 1, keys).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, _) = first.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let mut again = join(&target, &first, 0).await;
    first.expect_closed().await;
    assert_eq!(reassign(&mut again, itt, 0).await, TmfResponse::Complete);
    target.store(0).resume();
    let (_, data, _) = rest_of(&mut again).await;
    assert_eq!(data.len(), 512);
}

#[tokio::test]
async fn a_task_that_is_not_there_cannot_be_reassigned() {
    let target = builder().start().await;
    let (mut first, _second) = pair(&target).await;
    let there_is_none = reassign(&mut first, Itt(0x1234_5678), 0).await;
    assert_eq!(there_is_none, TmfResponse::TaskDoesNotExist);
}

#[tokio::test]
async fn below_level_2_nothing_is_reassigned() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let refused = reassign(&mut initiator, Itt(1), 0).await;
    assert_eq!(refused, TmfResponse::ReassignNotSupported);
    assert_eq!(
        remove(&mut initiator, 0).await,
        LogoutResponseCode::RecoveryNotSupported
    );
}

#[tokio::test]
async fn a_task_adrift_can_be_aborted() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, cmd_sn) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    lose(&mut second).await;
    let tmf = first.manage(Function::AbortTask, Some((itt, cmd_sn))).await;
    assert_eq!(first.managed(tmf).await, TmfResponse::Complete);
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
    target.store(0).resume();
    first.ping().await;
}

#[tokio::test]
async fn the_status_of_a_task_whose_set_was_aborted_is_taken_up_by_nobody() {
    for function in [
        Function::AbortTaskSet,
        Function::ClearTaskSet,
        Function::LogicalUnitReset,
        Function::TargetWarmReset,
    ] {
        let target = builder().start().await;
        let (mut first, mut second) = pair(&target).await;
        second.cmd_sn = first.cmd_sn;
        let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
        first.cmd_sn = second.cmd_sn;
        // Its status is lost with the connection, and kept for another one.
        rest_of(&mut second).await;
        lose(&mut second).await;
        let tmf = first.manage(function, None).await;
        assert_eq!(first.managed(tmf).await, TmfResponse::Complete, "{function:?}");
        let gone = reassign(&mut first, itt, 0).await;
        assert_eq!(gone, TmfResponse::TaskDoesNotExist, "{function:?}");
    }
}

#[tokio::test]
async fn a_status_that_was_lost_while_its_task_set_was_aborted_is_taken_up_by_nobody() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    first.cmd_sn = second.cmd_sn;
    rest_of(&mut second).await;
    // The answer waits until the status is acknowledged, or its connection is gone.
    let tmf = first.manage(Function::AbortTaskSet, None).await;
    first.ping().await;
    lose(&mut second).await;
    assert_eq!(first.managed(tmf).await, TmfResponse::Complete);
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
}

#[tokio::test]
async fn a_status_of_another_unit_or_of_a_later_command_survives_a_reset() {
    let target = builder()
        .disk(Disk::default())
        .disk(Disk::default())
        .start()
        .await;
    let (mut first, mut second) = pair(&target).await;
    let _third = join(&target, &first, 2).await;
    second.cmd_sn = first.cmd_sn;
    second.lun = Lun::from_number(1).expect("a small number");
    let (elsewhere, _) = second.command(cdb::test_unit_ready()).start().await;
    first.cmd_sn = second.cmd_sn;
    second.lun = first.lun;
    let (later, _) = second.command(cdb::test_unit_ready()).start().await;
    // Neither is acknowledged.
    rest_of(&mut second).await;
    rest_of(&mut second).await;
    lose(&mut second).await;
    // It was sent before the latter, and comes behind it.
    let tmf = first.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(first.managed(tmf).await, TmfResponse::Complete);
    first.cmd_sn = second.cmd_sn;
    for itt in [later, elsewhere] {
        assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::Complete);
        let (.., response) = rest_of(&mut first).await;
        assert_eq!(response.itt, itt);
    }
}

#[tokio::test]
async fn a_task_adrift_that_overtook_a_reset_is_told_of_it_where_it_is_taken_up() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    let _third = join(&target, &first, 2).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    lose(&mut second).await;
    // It was sent before the command, and comes behind it.
    let tmf = first.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(first.managed(tmf).await, TmfResponse::Complete);
    first.cmd_sn = second.cmd_sn;
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::Complete);
    let (numbers, _, response) = rest_of(&mut first).await;
    assert_eq!((numbers, response.itt, response.status), (vec![], itt, 2));
    target.store(0).resume();
}

#[tokio::test]
async fn tasks_that_nobody_takes_up_end_and_the_initiator_is_told() {
    let target = builder().set("DefaultTime2Retain", "1").start().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read).touching(0..512));
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    lose(&mut second).await;
    // No sooner than its time is over. Asked now and then: without a pause the tags would reach the lost task's.
    loop {
        let end = first.command(cdb::test_unit_ready()).run().await;
        if end.status != 0 {
            assert_eq!(end.sense(), (0x6, 0x47, 0x7f));
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
    target.store(0).resume();
    first.read(0, 1).await;
}

#[tokio::test]
async fn a_command_behind_a_hole_is_sent_again_after_its_connection_is_lost() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    let next = first.cmd_sn;
    second.cmd_sn = next.plus(1);
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    second.ping().await;
    lose(&mut second).await;
    assert_eq!(reassign(&mut first, itt, 0).await, TmfResponse::TaskDoesNotExist);
    first.cmd_sn = next.plus(1);
    let again = first
        .command(cdb::read_10(0, 1))
        .read(512)
        .with(|pdu| pdu.itt = itt);
    again.start().await;
    first.cmd_sn = next;
    let filler = first.command(cdb::test_unit_ready()).start().await.0;
    let mut answered = Vec::new();
    while answered.len() < 2 {
        let Some(pdu) = first.hear().await else { panic!() };
        match pdu.response {
            Response::ScsiResponse(response) => answered.push(response.itt),
            Response::DataIn(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(
        answered.contains(&itt) && answered.contains(&filler),
        "{answered:?}"
    );
}

#[tokio::test]
async fn tags_of_tasks_adrift_are_in_use() {
    let target = builder().start().await;
    let (mut first, mut second) = pair(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    second.cmd_sn = first.cmd_sn;
    let (itt, _) = second.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    first.cmd_sn = second.cmd_sn;
    lose(&mut second).await;
    let same = first.command(cdb::test_unit_ready()).with(|pdu| pdu.itt = itt);
    same.start().await;
    first.expect::<Reject>().await;
    target.store(0).resume();
}
