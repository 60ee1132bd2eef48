//! The rules of RFC 7145 for the login, the Hello exchange and what each side may send.

use iscsi_proto::pdu::{Reject, RejectReason, Snack, SnackType};
use target_core::iscsi::SessionType;

use super::*;

const HELLO: Hello = Hello {
    max_version: 10,
    min_version: 10,
    inbound_reads: 2,
};

fn reads(reads_max: usize) -> Weather {
    Weather {
        reads_max,
        ..Weather::default()
    }
}

fn reject(stat_sn: u32) -> Response {
    Response::Reject(Reject {
        reason: RejectReason::ProtocolError,
        stat_sn: Sn(stat_sn),
        exp_cmd_sn: Sn(1),
        max_cmd_sn: Sn(9),
        data_sn: 0,
    })
}

async fn hello_reply(pair: &mut Pair) -> HelloReply {
    match pair.answer().await {
        Message::HelloReply(reply) => reply,
        Message::Pdu { .. } => panic!("a PDU before the iSER HelloReply"),
    }
}

/// What the initiator hears before the connection ends, and why it ends.
async fn last_words(mut pair: Pair) -> (Message, String) {
    let reason = pair.closed().await;
    let (mover, initiator) = (&mut pair.mover, &mut pair.initiator);
    let hear = async {
        let message = initiator.message().await.expect("there are last words");
        initiator.queue_pair().disconnect();
        message
    };
    let (message, ()) = tokio::join!(hear, poll_fn(|cx| mover.poll_close(cx)));
    (message, reason)
}

