//! Sessions (RFC 7143 §6.3, §7.4, §11.14): many beside each other, one in the place of another, and their ends.

use std::time::Duration;

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{
    AsyncEvent, AsyncMessage, LoginStage, LoginStatus, LogoutReason, LogoutResponse, LogoutResponseCode,
    NopIn, NopOut, Request,
};
use iscsi_proto::{Cid, Isid, Itt, Tsih};
use target_core::iscsi::{CloseReason, Order};
use tests::script::{Initiator, Keys, Target, cdb};

const TO_FULL_FEATURE: (LoginStage, Option<LoginStage>) =
    (LoginStage::Operational, Some(LoginStage::FullFeature));

#[tokio::test]
async fn a_new_login_takes_the_old_ones_place_while_the_disk_hangs() {
    let target = Target::start().await;
    let mut old = Initiator::log_in(&target).await;
    target
        .store(0)
        .hold(Matching::op(StoreOp::Write).touching(0..512));
    old.command(cdb::write_10(0, 1))
        .write(&[1; 512])
        .immediate_data(512)
        .start()
        .await;
    target.store(0).until_held(1).await;

    let mut new = Initiator::log_in(&target).await;
    assert_ne!(new.tsih, old.tsih);
    old.expect_closed().await;
    assert_eq!(target.node().sessions().len(), 1);
    // The old session's write may still land, so its blocks are not written yet; all others are.
    new.write(1, &[2; 512]).await;
    let end = new.command(cdb::write_10(0, 1)).write(&[3; 512]).run().await;
    assert_eq!(end.status, 0x08, "BUSY");
    target.store(0).resume();
    new.write(0, &[3; 512]).await;
    assert_eq!(new.read(0, 1).await, [3; 512]);
    assert_eq!(target.ended(1).await, [CloseReason::Ordered(Order::Reinstated)]);
    assert_eq!(target.node().abandoned_commands(), 0);
}

#[tokio::test]
async fn the_new_session_is_told_that_the_old_one_is_gone() {
    let target = Target::start().await;
    let _old = Initiator::log_in(&target).await;
    let mut new = Initiator::connect(&target).await;
    new.login(Keys::normal()).await;
    let end = new.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x29, 0x00));
}

#[tokio::test]
async fn sessions_with_different_isids_live_side_by_side() {
    let target = Target::start().await;
    let logins = (1..=32).map(|isid| Initiator::log_in_with(&target, isid, Keys::normal()));
    let mut initiators = futures_util::future::join_all(logins).await;
    assert_eq!(target.node().sessions().len(), 32);
    let mut tsihs: Vec<_> = initiators.iter().map(|initiator| initiator.tsih.0).collect();
    tsihs.sort_unstable();
    tsihs.dedup();
    assert_eq!(tsihs.len(), 32, "every session has a handle of its own");
    for (lba, initiator) in (0..).zip(&mut initiators) {
        initiator.write(lba, &[u8::try_from(lba).unwrap(); 512]).await;
    }
    for (lba, initiator) in (0..).zip(initiators.iter_mut().rev()) {
        assert_eq!(initiator.read(lba, 1).await, [u8::try_from(lba).unwrap(); 512]);
    }
}

#[tokio::test]
async fn the_same_isid_of_another_initiator_is_another_session() {
    let target = Target::start().await;
    let mut one = Initiator::log_in(&target).await;
    let other = Keys::normal().with("InitiatorName", "iqn.2026-11.org.example:other");
    let mut two = Initiator::log_in_with(&target, 1, other).await;
    one.ping().await;
    two.ping().await;
}

#[tokio::test]
async fn many_logins_at_once_with_one_isid_leave_one_session() {
    let target = Target::start().await;
    let logins = (0..16).map(|_| async {
        let mut initiator = Initiator::connect(&target).await;
        initiator.login(Keys::normal()).await;
        initiator
    });
    let initiators = futures_util::future::join_all(logins).await;
    let sessions = target.node().sessions();
    assert_eq!(sessions.len(), 1);
    let alive: Vec<_> = initiators
        .into_iter()
        .filter(|initiator| initiator.tsih == sessions[0].tsih)
        .collect();
    assert_eq!(alive.len(), 1);
    for mut initiator in alive {
        initiator.clear_attentions().await;
        initiator.ping().await;
    }
}

#[tokio::test]
async fn a_second_connection_is_refused_and_harms_nobody() {
    let target = Target::start().await;
    let mut first = Initiator::log_in(&target).await;
    let mut second = Initiator::connect(&target).await;
    (second.tsih, second.cid) = (first.tsih, Cid(1));
    let (response, _) = second.login_step(TO_FULL_FEATURE, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::TooManyConnections);
    second.expect_closed().await;
    first.ping().await;
}

#[tokio::test]
async fn a_session_that_is_not_there_cannot_be_joined() {
    let target = Target::start().await;
    let mut other = Initiator::log_in(&target).await;
    let mut initiator = Initiator::connect(&target).await;
    (initiator.tsih, initiator.isid) = (Tsih(0x7777), Isid([0x80, 0, 0, 0, 0, 9]));
    let (response, _) = initiator.login_step(TO_FULL_FEATURE, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::SessionDoesNotExist);
    // Nor one of somebody else.
    let mut initiator = Initiator::connect(&target).await;
    (initiator.tsih, initiator.isid) = (other.tsih, Isid([0x80, 0, 0, 0, 0, 9]));
    let (response, _) = initiator.login_step(TO_FULL_FEATURE, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::SessionDoesNotExist);
    other.ping().await;
}

