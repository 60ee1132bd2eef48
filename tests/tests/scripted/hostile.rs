//! Peers that break rules: each gets the answer that the standard names, or a closed connection, and costs itself alone.
//! In every test a healthy session lives beside, and must still be served at the end.

use std::time::Duration;

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{
    Function, LoginRequest, LoginResponse, LoginStage, LoginStatus, R2t, Reject, RejectReason, Request,
    Response, TextRequest, TextResponse,
};
use iscsi_proto::{BHS_LEN, Frame, Itt, Ttt};
use target_core::datamover::TransportClosed;
use target_core::iscsi::CloseReason;
use tests::script::{Disk, Initiator, Keys, Target, cdb};
use tokio::io::AsyncWriteExt;

use LoginStage::{FullFeature, Operational};

/// What a header in full feature phase leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    /// A PDU of this name.
    Says(&'static str),
    /// A Reject with this reason.
    Rejects(RejectReason),
    /// The connection is closed without a word.
    Closes,
}

#[tokio::test]
async fn nothing_but_a_login_begins_a_connection() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    for opcode in (0..=0x3f).filter(|opcode| *opcode != 0x03) {
        for immediate in [0, 0x40] {
            let mut initiator = Initiator::connect(&target).await;
            initiator.send_bhs(header(opcode | immediate), &[], &[]).await;
            initiator.expect_closed().await;
        }
    }
    healthy.ping().await;
}

#[tokio::test]
async fn nothing_but_a_login_goes_on_with_one() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    for opcode in (0..=0x3f).filter(|opcode| *opcode != 0x03) {
        let mut initiator = Initiator::connect(&target).await;
        let (response, _) = initiator
            .login_step((LoginStage::Security, None), Keys::normal())
            .await;
        assert_eq!(response.status, LoginStatus::Success);
        initiator.send_bhs(header(opcode), &[], &[]).await;
        // §11.13.5 has a status for a request of the wrong kind, and one for what is none.
        let status = match opcode {
            0x00..=0x06 | 0x10 => LoginStatus::InvalidDuringLogin,
            _ => LoginStatus::InitiatorError,
        };
        let (response, _) = initiator.expect::<LoginResponse>().await;
        assert_eq!(response.status, status, "opcode {opcode:#04x}");
        initiator.expect_closed().await;
    }
    healthy.ping().await;
}

#[tokio::test]
async fn every_opcode_in_full_feature_phase_has_its_answer() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    for opcode in 0..=0x3f {
        let answer = match opcode {
            0x00 => Answer::Says("NOP-In"),
            0x01 => Answer::Says("SCSI Response"),
            0x02 => Answer::Says("Task Management Function Response"),
            0x03 => Answer::Closes,
            0x04 => Answer::Says("Text Response"),
            0x05 => Answer::Rejects(RejectReason::ProtocolError),
            0x06 => Answer::Says("Logout Response"),
            0x10 => Answer::Rejects(RejectReason::SnackReject),
            _ => Answer::Rejects(RejectReason::CommandNotSupported),
        };
        let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
        let mut bhs = header(opcode | 0x40);
        bhs[24..28].copy_from_slice(&initiator.cmd_sn.0.to_be_bytes());
        initiator.send_bhs(bhs, &[], &[]).await;
        let got = match initiator.hear().await.map(|pdu| pdu.response) {
            None => Answer::Closes,
            Some(Response::Reject(reject)) => Answer::Rejects(reject.reason),
            Some(response) => Answer::Says(response.name()),
        };
        assert_eq!(got, answer, "opcode {opcode:#04x}");
        if answer == Answer::Closes || opcode == 0x06 {
            initiator.expect_closed().await;
        } else {
            initiator.ping().await;
            assert_eq!(initiator.read(0, 1).await, [0; 512], "after opcode {opcode:#04x}");
        }
    }
    healthy.ping().await;
}

#[tokio::test]
async fn every_opcode_in_a_discovery_session_leaves_it_alive_or_ends_it() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    for opcode in 0..=0x3f {
        let mut initiator = Initiator::discover(&target).await;
        let mut bhs = header(opcode | 0x40);
        bhs[24..28].copy_from_slice(&initiator.cmd_sn.0.to_be_bytes());
        initiator.send_bhs(bhs, &[], &[]).await;
        match initiator.hear().await.map(|pdu| pdu.response) {
            None => assert_eq!(opcode, 0x03),
            Some(Response::Logout(_)) => initiator.expect_closed().await,
            Some(_) => initiator.ping().await,
        }
    }
    healthy.ping().await;
}

