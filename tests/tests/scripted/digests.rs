//! Header and data digests (RFC 7143 §7.7, §7.8, §13.1).

use iscsi_proto::pdu::{
    DataOut, LoginStage, LoginStatus, NopOut, R2t, Reject, RejectReason, Request, ScsiCommand, TaskAttribute,
};
use iscsi_proto::{Lun, Ttt};
use target_core::iscsi::CloseReason;
use tests::script::{Initiator, Keys, Target, cdb};

#[tokio::test]
async fn every_combination_reads_and_writes() {
    let target = Target::start().await;
    for (header, data) in [
        ("None", "None"),
        ("CRC32C", "None"),
        ("None", "CRC32C"),
        ("CRC32C", "CRC32C"),
    ] {
        let mut initiator = Initiator::log_in_with(&target, 1, keys(header, data)).await;
        assert_eq!(initiator.digests.header, header == "CRC32C");
        assert_eq!(initiator.digests.data, data == "CRC32C");
        // Lengths that are padded, and longer ones than a data segment.
        for immediate in [0, 1, 513, 2048] {
            let fill = u8::try_from(immediate % 200).unwrap() + 1;
            initiator
                .command(cdb::write_10(0, 300))
                .write(&vec![fill; 300 * 512])
                .immediate_data(immediate)
                .in_pieces_of(10_001)
                .run()
                .await
                .good();
            assert_eq!(initiator.read(0, 300).await, vec![fill; 300 * 512]);
        }
        initiator.ping().await;
        initiator.log_out().await;
    }
}

#[tokio::test]
async fn a_wrong_header_digest_ends_the_connection() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in_with(&target, 1, keys("CRC32C", "None")).await;
    let request = Request::NopOut(nop(&mut initiator));
    let mut bytes = initiator.encode(&request, &[]);
    // The digest stands behind the 48 bytes of the header.
    bytes[48] ^= 1;
    initiator.send_raw(&bytes).await;
    initiator.expect_closed().await;
    drop(initiator);
    let ends = target.ended(1).await;
    assert!(
        matches!(&ends[0], CloseReason::Transport(closed) if closed.to_string().contains("header digest")),
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_wrong_data_digest_on_a_ping_is_rejected_and_the_session_goes_on() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in_with(&target, 1, keys("CRC32C", "CRC32C")).await;
    let request = Request::NopOut(nop(&mut initiator));
    let mut bytes = initiator.encode(&request, b"ping");
    spoil_last(&mut bytes);
    initiator.send_raw(&bytes).await;
    let (reject, header) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, RejectReason::DataDigestError);
    assert_eq!(header[16..20], request.itt().0.to_be_bytes());
    initiator.ping().await;
}

#[tokio::test]
async fn a_command_whose_immediate_data_are_damaged_does_not_run() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in_with(&target, 1, keys("CRC32C", "CRC32C")).await;
    let request = Request::ScsiCommand(ScsiCommand {
        immediate: false,
        is_final: true,
        read: false,
        write: true,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: initiator.itt(),
        expected_len: 512,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
        cdb: cdb::write_10(0, 1),
    });
    let mut bytes = initiator.encode(&request, &[0x66; 512]);
    spoil_last(&mut bytes);
    initiator.send_raw(&bytes).await;
    let (reject, _) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, RejectReason::DataDigestError);
    assert_eq!(
        reject.exp_cmd_sn, initiator.cmd_sn,
        "its number is still expected (§7.3)"
    );
    // The initiator sends it again under the same number.
    initiator.write(1, &[0x11; 512]).await;
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_damaged_data_out_fails_its_command() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in_with(&target, 1, keys("CRC32C", "CRC32C")).await;
    let data = [0x66; 4096];
    let (itt, _) = initiator.command(cdb::write_10(0, 8)).write(&data).start().await;
    let (r2t, _) = initiator.expect::<R2t>().await;
    assert_eq!((r2t.offset, r2t.desired_len), (0, 4096));
    let pdu = Request::DataOut(DataOut {
        is_final: true,
        lun: Lun::ZERO,
        itt,
        ttt: r2t.ttt,
        exp_stat_sn: initiator.exp_stat_sn,
        data_sn: 0,
        offset: 0,
    });
    let mut bytes = initiator.encode(&pdu, &data);
    spoil_last(&mut bytes);
    initiator.send_raw(&bytes).await;
    // At ErrorRecoveryLevel 0 nothing is asked for again: a Reject is sent, and the command fails (§7.8).
    let (reject, header) = initiator.expect::<Reject>().await;
    assert_eq!(reject.reason, RejectReason::DataDigestError);
    assert_eq!(header[16..20], itt.0.to_be_bytes());
    let end = initiator.end_of(itt, &data, 4096).await;
    assert_eq!(end.sense(), (0xb, 0x47, 0x05));
    assert_eq!(
        initiator.read(0, 8).await,
        [0; 4096],
        "nothing of it is on the disk"
    );
}

#[tokio::test]
async fn a_digest_that_is_required_and_not_offered_refuses_the_login() {
    let target = Target::builder().set("HeaderDigest", "CRC32C").start().await;
    let mut initiator = Initiator::connect(&target).await;
    let stages = (LoginStage::Operational, Some(LoginStage::FullFeature));
    let (response, _) = initiator.login_step(stages, keys("None", "None")).await;
    assert_ne!(response.status, LoginStatus::Success);
    initiator.expect_closed().await;
    let mut initiator = Initiator::log_in_with(&target, 1, keys("None,CRC32C", "None")).await;
    assert!(initiator.digests.header);
    initiator.ping().await;
}

#[tokio::test]
async fn a_digest_that_is_required_is_not_forgotten_when_the_initiator_does_not_speak_of_it() {
    let target = Target::builder().set("HeaderDigest", "CRC32C").start().await;
    let mut initiator = Initiator::connect(&target).await;
    let stages = (LoginStage::Operational, Some(LoginStage::FullFeature));
    let (response, pairs) = initiator.login_step(stages, Keys::normal()).await;
    // It is refused, or the target asks for the digest itself; it is not let in without.
    let asked = pairs.iter().any(|pair| pair.key == "HeaderDigest");
    assert!(
        response.status != LoginStatus::Success || asked,
        "{response:?} {pairs:?}"
    );
}

fn keys(header: &str, data: &str) -> Keys {
    Keys::normal()
        .with("HeaderDigest", header)
        .with("DataDigest", data)
}

fn nop(initiator: &mut Initiator) -> NopOut {
    NopOut {
        immediate: true,
        lun: Lun::ZERO,
        itt: initiator.itt(),
        ttt: Ttt::RESERVED,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
    }
}

/// Damages the last byte: of the data digest.
fn spoil_last(bytes: &mut [u8]) {
    *bytes.last_mut().unwrap() ^= 0x80;
}
