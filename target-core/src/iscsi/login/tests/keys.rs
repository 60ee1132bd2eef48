//! Every key of the operational stage: what is answered, and what was agreed.

use super::*;

/// One of each that a normal session negotiates.
pub(super) const EVERY_KEY: &[(&str, &str)] = &[
    ("HeaderDigest", "CRC32C,None"),
    ("DataDigest", "None,CRC32C"),
    ("MaxConnections", "4"),
    ("InitialR2T", "No"),
    ("ImmediateData", "No"),
    ("MaxRecvDataSegmentLength", "131072"),
    ("MaxBurstLength", "16776192"),
    ("FirstBurstLength", "262144"),
    ("DefaultTime2Wait", "0"),
    ("DefaultTime2Retain", "60"),
    ("MaxOutstandingR2T", "16"),
    ("DataPDUInOrder", "No"),
    ("DataSequenceInOrder", "No"),
    ("ErrorRecoveryLevel", "2"),
    ("TaskReporting", "FastAbort,RFC3720"),
    ("iSCSIProtocolLevel", "2"),
    ("IFMarker", "No"),
    ("X-com.example.colour", "blue"),
];

/// The answer to one key in a login that offers nothing else.
fn answer_to(directory: Directory, key: &str, value: &str) -> Option<String> {
    let (_, answer) = operational(directory, &[(key, value)]).admitted();
    let prefix = format!("{key}=");
    let mut found = said(&answer).into_iter().filter_map(|pair| {
        let value = pair.strip_prefix(&prefix)?;
        Some(value.to_owned())
    });
    // MaxRecvDataSegmentLength is ours, and no answer.
    found.next().filter(|_| key != "MaxRecvDataSegmentLength")
}

#[test]
fn all_keys_at_once_get_their_results() {
    let (admission, answer) = operational(directory(target()), EVERY_KEY).admitted();
    assert_eq!(
        said(&answer),
        [
            "DataDigest=None",
            "DataPDUInOrder=Yes",
            "DataSequenceInOrder=Yes",
            "DefaultTime2Retain=0",
            "DefaultTime2Wait=2",
            "ErrorRecoveryLevel=0",
            "FirstBurstLength=Irrelevant",
            "HeaderDigest=CRC32C",
            "IFMarker=Reject",
            "ImmediateData=No",
            "InitialR2T=Yes",
            "MaxBurstLength=1048576",
            "MaxConnections=1",
            "MaxOutstandingR2T=8",
            "MaxRecvDataSegmentLength=262144",
            "TargetPortalGroupTag=1",
            "TaskReporting=RFC3720",
            "X-com.example.colour=NotUnderstood",
            "iSCSIProtocolLevel=2",
        ]
    );
    assert_eq!(
        admission.params,
        SessionParams {
            session_type: SessionType::Normal,
            header_digest: true,
            data_digest: false,
            max_recv_data_segment_len: 262_144,
            max_send_data_segment_len: 131_072,
            max_burst_len: 1_048_576,
            first_burst_len: 65_536,
            initial_r2t: true,
            immediate_data: false,
            max_outstanding_r2t: 8,
            max_connections: 1,
            error_recovery_level: 0,
            time_to_wait: 2,
            time_to_retain: 0,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            protocol_level: 2,
            command_window: 128,
            transport: Vec::new(),
        }
    );
}

#[test]
fn each_key_is_answered_by_its_rule() {
    for (key, value, answer) in [
        ("HeaderDigest", "CRC32C", Some("CRC32C")),
        ("HeaderDigest", "None,CRC32C", Some("None")),
        ("HeaderDigest", "X-other,CRC32C", Some("CRC32C")),
        ("HeaderDigest", "X-other", Some("Reject")),
        ("DataDigest", "", Some("Reject")),
        ("MaxBurstLength", "512", Some("512")),
        ("MaxBurstLength", "0x10000", Some("65536")),
        ("MaxBurstLength", "511", Some("Reject")),
        ("MaxBurstLength", "16777216", Some("Reject")),
        ("MaxBurstLength", "-1", Some("Reject")),
        ("MaxBurstLength", "99999999999999999999", Some("Reject")),
        ("FirstBurstLength", "16777215", Some("262144")),
        ("MaxOutstandingR2T", "0", Some("Reject")),
        ("DefaultTime2Wait", "20", Some("20")),
        ("DefaultTime2Wait", "3601", Some("Reject")),
        ("ErrorRecoveryLevel", "3", Some("Reject")),
        ("ImmediateData", "yes", Some("Reject")),
        ("ImmediateData", "Yes", Some("Yes")),
        ("TaskReporting", "FastAbort", Some("Reject")),
        ("OFMarkInt", "2048~65535", Some("Reject")),
        ("maxburstlength", "512", Some("NotUnderstood")),
        ("OwnExtensions", "Yes", Some("NotUnderstood")),
        ("SendTargets", "All", Some("Reject")),
        ("TargetAddress", "192.0.2.1", Some("Reject")),
        ("InitiatorAlias", "host", None),
        ("MaxRecvDataSegmentLength", "8192", None),
        ("X-com.example.colour", "NotUnderstood", None),
    ] {
        assert_eq!(
            answer_to(directory(target()), key, value).as_deref(),
            answer,
            "{key}={value}"
        );
    }
}

