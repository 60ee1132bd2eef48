//! Data both ways over TCP: immediate, solicited and unsolicited, with residuals, and many at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use iscsi_proto::Ttt;
use iscsi_proto::pdu::{Request, Residual, Response};
use target_core::control::{ChapPolicy, Parameters};
use tests::conversation::{Initiator, Target, read_10, write_10};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

async fn reads_back(initiator: &mut Initiator, lba: u32, data: &[u8]) {
    let blocks = u16::try_from(data.len() / 512).unwrap();
    initiator
        .command(read_10(lba, blocks), i64::try_from(data.len()).unwrap(), b"")
        .await;
    let (read, status) = initiator.data_in().await;
    assert_eq!(status, 0);
    assert!(read == data, "something else was read than was written");
}

#[tokio::test]
async fn immediate_data_and_the_r2ts_for_the_rest_fill_a_write() {
    let target = Target::start().await;
    let offer = [
        ("MaxBurstLength", "65536"),
        ("MaxOutstandingR2T", "1"),
        ("MaxRecvDataSegmentLength", "8192"),
    ];
    let mut initiator = Initiator::log_in(&target, 1, &offer).await;
    initiator.clear_attentions().await;
    let data = pattern(300 * 1024);
    let itt = initiator
        .command(write_10(8, 600), -300 * 1024, &data[..8192])
        .await;
    let mut at = 8192;
    while at < data.len() {
        let r2t = initiator.r2t().await;
        assert_eq!((r2t.itt, r2t.offset as usize), (itt, at));
        let len = r2t.desired_len as usize;
        assert!(len <= 65536, "an R2T asks for at most MaxBurstLength");
        initiator
            .data_out(itt, r2t.ttt, at, &data[at..at + len], 20_000)
            .await;
        at += len;
    }
    assert_eq!(initiator.response().await.0.status, 0);
    reads_back(&mut initiator, 8, &data).await;
}

#[tokio::test]
async fn unsolicited_data_are_taken_where_they_were_agreed() {
    let mut parameters = Parameters::default();
    parameters.set("InitialR2T", "No").unwrap();
    let target = Target::with(parameters, ChapPolicy::Open).await;
    let offer = [
        ("InitialR2T", "No"),
        ("FirstBurstLength", "16384"),
        ("ImmediateData", "Yes"),
    ];
    let mut initiator = Initiator::log_in(&target, 1, &offer).await;
    initiator.clear_attentions().await;
    let data = pattern(32 * 1024);
    let mut pdu = initiator.prepare(write_10(0, 64), -32 * 1024);
    pdu.is_final = false;
    let itt = pdu.itt;
    initiator.send(&Request::ScsiCommand(pdu), &data[..4096]).await;
    initiator
        .data_out(itt, Ttt::RESERVED, 4096, &data[4096..16384], 4096)
        .await;
    let r2t = initiator.r2t().await;
    assert_eq!((r2t.offset, r2t.desired_len), (16384, 16384));
    initiator
        .data_out(itt, r2t.ttt, 16384, &data[16384..], 4096)
        .await;
    assert_eq!(initiator.response().await.0.status, 0);
    reads_back(&mut initiator, 0, &data).await;
}

#[tokio::test]
async fn unsolicited_data_that_were_not_agreed_fail_the_command_and_nothing_else() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[("ImmediateData", "No")]).await;
    initiator.clear_attentions().await;
    initiator.command(write_10(0, 1), -512, &[1; 512]).await;
    let (response, sense) = initiator.response().await;
    assert_eq!(
        (response.status, &sense[2..3], &sense[14..16]),
        (2, &[0x70][..], &[0x0c, 0x0c][..])
    );
    reads_back(&mut initiator, 0, &[0; 512]).await;
}

#[tokio::test]
async fn residuals_tell_what_was_announced_too_much_or_too_little() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[]).await;
    initiator.clear_attentions().await;
    for (announced, moved, residual) in [
        (1024, 512, Residual::Underflow(512)),
        (256, 256, Residual::Overflow(256)),
    ] {
        initiator.command(read_10(0, 1), announced, b"").await;
        let (Response::DataIn(pdu), data) = initiator.receive().await else {
            panic!("no Data-In")
        };
        assert_eq!((data.len(), pdu.status.unwrap().residual), (moved, residual));
    }
}

/// More bytes at once than a connection may have in flight: shares must come free while every command waits for one.
#[tokio::test]
async fn forty_reads_of_a_mebibyte_at_once_all_end() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target, 1, &[("MaxRecvDataSegmentLength", "65536")]).await;
    initiator.clear_attentions().await;
    for _ in 0..40 {
        initiator.command(read_10(0, 2048), 1 << 20, b"").await;
    }
    let (mut bytes, mut ended) = (0, 0);
    while ended < 40 {
        let (Response::DataIn(pdu), data) = initiator.receive().await else {
            panic!("no Data-In")
        };
        bytes += data.len();
        ended += usize::from(pdu.status.is_some());
    }
    assert_eq!(bytes, 40 << 20);
}
