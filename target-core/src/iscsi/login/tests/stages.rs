//! Stages of a login: which may follow which, and text that goes on over several requests.

use super::*;
use LoginStage::{FullFeature, Operational, Security};

#[test]
fn three_stages_one_after_the_other() {
    let mut script = Script::new(directory(target()));
    let pairs = [NAMES, &[("AuthMethod", "None")]].concat();
    let answer = script.go(Security, Operational, &pairs).answered();
    assert_eq!(
        (answer.transit, answer.current_stage, answer.next_stage),
        (true, Security, Operational)
    );
    assert_eq!(said(&answer), ["AuthMethod=None", "TargetPortalGroupTag=1"]);
    let (admission, answer) = script
        .go(Operational, FullFeature, &[("MaxRecvDataSegmentLength", "65536")])
        .admitted();
    assert_eq!(
        (answer.transit, answer.current_stage, answer.next_stage),
        (true, Operational, FullFeature)
    );
    assert_eq!(answer.tsih, Tsih(9));
    assert_eq!(said(&answer), ["MaxRecvDataSegmentLength=262144"]);
    assert_eq!(admission.params.max_send_data_segment_len, 65_536);
    assert_eq!(admission.authenticated_as, None);
}

#[test]
fn operational_stage_can_be_left_out() {
    let mut script = Script::new(directory(target()));
    let (admission, answer) = script.go(Security, FullFeature, NAMES).admitted();
    assert_eq!(said(&answer), ["TargetPortalGroupTag=1"]);
    // We had no chance to declare ours, so the default holds.
    assert_eq!(admission.params.max_recv_data_segment_len, 8192);
}

#[test]
fn a_stage_lasts_until_the_initiator_wants_to_leave() {
    let mut script = Script::new(directory(target()));
    for pairs in [NAMES, &[("MaxBurstLength", "4096")], &[]] {
        let answer = script.stay(Operational, pairs).answered();
        assert!(!answer.transit);
        assert_eq!(
            (answer.current_stage, answer.next_stage),
            (Operational, Operational)
        );
    }
    let (admission, answer) = script.go(Operational, FullFeature, &[]).admitted();
    assert!(answer.text.is_empty());
    assert_eq!(admission.params.max_burst_len, 4096);
}

#[test]
fn text_may_be_cut_anywhere() {
    let whole = encode(&[NAMES, &[("MaxBurstLength", "4096")]].concat());
    for cut in 0..=whole.len() {
        let mut script = Script::new(directory(target()));
        script.request.current_stage = Operational;
        script.request.continues = true;
        let answer = script.send(&whole[..cut]).answered();
        assert!(answer.text.is_empty() && !answer.transit);
        script.request.continues = false;
        script.request.transit = true;
        script.request.next_stage = FullFeature;
        let (admission, _) = script.send(&whole[cut..]).admitted();
        assert_eq!(admission.params.max_burst_len, 4096);
    }
}

#[test]
fn a_long_answer_goes_on_in_further_responses() {
    let keys: Vec<_> = (0..900).map(|n| format!("X-org.example.{n}")).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    let mut script = Script::new(directory(target()));
    let mut text = Vec::new();
    let mut answer = script
        .go(Operational, FullFeature, &[NAMES, &pairs].concat())
        .answered();
    let mut pieces = 1;
    let last = loop {
        assert!(answer.continues && !answer.transit);
        assert_eq!(answer.text.len(), 8192);
        text.extend_from_slice(&answer.text);
        pieces += 1;
        match script.send(&[]) {
            Outcome::Answered(next) => answer = next,
            last => break last.admitted().1,
        }
    };
    assert!(last.transit && !last.continues);
    text.extend_from_slice(&last.text);
    let pairs = parse_pairs(&text).unwrap();
    assert_eq!(
        pairs.iter().filter(|pair| pair.value == "NotUnderstood").count(),
        900
    );
    assert_eq!(pieces, text.len().div_ceil(8192));
}

#[test]
fn keys_before_the_whole_answer_is_taken_are_refused() {
    let keys: Vec<_> = (0..900).map(|n| format!("X-org.example.{n}")).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    let mut script = Script::new(directory(target()));
    script.stay(Operational, &[NAMES, &pairs].concat()).answered();
    let failure = script.stay(Operational, &[("MaxBurstLength", "4096")]).refused();
    assert_eq!(failure.status, LoginStatus::InitiatorError);
}

#[test]
fn the_alias_is_told_with_the_portal_group() {
    let mut target = target();
    target.alias = Some("Scratch".to_owned());
    let answer = Script::new(directory(target)).stay(Security, NAMES).answered();
    assert_eq!(said(&answer), ["TargetAlias=Scratch", "TargetPortalGroupTag=1"]);
}

#[test]
fn names_are_compared_without_case() {
    let pairs = [
        ("InitiatorName", "IQN.1993-08.ORG.debian:01:ABC"),
        ("TargetName", "iqn.2024-01.org.example:DISK"),
    ];
    let mut target = target();
    target.access = Access::Initiators(vec![INITIATOR.parse().unwrap()]);
    Script::new(directory(target))
        .go(Operational, FullFeature, &pairs)
        .admitted();
}

#[test]
fn a_session_to_join_is_for_admission_to_judge() {
    let mut script = Script::new(directory(target()));
    script.request.tsih = Tsih(5);
    script.request.cid = Cid(2);
    let (admission, _) = script.go(Operational, FullFeature, NAMES).admitted();
    assert_eq!((admission.tsih, admission.cid), (Tsih(5), Cid(2)));
}