#[test]
fn first_burst_never_exceeds_max_burst() {
    let keys = [("FirstBurstLength", "65536"), ("MaxBurstLength", "4096")];
    let (admission, answer) = operational(directory(target()), &keys).admitted();
    assert!(said(&answer).contains(&"FirstBurstLength=4096".to_owned()));
    assert_eq!(admission.params.first_burst_len, 4096);
    // The default of a key nobody spoke of gives way too.
    let (admission, _) = operational(directory(target()), &keys[1..]).admitted();
    assert_eq!(admission.params.first_burst_len, 4096);
}

#[test]
fn unsolicited_data_are_agreed_when_both_want_them() {
    let mut target = target();
    target.parameters.initial_r2t = false;
    let (admission, _) = operational(directory(target), &[("InitialR2T", "No")]).admitted();
    assert!(!admission.params.initial_r2t);
    let (admission, _) = operational(directory(self::target()), &[("InitialR2T", "No")]).admitted();
    assert!(admission.params.initial_r2t);
}

#[test]
fn transport_keys_are_negotiated_as_data() {
    let mut link = link();
    link.keys = TransportKeys {
        values: vec![
            ("OwnExtensions", "Yes".to_owned()),
            ("InitiatorRecvDataSegmentLength", "8192".to_owned()),
        ],
        declared: vec![("MaxOutstandingUnexpectedPDUs", "4".to_owned())],
        ..TransportKeys::default()
    };
    let pairs = [
        NAMES,
        &[
            ("OwnExtensions", "Yes"),
            ("InitiatorRecvDataSegmentLength", "65536"),
            ("MaxOutstandingUnexpectedPDUs", "6"),
        ],
    ]
    .concat();
    let (admission, answer) = Script::over(link, directory(target()))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert_eq!(
        said(&answer),
        [
            "InitiatorRecvDataSegmentLength=8192",
            "MaxOutstandingUnexpectedPDUs=4",
            "MaxRecvDataSegmentLength=262144",
            "OwnExtensions=Yes",
            "TargetPortalGroupTag=1",
        ]
    );
    assert_eq!(
        admission.params.transport,
        [
            ("OwnExtensions", "Yes".to_owned()),
            ("InitiatorRecvDataSegmentLength", "8192".to_owned()),
            ("MaxOutstandingUnexpectedPDUs", "6".to_owned()),
        ]
    );
}

#[test]
fn numbers_of_a_transport_are_read_back_in_decimal_however_they_were_written() {
    let mut link = link();
    link.keys = TransportKeys {
        values: vec![("InitiatorRecvDataSegmentLength", "8192".to_owned())],
        declared: vec![
            ("MaxOutstandingUnexpectedPDUs", "4".to_owned()),
            ("MaxAHSLength", "512".to_owned()),
        ],
        ..TransportKeys::default()
    };
    let pairs = [
        NAMES,
        &[
            ("InitiatorRecvDataSegmentLength", "0x1000"),
            ("MaxOutstandingUnexpectedPDUs", "0x10"),
            ("MaxAHSLength", "0X1fF"),
        ],
    ]
    .concat();
    let (admission, _) = Script::over(link, directory(target()))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert_eq!(
        admission.params.transport,
        [
            ("InitiatorRecvDataSegmentLength", "4096".to_owned()),
            ("MaxOutstandingUnexpectedPDUs", "16".to_owned()),
            ("MaxAHSLength", "511".to_owned()),
        ]
    );
}

#[test]
fn the_command_window_fits_the_room_that_a_transport_has() {
    let mut target = target();
    target.parameters.initial_r2t = false;
    target.parameters.command_window = 4096;
    let directory = directory(target);
    let window = |room, pairs: &[(&str, &str)]| {
        let mut link = link();
        link.keys.room = room;
        let pairs = [NAMES, &[("MaxRecvDataSegmentLength", "8192")], pairs].concat();
        let (admission, _) = Script::over(link, directory.clone())
            .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
            .admitted();
        admission.params.command_window
    };
    let unsolicited = |len| [("InitialR2T", "No"), ("FirstBurstLength", len)];
    assert_eq!(window(None, &unsolicited("65536")), 4096);
    assert_eq!(window(Some(5000), &[]), 4096);
    assert_eq!(window(Some(960), &[]), 960);
    // Our segments are of 256 KiB here: one for the command, one for its unsolicited data.
    assert_eq!(window(Some(960), &unsolicited("65536")), 480);
    assert_eq!(window(Some(0), &unsolicited("65536")), 1, "never shut");
}