#[tokio::test]
async fn a_data_segment_that_was_not_agreed_to_ends_the_connection() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    // Before a login, 8192 bytes are the limit (§13.12).
    for data_len in [8193, 0x00ff_ffff] {
        let mut initiator = Initiator::connect(&target).await;
        let mut bhs = Request::Login(initiator.login_request((Operational, None))).encode();
        Frame { ahs_len: 0, data_len }.stamp(&mut bhs);
        initiator.send_raw(&bhs).await;
        initiator.expect_closed().await;
    }
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let mut bhs = header(0x40);
    Frame {
        ahs_len: 0,
        data_len: 262_145,
    }
    .stamp(&mut bhs);
    initiator.send_raw(&bhs).await;
    initiator.expect_closed().await;
    drop(initiator);
    let ends = target.ended(3).await;
    let oversize = |end: &CloseReason| matches!(end, CloseReason::Transport(TransportClosed::Framing(text)) if text.contains("MaxRecvDataSegmentLength"));
    assert!(ends.iter().all(oversize), "{ends:?}");
    healthy.ping().await;
}

#[tokio::test]
async fn a_login_may_drip_in_byte_by_byte() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::connect(&target).await;
    initiator.isid.0[5] = 2;
    let request = Request::Login(initiator.login_request((Operational, Some(FullFeature))));
    for byte in initiator.encode(&request, &Keys::normal().encode()) {
        initiator.send_raw(&[byte]).await;
        tokio::task::yield_now().await;
    }
    let (response, data) = initiator.expect::<LoginResponse>().await;
    assert!(response.transit);
    initiator.enter(&response, &iscsi_proto::text::parse_pairs(&data).unwrap());
    initiator.ping().await;
    healthy.ping().await;
}

#[tokio::test]
async fn who_does_not_finish_its_login_meets_the_deadline() {
    let target = Target::builder().set("login-timeout", "1s").start().await;
    let mut healthy = Initiator::log_in(&target).await;
    // One says nothing, one stops in the middle of a header, one in the middle of the login, one never ends talking.
    let mut silent = Initiator::connect(&target).await;
    let mut half = Initiator::connect(&target).await;
    half.send_raw(&[0x43, 0x87, 0, 0]).await;
    let mut begun = Initiator::connect(&target).await;
    begun
        .login_step((LoginStage::Security, None), Keys::normal())
        .await;
    let mut talker = Initiator::connect(&target).await;
    let talking = async {
        loop {
            if talker.socket.write_all(&[0x43]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let others = async {
        silent.expect_closed().await;
        half.expect_closed().await;
        begun.expect_closed().await;
    };
    tokio::time::timeout(
        tests::script::PATIENCE,
        futures_util::future::join(talking, others),
    )
    .await
    .expect("all of them are closed");
    drop((silent, half, begun));
    let late = CloseReason::LoginTimeout(Duration::from_secs(1));
    let ends = target.ended(4).await;
    assert_eq!(ends.iter().filter(|end| **end == late).count(), 4, "{ends:?}");
    healthy.ping().await;
}

#[tokio::test]
async fn a_login_does_not_go_on_for_ever() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::connect(&target).await;
    let mut steps = 0;
    loop {
        let request = initiator.login_request((LoginStage::Security, None));
        initiator
            .send(Request::Login(request), &Keys::normal().encode())
            .await;
        let (response, _) = initiator.expect::<LoginResponse>().await;
        if response.status != LoginStatus::Success {
            break;
        }
        steps += 1;
        assert!(steps <= 64, "a login of {steps} steps");
    }
    initiator.expect_closed().await;

    let mut initiator = Initiator::connect(&target).await;
    let mut taken = 0;
    loop {
        let request = LoginRequest {
            continues: true,
            ..initiator.login_request((LoginStage::Security, None))
        };
        initiator.send(Request::Login(request), &[b'a'; 8192]).await;
        let (response, _) = initiator.expect::<LoginResponse>().await;
        if response.status != LoginStatus::Success {
            break;
        }
        taken += 8192;
        assert!(taken <= 65_536, "{taken} bytes of text");
    }
    initiator.expect_closed().await;
    healthy.ping().await;
}

#[tokio::test]
async fn text_without_end_is_rejected() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::discover(&target).await;
    let request = TextRequest {
        is_final: false,
        continues: true,
        ..initiator.text_request()
    };
    let (mut ttt, mut taken) = (Ttt::RESERVED, 0);
    let reason = loop {
        let next = TextRequest {
            ttt,
            exp_stat_sn: initiator.exp_stat_sn,
            ..request.clone()
        };
        initiator.send(Request::Text(next), &[b'a'; 8000]).await;
        match initiator.hear().await.expect("the connection goes on").response {
            Response::Text(response) => ttt = response.ttt,
            Response::Reject(reject) => break reject.reason,
            other => panic!("{other:?}"),
        }
        taken += 8000;
        assert!(taken <= 65_536, "{taken} bytes of text");
    };
    assert_eq!(reason, RejectReason::ProtocolError);
    initiator.ping().await;
    // Beginning again and again leaves nothing behind either.
    for _ in 0..200 {
        let next = TextRequest {
            itt: initiator.itt(),
            exp_stat_sn: initiator.exp_stat_sn,
            ..request.clone()
        };
        initiator.send(Request::Text(next), &[b'a'; 8000]).await;
        let (response, _) = initiator.expect::<TextResponse>().await;
        assert!(!response.is_final);
    }
    initiator.ping().await;
    healthy.ping().await;
}

#[tokio::test]
async fn text_that_is_none_is_rejected() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::discover(&target).await;
    for text in [&b"SendTargets"[..], b"=All\0", b"\xff\xfe=1\0", b"a=\xff\0"] {
        let request = initiator.text_request();
        initiator.send(Request::Text(request), text).await;
        let (reject, _) = initiator.expect::<Reject>().await;
        assert_eq!(reject.reason, RejectReason::ProtocolError, "{text:02x?}");
        initiator.ping().await;
    }
    healthy.ping().await;
}

