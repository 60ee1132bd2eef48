//! Logging in over a socket (RFC 7143 §6.3): what the whole target answers. Every key and stage by itself is tested
//! beside the login machine.

use iscsi_proto::pdu::{LoginRequest, LoginResponse, LoginStage, LoginStatus, Request};
use iscsi_proto::text::{KeyValue, format_hex, parse_binary};
use iscsi_proto::{Sn, Tsih};
use sha3::{Digest, Sha3_256};
use target_core::control::{Access, ChapCredential, ChapPolicy, Secret};
use target_core::iscsi::CloseReason;
use tests::script::{INITIATOR, Initiator, Keys, Target, cdb};

use LoginStage::{FullFeature, Operational, Security};

#[tokio::test]
async fn one_request_is_enough() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let stages = (Operational, Some(FullFeature));
    let (response, pairs) = initiator.login_step(stages, Keys::normal()).await;
    assert_eq!(response.status, LoginStatus::Success);
    assert!(response.transit);
    assert_eq!(response.next_stage, FullFeature);
    assert_ne!(response.tsih, Tsih::NEW);
    // The window is 128 wide, and the login took no CmdSN.
    assert_eq!(response.exp_cmd_sn, initiator.cmd_sn);
    assert_eq!(response.max_cmd_sn, initiator.cmd_sn.plus(127));
    assert_eq!(value(&pairs, "TargetPortalGroupTag"), Some("1"));
    assert_eq!(value(&pairs, "MaxRecvDataSegmentLength"), Some("262144"));
    initiator.enter(&response, &pairs);
    initiator.ping().await;
}

#[tokio::test]
async fn three_stages_lead_there_too() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let keys = Keys::normal()
        .without("MaxRecvDataSegmentLength")
        .with("AuthMethod", "CHAP,None");
    let (response, pairs) = initiator.login_step((Security, Some(Operational)), keys).await;
    assert!(response.transit);
    assert_eq!(response.tsih, Tsih::NEW, "there is no session yet");
    assert_eq!(value(&pairs, "AuthMethod"), Some("None"));
    let (response, _) = initiator
        .login_step((Operational, None), Keys::from([("HeaderDigest", "None")]))
        .await;
    assert!(!response.transit);
    let (response, pairs) = initiator
        .login_step((Operational, Some(FullFeature)), Keys::none())
        .await;
    assert!(response.transit);
    assert_ne!(response.tsih, Tsih::NEW);
    initiator.enter(&response, &pairs);
    initiator.ping().await;
}

#[tokio::test]
async fn counters_begin_where_the_initiator_says() {
    let target = Target::start().await;
    for (cmd_sn, exp_stat_sn) in [
        (0, 0),
        (1, 1),
        (0xffff_ffff, 0xffff_ffff),
        (0x7fff_ffff, 0x8000_0000),
    ] {
        let mut initiator = Initiator::connect(&target).await;
        (initiator.cmd_sn, initiator.exp_stat_sn) = (Sn(cmd_sn), Sn(exp_stat_sn));
        initiator.login(Keys::normal()).await;
        initiator.clear_attentions().await;
        initiator.log_out().await;
    }
}

#[tokio::test]
async fn a_text_may_go_on_over_several_requests() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let text = Keys::normal().encode();
    // Cut in the middle of a key.
    let (first, second) = text.split_at(20);
    let request = LoginRequest {
        transit: false,
        continues: true,
        ..initiator.login_request((Operational, None))
    };
    initiator.send(Request::Login(request), first).await;
    let (response, data) = initiator.expect::<LoginResponse>().await;
    assert!(!response.transit && !response.continues && data.is_empty());
    let request = initiator.login_request((Operational, Some(FullFeature)));
    initiator.send(Request::Login(request), second).await;
    let (response, _) = initiator.expect::<LoginResponse>().await;
    assert_eq!((response.status, response.transit), (LoginStatus::Success, true));
}

