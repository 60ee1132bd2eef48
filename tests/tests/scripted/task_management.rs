//! Task management (RFC 7143 §11.5, §11.6, §4.2.3; SAM-5 §7): what is aborted, what is answered, and that no answer waits
//! for a disk.

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{
    AsyncEvent, AsyncMessage, Function, R2t, Reject, RejectReason, Request, TaskManagementRequest,
    TmfResponse,
};
use iscsi_proto::{Itt, Lun, Sn};
use target_core::iscsi::{CloseReason, Order};
use tests::script::{Disk, Initiator, Keys, Target, cdb};

#[tokio::test]
async fn an_abort_is_answered_while_the_disk_hangs() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let command = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    // The disk still hangs, and nothing else does. What the read had to say is not heard any more.
    initiator.ping().await;
    initiator.write(9, &[1; 512]).await;
    target.store(0).resume();
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_stale_write_never_lands_on_a_newer_one() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target
        .store(0)
        .hold(Matching::op(StoreOp::Write).touching(0..512));
    let command = initiator
        .command(cdb::write_10(0, 1))
        .write(&[1; 512])
        .immediate_data(512)
        .start()
        .await;
    target.store(0).until_held(1).await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    // The blocks next to it are free; its own are not while the old write may land.
    initiator.write(1, &[2; 512]).await;
    let end = initiator
        .command(cdb::write_10(0, 1))
        .write(&[3; 512])
        .run()
        .await;
    assert_eq!(end.status, 0x08, "BUSY");
    target.store(0).resume();
    initiator.write(0, &[3; 512]).await;
    assert_eq!(initiator.read(0, 1).await, [3; 512]);
}

#[tokio::test]
async fn a_write_that_waits_for_data_can_be_aborted() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let data = [5; 4096];
    let command = initiator.command(cdb::write_10(0, 8)).write(&data).start().await;
    let (r2t, _) = initiator.expect::<R2t>().await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    // The initiator answers the R2T that it has got (§4.2.3.3), and the function is answered then.
    initiator.data_out(command.0, r2t.ttt, &data, 0..4096, 4096).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    assert_eq!(initiator.read(0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn an_initiator_that_owes_data_gets_its_answer_all_the_same() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let command = initiator
        .command(cdb::write_10(0, 8))
        .write(&[5; 4096])
        .start()
        .await;
    initiator.expect::<R2t>().await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    initiator.write(0, &[6; 4096]).await;
    assert_eq!(initiator.read(0, 8).await, [6; 4096]);
}

#[tokio::test]
async fn a_tag_is_free_again_after_the_abort() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let command = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    initiator.managed(itt).await;
    let end = initiator
        .command(cdb::inquiry(96))
        .read(96)
        .with(|pdu| pdu.itt = command.0)
        .run()
        .await;
    assert_eq!(end.good().data.len(), 96);
    target.store(0).resume();
    initiator.ping().await;
}

#[tokio::test]
async fn a_task_that_is_not_there_does_not_exist() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    // Its CmdSN lies before the window: it was answered long ago (§11.6.1).
    let old = (Itt(0x7777), initiator.cmd_sn.minus(1));
    let itt = initiator.manage(Function::AbortTask, Some(old)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::TaskDoesNotExist);
}

#[tokio::test]
async fn a_task_on_its_way_does_not_run_when_it_comes() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    // The abort is faster than the command: CmdSN is inside the window, and counts as received.
    let cmd_sn = initiator.cmd_sn;
    initiator.cmd_sn.advance();
    let itt = initiator
        .manage(Function::AbortTask, Some((Itt(0x7777), cmd_sn)))
        .await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    initiator
        .command(cdb::write_10(0, 1))
        .write(&[7; 512])
        .immediate_data(512)
        .with(|pdu| (pdu.itt, pdu.cmd_sn) = (Itt(0x7777), cmd_sn))
        .start()
        .await;
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_task_behind_a_hole_can_be_aborted() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let hole = initiator.cmd_sn;
    initiator.cmd_sn.advance();
    let command = initiator
        .command(cdb::write_10(0, 1))
        .write(&[7; 512])
        .immediate_data(512)
        .start()
        .await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    let end = initiator
        .command(cdb::read_10(0, 1))
        .read(512)
        .with(|pdu| pdu.cmd_sn = hole)
        .run()
        .await;
    assert_eq!(end.good().data, [0; 512]);
    initiator.ping().await;
}

#[tokio::test]
async fn abort_task_set_ends_ones_own_tasks_alone() {
    let target = Target::start().await;
    let mut one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    one.command(cdb::read_10(0, 1)).read(512).start().await;
    one.command(cdb::read_10(1, 1)).read(512).start().await;
    let (theirs, _) = two.command(cdb::read_10(2, 1)).read(512).start().await;
    target.store(0).until_held(3).await;
    let itt = one.manage(Function::AbortTaskSet, None).await;
    assert_eq!(one.managed(itt).await, TmfResponse::Complete);
    target.store(0).resume();
    assert_eq!(two.end_of(theirs, &[], 0).await.good().data, [0; 512]);
    one.ping().await;
    assert_eq!(two.command(cdb::test_unit_ready()).run().await.status, 0);
}

#[tokio::test]
async fn clear_task_set_ends_everybodys_and_tells_the_others() {
    let target = Target::start().await;
    let mut one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    two.command(cdb::read_10(2, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let itt = one.manage(Function::ClearTaskSet, None).await;
    assert_eq!(one.managed(itt).await, TmfResponse::Complete);
    target.store(0).resume();
    let end = two.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x2f, 0x00));
    assert_eq!(one.command(cdb::test_unit_ready()).run().await.status, 0);
}

