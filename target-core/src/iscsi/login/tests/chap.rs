//! CHAP in logins: every algorithm, both directions, and what must be refused.

use super::*;
use LoginStage::{FullFeature, Operational, Security};

const AUTH: &[(&str, &str)] = &[("AuthMethod", "CHAP")];

fn locked() -> Directory {
    let mut target = target();
    target.chap = chap_policy();
    directory(target)
}

/// Up to the challenge. Gives algorithm, identifier and challenge.
fn challenged(script: &mut Script, list: &str) -> (u8, u8, Vec<u8>) {
    let answer = script.stay(Security, &[NAMES, AUTH].concat()).answered();
    assert_eq!(said(&answer), ["AuthMethod=CHAP", "TargetPortalGroupTag=1"]);
    let answer = script.stay(Security, &[("CHAP_A", list)]).answered();
    let pairs = parse_pairs(&answer.text).unwrap();
    let value = |key: &str| &pairs.iter().find(|pair| pair.key == key).unwrap().value;
    (
        value("CHAP_A").parse().unwrap(),
        value("CHAP_I").parse().unwrap(),
        parse_binary(value("CHAP_C"), 1024).unwrap(),
    )
}

fn response(list: &str, id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    let algorithm = Algorithm::strongest_of(list).unwrap();
    algorithm.response(id, &Secret::new(secret.to_vec()), challenge)
}

/// A login as alice with a given secret and further keys.
fn answer_challenge(secret: &[u8], name: &str, more: &[(&str, &str)]) -> Outcome {
    let mut script = Script::new(locked());
    let (_, id, challenge) = challenged(&mut script, "5");
    let proof = format_hex(&response("5", id, secret, &challenge));
    let pairs = [&[("CHAP_N", name), ("CHAP_R", &proof)], more].concat();
    script.go(Security, FullFeature, &pairs)
}

#[track_caller]
fn denied(outcome: Outcome, words: &str) {
    let failure = outcome.refused();
    assert_eq!(failure.status, LoginStatus::AuthenticationFailure, "{failure}");
    assert!(failure.to_string().contains(words), "{failure}");
    let log = format!("{failure:?}");
    for secret in [SECRET, OWN_SECRET] {
        assert!(!log.contains(str::from_utf8(secret).unwrap()), "{log}");
    }
}

#[test]
fn every_algorithm_logs_in_and_the_strongest_offered_is_used() {
    for (list, number, len) in [("5", 5, 16), ("6,5", 6, 20), ("7,5", 7, 32), ("5,6,7,8", 8, 32)] {
        let mut script = Script::new(locked());
        let (algorithm, id, challenge) = challenged(&mut script, list);
        assert_eq!((algorithm, id, challenge.len()), (number, 0x5a, len));
        let proof = format_hex(&response(list, id, SECRET, &challenge));
        let answer = script
            .go(Security, Operational, &[("CHAP_N", "alice"), ("CHAP_R", &proof)])
            .answered();
        assert!(answer.transit && answer.text.is_empty());
        let (admission, _) = script.go(Operational, FullFeature, &[]).admitted();
        assert_eq!(admission.authenticated_as.as_deref(), Some("alice"));
    }
}

#[test]
fn base64_responses_are_read() {
    let mut script = Script::new(locked());
    let (_, id, challenge) = challenged(&mut script, "7");
    let proof = text::format_base64(&response("7", id, SECRET, &challenge));
    script
        .go(Security, FullFeature, &[("CHAP_N", "alice"), ("CHAP_R", &proof)])
        .admitted();
}

#[test]
fn mutual_chap_proves_the_target() {
    let (_, answer) = answer_challenge(SECRET, "alice", &[("CHAP_I", "17"), ("CHAP_C", "0x0102")]).admitted();
    let proof = format_hex(&response("5", 17, OWN_SECRET, &[1, 2]));
    assert_eq!(
        said(&answer),
        ["CHAP_N=storage".to_owned(), format!("CHAP_R={proof}")]
    );
}

#[test]
fn a_wrong_secret_or_name_is_denied() {
    denied(answer_challenge(b"wrong", "alice", &[]), "\"alice\" is wrong");
    denied(answer_challenge(SECRET, "bob", &[]), "\"bob\" is not accepted");
    denied(
        answer_challenge(SECRET, "Alice", &[]),
        "\"Alice\" is not accepted",
    );
}

#[test]
fn our_own_challenge_is_not_answered() {
    let mirrored = format_hex(&[0x5a; 16]);
    denied(
        answer_challenge(SECRET, "alice", &[("CHAP_I", "1"), ("CHAP_C", &mirrored)]),
        "our own CHAP challenge",
    );
}

