//! What discovery shows to whom, and what else a Text Request may ask for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use iscsi_proto::Tpgt;

use super::*;
use crate::control::{Access, ChapPolicy, Parameters, Portal, Target};
use crate::scsi::TargetDevice;

const INITIATOR: &str = "iqn.1993-08.org.debian:01:abc";
const DISK: &str = "iqn.2024-01.org.example:disk";
const TAPE: &str = "iqn.2024-01.org.example:tape";

fn target(name: &str, access: Access) -> (IscsiName, Arc<Target>) {
    let name: IscsiName = name.parse().unwrap();
    let target = Target {
        name: name.clone(),
        alias: None,
        tpgt: Tpgt(1),
        access,
        chap: ChapPolicy::Required {
            accepted: Vec::new(),
            own: None,
        },
        parameters: Parameters::default(),
        device: TargetDevice::new(name.clone(), &[Tpgt(1)]),
    };
    (name, Arc::new(target))
}

fn directory(portals: &[&str]) -> Directory {
    let hidden = Access::Initiators(vec!["iqn.2024-01.org.example:other".parse().unwrap()]);
    Directory {
        targets: [
            target(DISK, Access::Everyone),
            target(TAPE, Access::Everyone),
            target("iqn.2024-01.org.example:hidden", hidden),
        ]
        .into(),
        advertised: Vec::new(),
        portals: portals
            .iter()
            .map(|address| Portal {
                address: address.parse().unwrap(),
                tpgt: Tpgt(1),
            })
            .collect(),
        ..Directory::default()
    }
}

fn ask(directory: &Directory, local: &str, session: Option<&str>, key: &str, value: &str) -> Vec<String> {
    let interfaces: Vec<IpAddr> = INTERFACES.iter().map(|ip| ip.parse().unwrap()).collect();
    let initiator = INITIATOR.parse().unwrap();
    let asker = Asker {
        initiator: &initiator,
        peer: "192.0.2.77".parse().unwrap(),
        local: local.parse::<SocketAddr>().unwrap(),
        transport: "tcp",
        interfaces: &interfaces,
    };
    let session: Option<IscsiName> = session.map(|name| name.parse().unwrap());
    let mut text = Vec::new();
    push_pair(&mut text, key, value);
    let outcome = answer_text(&text, directory, session.as_ref(), &asker).unwrap();
    let pairs = parse_pairs(&outcome.text).unwrap();
    pairs
        .into_iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .collect()
}

/// Addresses that one target is shown at.
fn addresses(portals: &[&str], local: &str) -> Vec<String> {
    let answer = ask(&directory(portals), local, None, "SendTargets", DISK);
    assert_eq!(answer[0], format!("TargetName={DISK}"));
    let addresses = answer[1..].iter();
    addresses
        .map(|line| line.strip_prefix("TargetAddress=").unwrap().to_owned())
        .collect()
}

const INTERFACES: &[&str] = &[
    "127.0.0.1",
    "::1",
    "fe80::1",
    "169.254.3.4",
    "192.0.2.1",
    "198.51.100.1",
    "2001:db8::1",
];

#[test]
fn discovery_shows_the_targets_a_login_would_admit() {
    let directory = directory(&["192.0.2.1:3260"]);
    let all = ask(&directory, "192.0.2.1:3260", None, "SendTargets", "All");
    assert_eq!(
        all,
        [
            "TargetName=iqn.2024-01.org.example:disk",
            "TargetAddress=192.0.2.1:3260,1",
            "TargetName=iqn.2024-01.org.example:tape",
            "TargetAddress=192.0.2.1:3260,1",
        ]
    );
    let ask = |value| ask(&directory, "192.0.2.1:3260", None, "SendTargets", value);
    assert!(ask("iqn.2024-01.org.example:hidden").is_empty());
    assert!(ask("iqn.2024-01.org.example:nothing").is_empty());
    assert_eq!(ask("IQN.2024-01.org.example:DISK"), all[..2]);
    assert_eq!(ask(""), ["SendTargets=Reject"]);
    assert_eq!(ask("disk"), ["SendTargets=Reject"]);
}

#[test]
fn a_normal_session_is_shown_its_own_target_only() {
    let directory = directory(&["192.0.2.1:3260"]);
    let ask = |value| ask(&directory, "192.0.2.1:3260", Some(DISK), "SendTargets", value);
    let own = [
        "TargetName=iqn.2024-01.org.example:disk",
        "TargetAddress=192.0.2.1:3260,1",
    ];
    assert_eq!(ask(""), own);
    assert_eq!(ask(DISK), own);
    assert_eq!(ask(TAPE), ["SendTargets=Reject"]);
    assert_eq!(ask("All"), ["SendTargets=Reject"]);
}

#[test]
fn every_address_of_a_wildcard_portal_that_is_reachable_is_shown() {
    assert_eq!(
        addresses(&["[::]:3260"], "198.51.100.1:3260"),
        ["198.51.100.1:3260,1", "192.0.2.1:3260,1", "[2001:db8::1]:3260,1"]
    );
    assert_eq!(
        addresses(&["0.0.0.0:3260"], "192.0.2.1:3260"),
        ["192.0.2.1:3260,1", "198.51.100.1:3260,1"]
    );
    // A dual-stack socket reports IPv4 in IPv6's clothes.
    assert_eq!(
        addresses(&["[::]:3260"], "[::ffff:192.0.2.1]:3260")[0],
        "192.0.2.1:3260,1"
    );
}

