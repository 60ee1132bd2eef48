//! The text keys of RFC 7143 §12 and §13 (and what RFC 7144 adds to them), as one table.
//!
//! Data only: which side may send a key and when, what form its value has, how two offers become one result, what
//! holds when nobody speaks of it. The engine that negotiates is not here. A transport with keys of its own (RFC 7145
//! §6) describes them with the same [`KeySpec`].

use std::ops::RangeInclusive;

use crate::pdu::LoginStage;

/// One key. Names are compared with case (§6.1).
#[derive(Debug, Eq, PartialEq)]
pub struct KeySpec {
    /// As it stands left of `=`.
    pub name: &'static str,
    /// Form of the value and how a result comes about.
    pub kind: KeyKind,
    /// Where an initiator may send it; [`LoginStage::FullFeature`] means in a Text Request. Empty: never.
    pub initiator_stages: &'static [LoginStage],
    /// Where a target may send it, as an offer of its own. (An answer is due wherever the question was allowed.)
    pub target_stages: &'static [LoginStage],
    /// "LO" in §13: only on the first connection of a session.
    pub leading_only: bool,
    /// What the result applies to.
    pub scope: Scope,
    /// When the answer is `Irrelevant` and the result void.
    pub irrelevant: Irrelevant,
}

/// How a key gets its result (§6.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// One side says how it is; the other does not answer.
    Declaration(ValueForm),
    /// Both sides say Yes or No.
    Boolean {
        /// How two answers become one.
        result: BooleanResult,
        /// When nobody speaks of it.
        default: bool,
    },
    /// Both sides name a number.
    Number {
        /// How two numbers become one.
        result: NumberResult,
        /// Numbers outside are refused.
        range: RangeInclusive<u32>,
        /// When nobody speaks of it.
        default: u32,
    },
    /// One side lists values in order of preference, the other takes the first that it supports (§6.2.1).
    List {
        /// Values the standard names. Others are legal and are passed over.
        values: &'static [&'static str],
        /// When nobody speaks of it.
        default: &'static str,
    },
    /// A step of the authentication that `AuthMethod` chose: neither default nor result.
    Authentication(ValueForm),
    /// A question that is answered with other keys: `SendTargets` (Appendix C).
    Query,
    /// Withdrawn by §13.25: the answer is `Reject`, and never `NotUnderstood`.
    Obsolete,
}

/// What stands right of `=`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ValueForm {
    /// UTF-8 of at most so many bytes.
    Text {
        /// Longest value, bytes.
        max_len: usize,
    },
    /// An [`IscsiName`](crate::IscsiName).
    Name,
    /// `host[:port][,tpgt]` (§13.8).
    Address,
    /// A number.
    Number {
        /// Numbers outside are refused.
        range: RangeInclusive<u32>,
        /// When it is not declared; `None` if then nothing is known.
        default: Option<u32>,
    },
    /// Numbers in order of preference.
    NumberList,
    /// One of these words.
    Choice {
        /// All words there are.
        values: &'static [&'static str],
        /// When it is not declared.
        default: &'static str,
    },
    /// Hex or base64 of at most so many bytes, decoded.
    Binary {
        /// Longest value, bytes.
        max_len: usize,
    },
}

/// Result function of a boolean key (§6.2.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BooleanResult {
    /// Yes when both say Yes.
    And,
    /// Yes when one says Yes.
    Or,
}

/// Result function of a numerical key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NumberResult {
    /// The smaller of the two.
    Minimum,
    /// The larger of the two.
    Maximum,
}

/// What the value of a key belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// "SW": the whole session.
    Session,
    /// "CO": this connection.
    Connection,
}

/// When a key has no meaning and is answered `Irrelevant`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Irrelevant {
    /// It always has one.
    Never,
    /// In a discovery session.
    Discovery,
    /// In a discovery session, and when `InitialR2T=Yes` meets `ImmediateData=No`: nothing is unsolicited then.
    DiscoveryOrAllSolicited,
}

impl KeySpec {
    /// Whether an initiator may send the key in `stage`.
    #[must_use]
    pub fn initiator_may_send_in(&self, stage: LoginStage) -> bool {
        self.initiator_stages.contains(&stage)
    }

    /// Whether a target may offer or declare the key in `stage`.
    #[must_use]
    pub fn target_may_send_in(&self, stage: LoginStage) -> bool {
        self.target_stages.contains(&stage)
    }

    /// Whether the sender gets no answer: declarations and the steps of an authentication.
    #[must_use]
    pub const fn is_declarative(&self) -> bool {
        matches!(self.kind, KeyKind::Declaration(_) | KeyKind::Authentication(_))
    }
}

/// The key of that name, if RFC 7143 knows it.
#[must_use]
pub fn spec(name: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|key| key.name == name)
}