#[tokio::test]
async fn what_is_refused_has_its_status_and_ends_the_connection() {
    let target = Target::builder()
        .access(Access::Initiators(vec![INITIATOR.parse().unwrap()]))
        .start()
        .await;
    let stranger = "iqn.2026-11.org.example:stranger";
    let cases = [
        (
            Keys::normal().without("InitiatorName"),
            LoginStatus::MissingParameter,
        ),
        (
            Keys::normal().without("TargetName"),
            LoginStatus::MissingParameter,
        ),
        (
            Keys::normal().with("TargetName", "iqn.2026-11.org.example:other"),
            LoginStatus::NotFound,
        ),
        (
            Keys::normal().with("InitiatorName", stranger),
            LoginStatus::AuthorizationFailure,
        ),
        (
            Keys::normal().with("SessionType", "Weird"),
            LoginStatus::SessionTypeNotSupported,
        ),
        (
            Keys::normal().with("InitiatorName", "no name"),
            LoginStatus::InitiatorError,
        ),
    ];
    for (count, (keys, status)) in cases.into_iter().enumerate() {
        let mut initiator = Initiator::connect(&target).await;
        let (response, _) = initiator
            .login_step((Operational, Some(FullFeature)), keys.clone())
            .await;
        assert_eq!(response.status, status, "{keys:?}");
        initiator.expect_closed().await;
        drop(initiator);
        let ends = target.ended(count + 1).await;
        assert!(
            matches!(ends.last(), Some(CloseReason::LoginFailed(_))),
            "{ends:?}"
        );
    }
    assert_eq!(target.node().sessions().len(), 0);
}

#[tokio::test]
async fn a_redirected_login_is_told_where_to_go_and_discovery_is_not_redirected() {
    for (value, status) in [
        ("192.0.2.7:3260", LoginStatus::TargetMovedTemporarily),
        (
            "[2001:db8::7]:3260,permanent",
            LoginStatus::TargetMovedPermanently,
        ),
    ] {
        let target = Target::builder().set("redirect", value).start().await;
        let mut initiator = Initiator::connect(&target).await;
        let (response, pairs) = initiator
            .login_step((Operational, Some(FullFeature)), Keys::normal())
            .await;
        assert_eq!(response.status, status);
        assert!(!response.transit);
        let told: Vec<_> = pairs
            .iter()
            .map(|pair| (pair.key.as_str(), pair.value.as_str()))
            .collect();
        let address = value.split(',').next().unwrap();
        assert_eq!(told, [("TargetAddress", address)]);
        initiator.expect_closed().await;
        Initiator::discover(&target).await.log_out().await;
    }
}

// §11.13.5: before or after the security negotiation, as the target likes. §13.8: without a portal group tag.
#[tokio::test]
async fn a_login_is_redirected_before_it_is_asked_for_chap() {
    for (value, status) in [
        ("192.0.2.7:3260", LoginStatus::TargetMovedTemporarily),
        (
            "san.example.org:860,permanent",
            LoginStatus::TargetMovedPermanently,
        ),
    ] {
        let target = Target::builder()
            .chap(chap())
            .set("redirect", value)
            .start()
            .await;
        let mut initiator = Initiator::connect(&target).await;
        let keys = Keys::normal()
            .without("MaxRecvDataSegmentLength")
            .with("AuthMethod", "CHAP,None");
        let (response, pairs) = initiator.login_step((Security, Some(Operational)), keys).await;
        assert_eq!((response.status, response.transit), (status, false));
        let address = value.split(',').next().unwrap();
        assert_eq!(value_of_only(&pairs, "TargetAddress"), address);
        initiator.expect_closed().await;
    }
}

#[tokio::test]
async fn who_is_not_admitted_is_not_told_where_a_target_has_moved() {
    let nobody = Access::Initiators(vec![]);
    let target = Target::builder()
        .access(nobody)
        .set("redirect", "192.0.2.7:3260")
        .start()
        .await;
    let mut initiator = Initiator::connect(&target).await;
    let (response, pairs) = initiator
        .login_step((Operational, Some(FullFeature)), Keys::normal())
        .await;
    assert_eq!(response.status, LoginStatus::AuthorizationFailure);
    assert_eq!(pairs, []);
}