/// A login that comes to this: what the initiator hears of it, and why the connection ends.
async fn login_with(pair: Pair, params: &SessionParams) -> (LoginResponse, String) {
    let mut pair = pair;
    pair.mover
        .send_control(login_response(64), Bytes::from_static(b"key=value\0"));
    pair.mover.enable(&with_window(64, params));
    let (Message::Pdu { bhs, .. }, reason) = last_words(pair).await else {
        panic!()
    };
    match Response::decode(&bhs) {
        Ok(Response::Login(response)) => (response, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_was_agreed_on_is_answered_with_the_version_and_the_smaller_number_of_reads() {
    for (version, ours, theirs, expected) in [(10..=10, 4, 2, 2), (1..=15, 2, 9, 2), (10..=11, 2, 0, 0)] {
        let mut pair = pair(reads(ours));
        pair.full_feature(8, &agreed(&[("iSERHelloRequired", "Yes")]))
            .await;
        pair.initiator.hello(Hello {
            min_version: *version.start(),
            max_version: *version.end(),
            inbound_reads: theirs,
        });
        let expected = HelloReply {
            rejected: false,
            max_version: 10,
            version: 10,
            outbound_reads: expected,
        };
        assert_eq!(hello_reply(&mut pair).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_of_which_nobody_spoke_is_answered_when_it_comes_first() {
    let mut pair = pair(Weather::default());
    pair.full_feature(8, &agreed(&[])).await;
    pair.initiator.hello(HELLO);
    assert!(!hello_reply(&mut pair).await.rejected);
    pair.initiator.hello(HELLO);
    assert_eq!(pair.closed().await, "an iSER Hello that was not agreed on");
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_was_ruled_out_or_comes_late_or_too_early_ends_the_connection() {
    let mut ruled_out = pair(Weather::default());
    ruled_out
        .full_feature(8, &agreed(&[("iSERHelloRequired", "No")]))
        .await;
    let mut late = pair(Weather::default());
    late.full_feature(8, &agreed(&[])).await;
    late.initiator.send(nop(1), &[]);
    assert!(matches!(late.notify().await, Notify::Control { .. }));
    let before_the_login = pair(Weather::default());
    for mut pair in [ruled_out, late, before_the_login] {
        pair.initiator.hello(HELLO);
        assert_eq!(pair.closed().await, "an iSER Hello that was not agreed on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pdu_in_the_place_of_the_hello_ends_the_connection() {
    let mut pair = pair(Weather::default());
    pair.full_feature(8, &agreed(&[("iSERHelloRequired", "Yes")]))
        .await;
    pair.initiator.send(nop(1), &[]);
    assert_eq!(
        pair.closed().await,
        "the initiator began without the iSER Hello that it asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_does_not_suit_is_rejected_before_the_connection_ends() {
    let old = Hello {
        max_version: 1,
        min_version: 1,
        ..HELLO
    };
    let version = "the initiator does not speak version 10 of iSER, the only one of RFC 7145";
    let newer = Hello {
        max_version: 12,
        min_version: 11,
        ..HELLO
    };
    for (hello, reason) in [(old, version), (newer, version)] {
        let mut pair = pair(Weather::default());
        pair.full_feature(8, &agreed(&[("iSERHelloRequired", "Yes")]))
            .await;
        pair.initiator.hello(hello);
        let (message, said) = last_words(pair).await;
        let Message::HelloReply(reply) = message else {
            panic!("{message:?}")
        };
        assert_eq!((reply.rejected, reply.version, said.as_str()), (true, 10, reason));
    }
}

#[tokio::test(start_paused = true)]
async fn data_are_not_fetched_from_an_initiator_that_serves_no_read() {
    let mut pair = pair(reads(4));
    pair.full_feature(8, &agreed(&[("iSERHelloRequired", "Yes")]))
        .await;
    pair.initiator.hello(Hello {
        inbound_reads: 0,
        ..HELLO
    });
    assert_eq!(hello_reply(&mut pair).await.outbound_reads, 0);
    let opened = Opened {
        data_out: vec![1; 512],
        ..Opened::default()
    };
    pair.initiator.command(command(5, 512, false), &[], opened);
    pair.begin().await;
    pair.mover.get_data(get(5, 0, 512, 0, &pair.pool));
    assert_eq!(
        pair.closed().await,
        "a command needs data, and the initiator serves no RDMA READ"
    );
}

#[tokio::test(start_paused = true)]
async fn a_login_without_rdma_extensions_is_refused_unless_it_is_for_discovery() {
    let no = SessionParams {
        transport: vec![("RDMAExtensions", "No".to_owned())],
        ..SessionParams::default()
    };
    for params in [no, SessionParams::default()] {
        let (response, reason) = login_with(pair(Weather::default()), &params).await;
        assert_eq!(
            (response.status, response.transit),
            (LoginStatus::InitiatorError, false)
        );
        assert_eq!(
            reason,
            "the initiator did not agree to RDMAExtensions=Yes, without which there is no iSER"
        );
    }
    let discovery = SessionParams {
        session_type: SessionType::Discovery,
        ..SessionParams::default()
    };
    let mut pair = pair(Weather::default());
    pair.full_feature(8, &discovery).await;
    pair.initiator.send(nop(1), &[]);
    assert!(matches!(pair.notify().await, Notify::Control { .. }));
}

/// Receives after a login that showed so much of a window of 128, and the memory for them.
async fn receives_with(left: u32) -> (usize, usize) {
    let mut pair = pair(Weather::default());
    let Response::Login(response) = login_response(0) else {
        unreachable!("it is one")
    };
    let response = LoginResponse {
        exp_cmd_sn: Sn(129 - left),
        max_cmd_sn: Sn(128),
        ..response
    };
    pair.mover
        .send_control(Response::Login(response), Bytes::from_static(b"key=value\0"));
    pair.mover.enable(&with_window(128, &agreed(&[])));
    let receives = pair.mover.receives;
    assert!(matches!(pair.answer().await, Message::Pdu { .. }));
    (receives, pair.messages.stats().in_use / MESSAGE_MAX)
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_joins_a_busy_session_gets_receives_for_the_whole_window() {
    for left in [128, 64, 0] {
        assert_eq!(receives_with(left).await, (176, 176), "{left} left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_for_which_there_is_no_memory_is_told_so() {
    let pair = pair(Weather::default());
    let _others = std::iter::from_fn(|| pair.messages.try_acquire(CHUNK)).collect::<Vec<_>>();
    let (response, reason) = login_with(pair, &agreed(&[])).await;
    assert_eq!(response.status, LoginStatus::OutOfResources);
    assert_eq!(reason, "no memory for 112 messages: too many iSER connections");
}

#[tokio::test(start_paused = true)]
async fn a_snack_and_a_second_login_are_out_of_place() {
    let snack = Request::Snack(Snack {
        kind: SnackType::Status,
        lun: Lun::ZERO,
        itt: Itt::RESERVED,
        ttt: Ttt::RESERVED,
        exp_stat_sn: Sn(1),
        begin_run: 0,
        run_length: 0,
    });
    let mut login = nop(1);
    login[0] = 0x43;
    for bhs in [snack.encode(), login] {
        let mut pair = pair(Weather::default());
        pair.full_feature(8, &agreed(&[])).await;
        pair.initiator.send(bhs, &[]);
        let notify = pair.notify().await;
        assert!(
            matches!(notify, Notify::OutOfPlace { bhs: refused } if refused == bhs),
            "{notify:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_initiator_that_takes_no_further_unexpected_pdu_gets_none() {
    let mut pair = pair(Weather::default());
    pair.full_feature(8, &agreed(&[("MaxOutstandingUnexpectedPDUs", "2")]))
        .await;
    for stat_sn in [2, 3] {
        pair.mover.send_control(reject(stat_sn), Bytes::new());
        pair.answer().await;
    }
    // Acknowledges nothing: both are still to come, for all that the target can know.
    pair.initiator.send(nop(1), &[]);
    assert!(matches!(pair.notify().await, Notify::Control { .. }));
    pair.mover.send_control(reject(4), Bytes::new());
    assert_eq!(
        pair.closed().await,
        "the initiator has not acknowledged 2 unexpected PDUs, and no more may be sent"
    );
}
