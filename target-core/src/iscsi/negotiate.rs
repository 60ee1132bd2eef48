//! Operational negotiation (RFC 7143 §6.2): each key an initiator sends gets the result that the table of keys says.
//!
//! Not here: stages, names and authentication (`login.rs`), and the form of the text (`iscsi_proto::text`).
//! We answer and declare, and make no offers of our own: every common initiator offers the keys it cares for, and
//! small ones (boot firmware) do not answer offers.

use std::collections::BTreeMap;

use iscsi_proto::keys::{self, BooleanResult, Irrelevant, KeyKind, KeySpec, NumberResult, ValueForm};
use iscsi_proto::pdu::{LoginStage, LoginStatus};
use iscsi_proto::text::{KeyValue, parse_boolean, parse_list, parse_number};

use super::refusal::{Refusal, excerpt};
use super::{SegmentLengths, SessionParams, SessionType, TransportKeys};
use crate::control::Parameters;

/// What was said so far, and what it came to.
#[derive(Debug)]
pub(super) struct Negotiation {
    ours: Parameters,
    /// The connection begins a session; one that joins a session has no say in what concerns the whole of it.
    leading: bool,
    transport: TransportKeys,
    params: SessionParams,
    /// Every key the initiator has sent in this login, with its value.
    said: BTreeMap<String, String>,
    declared: bool,
}

/// Key and value to send.
pub(super) type Answers = Vec<(String, String)>;

impl Negotiation {
    /// Nothing said yet: the defaults of §13 hold.
    pub(super) fn new(
        mut ours: Parameters,
        leading: bool,
        transport: TransportKeys,
        session_type: SessionType,
    ) -> Self {
        if transport.reliable {
            ours.header_digest = vec![false];
            ours.data_digest = vec![false];
            ours.error_recovery_level = 0;
        }
        let command_window = ours.command_window.max(1);
        Self {
            ours,
            leading,
            transport,
            params: SessionParams {
                session_type,
                command_window,
                ..SessionParams::default()
            },
            said: BTreeMap::new(),
            declared: false,
        }
    }

    /// Notes that the initiator sent a key. A key may be negotiated once per login (§6.3); a declaration that is
    /// repeated word for word changes nothing and is let pass (one common initiator repeats its name in each stage).
    pub(super) fn note(&mut self, pair: &KeyValue) -> Result<(), Refusal> {
        let Some(before) = self.said.insert(pair.key.clone(), pair.value.clone()) else {
            return Ok(());
        };
        let declaration =
            keys::spec(&pair.key).is_some_and(|spec| matches!(spec.kind, KeyKind::Declaration(_)));
        if declaration && before == pair.value {
            return Ok(());
        }
        Err(Refusal::new(
            LoginStatus::InitiatorError,
            format!(
                "the initiator sent {} twice in one login: {:?}, then {:?}",
                pair.key,
                excerpt(&before),
                excerpt(&pair.value)
            ),
            "correct or update the initiator: RFC 7143 §6.3 lets a key be negotiated once per login",
        ))
    }

    /// The answers to what one request offered in `stage`. The order of the offers does not matter.
    pub(super) fn answer(&mut self, stage: LoginStage, pairs: &[KeyValue]) -> Answers {
        // These depend on other keys, so they are looked at when those are settled.
        let depends = |pair: &&KeyValue| pair.key == FIRST_BURST || pair.key == OUTSTANDING;
        let (last, first): (Vec<_>, Vec<_>) = pairs.iter().partition(depends);
        let mut answers = Answers::new();
        for pair in first.into_iter().chain(last) {
            if let Some(value) = self.answer_one(stage, pair) {
                answers.push((pair.key.clone(), value));
            }
        }
        answers
    }

    /// What we declare when the operational stage begins; empty the second time.
    pub(super) fn declare(&mut self) -> Answers {
        if std::mem::replace(&mut self.declared, true) {
            return Answers::new();
        }
        self.params.max_recv_data_segment_len = self.ours.max_recv_data_segment_len;
        vec![(
            MAX_RECV.to_owned(),
            self.ours.max_recv_data_segment_len.to_string(),
        )]
    }

