//! Finding targets (RFC 7143 Appendix C, §11.10).

use iscsi_proto::pdu::{Function, RejectReason, Request, TextRequest, TextResponse};
use iscsi_proto::text::KeyValue;
use iscsi_proto::{Itt, Ttt};
use target_core::control::Access;
use tests::script::{Initiator, Keys, TARGET, Target, cdb};

#[tokio::test]
async fn all_targets_are_shown_with_the_address_one_came_in_by() {
    let target = Target::start().await;
    let mut initiator = Initiator::discover(&target).await;
    let pairs = initiator.text(Keys::from([("SendTargets", "All")])).await;
    let address = format!("{},1", target.address());
    assert_eq!(
        said(&pairs),
        [("TargetName", TARGET), ("TargetAddress", &address)]
    );
    initiator.log_out().await;
}

#[tokio::test]
async fn an_address_rule_decides_what_is_told_and_the_narrowest_network_wins() {
    let target = Target::builder()
        .advertise("0.0.0.0/0", "san.example.org:3260")
        .advertise("127.0.0.0/8", "192.0.2.7:860")
        .advertise("127.0.0.0/8", "[2001:db8::7]:3260")
        .advertise("198.51.100.0/24", "198.51.100.1:3260")
        .start()
        .await;
    let mut initiator = Initiator::discover(&target).await;
    let pairs = initiator.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(
        said(&pairs),
        [
            ("TargetName", TARGET),
            ("TargetAddress", "192.0.2.7:860,1"),
            ("TargetAddress", "[2001:db8::7]:3260,1"),
        ]
    );
}

#[tokio::test]
async fn whom_no_address_rule_concerns_is_told_the_address_it_came_by() {
    let target = Target::builder()
        .advertise("198.51.100.0/24", "198.51.100.1:3260")
        .start()
        .await;
    let mut initiator = Initiator::discover(&target).await;
    let pairs = initiator.text(Keys::from([("SendTargets", "All")])).await;
    let address = format!("{},1", target.address());
    assert_eq!(
        said(&pairs),
        [("TargetName", TARGET), ("TargetAddress", address.as_str())]
    );
}

#[tokio::test]
async fn address_rules_hold_for_those_who_ask_in_a_normal_session_too() {
    let target = Target::builder()
        .advertise("127.0.0.0/8", "192.0.2.7:860")
        .start()
        .await;
    let mut initiator = Initiator::log_in(&target).await;
    let pairs = initiator.text(Keys::from([("SendTargets", "")])).await;
    assert_eq!(
        said(&pairs),
        [("TargetName", TARGET), ("TargetAddress", "192.0.2.7:860,1")]
    );
}

#[tokio::test]
async fn a_target_is_shown_to_those_it_admits() {
    let friend = "iqn.2026-11.org.example:friend";
    let target = Target::builder()
        .beside(
            "iqn.2026-11.org.example:private",
            Access::Initiators(vec![friend.parse().unwrap()]),
        )
        .start()
        .await;
    let mut stranger = Initiator::discover(&target).await;
    let names = |pairs: &[KeyValue]| {
        pairs
            .iter()
            .filter(|pair| pair.key == "TargetName")
            .map(|pair| pair.value.clone())
            .collect::<Vec<_>>()
    };
    let pairs = stranger.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(names(&pairs), [TARGET]);
    let pairs = stranger
        .text(Keys::from([("SendTargets", "iqn.2026-11.org.example:private")]))
        .await;
    assert_eq!(names(&pairs), Vec::<String>::new());

    let mut initiator = Initiator::connect(&target).await;
    initiator
        .login(Keys::discovery().with("InitiatorName", friend))
        .await;
    let pairs = initiator.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(names(&pairs), [TARGET, "iqn.2026-11.org.example:private"]);
}

#[tokio::test]
async fn a_normal_session_may_ask_about_its_own_target_alone() {
    let target = Target::builder()
        .beside("iqn.2026-11.org.example:other", Access::Everyone)
        .start()
        .await;
    let mut initiator = Initiator::log_in(&target).await;
    for value in ["", TARGET] {
        let pairs = initiator.text(Keys::from([("SendTargets", value)])).await;
        assert_eq!(pairs[0].value, TARGET);
        assert_eq!(pairs.len(), 2);
    }
    for value in ["All", "iqn.2026-11.org.example:other"] {
        let pairs = initiator.text(Keys::from([("SendTargets", value)])).await;
        assert_eq!(said(&pairs), [("SendTargets", "Reject")]);
    }
}

