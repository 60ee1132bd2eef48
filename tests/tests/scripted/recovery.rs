//! ErrorRecoveryLevel 1 (RFC 7143 §7.2, §7.8, §11.7.2, §11.16): what was lost is asked for again, by either side.

use iscsi_proto::pdu::{
    DataIn, DataOut, R2t, Reject, RejectReason, Request, Response, ScsiResponse, Snack, SnackType,
};
use iscsi_proto::{Itt, Lun, Ttt};
use tests::script::{Initiator, Keys, Pdu, Target, cdb};

async fn target() -> Target {
    Target::builder()
        .set("ErrorRecoveryLevel", "1")
        .set("data-out-timeout", "2s")
        .start()
        .await
}

fn keys() -> Keys {
    Keys::normal().with("ErrorRecoveryLevel", "1")
}

async fn log_in(target: &Target) -> Initiator {
    Initiator::log_in_with(target, 1, keys()).await
}

fn snack(initiator: &Initiator, kind: SnackType, itt: Itt, ttt: Ttt, run: (u32, u32)) -> Request {
    Request::Snack(Snack {
        kind,
        lun: Lun::ZERO,
        itt,
        ttt,
        exp_stat_sn: initiator.exp_stat_sn,
        begin_run: run.0,
        run_length: run.1,
    })
}

/// Everything up to the status of a read.
async fn read(initiator: &mut Initiator, blocks: u16) -> (Itt, Vec<(DataIn, Vec<u8>)>, ScsiResponse) {
    let len = u32::from(blocks) * 512;
    let (itt, _) = initiator.command(cdb::read_10(0, blocks)).read(len).start().await;
    let mut data_ins = Vec::new();
    loop {
        let Some(Pdu { response, data }) = initiator.hear().await else {
            panic!("the connection was closed");
        };
        match response {
            Response::DataIn(pdu) => data_ins.push((pdu, data)),
            Response::ScsiResponse(pdu) => return (itt, data_ins, pdu),
            other => panic!("{other:?}"),
        }
    }
}

/// The bytes of a Data-Out. `sn` are DataSN and F.
fn data_out(initiator: &Initiator, itt: Itt, ttt: Ttt, sn: (u32, bool), offset: u32, data: &[u8]) -> Vec<u8> {
    let pdu = DataOut {
        is_final: sn.1,
        lun: Lun::ZERO,
        itt,
        ttt,
        exp_stat_sn: initiator.exp_stat_sn,
        data_sn: sn.0,
        offset,
    };
    initiator.encode(&Request::DataOut(pdu), data)
}

async fn expect_reject(initiator: &mut Initiator, reason: RejectReason) {
    let (reject, _) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, reason);
}

#[tokio::test]
async fn the_lower_level_is_agreed_on() {
    let target = target().await;
    let mut initiator = Initiator::connect(&target).await;
    let keys = Keys::normal()
        .with("ErrorRecoveryLevel", "2")
        .with("MaxOutstandingR2T", "8");
    let answers = initiator.login(keys).await;
    let answer = |key| {
        answers
            .iter()
            .find(|pair| pair.key == key)
            .map(|pair| &*pair.value)
    };
    assert_eq!(answer("ErrorRecoveryLevel"), Some("1"));
    assert_eq!(answer("MaxOutstandingR2T"), Some("1"), "§13.19");
}

#[tokio::test]
async fn a_status_comes_again_with_its_number() {
    let target = target().await;
    let mut initiator = log_in(&target).await;
    let (_, _, response) = read(&mut initiator, 1).await;
    // As if it had not been heard.
    initiator.exp_stat_sn = response.stat_sn;
    let request = snack(
        &initiator,
        SnackType::Status,
        Itt::RESERVED,
        Ttt::RESERVED,
        (response.stat_sn.0, 1),
    );
    initiator.send(request, &[]).await;
    let (again, _) = initiator.expect::<ScsiResponse>().await;
    assert_eq!(again, response);
}

#[tokio::test]
async fn a_status_that_was_acknowledged_or_never_sent_does_not_come() {
    let target = target().await;
    let mut initiator = log_in(&target).await;
    let (_, _, response) = read(&mut initiator, 1).await;
    for begin in [response.stat_sn, response.stat_sn.plus(9)] {
        let request = snack(
            &initiator,
            SnackType::Status,
            Itt::RESERVED,
            Ttt::RESERVED,
            (begin.0, 1),
        );
        initiator.send(request, &[]).await;
        expect_reject(&mut initiator, RejectReason::ProtocolError).await;
    }
}