#[tokio::test]
async fn there_are_as_many_sessions_as_allowed() {
    let target = Target::builder().set("max-sessions", "2").start().await;
    let one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let mut three = Initiator::connect(&target).await;
    three.isid = Isid([0x80, 0, 0, 0, 0, 3]);
    let (response, _) = three.login_step(TO_FULL_FEATURE, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::OutOfResources);
    // Whoever comes back takes its own place.
    let mut again = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    drop(one);
    two.ping().await;
    again.log_out().await;
    let mut three = Initiator::log_in_with(&target, 3, Keys::normal()).await;
    three.ping().await;
}

#[tokio::test]
async fn a_logout_is_answered_and_frees_the_session_at_once() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.log_out().await;
    assert_eq!(target.node().sessions().len(), 0);
    drop(initiator);
    assert_eq!(target.ended(1).await, [CloseReason::LoggedOut]);
}

#[tokio::test]
async fn a_logout_in_cmd_sn_order_follows_the_commands_before_it() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.write(0, &[4; 512]).await;
    let hole = initiator.cmd_sn;
    initiator.cmd_sn.advance();
    let mut request = initiator.logout_request(LogoutReason::CloseSession);
    request.immediate = false;
    initiator.send(Request::Logout(request), &[]).await;
    initiator.ping().await;
    let (itt, _) = initiator
        .command(cdb::test_unit_ready())
        .with(|pdu| pdu.cmd_sn = hole)
        .start()
        .await;
    let mut kinds = Vec::new();
    while let Some(pdu) = initiator.hear().await {
        assert!(pdu.response.itt() == itt || pdu.response.name() == "Logout Response");
        kinds.push(pdu.response.name());
    }
    assert_eq!(kinds.last(), Some(&"Logout Response"));
}

#[tokio::test]
async fn a_logout_of_what_is_not_there_or_cannot_be_ends_nothing() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for (reason, cid, code) in [
        (
            LogoutReason::CloseConnection,
            Cid(7),
            LogoutResponseCode::CidNotFound,
        ),
        (
            LogoutReason::RemoveConnectionForRecovery,
            Cid(0),
            LogoutResponseCode::RecoveryNotSupported,
        ),
    ] {
        let mut request = initiator.logout_request(reason);
        request.cid = cid;
        initiator.send(Request::Logout(request), &[]).await;
        let (response, _) = initiator.expect::<LogoutResponse>().await;
        assert_eq!(response.response, code);
        initiator.ping().await;
    }
    let request = initiator.logout_request(LogoutReason::CloseConnection);
    initiator.send(Request::Logout(request), &[]).await;
    let (response, _) = initiator.expect::<LogoutResponse>().await;
    assert_eq!(response.response, LogoutResponseCode::Success);
    initiator.expect_closed().await;
}

#[tokio::test]
async fn who_is_asked_to_leave_has_time_to() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.node().order_all(Order::Logout {
        within: Duration::from_secs(30),
    });
    let (message, _) = initiator.expect::<AsyncMessage>().await;
    assert_eq!(message.event, AsyncEvent::LogoutRequested { within_s: 30 });
    initiator.write(0, &[1; 512]).await;
    initiator.log_out().await;
}

#[tokio::test]
async fn who_does_not_leave_is_told_and_closed() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let within = Duration::from_secs(1);
    target.node().order_all(Order::Logout { within });
    initiator.expect::<AsyncMessage>().await;
    let (message, _) = initiator.expect::<AsyncMessage>().await;
    assert!(matches!(message.event, AsyncEvent::SessionDropped { .. }));
    initiator.expect_closed().await;
    drop(initiator);
    assert_eq!(
        target.ended(1).await,
        [CloseReason::Ordered(Order::Logout { within })]
    );
}

#[tokio::test]
async fn a_drained_session_ends_when_its_commands_have() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let (itt, _) = initiator.command(cdb::read_10(0, 1)).read(512).start().await;
    target.store(0).until_held(1).await;
    target.node().order_all(Order::Drain);
    let end = initiator.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.status, 0x08, "BUSY: nothing new is begun");
    target.store(0).resume();
    assert_eq!(initiator.end_of(itt, &[], 0).await.good().data, [0; 512]);
    let (message, _) = initiator.expect::<AsyncMessage>().await;
    assert!(matches!(message.event, AsyncEvent::SessionDropped { .. }));
    initiator.expect_closed().await;
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_nothing_behind() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    target.store(0).hold(Matching::op(StoreOp::Write));
    initiator
        .command(cdb::write_10(0, 1))
        .write(&[1; 512])
        .immediate_data(512)
        .start()
        .await;
    target.store(0).until_held(1).await;
    drop(initiator);
    target.store(0).resume();
    assert!(matches!(target.ended(1).await[0], CloseReason::Transport(_)));
    assert_eq!(target.node().sessions().len(), 0);
    assert_eq!(target.pool().stats().in_use, 0);
}

#[tokio::test]
async fn silence_is_asked_about_and_an_answer_is_enough() {
    let target = Target::builder()
        .set("nop-interval", "100ms")
        .set("nop-timeout", "1s")
        .start()
        .await;
    let mut initiator = Initiator::log_in(&target).await;
    for _ in 0..3 {
        let (nop, data) = initiator.expect::<NopIn>().await;
        assert_eq!((nop.itt, data.len()), (Itt::RESERVED, 0));
        let answer = NopOut {
            immediate: true,
            lun: nop.lun,
            itt: Itt::RESERVED,
            ttt: nop.ttt,
            cmd_sn: initiator.cmd_sn,
            exp_stat_sn: initiator.exp_stat_sn,
        };
        initiator.send(Request::NopOut(answer), &[]).await;
    }
    // Then it is silent.
    initiator.expect::<NopIn>().await;
    initiator.expect_closed().await;
    drop(initiator);
    assert_eq!(
        target.ended(1).await,
        [CloseReason::Silent(Duration::from_secs(1))]
    );
}
