//! The functions of RFC 7144 for those who agreed on iSCSIProtocolLevel 2: QUERY TASK, QUERY TASK SET, QUERY ASYNCHRONOUS
//! EVENT and I_T NEXUS RESET.

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{Function, TaskManagementResponse, TmfResponse};
use tests::script::{Initiator, Keys, Target, cdb};

const QUERIES: [Function; 4] = [
    Function::QueryTask,
    Function::QueryTaskSet,
    Function::ITNexusReset,
    Function::QueryAsyncEvent,
];

async fn log_in(target: &Target, isid: u8) -> Initiator {
    let keys = Keys::normal().with("iSCSIProtocolLevel", "2");
    Initiator::log_in_with(target, isid, keys).await
}

async fn manage(initiator: &mut Initiator, function: Function) -> TmfResponse {
    let itt = initiator.manage(function, None).await;
    initiator.managed(itt).await
}

#[tokio::test]
async fn who_did_not_agree_on_the_level_is_told_that_there_are_no_queries() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for function in QUERIES {
        assert_eq!(
            manage(&mut initiator, function).await,
            TmfResponse::NotSupported,
            "{function:?}"
        );
    }
    let report = initiator
        .command(cdb::cdb(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4]))
        .read(4);
    assert_eq!(report.run().await.good().data, [0xda, 0, 0, 0]);
}

#[tokio::test]
async fn a_task_is_found_while_it_runs_and_not_after() {
    let target = Target::start().await;
    let mut initiator = log_in(&target, 1).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let command = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    let itt = initiator.manage(Function::QueryTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Succeeded);
    assert_eq!(
        manage(&mut initiator, Function::QueryTaskSet).await,
        TmfResponse::Succeeded
    );
    target.store(0).resume();
    initiator.end_of(command.0, &[], 0).await.good();
    let itt = initiator.manage(Function::QueryTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    assert_eq!(
        manage(&mut initiator, Function::QueryTaskSet).await,
        TmfResponse::Complete
    );
}

#[tokio::test]
async fn the_tasks_of_others_are_not_found() {
    let target = Target::start().await;
    let mut other = log_in(&target, 1).await;
    let mut initiator = log_in(&target, 2).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let command = other.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    assert_eq!(
        manage(&mut initiator, Function::QueryTaskSet).await,
        TmfResponse::Complete
    );
    target.store(0).resume();
    other.end_of(command.0, &[], 0).await.good();
}

#[tokio::test]
async fn an_event_is_shown_and_stays() {
    let target = Target::start().await;
    let mut initiator = log_in(&target, 1).await;
    let mut other = log_in(&target, 2).await;
    assert_eq!(
        manage(&mut initiator, Function::QueryAsyncEvent).await,
        TmfResponse::Complete
    );
    assert_eq!(
        manage(&mut other, Function::LogicalUnitReset).await,
        TmfResponse::Complete
    );
    let itt = initiator.manage(Function::QueryAsyncEvent, None).await;
    let (response, _) = initiator.expect::<TaskManagementResponse>().await;
    assert_eq!((response.itt, response.response), (itt, TmfResponse::Succeeded));
    assert_eq!(response.additional, 0x16_29_03, "one: unit attention, 29/03");
    let end = initiator.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x29, 0x03));
}

#[tokio::test]
async fn a_nexus_reset_ends_ones_own_tasks_and_no_session() {
    let target = Target::start().await;
    let mut initiator = log_in(&target, 1).await;
    let mut other = log_in(&target, 2).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    let (others, _) = other.command(cdb::read_10(1, 1)).read(512).start().await;
    target.store(0).until_held(2).await;
    assert_eq!(
        manage(&mut initiator, Function::ITNexusReset).await,
        TmfResponse::Complete
    );
    target.store(0).resume();
    other.end_of(others, &[], 0).await.good();
    let end = initiator.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x29, 0x07), "I_T nexus loss occurred");
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}