#[tokio::test]
async fn a_connection_may_break_anywhere_in_a_pdu() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let request = Request::Text(initiator.text_request());
    let whole = initiator.encode(&request, b"SendTargets=\0");
    drop(initiator);
    let mut count = 1;
    target.ended(count).await;
    for cut in [1, 47, 48, 49, whole.len() - 1] {
        let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
        initiator.send_raw(&whole[..cut]).await;
        initiator.socket.shutdown().await.unwrap();
        initiator.expect_closed().await;
        drop(initiator);
        count += 1;
        let ends = target.ended(count).await;
        assert_eq!(
            ends.last(),
            Some(&CloseReason::Transport(TransportClosed::MidPdu)),
            "cut after {cut} bytes"
        );
    }
    healthy.ping().await;
    assert_eq!(target.node().sessions().len(), 1);
}

#[tokio::test]
async fn additional_header_segments_that_are_none_are_rejected() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let cases: [&[u8]; 5] = [
        // A type that is reserved.
        &[0, 5, 0x3f, 0, 0, 0, 0, 0],
        // A length that leaves the area, and none.
        &[0xff, 0xff, 1, 0],
        &[0, 0, 1, 0],
        // Two of a kind.
        &[0, 5, 2, 0, 0, 0, 0, 1, 0, 5, 2, 0, 0, 0, 0, 1],
        &[0xff; 1020],
    ];
    for ahs in cases {
        let cmd_sn = initiator.cmd_sn;
        initiator.command(cdb::test_unit_ready()).ahs(ahs).start().await;
        let (reject, _) = initiator.expect::<Reject>().await;
        assert_eq!(reject.reason, RejectReason::InvalidPduField, "{ahs:02x?}");
        initiator.cmd_sn = cmd_sn;
        initiator.ping().await;
    }
    // A CDB that is longer than this target knows.
    let end = initiator
        .command(cdb::cdb(&[0x7f, 0, 0, 0, 0, 0, 0, 24]))
        .ahs(&[0, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .run()
        .await;
    assert_eq!(end.sense(), (0x5, 0x20, 0x00));
    healthy.ping().await;
}

#[tokio::test]
async fn data_that_were_not_asked_for_fail_their_command_and_nothing_else() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let data = [0x99; 8192];
    // What is wrong with the first Data-Out: its offset, its number, its length.
    for (name, part, data_sn) in [
        ("an offset that is not next", 512..4096, 0),
        ("a number that is not next", 0..4096, 1),
        ("more than was asked for", 0..8192, 0),
    ] {
        let (itt, _) = initiator
            .command(cdb::write_10(0, 8))
            .write(&data[..4096])
            .start()
            .await;
        let (r2t, _) = initiator.expect::<R2t>().await;
        let pdu = iscsi_proto::pdu::DataOut {
            is_final: true,
            lun: initiator.lun,
            itt,
            ttt: r2t.ttt,
            exp_stat_sn: initiator.exp_stat_sn,
            data_sn,
            offset: u32::try_from(part.start).unwrap(),
        };
        initiator.send(Request::DataOut(pdu), &data[part]).await;
        let end = loop {
            match initiator.hear().await.expect("the connection goes on").response {
                Response::ScsiResponse(response) => break response,
                Response::Reject(_) => {}
                other => panic!("{name}: {other:?}"),
            }
        };
        assert_eq!((end.itt, end.status), (itt, 0x02), "{name}");
        assert_eq!(initiator.read(0, 8).await, [0; 4096], "{name}");
    }
    healthy.ping().await;
}