    /// The agreed values, if they are within what the administrator insists on.
    pub(super) fn conclude(&self) -> Result<SessionParams, Refusal> {
        check_digest(
            "HeaderDigest",
            &self.ours.header_digest,
            self.params.header_digest,
        )?;
        check_digest("DataDigest", &self.ours.data_digest, self.params.data_digest)?;
        let mut params = self.params.clone();
        if params.error_recovery_level > 0 {
            // Also when it was settled in a request before.
            params.max_outstanding_r2t = 1;
        }
        // §13.14: never more than MaxBurstLength, also where a default meets a negotiated value.
        params.first_burst_len = params.first_burst_len.min(params.max_burst_len);
        if let Some(lengths) = self.transport.lengths {
            let agreed = |key| in_range(find_agreed(&params.transport, key)?, SEGMENT_LENGTHS);
            let (receive, send) = (agreed(lengths.receive), agreed(lengths.send));
            params.max_recv_data_segment_len = receive.unwrap_or(lengths.default);
            params.max_send_data_segment_len = send.unwrap_or(lengths.default);
        }
        if let Some(room) = self.transport.room {
            let commands = room / params.pdus_per_command();
            params.command_window = params.command_window.min(commands).max(1);
        }
        Ok(params)
    }

    fn answer_one(&mut self, stage: LoginStage, pair: &KeyValue) -> Option<String> {
        let KeyValue { key, value } = pair;
        let Some(spec) = keys::spec(key) else {
            return self.answer_transport(key, value);
        };
        match &spec.kind {
            KeyKind::Declaration(form) => self.take_declaration(spec, form, value),
            KeyKind::Obsolete => Some(REJECT.to_owned()),
            _ if !spec.initiator_may_send_in(stage) => Some(REJECT.to_owned()),
            // "LO" in §13.
            _ if spec.leading_only && !self.leading => Some(IRRELEVANT.to_owned()),
            _ if self.is_irrelevant(spec) => Some(IRRELEVANT.to_owned()),
            KeyKind::Boolean { result, .. } => self.settle_boolean(spec.name, *result, value),
            KeyKind::Number { result, range, .. } => {
                let offered = in_range(value, range.clone());
                self.settle_number(spec.name, *result, offered)
            }
            KeyKind::List { .. } => self.settle_list(spec.name, value),
            KeyKind::Authentication(_) | KeyKind::Query => Some(REJECT.to_owned()),
        }
    }

    /// Declarations get no answer, unless they make no sense.
    fn take_declaration(&mut self, spec: &KeySpec, form: &ValueForm, value: &str) -> Option<String> {
        if CONSTANTS.contains(&value) {
            // The answer of an initiator that did not like a declaration of ours.
            return None;
        }
        if spec.initiator_stages.is_empty() {
            return Some(REJECT.to_owned());
        }
        if spec.name == MAX_RECV
            && let ValueForm::Number { range, .. } = form
        {
            match in_range(value, range.clone()) {
                Some(len) => self.params.max_send_data_segment_len = len,
                None => return Some(REJECT.to_owned()),
            }
        }
        None
    }

    fn is_irrelevant(&self, spec: &KeySpec) -> bool {
        let discovery = self.params.session_type == SessionType::Discovery;
        match spec.irrelevant {
            Irrelevant::Never => false,
            Irrelevant::Discovery => discovery,
            Irrelevant::DiscoveryOrAllSolicited => {
                discovery || (self.params.initial_r2t && !self.params.immediate_data)
            }
        }
    }

    fn settle_boolean(&mut self, name: &str, result: BooleanResult, value: &str) -> Option<String> {
        let Ok(theirs) = parse_boolean(value) else {
            return Some(REJECT.to_owned());
        };
        let (ours, agreed) = self.boolean(name)?;
        *agreed = match result {
            BooleanResult::And => ours && theirs,
            BooleanResult::Or => ours || theirs,
        };
        Some(if *agreed { "Yes" } else { "No" }.to_owned())
    }

