//! Logins over TCP, right and wrong: statuses of §11.13.5, CHAP, digests, discovery.

use iscsi_proto::Ttt;
use iscsi_proto::pdu::{LoginStage, LoginStatus, Response};
use target_core::control::{ChapCredential, ChapPolicy, Parameters, Secret};
use tests::conversation::{Initiator, Target, read_10};

const OPERATIONAL: LoginStage = LoginStage::Operational;
const FULL: LoginStage = LoginStage::FullFeature;
const SECURITY: LoginStage = LoginStage::Security;

#[tokio::test]
async fn refused_logins_get_the_status_of_their_mistake() {
    let target = Target::start().await;
    let name = ("InitiatorName", "iqn.2026-11.org.example:scripted");
    let cases: &[(&[(&str, &str)], LoginStatus)] = &[
        (&[("TargetName", Target::NAME)], LoginStatus::MissingParameter),
        (&[name], LoginStatus::MissingParameter),
        (
            &[name, ("TargetName", "iqn.2026-11.org.example:nobody")],
            LoginStatus::NotFound,
        ),
        (
            &[name, ("TargetName", Target::NAME), ("SessionType", "Odd")],
            LoginStatus::SessionTypeNotSupported,
        ),
    ];
    for (keys, status) in cases {
        let mut initiator = Initiator::connect(&target, 1).await;
        let (response, _) = initiator.login_keys(OPERATIONAL, FULL, keys).await;
        assert_eq!(response.status, *status, "{keys:?}");
        assert!(
            initiator.next().await.is_none(),
            "the connection ends with the refusal"
        );
    }
}

#[tokio::test]
async fn a_login_shows_its_portal_group_and_answers_every_offer() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target, 1).await;
    let offer = [
        ("MaxBurstLength", "65536"),
        ("HeaderDigest", "CRC32C,None"),
        ("X-org.example.odd", "1"),
    ];
    let (response, text) = initiator.login(OPERATIONAL, FULL, &offer).await;
    assert_eq!(response.status, LoginStatus::Success);
    assert_ne!(response.tsih.0, 0);
    let pairs: Vec<&str> = text.split_terminator('\0').collect();
    for pair in [
        "TargetPortalGroupTag=1",
        "MaxBurstLength=65536",
        "HeaderDigest=CRC32C",
        "X-org.example.odd=NotUnderstood",
    ] {
        assert!(pairs.contains(&pair), "{pair} is missing in {pairs:?}");
    }
}

fn chap() -> ChapPolicy {
    let credential = |name: &str, secret: &str| ChapCredential {
        name: name.into(),
        secret: Secret::new(secret.as_bytes().to_vec()),
    };
    ChapPolicy::Required {
        accepted: vec![credential("host", "a-secret-of-the-host")],
        own: Some(credential("disks", "a-secret-of-the-disks")),
    }
}

#[tokio::test]
async fn skipping_chap_or_answering_it_wrongly_is_an_authentication_failure() {
    let target = Target::with(Parameters::default(), chap()).await;
    let mut initiator = Initiator::connect(&target, 1).await;
    let (response, _) = initiator.login(OPERATIONAL, FULL, &[]).await;
    assert_eq!(response.status, LoginStatus::AuthenticationFailure);

    let mut initiator = Initiator::connect(&target, 1).await;
    let (response, text) = initiator
        .login(SECURITY, OPERATIONAL, &[("AuthMethod", "CHAP")])
        .await;
    assert_eq!(response.status, LoginStatus::Success);
    assert!(
        !response.transit && text.contains("AuthMethod=CHAP\0"),
        "{text:?}"
    );
    let (_, text) = initiator
        .login_keys(SECURITY, OPERATIONAL, &[("CHAP_A", "5,8")])
        .await;
    assert!(text.contains("CHAP_A=8\0"), "the strongest is chosen: {text:?}");
    let wrong = format!("0x{}", "00".repeat(32));
    let answer = [("CHAP_N", "host"), ("CHAP_R", wrong.as_str())];
    let (response, _) = initiator.login_keys(SECURITY, OPERATIONAL, &answer).await;
    assert_eq!(response.status, LoginStatus::AuthenticationFailure);
    assert!(initiator.next().await.is_none());
}

#[tokio::test]
async fn digests_hold_from_the_first_pdu_of_full_feature_phase() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(
        &target,
        1,
        &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")],
    )
    .await;
    initiator.clear_attentions().await;
    initiator.command(read_10(0, 3), 1536, b"").await;
    assert_eq!(initiator.data_in().await, (vec![0; 1536], 0));
}

#[tokio::test]
async fn a_discovery_session_is_told_the_target_and_serves_no_disk() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target, 1).await;
    let keys = [
        ("InitiatorName", "iqn.2026-11.org.example:scripted"),
        ("SessionType", "Discovery"),
    ];
    let (response, _) = initiator.login_keys(OPERATIONAL, FULL, &keys).await;
    assert_eq!(response.status, LoginStatus::Success);
    initiator
        .text(true, false, Ttt::RESERVED, b"SendTargets=All\0")
        .await;
    let (response, text) = initiator.receive().await;
    assert!(matches!(response, Response::Text(text) if text.is_final));
    let told = format!(
        "TargetName={}\0TargetAddress={},1\0",
        Target::NAME,
        target.address
    );
    assert_eq!(String::from_utf8(text).unwrap(), told);
    initiator.command(read_10(0, 1), 512, b"").await;
    assert!(matches!(initiator.receive().await.0, Response::Reject(_)));
}