#[test]
fn the_address_the_initiator_came_in_by_is_first_and_its_family_next() {
    let portals = ["192.0.2.1:3260", "[2001:db8::2]:3260", "[2001:db8::1]:3260"];
    assert_eq!(
        addresses(&portals, "[2001:db8::1]:3260"),
        ["[2001:db8::1]:3260,1", "[2001:db8::2]:3260,1", "192.0.2.1:3260,1"]
    );
}

#[test]
fn loopback_is_shown_to_loopback_only() {
    let portals = ["127.0.0.1:3260", "192.0.2.1:3260"];
    assert_eq!(addresses(&portals, "192.0.2.1:3260"), ["192.0.2.1:3260,1"]);
    assert_eq!(
        addresses(&portals, "127.0.0.1:3260"),
        ["127.0.0.1:3260,1", "192.0.2.1:3260,1"]
    );
}

#[test]
fn link_local_is_shown_to_link_local_only_and_without_zone() {
    let portals = ["[fe80::1%3]:3260", "[2001:db8::1]:3260"];
    assert_eq!(
        addresses(&portals, "[2001:db8::1]:3260"),
        ["[2001:db8::1]:3260,1"]
    );
    assert_eq!(
        addresses(&portals, "[fe80::1%3]:3260"),
        ["[fe80::1]:3260,1", "[2001:db8::1]:3260,1"]
    );
}

#[test]
fn a_portal_group_that_is_not_the_targets_is_not_shown() {
    let mut directory = directory(&["192.0.2.1:3260", "192.0.2.1:3261"]);
    directory.portals[0].tpgt = Tpgt(2);
    let answer = ask(&directory, "192.0.2.1:3260", None, "SendTargets", DISK);
    let shown = [
        format!("TargetName={DISK}"),
        "TargetAddress=192.0.2.1:3261,1".to_owned(),
    ];
    assert_eq!(answer, shown);
    directory.portals.pop();
    let answer = ask(&directory, "192.0.2.1:3260", None, "SendTargets", "All");
    assert!(answer.is_empty(), "no portal leads to it: {answer:?}");
}

#[test]
fn keys_of_the_login_are_rejected_later() {
    let directory = directory(&[]);
    for (key, value, answer) in [
        ("MaxBurstLength", "4096", &["MaxBurstLength=Reject"][..]),
        ("HeaderDigest", "CRC32C", &["HeaderDigest=Reject"]),
        ("AuthMethod", "None", &["AuthMethod=Reject"]),
        (
            "MaxRecvDataSegmentLength",
            "1",
            &["MaxRecvDataSegmentLength=Reject"],
        ),
        ("InitiatorAlias", "host", &[]),
        (
            "X-com.example.colour",
            "blue",
            &["X-com.example.colour=NotUnderstood"],
        ),
        ("X-com.example.colour", "NotUnderstood", &[]),
    ] {
        assert_eq!(
            ask(&directory, "192.0.2.1:3260", Some(DISK), key, value),
            answer,
            "{key}"
        );
    }
}

#[test]
fn who_comes_by_another_transport_is_told_its_portals() {
    let portal = Portal {
        address: "192.0.2.1:3261".parse().unwrap(),
        tpgt: Tpgt(1),
    };
    let directory = Directory {
        other_portals: [("other", vec![portal])].into(),
        ..directory(&["192.0.2.1:3260"])
    };
    let initiator = INITIATOR.parse().unwrap();
    for (transport, address) in [("tcp", "192.0.2.1:3260,1"), ("other", "192.0.2.1:3261,1")] {
        let asker = Asker {
            initiator: &initiator,
            peer: "192.0.2.77".parse().unwrap(),
            local: "192.0.2.1:3260".parse().unwrap(),
            transport,
            interfaces: &[],
        };
        let outcome = answer_text(
            format!("SendTargets={DISK}\0").as_bytes(),
            &directory,
            None,
            &asker,
        );
        let text = outcome.unwrap().text;
        let pairs = parse_pairs(&text).unwrap();
        assert_eq!(pairs[1].value, address);
    }
}

#[test]
fn max_recv_data_segment_length_may_change() {
    let initiator = INITIATOR.parse().unwrap();
    let asker = Asker {
        initiator: &initiator,
        peer: "192.0.2.77".parse().unwrap(),
        local: "192.0.2.1:3260".parse().unwrap(),
        transport: "tcp",
        interfaces: &[],
    };
    let outcome = answer_text(
        b"MaxRecvDataSegmentLength=65536\0",
        &Directory::default(),
        None,
        &asker,
    );
    let expected = TextOutcome {
        text: Vec::new(),
        max_send_data_segment_len: Some(65_536),
    };
    assert_eq!(outcome, Ok(expected));
    assert!(answer_text(b"SendTargets", &Directory::default(), None, &asker).is_err());
}