#[tokio::test]
async fn data_come_again_as_they_were_although_the_disk_has_changed() {
    let target = target().await;
    let keys = keys().with("MaxRecvDataSegmentLength", "1024");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    initiator.write(0, &[1; 4096]).await;
    let before = initiator.exp_stat_sn;
    let (itt, data_ins, response) = read(&mut initiator, 8).await;
    assert_eq!((data_ins.len(), response.exp_data_sn), (4, 4));
    let mut other = Initiator::log_in_with(&target, 2, Keys::normal()).await;
    other.write(0, &[2; 4096]).await;
    // As if the read had not been answered.
    let after = std::mem::replace(&mut initiator.exp_stat_sn, before);
    let request = snack(&initiator, SnackType::DataOrR2t, itt, Ttt::RESERVED, (1, 2));
    initiator.send(request, &[]).await;
    for sent in &data_ins[1..3] {
        let (again, data) = initiator.expect::<DataIn>().await;
        assert_eq!((again.data_sn, again.offset), (sent.0.data_sn, sent.0.offset));
        assert_eq!(data, [1; 1024]);
    }
    initiator.exp_stat_sn = after;
    initiator.ping().await;
    let request = snack(&initiator, SnackType::DataOrR2t, itt, Ttt::RESERVED, (1, 2));
    initiator.send(request, &[]).await;
    expect_reject(&mut initiator, RejectReason::ProtocolError).await;
}

#[tokio::test]
async fn acknowledgement_is_asked_for_once_in_a_burst_and_frees_what_it_names() {
    let target = target().await;
    let keys = keys()
        .with("MaxRecvDataSegmentLength", "1024")
        .with("MaxBurstLength", "4096");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let before = initiator.exp_stat_sn;
    let (itt, data_ins, _) = read(&mut initiator, 20).await;
    let asked: Vec<_> = data_ins.iter().filter(|(pdu, _)| pdu.acknowledge).collect();
    assert_eq!(asked.len(), 2, "of 10 KiB");
    assert!(
        asked
            .iter()
            .all(|(pdu, _)| pdu.is_final && pdu.ttt != Ttt::RESERVED)
    );
    initiator.exp_stat_sn = before;
    let request = snack(
        &initiator,
        SnackType::DataAck,
        Itt::RESERVED,
        asked[0].0.ttt,
        (4, 0),
    );
    initiator.send(request, &[]).await;
    let request = snack(&initiator, SnackType::DataOrR2t, itt, Ttt::RESERVED, (3, 1));
    initiator.send(request, &[]).await;
    let Some(Pdu {
        response: Response::Reject(reject),
        ..
    }) = initiator.hear_again().await
    else {
        panic!("what was acknowledged came again");
    };
    assert_eq!(reject.reason, RejectReason::ProtocolError);
}

#[tokio::test]
async fn data_are_cut_anew_and_their_status_carries_the_tag() {
    let target = target().await;
    let keys = keys().with("MaxRecvDataSegmentLength", "2048");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let before = initiator.exp_stat_sn;
    let (itt, data_ins, response) = read(&mut initiator, 8).await;
    assert_eq!(data_ins.len(), 2);
    initiator.exp_stat_sn = before;
    let text = Request::Text(initiator.text_request());
    let keys = Keys::none().with("MaxRecvDataSegmentLength", "1024");
    initiator.send(text, &keys.encode()).await;
    initiator.hear_again().await;
    let request = snack(&initiator, SnackType::RData, itt, Ttt(0x77), (0, 0));
    initiator.send(request, &[]).await;
    for sn in 0..4 {
        let Some(Pdu {
            response: Response::DataIn(pdu),
            data,
        }) = initiator.hear_again().await
        else {
            panic!("Data-In {sn} is missing");
        };
        assert_eq!((pdu.data_sn, data.len()), (sn, 1024));
    }
    let Some(Pdu {
        response: Response::ScsiResponse(again),
        ..
    }) = initiator.hear_again().await
    else {
        panic!("the status is missing");
    };
    assert_eq!(
        (again.stat_sn, again.snack_tag, again.exp_data_sn),
        (response.stat_sn, 0x77, 4)
    );
}

#[tokio::test]
async fn damaged_data_are_asked_for_again() {
    let target = target().await;
    let keys = keys().with("DataDigest", "CRC32C");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let data = vec![7; 4096];
    let (itt, _) = initiator.command(cdb::write_10(0, 8)).write(&data).start().await;
    let (first, _) = initiator.expect::<R2t>().await;
    let mut spoiled = data_out(&initiator, itt, first.ttt, (0, true), 0, &data);
    *spoiled.last_mut().unwrap() ^= 1;
    initiator.send_raw(&spoiled).await;
    let (second, _) = initiator.expect::<R2t>().await;
    assert_eq!((second.r2t_sn, second.offset, second.desired_len), (1, 0, 4096));
    expect_reject(&mut initiator, RejectReason::DataDigestError).await;
    let bytes = data_out(&initiator, itt, second.ttt, (0, true), 0, &data);
    initiator.send_raw(&bytes).await;
    let end = initiator.end_of(itt, &data, 4096).await;
    assert_eq!((end.status, end.exp_data_sn), (0, Some(2)));
    assert_eq!(initiator.read(0, 8).await, data);
}