#[tokio::test]
async fn data_for_nothing_are_rejected() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    for ttt in [Ttt(0x4242), Ttt::RESERVED] {
        initiator
            .data_out(Itt(0x9999), ttt, &[0; 2048], 0..2048, 1024)
            .await;
        for _ in 0..2 {
            let (reject, _) = initiator.expect::<Reject>().await;
            assert_eq!(reject.reason, RejectReason::ProtocolError);
        }
    }
    initiator.ping().await;
    healthy.ping().await;
}

#[tokio::test]
async fn who_owes_data_for_ever_is_closed() {
    let target = Target::builder().set("data-out-timeout", "1s").start().await;
    let mut healthy = Initiator::log_in(&target).await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    initiator
        .command(cdb::write_10(0, 8))
        .write(&[1; 4096])
        .start()
        .await;
    initiator.expect::<R2t>().await;
    initiator.expect_closed().await;
    drop(initiator);
    assert!(matches!(
        target.ended(1).await[0],
        CloseReason::DataOutStuck { .. }
    ));
    assert_eq!(target.pool().stats().in_use, 0);
    healthy.ping().await;
}

#[tokio::test]
async fn commands_outside_the_window_are_ignored() {
    let target = Target::builder().set("command-window", "4").start().await;
    let mut healthy = Initiator::log_in(&target).await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let next = initiator.cmd_sn;
    for cmd_sn in [next.minus(1), next.plus(4), next.plus(0x7fff_ffff)] {
        initiator
            .command(cdb::write_10(0, 1))
            .write(&[1; 512])
            .immediate_data(512)
            .with(|pdu| pdu.cmd_sn = cmd_sn)
            .start()
            .await;
    }
    initiator.cmd_sn = next;
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
    healthy.ping().await;
}

#[tokio::test]
async fn a_hole_in_the_numbers_holds_back_no_more_than_a_window() {
    let target = Target::builder().set("command-window", "8").start().await;
    let mut healthy = Initiator::log_in(&target).await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    let hole = initiator.cmd_sn;
    for ahead in 1..100 {
        initiator
            .command(cdb::write_10(ahead, 1))
            .write(&[1; 512])
            .immediate_data(512)
            .with(|pdu| pdu.cmd_sn = hole.plus(ahead))
            .start()
            .await;
    }
    initiator.ping().await;
    assert_eq!(initiator.exp_cmd_sn, hole);
    initiator.cmd_sn = hole;
    initiator.command(cdb::test_unit_ready()).start().await;
    for _ in 0..8 {
        let (response, _) = initiator.expect::<iscsi_proto::pdu::ScsiResponse>().await;
        assert_eq!(response.status, 0);
    }
    // Seven of them were inside the window and have run; the others were never there.
    initiator.cmd_sn = hole.plus(8);
    assert_eq!(initiator.read(7, 1).await, [1; 512]);
    assert_eq!(initiator.read(8, 1).await, [0; 512]);
    healthy.ping().await;
}

