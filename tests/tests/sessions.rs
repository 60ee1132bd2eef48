//! Sessions that come, go and come back.

use std::time::{Duration, Instant};

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{LoginStage, LoginStatus, Response};
use target_core::control::{ChapPolicy, Parameters};
use tests::conversation::{Initiator, Target, read_10};

#[tokio::test]
async fn a_login_with_the_same_isid_takes_the_place_of_a_session_whose_store_is_stuck() {
    let target = Target::start().await;
    let mut first = Initiator::log_in(&target, 1, &[]).await;
    first.clear_attentions().await;
    target.disk.hold(Matching::op(StoreOp::Read));
    first.command(read_10(0, 8), 4096, b"").await;
    target.disk.until_held(1).await;

    let began = Instant::now();
    let mut second = Initiator::log_in(&target, 1, &[]).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "a login never waits for a store"
    );
    assert!(
        first.next().await.is_none(),
        "the session that was replaced is closed"
    );
    assert_eq!(target.node.sessions().len(), 1);

    target.disk.resume();
    second.clear_attentions().await;
    second.command(read_10(0, 8), 4096, b"").await;
    assert_eq!(second.data_in().await, (vec![0; 4096], 0));
}

#[tokio::test]
async fn sessions_with_different_isids_live_side_by_side_up_to_the_limit() {
    let mut parameters = Parameters::default();
    parameters.set("max-sessions", "3").unwrap();
    let target = Target::with(parameters, ChapPolicy::Open).await;
    let mut sessions = Vec::new();
    for isid in 1..=3 {
        sessions.push(Initiator::log_in(&target, isid, &[]).await);
    }
    let mut one_too_many = Initiator::connect(&target, 4).await;
    let (response, _) = one_too_many
        .login(LoginStage::Operational, LoginStage::FullFeature, &[])
        .await;
    assert_eq!(response.status, LoginStatus::OutOfResources);

    let mut leaving = sessions.pop().unwrap();
    leaving.log_out().await;
    assert!(matches!(leaving.receive().await.0, Response::Logout(_)));
    assert!(leaving.next().await.is_none());
    Initiator::log_in(&target, 5, &[]).await.clear_attentions().await;
}