#[tokio::test]
async fn what_is_missing_in_a_sequence_is_asked_for_when_it_ends() {
    let target = target().await;
    let mut initiator = log_in(&target).await;
    let data: Vec<u8> = (0..4096_u32).map(|n| n.to_le_bytes()[0]).collect();
    let (itt, _) = initiator.command(cdb::write_10(0, 8)).write(&data).start().await;
    let (first, _) = initiator.expect::<R2t>().await;
    for (sn, is_final) in [(0, false), (2, false), (3, true)] {
        let at = usize::try_from(sn).unwrap() * 1024;
        let piece = &data[at..at + 1024];
        let bytes = data_out(&initiator, itt, first.ttt, (sn, is_final), sn * 1024, piece);
        initiator.send_raw(&bytes).await;
    }
    let end = initiator.end_of(itt, &data, 1024).await;
    assert_eq!(end.status, 0);
    let asked: Vec<_> = end.r2ts.iter().map(|r2t| (r2t.offset, r2t.desired_len)).collect();
    assert_eq!(asked, [(1024, 3072)], "the first piece is here");
    assert_eq!(initiator.read(0, 8).await, data);
}

#[tokio::test]
async fn an_r2t_that_is_not_answered_is_sent_again_and_then_replaced() {
    let target = target().await;
    let mut initiator = log_in(&target).await;
    let data = vec![5; 512];
    let (itt, _) = initiator.command(cdb::write_10(0, 1)).write(&data).start().await;
    let (first, _) = initiator.expect::<R2t>().await;
    let (again, _) = initiator.expect::<R2t>().await;
    assert_eq!((again.ttt, again.r2t_sn), (first.ttt, first.r2t_sn));
    let (other, _) = initiator.expect::<R2t>().await;
    assert_ne!(other.ttt, first.ttt);
    assert_eq!((other.r2t_sn, other.offset, other.desired_len), (1, 0, 512));
    let bytes = data_out(&initiator, itt, other.ttt, (0, true), 0, &data);
    initiator.send_raw(&bytes).await;
    initiator.end_of(itt, &[], 512).await.good();
}

#[tokio::test]
async fn an_r2t_is_repeated_when_it_is_asked_for() {
    let target = Target::builder().set("ErrorRecoveryLevel", "1").start().await;
    let mut initiator = log_in(&target).await;
    let data = vec![6; 512];
    let (itt, _) = initiator.command(cdb::write_10(0, 1)).write(&data).start().await;
    let (first, _) = initiator.expect::<R2t>().await;
    let request = snack(&initiator, SnackType::DataOrR2t, itt, Ttt::RESERVED, (0, 1));
    initiator.send(request, &[]).await;
    let end = initiator.end_of(itt, &data, 512).await;
    assert_eq!((end.r2ts[0].ttt, end.r2ts[0].r2t_sn), (first.ttt, 0));
    end.good();
}

#[tokio::test]
async fn a_command_that_was_damaged_is_taken_when_it_comes_again() {
    let target = target().await;
    let keys = keys().with("DataDigest", "CRC32C");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let data = [4; 512];
    let next = initiator.cmd_sn;
    let command = initiator
        .command(cdb::write_10(0, 1))
        .write(&data)
        .immediate_data(512);
    let mut spoiled = command.bytes();
    *spoiled.last_mut().unwrap() ^= 1;
    initiator.send_raw(&spoiled).await;
    expect_reject(&mut initiator, RejectReason::DataDigestError).await;
    initiator.cmd_sn = next;
    let command = initiator
        .command(cdb::write_10(0, 1))
        .write(&data)
        .immediate_data(512);
    command.run().await.good();
}

#[tokio::test]
async fn a_damaged_header_ends_the_connection_at_every_level() {
    let target = target().await;
    let keys = keys().with("HeaderDigest", "CRC32C");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let request = snack(
        &initiator,
        SnackType::Status,
        Itt::RESERVED,
        Ttt::RESERVED,
        (0, 0),
    );
    let mut spoiled = initiator.encode(&request, &[]);
    spoiled[50] ^= 1;
    initiator.send_raw(&spoiled).await;
    initiator.expect_closed().await;
}

#[tokio::test]
async fn at_level_0_nothing_is_kept() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let request = snack(
        &initiator,
        SnackType::Status,
        Itt::RESERVED,
        Ttt::RESERVED,
        (0, 0),
    );
    initiator.send(request, &[]).await;
    expect_reject(&mut initiator, RejectReason::SnackReject).await;
}