#[tokio::test]
async fn requests_for_immediate_delivery_have_a_limit_of_their_own() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut initiator = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    target.store(0).hold(Matching::op(StoreOp::Read));
    let mut refused = 0;
    for lba in 0..40 {
        initiator
            .command(cdb::read_10(lba, 1))
            .read(512)
            .at_once()
            .start()
            .await;
    }
    while refused < 24 {
        let (reject, _) = initiator.expect::<Reject>().await;
        assert_eq!(reject.reason, RejectReason::ImmediateCommandReject);
        refused += 1;
    }
    initiator.ping().await;
    assert_eq!(target.store(0).held().len(), 16);
    let itt = initiator.manage(Function::AbortTaskSet, None).await;
    initiator.managed(itt).await;
    target.store(0).resume();
    healthy.ping().await;
}

#[tokio::test]
async fn who_asks_without_taking_answers_is_no_longer_read_and_then_closed() {
    let target = Target::builder().set("response-timeout", "1s").start().await;
    let mut healthy = Initiator::log_in(&target).await;
    let mut initiator = Initiator::log_in_with(
        &target,
        2,
        Keys::normal().with("MaxRecvDataSegmentLength", "262144"),
    )
    .await;
    let mut bhs = header(0x40);
    bhs[24..28].copy_from_slice(&initiator.cmd_sn.0.to_be_bytes());
    let frame = Frame {
        ahs_len: 0,
        data_len: 65_536,
    };
    frame.stamp(&mut bhs);
    let mut ping = bhs.to_vec();
    ping.resize(ping.len() + 65_536, 0x55);
    let flood = async {
        let mut sent = 0;
        while initiator.socket.write_all(&ping).await.is_ok() {
            sent += ping.len();
            assert!(
                sent < FLOOD_MAX,
                "{sent} bytes were taken, and no answer was heard"
            );
        }
    };
    tokio::time::timeout(tests::script::PATIENCE, flood)
        .await
        .expect("it is closed in the end");
    drop(initiator);
    let ends = target.ended(1).await;
    assert_eq!(ends[0], CloseReason::ResponsesStuck(Duration::from_secs(1)));
    healthy.ping().await;
    assert_eq!(healthy.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn two_hundred_connections_that_say_nothing_keep_nobody_out() {
    let (target, mut healthy) = beside_a_healthy_session().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(Initiator::connect(&target).await);
    }
    healthy.ping().await;
    let mut late = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    assert_eq!(late.read(0, 1).await, [0; 512]);
    drop(silent);
    target.ended(200).await;
    assert_eq!(target.node().connections(), 2);
}

/// Three readers that take nothing and three writers that send nothing, each with many commands: each holds its own
/// share, and who comes after them is served at once.
#[tokio::test]
async fn slow_readers_and_silent_writers_keep_no_memory_from_others() {
    let disk = Disk {
        size: 8 << 20,
        ..Disk::default()
    };
    let target = Target::builder().disk(disk).pool(64 << 20).start().await;
    let mut healthy = Initiator::log_in(&target).await;
    let mut peers = Vec::new();
    for isid in 2..8 {
        let keys = Keys::normal().with("ImmediateData", "No");
        let mut peer = Initiator::log_in_with(&target, isid, keys).await;
        for _ in 0..100 {
            let command = match isid % 2 {
                0 => peer.command(cdb::read_10(0, 2048)).read(1 << 20),
                _ => peer.command(cdb::write_10(0, 2048)).write(&[1; 1 << 20]),
            };
            command.start().await;
        }
        peers.push(peer);
    }
    for _ in 0..20 {
        assert_eq!(healthy.read(4096, 512).await.len(), 256 << 10);
    }
    let in_use = target.pool().stats().in_use;
    assert!(in_use <= 6 * (8 << 20), "{in_use} bytes are held");
}

/// What a connection may take in without being heard: 8 MiB of answers, and what two sockets' buffers hold.
const FLOOD_MAX: usize = 64 << 20;

async fn beside_a_healthy_session() -> (Target, Initiator) {
    let target = Target::start().await;
    let healthy = Initiator::log_in(&target).await;
    (target, healthy)
}

/// A header of this first byte with F set, a tag, and zeroes.
fn header(first: u8) -> [u8; BHS_LEN] {
    let mut bhs = [0; BHS_LEN];
    (bhs[0], bhs[1]) = (first, 0x80);
    bhs[16..20].copy_from_slice(&0x0abc_u32.to_be_bytes());
    bhs[20..24].copy_from_slice(&[0xff; 4]);
    bhs
}