#[tokio::test]
async fn a_logical_unit_reset_ends_everything_and_tells_everyone() {
    let target = Target::builder()
        .disk(Disk::default())
        .disk(Disk::default())
        .start()
        .await;
    let mut one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let other = Lun::from_number(1).unwrap();
    target.store(0).hold(Matching::op(StoreOp::Write));
    two.command(cdb::write_10(2, 1))
        .write(&[1; 512])
        .immediate_data(512)
        .start()
        .await;
    target.store(0).until_held(1).await;
    let itt = one.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(one.managed(itt).await, TmfResponse::Complete);
    for initiator in [&mut one, &mut two] {
        let end = initiator.command(cdb::test_unit_ready()).run().await;
        assert_eq!(end.sense(), (0x6, 0x29, 0x03));
        assert_eq!(initiator.command(cdb::test_unit_ready()).run().await.status, 0);
    }
    // The other unit has nothing to tell but that there was power on.
    one.lun = other;
    one.clear_attentions().await;
    let itt = one.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(one.managed(itt).await, TmfResponse::Complete);
    assert_eq!(two.command(cdb::test_unit_ready()).run().await.status, 0);
    target.store(0).resume();
}

#[tokio::test]
async fn a_warm_reset_concerns_every_unit() {
    let target = Target::builder()
        .disk(Disk::default())
        .disk(Disk::default())
        .start()
        .await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.lun = Lun::from_number(1).unwrap();
    initiator.clear_attentions().await;
    let itt = initiator.manage(Function::TargetWarmReset, None).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    for number in [0, 1] {
        initiator.lun = Lun::from_number(number).unwrap();
        let end = initiator.command(cdb::test_unit_ready()).run().await;
        assert_eq!(end.sense(), (0x6, 0x29, 0x00));
    }
}

#[tokio::test]
async fn a_cold_reset_ends_every_session_of_the_target() {
    let target = Target::start().await;
    let mut one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let itt = one.manage(Function::TargetColdReset, None).await;
    assert_eq!(one.managed(itt).await, TmfResponse::Complete);
    for initiator in [&mut one, &mut two] {
        let (message, _) = initiator.expect::<AsyncMessage>().await;
        assert!(matches!(message.event, AsyncEvent::SessionDropped { .. }));
        initiator.expect_closed().await;
    }
    drop((one, two));
    let ordered = CloseReason::Ordered(Order::TargetReset);
    assert_eq!(target.ended(2).await, [ordered.clone(), ordered]);
    let mut again = Initiator::log_in(&target).await;
    again.ping().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for (function, response) in [
        (Function::TaskReassign, TmfResponse::ReassignNotSupported),
        (Function::ClearAca, TmfResponse::NotSupported),
        (Function::Unknown(0x7f), TmfResponse::NotSupported),
    ] {
        let itt = initiator.manage(function, None).await;
        assert_eq!(initiator.managed(itt).await, response, "{function:?}");
    }
    initiator.lun = Lun::from_number(9).unwrap();
    for function in [
        Function::AbortTaskSet,
        Function::ClearTaskSet,
        Function::LogicalUnitReset,
    ] {
        let itt = initiator.manage(function, None).await;
        assert_eq!(initiator.managed(itt).await, TmfResponse::LunDoesNotExist);
    }
}

#[tokio::test]
async fn a_tag_in_use_is_rejected() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, _) = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let request = TaskManagementRequest {
        immediate: true,
        function: Function::AbortTaskSet,
        lun: Lun::ZERO,
        itt,
        referenced_itt: Itt::RESERVED,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
        ref_cmd_sn: Sn(0),
        exp_data_sn: 0,
    };
    initiator.send(Request::TaskManagement(request), &[]).await;
    let (reject, _) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, RejectReason::TaskInProgress);
    let cmd_sn = initiator.cmd_sn;
    initiator
        .command(cdb::test_unit_ready())
        .with(|pdu| pdu.itt = itt)
        .start()
        .await;
    let (reject, _) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, RejectReason::TaskInProgress);
    initiator.cmd_sn = cmd_sn;
    target.store(0).resume();
    assert_eq!(initiator.end_of(itt, &[], 0).await.good().data, [0; 512]);
    initiator.ping().await;
}

#[tokio::test]
async fn aborts_of_a_hanging_disk_have_a_bound() {
    let target = Target::builder().set("command-window", "4").start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    // Each abort frees its place in the window while the disk keeps the operation.
    let mut statuses = Vec::new();
    for lba in 0..12 {
        let command = initiator.command(cdb::read_10(lba, 1)).read(512).start().await;
        let itt = initiator.manage(Function::AbortTask, Some(command)).await;
        match initiator.hear().await.expect("the connection goes on").response {
            iscsi_proto::pdu::Response::TaskManagement(response) => {
                assert_eq!(response.response, TmfResponse::Complete);
            }
            iscsi_proto::pdu::Response::ScsiResponse(response) => {
                statuses.push(response.status);
                assert_eq!(initiator.managed(itt).await, TmfResponse::TaskDoesNotExist);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(statuses, [0x08; 8], "BUSY once four of them hang");
    assert!(target.store(0).held().len() <= 4);
    target.store(0).resume();
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}