const LENGTHS: SegmentLengths = SegmentLengths {
    receive: "TargetRecvDataSegmentLength",
    send: "InitiatorRecvDataSegmentLength",
    default: 8192,
};

#[test]
fn a_transport_with_lengths_of_its_own_overrides_the_usual_ones() {
    let mut link = link();
    link.keys = TransportKeys {
        values: vec![
            ("InitiatorRecvDataSegmentLength", "8192".to_owned()),
            ("TargetRecvDataSegmentLength", "15360".to_owned()),
        ],
        heard: &["TaggedBufferForSolicitedDataOnly"],
        lengths: Some(&LENGTHS),
        ..TransportKeys::default()
    };
    let pairs = [
        NAMES,
        &[
            ("MaxRecvDataSegmentLength", "262144"),
            ("InitiatorRecvDataSegmentLength", "512"),
            ("TaggedBufferForSolicitedDataOnly", "Yes"),
        ],
    ]
    .concat();
    let (admission, answer) = Script::over(link, directory(target()))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert_eq!(admission.params.max_send_data_segment_len, 512);
    assert_eq!(
        admission.params.max_recv_data_segment_len, 8192,
        "nobody spoke of it"
    );
    let heard = ("TaggedBufferForSolicitedDataOnly", "Yes".to_owned());
    assert!(admission.params.transport.contains(&heard));
    assert!(!said(&answer).iter().any(|pair| pair.starts_with("Tagged")));
}

#[test]
fn values_that_transport_keys_cannot_have_are_rejected() {
    let mut link = link();
    link.keys = TransportKeys {
        values: vec![("TargetRecvDataSegmentLength", "15360".to_owned())],
        declared: vec![("MaxAHSLength", "512".to_owned())],
        heard: &["TaggedBufferForSolicitedDataOnly"],
        lengths: Some(&LENGTHS),
        ..TransportKeys::default()
    };
    let pairs = [
        NAMES,
        &[
            ("TargetRecvDataSegmentLength", "511"),
            ("MaxAHSLength", "long"),
            ("TaggedBufferForSolicitedDataOnly", "maybe"),
        ],
    ]
    .concat();
    let (admission, answer) = Script::over(link, directory(target()))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert_eq!(
        said(&answer),
        [
            "MaxAHSLength=Reject",
            "MaxRecvDataSegmentLength=262144",
            "TaggedBufferForSolicitedDataOnly=Reject",
            "TargetPortalGroupTag=1",
            "TargetRecvDataSegmentLength=Reject",
        ]
    );
    assert_eq!(admission.params.transport, []);
    assert_eq!(admission.params.max_recv_data_segment_len, 8192);
}

#[test]
fn a_reliable_transport_agrees_on_no_digests_whatever_the_target_insists_on() {
    let mut link = link();
    link.keys.reliable = true;
    let mut target = target();
    target.parameters.header_digest = vec![true];
    let pairs = [
        NAMES,
        &[("HeaderDigest", "CRC32C,None"), ("DataDigest", "CRC32C")],
    ]
    .concat();
    let (admission, answer) = Script::over(link, directory(target))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert!(!admission.params.header_digest && !admission.params.data_digest);
    assert!(said(&answer).contains(&"HeaderDigest=None".to_owned()));
    assert!(said(&answer).contains(&"DataDigest=Reject".to_owned()));
}

#[test]
fn data_keys_are_irrelevant_to_discovery() {
    let pairs = [
        ("InitiatorName", INITIATOR),
        ("SessionType", "Discovery"),
        ("HeaderDigest", "None"),
        ("MaxBurstLength", "262144"),
        ("FirstBurstLength", "65536"),
        ("InitialR2T", "Yes"),
        ("DefaultTime2Wait", "2"),
    ];
    let (admission, answer) = Script::new(directory(target()))
        .go(LoginStage::Operational, LoginStage::FullFeature, &pairs)
        .admitted();
    assert!(admission.target.is_none());
    assert_eq!(admission.params.session_type, SessionType::Discovery);
    assert_eq!(
        said(&answer),
        [
            "DefaultTime2Wait=2",
            "FirstBurstLength=Irrelevant",
            "HeaderDigest=None",
            "InitialR2T=Irrelevant",
            "MaxBurstLength=Irrelevant",
            "MaxRecvDataSegmentLength=262144",
        ]
    );
}
