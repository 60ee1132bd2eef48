//! Peers that break every rule they can: each costs only itself, and a healthy session goes on beside them.

use std::time::Duration;

use iscsi_proto::pdu::{LoginStage, Request, Response};
use iscsi_proto::{Itt, Ttt};
use target_core::control::{ChapPolicy, Parameters};
use tests::conversation::{Initiator, Target, read_10};

async fn works(session: &mut Initiator) {
    session.command(read_10(0, 8), 4096, b"").await;
    assert_eq!(session.data_in().await, (vec![0; 4096], 0));
}

async fn healthy(target: &Target) -> Initiator {
    let mut session = Initiator::log_in(target, 0xff, &[]).await;
    session.clear_attentions().await;
    session
}

#[tokio::test]
async fn whatever_comes_before_a_login_but_a_login_ends_the_connection() {
    let target = Target::start().await;
    let mut session = healthy(&target).await;
    for opcode in 0..=0x3f_u8 {
        if opcode == 0x03 {
            continue;
        }
        let mut peer = Initiator::connect(&target, 1).await;
        let mut bhs = [0; 48];
        bhs[0] = opcode | 0x40;
        bhs[1] = 0x80;
        peer.raw(&bhs).await;
        assert!(peer.next().await.is_none(), "opcode {opcode:#x}");
    }
    works(&mut session).await;
}

#[tokio::test]
async fn rubbish_of_every_opcode_in_full_feature_phase_is_answered_or_ends_the_connection() {
    let target = Target::start().await;
    let mut session = healthy(&target).await;
    for opcode in 0..=0x3f_u8 {
        for fill in [0x00, 0xff, 0x5a] {
            let mut peer = Initiator::log_in(&target, 1, &[]).await;
            let mut bhs = [fill; 48];
            bhs[0] = opcode | 0x40;
            bhs[4..8].fill(0);
            peer.raw(&bhs).await;
            // A ping behind it: answered unless the connection has ended.
            peer.ping(b"still there?").await;
            while let Some((response, _)) = peer.next().await {
                if matches!(response, Response::NopIn(_)) {
                    break;
                }
            }
        }
    }
    works(&mut session).await;
}

#[tokio::test]
async fn lengths_that_cannot_be_end_the_connection() {
    let target = Target::start().await;
    let mut session = healthy(&target).await;
    // DataSegmentLength 2^24 - 1 before a login; the same after one; a header and nothing more.
    let mut bhs = [0; 48];
    bhs[0] = 0x43;
    bhs[5..8].fill(0xff);
    let mut peer = Initiator::connect(&target, 1).await;
    peer.raw(&bhs).await;
    assert!(peer.next().await.is_none());
    let mut peer = Initiator::log_in(&target, 1, &[]).await;
    bhs[0] = 0x40;
    peer.raw(&bhs).await;
    assert!(peer.next().await.is_none());
    let mut peer = Initiator::log_in(&target, 2, &[]).await;
    peer.raw(&bhs[..20]).await;
    drop(peer);
    works(&mut session).await;
}

#[tokio::test]
async fn malformed_additional_header_segments_are_rejected() {
    let target = Target::start().await;
    let mut peer = Initiator::log_in(&target, 1, &[]).await;
    peer.clear_attentions().await;
    let pdu = peer.prepare(read_10(0, 1), 512);
    for ahs in [[0, 0, 1, 0], [0xff, 0xff, 1, 0], [0, 5, 9, 0]] {
        let mut bhs = Request::ScsiCommand(pdu.clone()).encode();
        bhs[4] = 1;
        peer.raw(&bhs).await;
        peer.raw(&ahs).await;
        assert!(matches!(peer.receive().await.0, Response::Reject(_)), "{ahs:?}");
    }
    // A rejected command does not count as received (§7.3): its number is still free.
    peer.send(&Request::ScsiCommand(pdu), b"").await;
    assert_eq!(peer.data_in().await, (vec![0; 512], 0));
}