    /// Our value of a boolean key and the place of its result.
    fn boolean(&mut self, name: &str) -> Option<(bool, &mut bool)> {
        let params = &mut self.params;
        match name {
            "InitialR2T" => Some((self.ours.initial_r2t, &mut params.initial_r2t)),
            "ImmediateData" => Some((self.ours.immediate_data, &mut params.immediate_data)),
            // Data come in order with ErrorRecoveryLevel=0; asking for less brings nothing.
            "DataPDUInOrder" => Some((true, &mut params.data_pdu_in_order)),
            "DataSequenceInOrder" => Some((true, &mut params.data_sequence_in_order)),
            _ => None,
        }
    }

    fn settle_number(&mut self, name: &str, result: NumberResult, offered: Option<u32>) -> Option<String> {
        let Some(theirs) = offered else {
            return Some(REJECT.to_owned());
        };
        let ours = self.number(name)?;
        let agreed = match result {
            NumberResult::Minimum => ours.min(theirs),
            NumberResult::Maximum => ours.max(theirs),
        };
        self.agree_number(name, agreed);
        Some(agreed.to_string())
    }

    /// Our value of a numerical key.
    fn number(&self, name: &str) -> Option<u32> {
        let ours = &self.ours;
        match name {
            "MaxConnections" => Some(ours.max_connections.into()),
            "MaxBurstLength" => Some(ours.max_burst_len),
            FIRST_BURST => Some(ours.first_burst_len.min(self.params.max_burst_len)),
            "DefaultTime2Wait" => Some(ours.time_to_wait.into()),
            "DefaultTime2Retain" => Some(ours.retains().into()),
            // §13.19: with sequences in order only the last one can be repeated, so there is one at a time.
            OUTSTANDING if self.params.error_recovery_level > 0 => Some(1),
            OUTSTANDING => Some(ours.max_outstanding_r2t.into()),
            "ErrorRecoveryLevel" => Some(ours.error_recovery_level.into()),
            "iSCSIProtocolLevel" => Some(ours.protocol_level.into()),
            _ => None,
        }
    }

    fn agree_number(&mut self, name: &str, agreed: u32) {
        let params = &mut self.params;
        let narrow = u16::try_from(agreed).unwrap_or(u16::MAX);
        let byte = u8::try_from(agreed).unwrap_or(u8::MAX);
        match name {
            "MaxConnections" => params.max_connections = narrow,
            "MaxBurstLength" => params.max_burst_len = agreed,
            FIRST_BURST => params.first_burst_len = agreed,
            "DefaultTime2Wait" => params.time_to_wait = narrow,
            "DefaultTime2Retain" => params.time_to_retain = narrow,
            OUTSTANDING => params.max_outstanding_r2t = narrow,
            "ErrorRecoveryLevel" => params.error_recovery_level = byte,
            "iSCSIProtocolLevel" => params.protocol_level = byte,
            _ => {}
        }
    }

    /// The first value of the initiator's list that we take (§6.2.1: the order is the offering side's).
    fn settle_list(&mut self, name: &str, value: &str) -> Option<String> {
        let offered = parse_list(value).unwrap_or_default();
        match name {
            "HeaderDigest" => {
                let digest = choose_digest(&offered, &self.ours.header_digest);
                self.params.header_digest = digest == Some(CRC32C);
                Some(digest.unwrap_or(REJECT).to_owned())
            }
            "DataDigest" => {
                let digest = choose_digest(&offered, &self.ours.data_digest);
                self.params.data_digest = digest == Some(CRC32C);
                Some(digest.unwrap_or(REJECT).to_owned())
            }
            // The other modes of §13.23 change how task management works across a session.
            "TaskReporting" if offered.contains(&"RFC3720") => Some("RFC3720".to_owned()),
            _ => Some(REJECT.to_owned()),
        }
    }