#[tokio::test]
async fn a_redirect_names_its_own_address_where_address_rules_tell_discovery_another() {
    let target = Target::builder()
        .set("redirect", "192.0.2.7:3260")
        .advertise("127.0.0.0/8", "198.51.100.1:3260")
        .start()
        .await;
    let mut discovering = Initiator::discover(&target).await;
    let pairs = discovering.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(value(&pairs, "TargetAddress"), Some("198.51.100.1:3260,1"));
    let mut initiator = Initiator::connect(&target).await;
    let (response, pairs) = initiator
        .login_step((Operational, Some(FullFeature)), Keys::normal())
        .await;
    assert_eq!(response.status, LoginStatus::TargetMovedTemporarily);
    assert_eq!(value_of_only(&pairs, "TargetAddress"), "192.0.2.7:3260");
}

#[tokio::test]
async fn another_version_is_not_spoken() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let request = LoginRequest {
        version_min: 1,
        version_max: 1,
        ..initiator.login_request((Operational, Some(FullFeature)))
    };
    initiator
        .send(Request::Login(request), &Keys::normal().encode())
        .await;
    let (response, _) = initiator.expect::<LoginResponse>().await;
    assert_eq!(response.status, LoginStatus::UnsupportedVersion);
    initiator.expect_closed().await;
}

#[tokio::test]
async fn mutual_chap_proves_both_ends() {
    let target = Target::builder().chap(chap()).start().await;
    let mut initiator = Initiator::connect(&target).await;
    let (id, challenge) = challenge(&mut initiator).await;
    let ours = b"a challenge of sixteen";
    let keys = Keys::from([
        ("CHAP_N", "alice"),
        (
            "CHAP_R",
            &format_hex(&proof(id, b"alice's long secret", &challenge)),
        ),
        ("CHAP_I", "7"),
        ("CHAP_C", &format_hex(ours)),
    ]);
    let (response, pairs) = initiator.login_step((Security, Some(Operational)), keys).await;
    assert_eq!((response.status, response.transit), (LoginStatus::Success, true));
    assert_eq!(value(&pairs, "CHAP_N"), Some("target"));
    let answer = parse_binary(value(&pairs, "CHAP_R").unwrap(), 1024).unwrap();
    assert_eq!(answer, proof(7, b"the target's secret", ours));
    let (response, pairs) = initiator
        .login_step((Operational, Some(FullFeature)), Keys::none())
        .await;
    initiator.enter(&response, &pairs);
    initiator.ping().await;
    assert_eq!(
        target.node().sessions()[0].authenticated_as.as_deref(),
        Some("alice")
    );
}

#[tokio::test]
async fn a_wrong_secret_does_not_let_in() {
    let target = Target::builder().chap(chap()).start().await;
    for (name, secret) in [
        ("alice", &b"not alice's secret"[..]),
        ("bob", b"alice's long secret"),
    ] {
        let mut initiator = Initiator::connect(&target).await;
        let (id, challenge) = challenge(&mut initiator).await;
        let response = format_hex(&proof(id, secret, &challenge));
        let keys = Keys::from([("CHAP_N", name), ("CHAP_R", &response)]);
        let (response, _) = initiator.login_step((Security, Some(Operational)), keys).await;
        assert_eq!(response.status, LoginStatus::AuthenticationFailure);
        initiator.expect_closed().await;
    }
}

#[tokio::test]
async fn a_proof_heard_on_one_connection_is_worth_nothing_on_another() {
    let target = Target::builder().chap(chap()).start().await;
    let mut initiator = Initiator::connect(&target).await;
    let (id, heard) = challenge(&mut initiator).await;
    let proof = format_hex(&proof(id, b"alice's long secret", &heard));
    let mut thief = Initiator::connect(&target).await;
    let (_, other) = challenge(&mut thief).await;
    assert_ne!(heard, other);
    let keys = Keys::from([("CHAP_N", "alice"), ("CHAP_R", &proof)]);
    let (response, _) = thief.login_step((Security, Some(Operational)), keys).await;
    assert_eq!(response.status, LoginStatus::AuthenticationFailure);
}

