//! Logins that are refused, each with the status that the standard has for it.

use super::*;
use LoginStage::{FullFeature, Operational, Security};

/// The first request is refused: with which status, and what the log says.
#[track_caller]
fn refused(directory: Directory, pairs: &[(&str, &str)], status: LoginStatus, words: &str) -> LoginFailure {
    let failure = Script::new(directory).stay(Security, pairs).refused();
    assert_eq!(failure.status, status, "{failure}");
    assert!(failure.to_string().contains(words), "{failure}");
    failure
}

#[test]
fn names_decide_before_anything_else() {
    use LoginStatus::{InitiatorError, MissingParameter, NotFound, SessionTypeNotSupported};
    let initiator = ("InitiatorName", INITIATOR);
    refused(directory(target()), &[], MissingParameter, "InitiatorName");
    refused(
        directory(target()),
        &[("TargetName", TARGET)],
        MissingParameter,
        "InitiatorName",
    );
    refused(directory(target()), &[initiator], MissingParameter, "TargetName");
    refused(
        directory(target()),
        &[initiator, ("SessionType", "Boot")],
        SessionTypeNotSupported,
        "Boot",
    );
    refused(
        directory(target()),
        &[initiator, ("TargetName", "iqn.2024-01.org.example:nothing")],
        NotFound,
        "iqn.2024-01.org.example:nothing",
    );
    refused(
        directory(target()),
        &[initiator, ("TargetName", "disk")],
        NotFound,
        "TargetName is malformed",
    );
    refused(
        directory(target()),
        &[("InitiatorName", "host"), ("TargetName", TARGET)],
        InitiatorError,
        "InitiatorName is malformed",
    );
}

#[test]
fn an_initiator_that_is_not_admitted_is_told_so_and_named() {
    let mut target = target();
    target.access = Access::Initiators(vec!["iqn.2024-01.org.example:other".parse().unwrap()]);
    let failure = refused(
        directory(target),
        NAMES,
        LoginStatus::AuthorizationFailure,
        "does not admit the initiator iqn.1993-08.org.debian:01:abc",
    );
    assert_eq!(failure.initiator.as_deref(), Some(INITIATOR));
    assert_eq!(failure.target.as_deref(), Some(TARGET));
    assert_eq!(
        failure.fix,
        "add iqn.1993-08.org.debian:01:abc to the initiators that the target admits"
    );
}

#[test]
fn a_protocol_version_beyond_ours_is_refused() {
    let mut script = Script::new(directory(target()));
    script.request.version_min = 1;
    script.request.version_max = 2;
    let failure = script.stay(Security, NAMES).refused();
    assert_eq!(failure.status, LoginStatus::UnsupportedVersion);
}

#[test]
fn stages_go_forward_only() {
    for (from, to) in [
        (Security, Security),
        (Operational, Security),
        (Operational, Operational),
        (FullFeature, FullFeature),
    ] {
        let failure = Script::new(directory(target())).go(from, to, NAMES).refused();
        assert_eq!(failure.status, LoginStatus::InitiatorError, "{from:?} to {to:?}");
    }
    let mut script = Script::new(directory(target()));
    script.stay(Operational, NAMES).answered();
    let failure = script.stay(Security, &[]).refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
}

#[test]
fn transit_and_continue_exclude_each_other() {
    let mut script = Script::new(directory(target()));
    script.request.continues = true;
    let failure = script.go(Operational, FullFeature, NAMES).refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
    assert!(failure.reason.contains("T and C"), "{failure}");
}

#[test]
fn what_identifies_a_login_cannot_change() {
    let changes: [fn(&mut LoginRequest); 4] = [
        |request| request.isid = Isid([0; 6]),
        |request| request.tsih = Tsih(1),
        |request| request.cid = Cid(1),
        |request| request.itt = Itt(8),
    ];
    for change in changes {
        let mut script = Script::new(directory(target()));
        script.stay(Operational, NAMES).answered();
        change(&mut script.request);
        let failure = script.stay(Operational, &[]).refused();
        assert_eq!(failure.status, LoginStatus::InitiatorError);
    }
}

#[test]
fn names_may_be_repeated_but_not_changed() {
    let mut script = Script::new(directory(target()));
    script.stay(Operational, NAMES).answered();
    script.stay(Operational, NAMES).answered();
    let failure = script
        .stay(Operational, &[("InitiatorName", "iqn.2024-01.org.example:other")])
        .refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
    assert!(failure.reason.contains("InitiatorName twice"), "{failure}");
}

#[test]
fn a_key_is_negotiated_once() {
    let keys = [("MaxBurstLength", "4096"), ("MaxBurstLength", "4096")];
    let failure = operational(directory(target()), &keys).refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
    assert!(failure.reason.contains("MaxBurstLength"), "{failure}");
}

#[test]
fn malformed_text_is_refused() {
    for text in [&b"InitiatorName"[..], b"a\0", b"=b\0", b"a=\xff\0", b"a=b\0\0"] {
        let failure = Script::new(directory(target())).send(text).refused();
        assert_eq!(failure.status, LoginStatus::InitiatorError, "{text:?}");
    }
}

#[test]
fn text_of_one_login_is_bounded() {
    let mut script = Script::new(directory(target()));
    script.request.continues = true;
    for _ in 0..8 {
        script.send(&[b'x'; 8192]).answered();
    }
    let failure = script.send(b"x").refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
    assert!(failure.reason.contains("65536 bytes"), "{failure}");
}

#[test]
fn requests_of_one_login_are_bounded() {
    let mut script = Script::new(directory(target()));
    script.stay(Operational, NAMES).answered();
    for _ in 1..64 {
        script.stay(Operational, &[]).answered();
    }
    let failure = script.stay(Operational, &[]).refused();
    assert!(failure.reason.contains("64 requests"), "{failure}");
}

#[test]
fn a_digest_that_the_target_insists_on_must_be_agreed() {
    let insisting = || {
        let mut target = target();
        target.parameters.header_digest = vec![true];
        directory(target)
    };
    for keys in [&[][..], &[("HeaderDigest", "None")]] {
        let failure = operational(insisting(), keys).refused();
        assert_eq!(failure.status, LoginStatus::InitiatorError);
        assert!(failure.reason.contains("HeaderDigest=CRC32C"), "{failure}");
    }
    operational(insisting(), &[("HeaderDigest", "CRC32C")]).admitted();
}

#[test]
fn admission_that_is_denied_tells_why() {
    let mut script = Script::new(directory(target()));
    script.request.transit = true;
    script.request.current_stage = Operational;
    script.request.next_stage = FullFeature;
    let login = script.login.take().unwrap();
    let LoginStep::Admit(pending) = login.handle(&script.request, &encode(NAMES)) else {
        panic!("not agreed");
    };
    let (failure, answer) = pending.refused(
        LoginStatus::TooManyConnections,
        "the session has its one connection".to_owned(),
        "set MaxConnections to 1 in the initiator".to_owned(),
    );
    assert_eq!(answer.status, LoginStatus::TooManyConnections);
    assert!(!answer.transit && answer.text.is_empty());
    assert_eq!(failure.target.as_deref(), Some(TARGET));
}