/// The keys of RFC 7143: §12.1 first, then §13 in its order.
pub static KEYS: &[KeySpec] = &[
    // No AuthMethod at all leaves both sides unauthenticated, as the value None does (§6.3.2).
    KeySpec {
        initiator_stages: SECURITY,
        target_stages: SECURITY,
        ..list(
            "AuthMethod",
            Scope::Connection,
            &["CHAP", "KRB5", "SRP", "None"],
            "None",
        )
    },
    authentication("CHAP_A", ValueForm::NumberList),
    authentication(
        "CHAP_C",
        ValueForm::Binary {
            max_len: CHAP_BINARY_MAX,
        },
    ),
    authentication(
        "CHAP_I",
        ValueForm::Number {
            range: 0..=255,
            default: None,
        },
    ),
    authentication("CHAP_N", TEXT),
    authentication(
        "CHAP_R",
        ValueForm::Binary {
            max_len: CHAP_BINARY_MAX,
        },
    ),
    list("HeaderDigest", Scope::Connection, &["CRC32C", "None"], "None"),
    list("DataDigest", Scope::Connection, &["CRC32C", "None"], "None"),
    number(
        "MaxConnections",
        NumberResult::Minimum,
        1..=65535,
        1,
        Irrelevant::Discovery,
    ),
    KeySpec {
        kind: KeyKind::Query,
        ..declaration("SendTargets", TEXT, FULL_FEATURE, NEVER)
    },
    // The target sends it only in its answer to SendTargets.
    declaration("TargetName", ValueForm::Name, LOGIN, FULL_FEATURE),
    declaration("InitiatorName", ValueForm::Name, LOGIN, NEVER),
    declaration("TargetAlias", TEXT, NEVER, ALWAYS),
    declaration("InitiatorAlias", TEXT, ALWAYS, NEVER),
    declaration("TargetAddress", ValueForm::Address, NEVER, ALWAYS),
    declaration(
        "TargetPortalGroupTag",
        ValueForm::Number {
            range: 0..=65535,
            default: None,
        },
        NEVER,
        LOGIN,
    ),
    boolean("InitialR2T", BooleanResult::Or, true),
    boolean("ImmediateData", BooleanResult::And, true),
    KeySpec {
        scope: Scope::Connection,
        ..declaration(
            "MaxRecvDataSegmentLength",
            ValueForm::Number {
                range: SEGMENT_RANGE,
                default: Some(8192),
            },
            OPERATIONAL_OR_LATER,
            OPERATIONAL_OR_LATER,
        )
    },
    number(
        "MaxBurstLength",
        NumberResult::Minimum,
        SEGMENT_RANGE,
        262_144,
        Irrelevant::Discovery,
    ),
    number(
        "FirstBurstLength",
        NumberResult::Minimum,
        SEGMENT_RANGE,
        65_536,
        Irrelevant::DiscoveryOrAllSolicited,
    ),
    number(
        "DefaultTime2Wait",
        NumberResult::Maximum,
        0..=3600,
        2,
        Irrelevant::Never,
    ),
    number(
        "DefaultTime2Retain",
        NumberResult::Minimum,
        0..=3600,
        20,
        Irrelevant::Never,
    ),
    number(
        "MaxOutstandingR2T",
        NumberResult::Minimum,
        1..=65535,
        1,
        Irrelevant::Discovery,
    ),
    boolean("DataPDUInOrder", BooleanResult::Or, true),
    boolean("DataSequenceInOrder", BooleanResult::Or, true),
    number(
        "ErrorRecoveryLevel",
        NumberResult::Minimum,
        0..=2,
        0,
        Irrelevant::Never,
    ),
    KeySpec {
        leading_only: true,
        ..declaration(
            "SessionType",
            ValueForm::Choice {
                values: &["Discovery", "Normal"],
                default: "Normal",
            },
            LOGIN,
            NEVER,
        )
    },
    KeySpec {
        leading_only: true,
        irrelevant: Irrelevant::Discovery,
        ..list(
            "TaskReporting",
            Scope::Session,
            &["FastAbort", "ResponseFence", "RFC3720"],
            "RFC3720",
        )
    },
    // 2 brings the functions and fields of RFC 7144.
    number(
        "iSCSIProtocolLevel",
        NumberResult::Minimum,
        0..=31,
        1,
        Irrelevant::Discovery,
    ),
    obsolete("IFMarker"),
    obsolete("OFMarker"),
    obsolete("IFMarkInt"),
    obsolete("OFMarkInt"),
    KeySpec {
        leading_only: true,
        ..declaration("X#NodeArchitecture", TEXT, OPERATIONAL, OPERATIONAL)
    },
];

const fn declaration(
    name: &'static str,
    form: ValueForm,
    initiator_stages: &'static [LoginStage],
    target_stages: &'static [LoginStage],
) -> KeySpec {
    KeySpec {
        name,
        kind: KeyKind::Declaration(form),
        initiator_stages,
        target_stages,
        leading_only: false,
        scope: Scope::Session,
        irrelevant: Irrelevant::Never,
    }
}

const fn authentication(name: &'static str, form: ValueForm) -> KeySpec {
    KeySpec {
        kind: KeyKind::Authentication(form),
        scope: Scope::Connection,
        ..declaration(name, TEXT, SECURITY, SECURITY)
    }
}

const fn list(
    name: &'static str,
    scope: Scope,
    values: &'static [&'static str],
    default: &'static str,
) -> KeySpec {
    KeySpec {
        kind: KeyKind::List { values, default },
        leading_only: false,
        scope,
        ..operational(name)
    }
}