#[tokio::test]
async fn who_must_prove_itself_cannot_skip_the_security_stage() {
    let target = Target::builder().chap(chap()).start().await;
    for keys in [Keys::normal(), Keys::normal().with("AuthMethod", "None")] {
        let mut initiator = Initiator::connect(&target).await;
        let stage = if keys.encode().windows(4).any(|word| word == b"Auth") {
            (Security, Some(Operational))
        } else {
            (Operational, Some(FullFeature))
        };
        let (response, _) = initiator.login_step(stage, keys).await;
        assert_eq!(response.status, LoginStatus::AuthenticationFailure);
        initiator.expect_closed().await;
    }
}

#[tokio::test]
async fn the_rules_change_between_the_last_response_and_the_next_request() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let keys = Keys::normal()
        .with("HeaderDigest", "CRC32C")
        .with("DataDigest", "CRC32C");
    // The response has no digest, though it agrees on both; the request behind it has.
    initiator.login(keys).await;
    assert!(initiator.digests.header && initiator.digests.data);
    initiator.clear_attentions().await;
    let end = initiator.command(cdb::inquiry(96)).read(96).run().await;
    assert_eq!(&end.good().data[8..16], b"LUNAPORT");
}

#[tokio::test]
async fn a_login_may_be_followed_by_a_command_in_the_same_segment() {
    let target = Target::start().await;
    let mut initiator = Initiator::connect(&target).await;
    let login = Request::Login(initiator.login_request((Operational, Some(FullFeature))));
    let mut bytes = initiator.encode(&login, &Keys::normal().encode());
    let ping = Request::NopOut(iscsi_proto::pdu::NopOut {
        immediate: true,
        lun: iscsi_proto::Lun::ZERO,
        itt: iscsi_proto::Itt(9),
        ttt: iscsi_proto::Ttt::RESERVED,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: initiator.exp_stat_sn,
    });
    bytes.extend(initiator.encode(&ping, b"eager"));
    initiator.send_raw(&bytes).await;
    let (response, _) = initiator.expect::<LoginResponse>().await;
    assert!(response.transit);
    let (nop, data) = initiator.expect::<iscsi_proto::pdu::NopIn>().await;
    assert_eq!((nop.itt, data.as_slice()), (iscsi_proto::Itt(9), &b"eager"[..]));
}

fn chap() -> ChapPolicy {
    let credential = |name: &str, secret: &[u8]| ChapCredential {
        name: name.into(),
        secret: Secret::new(secret.to_vec()),
    };
    ChapPolicy::Required {
        accepted: vec![credential("alice", b"alice's long secret")],
        own: Some(credential("target", b"the target's secret")),
    }
}

/// Goes as far as the target's challenge, with SHA3-256.
async fn challenge(initiator: &mut Initiator) -> (u8, Vec<u8>) {
    let keys = Keys::normal()
        .without("MaxRecvDataSegmentLength")
        .with("AuthMethod", "CHAP,None");
    let (_, pairs) = initiator.login_step((Security, Some(Operational)), keys).await;
    assert_eq!(value(&pairs, "AuthMethod"), Some("CHAP"));
    let (response, pairs) = initiator
        .login_step((Security, None), Keys::from([("CHAP_A", "5,8")]))
        .await;
    assert!(!response.transit);
    assert_eq!(value(&pairs, "CHAP_A"), Some("8"), "the stronger one");
    let id = value(&pairs, "CHAP_I").unwrap().parse().unwrap();
    (id, parse_binary(value(&pairs, "CHAP_C").unwrap(), 1024).unwrap())
}

fn proof(id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    let mut hash = Sha3_256::new();
    hash.update([id]);
    hash.update(secret);
    hash.update(challenge);
    hash.finalize().to_vec()
}

/// The value of a key that is the only one.
fn value_of_only<'a>(pairs: &'a [KeyValue], key: &str) -> &'a str {
    let [pair] = pairs else { panic!("{pairs:?}") };
    assert_eq!(pair.key, key);
    &pair.value
}

fn value<'a>(pairs: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    Some(pair.value.as_str())
}