#[test]
fn one_secret_for_both_directions_is_denied() {
    let mut target = target();
    let ChapPolicy::Required { accepted, .. } = chap_policy() else {
        unreachable!();
    };
    target.chap = ChapPolicy::Required {
        own: Some(accepted[0].clone()),
        accepted,
    };
    let mut script = Script::new(directory(target));
    let (_, id, challenge) = challenged(&mut script, "5");
    let proof = format_hex(&response("5", id, SECRET, &challenge));
    let pairs = [
        ("CHAP_N", "alice"),
        ("CHAP_R", &proof),
        ("CHAP_I", "1"),
        ("CHAP_C", "0x01"),
    ];
    denied(script.go(Security, FullFeature, &pairs), "different secrets");
}

#[test]
fn malformed_steps_are_denied() {
    for (key, value) in [
        ("CHAP_I", "256"),
        ("CHAP_I", "x"),
        ("CHAP_C", "0x"),
        ("CHAP_C", "zz"),
    ] {
        let other = if key == "CHAP_I" {
            ("CHAP_C", "0x01")
        } else {
            ("CHAP_I", "1")
        };
        denied(
            answer_challenge(SECRET, "alice", &[(key, value), other]),
            "malformed",
        );
    }
    let long = format_hex(&[1; 1025]);
    denied(
        answer_challenge(SECRET, "alice", &[("CHAP_I", "1"), ("CHAP_C", &long)]),
        "malformed",
    );
    let mut script = Script::new(locked());
    challenged(&mut script, "5");
    let long = format_hex(&[1; 17]);
    denied(
        script.stay(Security, &[("CHAP_N", "alice"), ("CHAP_R", &long)]),
        "no response of the algorithm",
    );
}

#[test]
fn steps_out_of_turn_break_the_protocol() {
    let proof = [("CHAP_N", "alice"), ("CHAP_R", "0x00")];
    for pairs in [&[("CHAP_A", "5")][..], &proof, &[("CHAP_I", "1")]] {
        let mut script = Script::new(locked());
        let failure = script.stay(Security, &[NAMES, pairs].concat()).refused();
        assert_eq!(failure.status, LoginStatus::InitiatorError, "{pairs:?}");
    }
    let mut script = Script::new(locked());
    challenged(&mut script, "5");
    let failure = script.stay(Security, &[("CHAP_N", "alice")]).refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
}

#[test]
fn no_common_algorithm_is_denied() {
    let mut script = Script::new(locked());
    script.stay(Security, &[NAMES, AUTH].concat()).answered();
    denied(script.stay(Security, &[("CHAP_A", "9,57")]), "CHAP_A=\"9,57\"");
}

#[test]
fn policy_decides_not_what_is_offered() {
    for (required, offered, chosen) in [
        (false, "None", Some("AuthMethod=None")),
        (false, "CHAP,None", Some("AuthMethod=None")),
        (false, "CHAP", None),
        (true, "None", None),
        (true, "CHAP,None", Some("AuthMethod=CHAP")),
        (true, "None,CHAP", Some("AuthMethod=CHAP")),
        (true, "KRB5", None),
    ] {
        let directory = if required { locked() } else { directory(target()) };
        let pairs = [NAMES, &[("AuthMethod", offered)]].concat();
        let outcome = Script::new(directory).stay(Security, &pairs);
        match chosen {
            Some(chosen) => assert!(
                said(&outcome.answered()).contains(&chosen.to_owned()),
                "{offered}"
            ),
            None => denied(outcome, offered),
        }
    }
}

#[test]
fn chap_cannot_be_gone_around() {
    denied(
        Script::new(locked()).stay(Operational, NAMES),
        "skipped the security stage",
    );
    denied(
        Script::new(locked()).go(Security, FullFeature, NAMES),
        "without AuthMethod",
    );
    let mut script = Script::new(locked());
    let answer = script
        .go(Security, FullFeature, &[NAMES, AUTH].concat())
        .answered();
    assert!(!answer.transit);
    let answer = script.go(Security, FullFeature, &[]).answered();
    assert!(!answer.transit);
    let answer = script.go(Security, FullFeature, &[("CHAP_A", "5")]).answered();
    assert!(!answer.transit);
    let answer = script.go(Security, FullFeature, &[]).answered();
    assert!(!answer.transit);
}

#[test]
fn discovery_has_a_policy_of_its_own() {
    let discovery = [("InitiatorName", INITIATOR), ("SessionType", "Discovery")];
    Script::new(locked())
        .go(Operational, FullFeature, &discovery)
        .admitted();
    let mut directory = directory(target());
    directory.discovery_chap = chap_policy();
    denied(
        Script::new(directory).go(Operational, FullFeature, &discovery),
        "requires CHAP",
    );
}