#[tokio::test]
async fn a_long_answer_comes_in_pieces_that_the_initiator_can_take() {
    let names: Vec<&'static str> = (0..40)
        .map(|number| &*format!("iqn.2026-11.org.example:target-{number:02}").leak())
        .collect();
    let mut builder = Target::builder();
    for name in &names {
        builder = builder.beside(name, Access::Everyone);
    }
    let target = builder.start().await;
    let mut initiator = Initiator::connect(&target).await;
    initiator
        .login(Keys::discovery().with("MaxRecvDataSegmentLength", "512"))
        .await;
    let request = initiator.text_request();
    initiator
        .send(Request::Text(request.clone()), b"SendTargets=All\0")
        .await;
    let (mut text, mut pieces, mut ttt) = (Vec::new(), 0, Ttt::RESERVED);
    loop {
        let (response, data) = initiator.expect::<TextResponse>().await;
        assert!(data.len() <= 512);
        assert_eq!(response.is_final, response.ttt == Ttt::RESERVED);
        assert!(!(response.is_final && response.continues));
        text.extend(data);
        pieces += 1;
        if response.is_final {
            break;
        }
        assert_ne!(response.ttt, ttt);
        ttt = response.ttt;
        let next = TextRequest {
            ttt,
            exp_stat_sn: initiator.exp_stat_sn,
            ..request.clone()
        };
        initiator.send(Request::Text(next), &[]).await;
    }
    assert!(pieces > 4, "{pieces} pieces");
    let pairs = iscsi_proto::text::parse_pairs(&text).unwrap();
    let found: Vec<_> = pairs
        .iter()
        .filter(|pair| pair.key == "TargetName")
        .map(|pair| pair.value.as_str())
        .collect();
    assert_eq!(found[0], TARGET);
    assert_eq!(found[1..], names);
}

#[tokio::test]
async fn a_discovery_session_has_no_disks() {
    let target = Target::start().await;
    let mut initiator = Initiator::discover(&target).await;
    let (_, cmd_sn) = initiator.command(cdb::test_unit_ready()).start().await;
    assert_eq!(rejected(&mut initiator).await, RejectReason::CommandNotSupported);
    // The number of what was rejected is still free (§7.3).
    initiator.cmd_sn = cmd_sn;
    initiator.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(rejected(&mut initiator).await, RejectReason::CommandNotSupported);
    initiator.ping().await;
    let pairs = initiator.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(pairs[0].value, TARGET);
}

#[tokio::test]
async fn discovery_sessions_do_not_end_each_other_or_a_normal_one() {
    let target = Target::start().await;
    let mut normal = Initiator::log_in(&target).await;
    let mut first = Initiator::discover(&target).await;
    let mut second = Initiator::discover(&target).await;
    for initiator in [&mut normal, &mut first, &mut second] {
        initiator.ping().await;
    }
    assert_eq!(target.node().sessions().len(), 3);
}

#[tokio::test]
async fn keys_that_nobody_knows_are_not_understood() {
    let target = Target::start().await;
    let mut initiator = Initiator::discover(&target).await;
    let pairs = initiator
        .text(Keys::from([
            ("X-org.example.colour", "blue"),
            ("MaxConnections", "4"),
        ]))
        .await;
    assert_eq!(
        said(&pairs),
        [
            ("X-org.example.colour", "NotUnderstood"),
            ("MaxConnections", "Reject")
        ]
    );
}

#[tokio::test]
async fn a_text_exchange_that_is_not_under_way_is_rejected() {
    let target = Target::start().await;
    let mut initiator = Initiator::discover(&target).await;
    let request = TextRequest {
        ttt: Ttt(0x1234),
        itt: Itt(77),
        ..initiator.text_request()
    };
    initiator.send(Request::Text(request), &[]).await;
    assert_eq!(rejected(&mut initiator).await, RejectReason::ProtocolError);
    initiator.ping().await;
}

async fn rejected(initiator: &mut Initiator) -> RejectReason {
    let (reject, header) = initiator.expect::<iscsi_proto::pdu::Reject>().await;
    assert_eq!(header.len(), 48, "the header that was refused comes back");
    reject.reason
}

fn said(pairs: &[KeyValue]) -> Vec<(&str, &str)> {
    pairs
        .iter()
        .map(|pair| (pair.key.as_str(), pair.value.as_str()))
        .collect()
}
