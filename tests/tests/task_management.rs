//! Aborts and resets while the store is stuck: they never wait for it, and what they leave behind harms nobody.

use std::time::{Duration, Instant};

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{Function, TmfResponse};
use iscsi_proto::{Itt, Sn};
use tests::conversation::{Initiator, Target, read_10, write_10};

/// Far above the second that an answer may wait for Data-Out, far below what a stuck store would take.
const BOUND: Duration = Duration::from_secs(3);

#[tokio::test]
async fn an_abort_answers_while_the_store_is_stuck_and_nothing_of_the_task_follows() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[]).await;
    initiator.clear_attentions().await;
    target.disk.hold(Matching::op(StoreOp::Write).touching(0..4096));
    let cmd_sn = initiator.cmd_sn;
    let write = initiator.command(write_10(0, 8), -4096, &[7; 4096]).await;
    target.disk.until_held(1).await;

    let began = Instant::now();
    let tmf = initiator.manage(Function::AbortTask, write, cmd_sn).await;
    assert_eq!(initiator.managed(tmf).await, TmfResponse::Complete);
    assert!(began.elapsed() < BOUND);

    // Blocks that the abandoned write does not touch go on; those that it touches are fenced, and end with BUSY.
    initiator.command(read_10(100, 8), 4096, b"").await;
    assert_eq!(initiator.data_in().await, (vec![0; 4096], 0));
    initiator.command(write_10(4, 1), -512, &[8; 512]).await;
    assert_eq!(initiator.response().await.0.status, 0x08);

    target.disk.resume();
    initiator.command(write_10(4, 1), -512, &[9; 512]).await;
    assert_eq!(
        initiator.response().await.0.status,
        0,
        "the fence is gone, and the aborted write said nothing"
    );
    initiator.command(read_10(4, 1), 512, b"").await;
    assert_eq!(
        initiator.data_in().await,
        (vec![9; 512], 0),
        "the later write is the one that stays"
    );
}

#[tokio::test]
async fn a_reset_answers_while_the_store_is_stuck_and_the_other_nexus_is_told() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[]).await;
    let mut other = Initiator::log_in(&target, 2, &[]).await;
    initiator.clear_attentions().await;
    other.clear_attentions().await;
    target.disk.hold(Matching::op(StoreOp::Read));
    initiator.command(read_10(0, 8), 4096, b"").await;
    other.command(read_10(8, 8), 4096, b"").await;
    target.disk.until_held(2).await;

    let began = Instant::now();
    let tmf = initiator
        .manage(Function::LogicalUnitReset, Itt::RESERVED, Sn(0))
        .await;
    assert_eq!(initiator.managed(tmf).await, TmfResponse::Complete);
    assert!(began.elapsed() < BOUND);
    target.disk.resume();

    other.command([0; 16], 0, b"").await;
    let (response, sense) = other.response().await;
    // 29/03: logical unit reset.
    assert_eq!(
        (response.status, sense[4] & 0x0f, &sense[14..16]),
        (2, 6, &[0x29, 3][..])
    );
}

#[tokio::test]
async fn aborts_of_what_is_not_there_say_so() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[]).await;
    initiator.clear_attentions().await;
    let tmf = initiator.manage(Function::AbortTask, Itt(0xabc), Sn(50)).await;
    assert_eq!(initiator.managed(tmf).await, TmfResponse::TaskDoesNotExist);
    let tmf = initiator.manage(Function::TaskReassign, Itt(0xabc), Sn(50)).await;
    assert_eq!(initiator.managed(tmf).await, TmfResponse::ReassignNotSupported);
}

/// An initiator that never answers the R2T of a task it aborts (Linux does so) is answered all the same.
#[tokio::test]
async fn an_abort_does_not_wait_for_data_that_never_come() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[("ImmediateData", "No")]).await;
    initiator.clear_attentions().await;
    let cmd_sn = initiator.cmd_sn;
    let write = initiator.command(write_10(0, 8), -4096, b"").await;
    initiator.r2t().await;
    let began = Instant::now();
    let tmf = initiator.manage(Function::AbortTask, write, cmd_sn).await;
    assert_eq!(initiator.managed(tmf).await, TmfResponse::Complete);
    assert!(began.elapsed() < BOUND);
}
