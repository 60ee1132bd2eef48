//! Deadlines, orders from outside, logout.

use std::time::Duration;

use super::status::{aborted, get, good};
use super::*;
use crate::datamover::TransportClosed;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_login_has_one_deadline_over_all_of_it() {
    let mut peer = Peer::new(Parameters::default());
    assert_eq!(peer.wait(SECOND * 14), [""; 0]);
    let Request::Login(request) = login() else {
        unreachable!("it is a login")
    };
    let first = Request::Login(LoginRequest {
        transit: false,
        ..request
    });
    assert_eq!(peer.control(first, &login_text("Normal")), ["login Success"]);
    assert_eq!(peer.wait(SECOND), ["close: login was not complete within 15s"]);
}

#[test]
fn a_silent_initiator_is_asked_and_then_given_up() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.wait(SECOND * 15), ["ping"]);
    assert_eq!(
        peer.wait(SECOND * 15),
        ["close: the initiator did not answer a NOP-In within 15s"]
    );
}

#[test]
fn a_discovery_session_is_not_asked_and_ends_when_it_is_idle() {
    let mut peer = Peer::discovering();
    assert_eq!(peer.wait(SECOND * 119), [""; 0]);
    assert_eq!(
        peer.wait(SECOND),
        ["close: nothing came in the discovery session for 120s"]
    );
}

#[test]
fn an_initiator_that_answers_is_kept() {
    let mut peer = Peer::logged_in();
    for ttt in 1..20 {
        assert_eq!(peer.wait(SECOND * 15), ["ping"]);
        assert_eq!(peer.control(nop(Itt::RESERVED, Ttt(ttt), true, 0), &[]), [""; 0]);
    }
    assert_eq!(peer.now.duration_since(peer.begin), SECOND * 15 * 19);
}

#[test]
fn data_that_never_come_end_the_connection() {
    let mut peer = Peer::logged_in_with(Parameters {
        nop_interval: Duration::ZERO,
        ..Parameters::default()
    });
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    assert_eq!(peer.event(get(task)), ["get 0x10"]);
    assert_eq!(peer.wait(SECOND * 29), [""; 0]);
    assert_eq!(
        peer.wait(SECOND),
        ["close: task 0x00000010 waited 30s for Data-Out"]
    );
}

#[test]
fn an_initiator_asked_to_log_out_has_the_time_it_was_told() {
    let order = Order::Logout { within: SECOND * 5 };
    let mut peer = Peer::logged_in();
    assert_eq!(
        peer.event(Event::Order(order)),
        ["async LogoutRequested { within_s: 5 }"]
    );
    assert_eq!(peer.read(0x10, 0), ["start 0x10"], "until then it goes on");
    assert_eq!(peer.wait(SECOND * 4), [""; 0]);
    assert_eq!(
        peer.wait(SECOND),
        [
            "async SessionDropped { time_to_wait: 2, time_to_retain: 0 }",
            "close: the initiator was asked to log out and did not in time"
        ]
    );
}

#[test]
fn a_drain_ends_with_the_last_command() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    assert_eq!(peer.event(Event::Order(Order::Drain)), [""; 0]);
    let task = peer.task(0x10);
    assert_eq!(
        peer.event(good(task)),
        [
            "status 0x00 of 0x10",
            "end 0x10",
            "async SessionDropped { time_to_wait: 2, time_to_retain: 0 }",
            "close: the target is draining"
        ]
    );
}

#[test]
fn a_drain_waits_ten_seconds_for_a_stuck_command() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    peer.event(Event::Order(Order::Drain));
    assert_eq!(peer.wait(SECOND * 9), [""; 0]);
    assert_eq!(peer.wait(SECOND).last().unwrap(), "close: the target is draining");
}

#[test]
fn a_session_taken_over_closes_without_a_word() {
    let mut peer = Peer::logged_in();
    assert_eq!(
        peer.event(Event::Order(Order::Reinstated)),
        ["close: a newer login of the same initiator port took its place"]
    );
    let mut peer = Peer::logged_in();
    assert_eq!(
        peer.event(Event::Order(Order::Close)),
        [
            "async SessionDropped { time_to_wait: 2, time_to_retain: 0 }",
            "close: closed by the target's owner"
        ]
    );
}

#[test]
fn a_logout_closes_what_it_names() {
    for (reason, cid, expected) in [
        (
            LogoutReason::CloseSession,
            9,
            &["logout Success", "close: the initiator logged out"][..],
        ),
        (
            LogoutReason::CloseConnection,
            0,
            &["logout Success", "close: the initiator logged out"][..],
        ),
        (LogoutReason::CloseConnection, 9, &["logout CidNotFound"][..]),
        (
            LogoutReason::RemoveConnectionForRecovery,
            0,
            &["logout RecoveryNotSupported"][..],
        ),
    ] {
        let mut peer = Peer::logged_in();
        assert_eq!(
            peer.control(logout(reason, cid, true, 0), &[]),
            expected,
            "{reason:?} {cid}"
        );
    }
}

#[test]
fn a_logout_that_is_not_immediate_waits_for_its_turn() {
    let mut peer = Peer::logged_in();
    let request = logout(LogoutReason::CloseSession, 0, false, 1);
    assert_eq!(peer.control(request, &[]), [""; 0]);
    assert_eq!(
        peer.read(0x10, 0),
        ["start 0x10", "logout Success", "close: the initiator logged out"]
    );
}

#[test]
fn a_task_adrift_that_another_nexus_aborts_is_gone() {
    let mut peer = Peer::new(Parameters {
        error_recovery_level: 2,
        command_window: 4,
        ..Parameters::default()
    });
    let mut text = login_text("Normal");
    push_pair(&mut text, "ErrorRecoveryLevel", "2");
    peer.control(login(), &text);
    peer.read(0x10, 0);
    let lost = peer.event(Event::Notify(
        LinkId::LEADING,
        Notify::Closed(TransportClosed::Eof),
    ));
    assert_eq!(lost[0], "surrender 1");
    assert_eq!(peer.event(aborted(peer.task(0x10))), ["discard 0x10"]);
}