/// The keys of §13 that are Yes or No rule the transfer of data: all are void in a discovery session.
const fn boolean(name: &'static str, result: BooleanResult, default: bool) -> KeySpec {
    KeySpec {
        kind: KeyKind::Boolean { result, default },
        irrelevant: Irrelevant::Discovery,
        ..operational(name)
    }
}

const fn number(
    name: &'static str,
    result: NumberResult,
    range: RangeInclusive<u32>,
    default: u32,
    irrelevant: Irrelevant,
) -> KeySpec {
    KeySpec {
        kind: KeyKind::Number {
            result,
            range,
            default,
        },
        irrelevant,
        ..operational(name)
    }
}

const fn obsolete(name: &'static str) -> KeySpec {
    KeySpec {
        leading_only: false,
        target_stages: NEVER,
        ..operational(name)
    }
}

/// What most keys of §13 share; the kind is to be replaced.
const fn operational(name: &'static str) -> KeySpec {
    KeySpec {
        name,
        kind: KeyKind::Obsolete,
        initiator_stages: OPERATIONAL,
        target_stages: OPERATIONAL,
        leading_only: true,
        scope: Scope::Session,
        irrelevant: Irrelevant::Never,
    }
}

const NEVER: &[LoginStage] = &[];
const SECURITY: &[LoginStage] = &[LoginStage::Security];
const OPERATIONAL: &[LoginStage] = &[LoginStage::Operational];
const LOGIN: &[LoginStage] = &[LoginStage::Security, LoginStage::Operational];
const OPERATIONAL_OR_LATER: &[LoginStage] = &[LoginStage::Operational, LoginStage::FullFeature];
const ALWAYS: &[LoginStage] = &[
    LoginStage::Security,
    LoginStage::Operational,
    LoginStage::FullFeature,
];
const FULL_FEATURE: &[LoginStage] = &[LoginStage::FullFeature];

/// Text without a limit of its own (§6.1, simple-value).
const TEXT: ValueForm = ValueForm::Text { max_len: 255 };
/// CHAP_C and CHAP_R (§12.1.3).
const CHAP_BINARY_MAX: usize = 1024;
/// Lengths of segments and bursts, bytes.
const SEGMENT_RANGE: RangeInclusive<u32> = 512..=0x00ff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_within_the_length_that_text_allows() {
        for (i, key) in KEYS.iter().enumerate() {
            assert!(key.name.len() <= 63);
            assert!(
                KEYS[i + 1..].iter().all(|other| other.name != key.name),
                "{} twice",
                key.name
            );
        }
    }

    #[test]
    fn names_are_compared_with_case() {
        assert!(spec("maxconnections").is_none());
        assert_eq!(spec("MaxConnections").map(|key| key.name), Some("MaxConnections"));
    }

    #[test]
    fn defaults_lie_in_their_ranges() {
        for key in KEYS {
            match &key.kind {
                KeyKind::Number { range, default, .. } => assert!(range.contains(default), "{}", key.name),
                KeyKind::List { values, default } => assert!(values.contains(default), "{}", key.name),
                _ => {}
            }
        }
    }

    #[test]
    fn security_stage_has_only_the_keys_that_section_12_lists() {
        let names: Vec<_> = KEYS
            .iter()
            .filter(|key| key.initiator_may_send_in(LoginStage::Security))
            .map(|key| key.name)
            .collect();
        assert_eq!(
            names,
            [
                "AuthMethod",
                "CHAP_A",
                "CHAP_C",
                "CHAP_I",
                "CHAP_N",
                "CHAP_R",
                "TargetName",
                "InitiatorName",
                "InitiatorAlias",
                "SessionType",
            ]
        );
    }

    #[test]
    fn full_feature_phase_takes_three_keys_from_an_initiator() {
        let names: Vec<_> = KEYS
            .iter()
            .filter(|key| key.initiator_may_send_in(LoginStage::FullFeature))
            .map(|key| key.name)
            .collect();
        assert_eq!(
            names,
            ["SendTargets", "InitiatorAlias", "MaxRecvDataSegmentLength"]
        );
    }

    #[test]
    fn results_follow_the_standard() {
        let kind = |name| spec(name).map(|key| key.kind.clone());
        assert_eq!(
            kind("InitialR2T"),
            Some(KeyKind::Boolean {
                result: BooleanResult::Or,
                default: true
            })
        );
        assert_eq!(
            kind("ImmediateData"),
            Some(KeyKind::Boolean {
                result: BooleanResult::And,
                default: true
            })
        );
        assert_eq!(
            kind("DefaultTime2Wait"),
            Some(KeyKind::Number {
                result: NumberResult::Maximum,
                range: 0..=3600,
                default: 2
            })
        );
        assert_eq!(
            kind("FirstBurstLength"),
            Some(KeyKind::Number {
                result: NumberResult::Minimum,
                range: 512..=16_777_215,
                default: 65_536
            })
        );
        assert_eq!(kind("IFMarkInt"), Some(KeyKind::Obsolete));
    }
}