    /// Keys of the transport; any other key is unknown.
    fn answer_transport(&mut self, key: &str, value: &str) -> Option<String> {
        if let Some((name, ours)) = self.transport.declared.iter().find(|(name, _)| *name == key) {
            let Ok(theirs) = parse_number(value) else {
                return Some(REJECT.to_owned());
            };
            self.params.transport.push((name, theirs.to_string()));
            return Some(ours.clone());
        }
        if let Some(name) = self.transport.heard.iter().find(|name| **name == key) {
            if parse_boolean(value).is_err() {
                return Some(REJECT.to_owned());
            }
            self.params.transport.push((name, value.to_owned()));
            return None;
        }
        let Some((name, ours)) = self.transport.values.iter().find(|(name, _)| *name == key) else {
            // An answer to nothing must not be answered, or two polite sides never stop.
            return (!CONSTANTS.contains(&value)).then(|| NOT_UNDERSTOOD.to_owned());
        };
        let is_length = |lengths: &SegmentLengths| key == lengths.receive || key == lengths.send;
        let out_of_range =
            self.transport.lengths.is_some_and(is_length) && in_range(value, SEGMENT_LENGTHS).is_none();
        let Some(agreed) = agree_transport(ours, value).filter(|_| !out_of_range) else {
            return Some(REJECT.to_owned());
        };
        self.params.transport.push((name, agreed.clone()));
        Some(agreed)
    }
}

/// Transport keys (RFC 7145 §6) are numbers of which the smaller holds, booleans that both must want, or lists.
fn agree_transport(ours: &str, theirs: &str) -> Option<String> {
    if let Ok(ours) = parse_number(ours) {
        return parse_number(theirs)
            .ok()
            .map(|theirs| ours.min(theirs).to_string());
    }
    if let Ok(ours) = parse_boolean(ours) {
        let theirs = parse_boolean(theirs).ok()?;
        return Some(if ours && theirs { "Yes" } else { "No" }.to_owned());
    }
    let offered = parse_list(theirs).ok()?;
    offered.contains(&ours).then(|| ours.to_owned())
}

fn choose_digest<'a>(offered: &[&'a str], accepted: &[bool]) -> Option<&'a str> {
    offered.iter().copied().find(|digest| match *digest {
        CRC32C => accepted.contains(&true),
        "None" => accepted.contains(&false),
        _ => false,
    })
}

fn check_digest(key: &str, accepted: &[bool], agreed: bool) -> Result<(), Refusal> {
    if accepted.contains(&agreed) || accepted.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        LoginStatus::InitiatorError,
        format!("the target is set to {key}=CRC32C, and the initiator did not agree to it"),
        format!("switch {key} on in the initiator, or set the target to {key}=CRC32C,None"),
    ))
}

/// The value of a key in one request.
pub(super) fn find<'a>(pairs: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    Some(&pair.value)
}

fn find_agreed<'a>(agreed: &'a [(&'static str, String)], key: &str) -> Option<&'a str> {
    let (_, value) = agreed.iter().find(|(name, _)| *name == key)?;
    Some(value)
}

/// The number, unless it is none or outside.
pub(super) fn in_range(value: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    let number = u32::try_from(parse_number(value).ok()?).ok()?;
    range.contains(&number).then_some(number)
}

/// §13.12
const SEGMENT_LENGTHS: std::ops::RangeInclusive<u32> = 512..=0x00ff_ffff;
pub(super) const REJECT: &str = "Reject";
pub(super) const NOT_UNDERSTOOD: &str = "NotUnderstood";
pub(super) const MAX_RECV: &str = "MaxRecvDataSegmentLength";
const IRRELEVANT: &str = "Irrelevant";
/// Values that answer, and offer nothing (§6.2).
pub(super) const CONSTANTS: [&str; 3] = [REJECT, NOT_UNDERSTOOD, IRRELEVANT];
const OUTSTANDING: &str = "MaxOutstandingR2T";
const FIRST_BURST: &str = "FirstBurstLength";
const CRC32C: &str = "CRC32C";
