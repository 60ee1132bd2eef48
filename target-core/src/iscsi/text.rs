//! Text Requests in full feature phase (RFC 7143 §6.4): discovery, and the few keys that may change later.
//!
//! Not here: Text PDUs, their tags and their continuation, which are the connection's.

use iscsi_proto::IscsiName;
use iscsi_proto::keys::{self, KeyKind, ValueForm};
use iscsi_proto::pdu::LoginStage;
use iscsi_proto::text::{KeyValue, TextError, parse_pairs, push_pair};

use super::discovery::{self, Asker, Wanted};
use super::negotiate::{Answers, CONSTANTS, MAX_RECV, NOT_UNDERSTOOD, REJECT, in_range};
use crate::control::Directory;

/// What a complete text came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TextOutcome {
    /// The answer, encoded: to be cut into segments that the initiator takes.
    pub text: Vec<u8>,
    /// A new MaxRecvDataSegmentLength of the initiator, bytes; it holds from the next PDU we send.
    pub max_send_data_segment_len: Option<u32>,
}

/// Answers the text of one Text Request (all its segments put together). `target` is that of the session; `None` in a
/// discovery session. Text that cannot be taken apart is a protocol error: Reject.
pub fn answer_text(
    text: &[u8],
    directory: &Directory,
    target: Option<&IscsiName>,
    asker: &Asker<'_>,
) -> Result<TextOutcome, TextError> {
    let mut outcome = TextOutcome::default();
    for pair in parse_pairs(text)? {
        let answers = match pair.key.as_str() {
            "SendTargets" => send_targets(&pair.value, directory, target, asker),
            _ => answer_one(&pair, &mut outcome).map_or_else(Answers::new, |value| vec![(pair.key, value)]),
        };
        for (key, value) in answers {
            push_pair(&mut outcome.text, &key, &value);
        }
    }
    Ok(outcome)
}

/// Appendix C: everything or one target in a discovery session; in a normal one only its own target.
fn send_targets(
    value: &str,
    directory: &Directory,
    target: Option<&IscsiName>,
    asker: &Asker<'_>,
) -> Answers {
    let refused = || vec![("SendTargets".to_owned(), REJECT.to_owned())];
    match (value, target) {
        ("All", None) => discovery::targets(directory, asker, Wanted::All),
        ("All", Some(_)) | ("", None) => refused(),
        ("", Some(own)) => discovery::targets(directory, asker, Wanted::One(own)),
        (name, _) => match name.parse::<IscsiName>() {
            Ok(name) if target.is_none_or(|own| *own == name) => {
                discovery::targets(directory, asker, Wanted::One(&name))
            }
            Ok(_) | Err(_) => refused(),
        },
    }
}

fn answer_one(pair: &KeyValue, outcome: &mut TextOutcome) -> Option<String> {
    let reject = Some(REJECT.to_owned());
    let Some(spec) = keys::spec(&pair.key) else {
        // An answer to nothing is not answered.
        let is_answer = CONSTANTS.contains(&pair.value.as_str());
        return (!is_answer).then(|| NOT_UNDERSTOOD.to_owned());
    };
    if !spec.initiator_may_send_in(LoginStage::FullFeature) {
        return reject;
    }
    match &spec.kind {
        KeyKind::Declaration(ValueForm::Number { range, .. }) if spec.name == MAX_RECV => {
            match in_range(&pair.value, range.clone()) {
                Some(len) => {
                    outcome.max_send_data_segment_len = Some(len);
                    None
                }
                None => reject,
            }
        }
        KeyKind::Declaration(_) => None,
        KeyKind::Boolean { .. }
        | KeyKind::Number { .. }
        | KeyKind::List { .. }
        | KeyKind::Authentication(_)
        | KeyKind::Query
        | KeyKind::Obsolete => reject,
    }
}

#[cfg(test)]
mod tests;