#[tokio::test]
async fn data_out_for_nothing_are_rejected() {
    let target = Target::start().await;
    let mut peer = Initiator::log_in(&target, 1, &[]).await;
    for (itt, ttt) in [(Itt(9), Ttt(77)), (Itt(9), Ttt::RESERVED)] {
        peer.data_out(itt, ttt, 0, &[0; 64], 64).await;
        assert!(matches!(peer.receive().await.0, Response::Reject(_)));
    }
}

#[tokio::test]
async fn text_without_end_is_rejected() {
    let target = Target::start().await;
    let mut peer = Initiator::log_in(&target, 1, &[]).await;
    let mut ttt = Ttt::RESERVED;
    for _ in 0..100 {
        peer.text(false, true, ttt, &[b'a'; 8000]).await;
        match peer.receive().await.0 {
            Response::Text(response) => ttt = response.ttt,
            Response::Reject(_) => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("800 kB of one text were taken");
}

#[tokio::test]
async fn a_silent_peer_meets_the_login_deadline() {
    let mut parameters = Parameters::default();
    parameters.set("login-timeout", "1").unwrap();
    let target = Target::with(parameters, ChapPolicy::Open).await;
    let mut session = healthy(&target).await;
    let mut silent = Initiator::connect(&target, 1).await;
    let mut dripping = Initiator::connect(&target, 2).await;
    dripping.raw(&[0x43]).await;
    assert!(silent.next().await.is_none());
    assert!(dripping.next().await.is_none());
    works(&mut session).await;
}

#[tokio::test]
async fn a_login_may_come_byte_by_byte() {
    let target = Target::start().await;
    let mut peer = Initiator::connect(&target, 1).await;
    let mut bytes = Vec::new();
    for (key, value) in Initiator::names() {
        iscsi_proto::text::push_pair(&mut bytes, key, value);
    }
    let mut bhs = [0; 48];
    bhs[0] = 0x43;
    bhs[1] = 0x87;
    bhs[7] = u8::try_from(bytes.len()).unwrap();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    for byte in bhs.iter().chain(&bytes) {
        peer.raw(&[*byte]).await;
    }
    let (Response::Login(response), _) = peer.receive().await else {
        panic!("no Login Response")
    };
    assert!(response.transit && response.next_stage == LoginStage::FullFeature);
}

/// Pings whose answers nobody takes: the target stops reading instead of keeping answers without end.
#[tokio::test]
async fn a_flood_without_reading_is_not_read_either() {
    let target = Target::start().await;
    let mut session = healthy(&target).await;
    let mut flooder = Initiator::log_in(&target, 1, &[("MaxRecvDataSegmentLength", "262144")]).await;
    let mut ping = [0; 48].to_vec();
    ping[0] = 0x40;
    ping[1] = 0x80;
    ping[5] = 1;
    ping[20..24].fill(0xff);
    ping[16..20].copy_from_slice(&7_u32.to_be_bytes());
    ping.resize(48 + 65_536, 0);
    let taken = flooder.flood(&ping.repeat(16), 1 << 30).await;
    assert!(
        taken < 64 << 20,
        "the target took {taken} bytes of pings whose answers were never read"
    );
    works(&mut session).await;
}

/// A reader that takes nothing and a writer that sends nothing, each with a full window: they hold their own share.
#[tokio::test]
async fn slow_readers_and_silent_writers_keep_no_memory_from_others() {
    let target = Target::start().await;
    let mut session = healthy(&target).await;
    let mut peers = Vec::new();
    for isid in 1..=6 {
        let mut peer = Initiator::log_in(&target, isid, &[("ImmediateData", "No")]).await;
        peer.clear_attentions().await;
        for _ in 0..100 {
            let (cdb, expected) = match isid % 2 {
                0 => (read_10(0, 2048), 1 << 20),
                _ => (tests::conversation::write_10(0, 2048), -(1 << 20)),
            };
            peer.command(cdb, expected, b"").await;
        }
        peers.push(peer);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..20 {
        session.command(read_10(4096, 512), 256 << 10, b"").await;
        assert_eq!(session.data_in().await.1, 0);
    }
    let in_use = target.pool.stats().in_use;
    assert!(in_use <= 6 * (8 << 20), "{in_use} bytes are held");
}
