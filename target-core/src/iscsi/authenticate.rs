//! The security stage (RFC 7143 §12): which method is chosen, and the steps of a CHAP exchange.
//!
//! The target's policy decides alone. That a secret is stored somewhere, or that an initiator offers CHAP, decides
//! nothing. The hashes are in `chap.rs`.

use iscsi_proto::pdu::LoginStatus;
use iscsi_proto::text::{KeyValue, format_hex, parse_binary, parse_list};

use super::chap::{Algorithm, Challenge};
use super::negotiate::{Answers, find, in_range};
use super::refusal::{Refusal, excerpt};
use crate::control::{ChapCredential, ChapPolicy};

/// How far a connection has come in proving who it is.
#[derive(Debug)]
pub(super) enum Authentication {
    /// AuthMethod was not spoken of.
    Unspoken,
    /// AuthMethod=CHAP was chosen; CHAP_A is due.
    Chosen,
    /// The challenge is out; CHAP_N and CHAP_R are due.
    Challenged(Challenge),
    /// Nothing more is due. The CHAP name, if one was proved.
    Done(Option<String>),
}

impl Authentication {
    /// Takes what one request of the security stage says, and answers.
    pub(super) fn step(
        &mut self,
        policy: &ChapPolicy,
        pairs: &[KeyValue],
        entropy: fn(&mut [u8]),
    ) -> Result<Answers, Refusal> {
        let mut answers = Answers::new();
        if let Some(offered) = find(pairs, "AuthMethod") {
            answers.push(("AuthMethod".to_owned(), self.choose(policy, offered)?.to_owned()));
        }
        if let Some(list) = find(pairs, "CHAP_A") {
            answers.extend(self.challenge(list, entropy)?);
        }
        let (name, response) = (find(pairs, "CHAP_N"), find(pairs, "CHAP_R"));
        if name.is_some() || response.is_some() {
            answers.extend(self.verify(policy, name, response, pairs)?);
        } else if find(pairs, "CHAP_I").is_some() || find(pairs, "CHAP_C").is_some() {
            return Err(out_of_step("CHAP_I and CHAP_C without CHAP_N and CHAP_R"));
        }
        Ok(answers)
    }

    /// Whether the security stage may be left: `Ok(false)` means that a step is still due.
    pub(super) fn may_leave(&self, policy: &ChapPolicy) -> Result<bool, Refusal> {
        match (self, policy) {
            (Self::Done(_), _) | (Self::Unspoken, ChapPolicy::Open) => Ok(true),
            (Self::Unspoken, ChapPolicy::Required { .. } | ChapPolicy::Individual { .. }) => Err(
                chap_required("the initiator left the security stage without AuthMethod"),
            ),
            (Self::Chosen | Self::Challenged(_), _) => Ok(false),
        }
    }

    /// The CHAP name that was proved.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Done(name) => name.clone(),
            Self::Unspoken | Self::Chosen | Self::Challenged(_) => None,
        }
    }

    fn choose(&mut self, policy: &ChapPolicy, offered: &str) -> Result<&'static str, Refusal> {
        let methods = parse_list(offered).unwrap_or_default();
        match policy {
            ChapPolicy::Open if methods.contains(&"None") => {
                *self = Self::Done(None);
                Ok("None")
            }
            ChapPolicy::Open => Err(Refusal::new(
                LoginStatus::AuthenticationFailure,
                format!(
                    "the initiator insists on authentication (AuthMethod={:?}), and none is set up here",
                    excerpt(offered)
                ),
                "set CHAP up for this target, or switch CHAP off in the initiator",
            )),
            ChapPolicy::Required { .. } if methods.contains(&"CHAP") => {
                *self = Self::Chosen;
                Ok("CHAP")
            }
            ChapPolicy::Required { .. } | ChapPolicy::Individual { .. } => Err(chap_required(&format!(
                "the initiator offers only AuthMethod={:?}",
                excerpt(offered)
            ))),
        }
    }

    fn challenge(&mut self, list: &str, entropy: fn(&mut [u8])) -> Result<Answers, Refusal> {
        if !matches!(self, Self::Chosen) {
            return Err(out_of_step("CHAP_A where it was not due"));
        }
        let Some(algorithm) = Algorithm::strongest_of(list) else {
            return Err(Refusal::new(
                LoginStatus::AuthenticationFailure,
                format!(
                    "the initiator offers no CHAP algorithm known here: CHAP_A={:?}",
                    excerpt(list)
                ),
                "let the initiator offer SHA3-256 (8), SHA-256 (7), SHA1 (6) or MD5 (5)",
            ));
        };
        let challenge = Challenge::new(algorithm, entropy);
        let answers = vec![
            ("CHAP_A".to_owned(), algorithm.number().to_string()),
            ("CHAP_I".to_owned(), challenge.identifier.to_string()),
            ("CHAP_C".to_owned(), format_hex(&challenge.bytes)),
        ];
        *self = Self::Challenged(challenge);
        Ok(answers)
    }

    fn verify(
        &mut self,
        policy: &ChapPolicy,
        name: Option<&str>,
        response: Option<&str>,
        pairs: &[KeyValue],
    ) -> Result<Answers, Refusal> {
        let Self::Challenged(challenge) = &*self else {
            return Err(out_of_step("CHAP_N or CHAP_R where they were not due"));
        };
        let (Some(name), Some(response)) = (name, response) else {
            return Err(out_of_step("one of CHAP_N and CHAP_R without the other"));
        };
        let ChapPolicy::Required { accepted, own } = policy else {
            return Err(out_of_step("CHAP keys without CHAP"));
        };
        let credential = prove(challenge, accepted, name, response)?;
        let answers = prove_ourselves(challenge, credential, own.as_ref(), pairs)?;
        *self = Self::Done(Some(name.to_owned()));
        Ok(answers)
    }
}

/// The credential that the response proves.
fn prove<'a>(
    challenge: &Challenge,
    accepted: &'a [ChapCredential],
    name: &str,
    response: &str,
) -> Result<&'a ChapCredential, Refusal> {
    // The length is looked at before the value is decoded.
    let response = parse_binary(response, challenge.algorithm.digest_len()).map_err(|_| {
        Refusal::new(
            LoginStatus::AuthenticationFailure,
            format!(
                "CHAP_R of the name {:?} is no response of the algorithm agreed on",
                excerpt(name)
            ),
            "update the initiator: its CHAP response is malformed",
        )
    })?;
    let mut known = false;
    for credential in accepted.iter().filter(|credential| credential.name == name) {
        known = true;
        if challenge.is_answered_by(&response, &credential.secret) {
            return Ok(credential);
        }
    }
    let (reason, fix) = if known {
        (
            format!(
                "the CHAP secret of the name {:?} is wrong (CHAP_R)",
                excerpt(name)
            ),
            "enter the same secret in the initiator and at the target",
        )
    } else {
        (
            format!("the CHAP name {:?} is not accepted here (CHAP_N)", excerpt(name)),
            "correct the CHAP user name in the initiator, or accept this name at the target",
        )
    };
    // The peer learns the same in both cases.
    Err(Refusal::new(LoginStatus::AuthenticationFailure, reason, fix))
}

/// Our own answer, if the initiator asks for one (mutual CHAP).
fn prove_ourselves(
    challenge: &Challenge,
    initiator: &ChapCredential,
    own: Option<&ChapCredential>,
    pairs: &[KeyValue],
) -> Result<Answers, Refusal> {
    let (identifier, theirs) = match (find(pairs, "CHAP_I"), find(pairs, "CHAP_C")) {
        (None, None) => return Ok(Answers::new()),
        (Some(identifier), Some(theirs)) => (identifier, theirs),
        _ => return Err(out_of_step("one of CHAP_I and CHAP_C without the other")),
    };
    let refused = |reason: &str, fix: &str| Refusal::new(LoginStatus::AuthenticationFailure, reason, fix);
    let (Some(identifier), Ok(theirs)) = (
        in_range(identifier, 0..=255).and_then(|identifier| u8::try_from(identifier).ok()),
        parse_binary(theirs, MAX_CHALLENGE_LEN),
    ) else {
        return Err(refused(
            "the initiator's CHAP_I or CHAP_C is malformed",
            "update the initiator",
        ));
    };
    // §12.1.3: whoever sends our own challenge back wants us to compute its response.
    if theirs == challenge.bytes {
        return Err(refused(
            "the initiator sent our own CHAP challenge back",
            "find out who connects: this is how an attacker without the secret would try to get in",
        ));
    }
    let Some(own) = own else {
        return Err(refused(
            "the initiator wants the target to authenticate itself (mutual CHAP), and the target has no secret \
             for that",
            "give the target a name and secret of its own, or switch mutual CHAP off in the initiator",
        ));
    };
    if own.secret.expose() == initiator.secret.expose() {
        return Err(refused(
            "the target's own CHAP secret is the same as the initiator's",
            "give the two directions different secrets: RFC 7143 §9.2.1 forbids to use one for both",
        ));
    }
    let response = challenge.algorithm.response(identifier, &own.secret, &theirs);
    Ok(vec![
        ("CHAP_N".to_owned(), own.name.clone()),
        ("CHAP_R".to_owned(), format_hex(&response)),
    ])
}

/// CHAP is the rule here, and this login goes around it.
pub(super) fn chap_required(what: &str) -> Refusal {
    Refusal::new(
        LoginStatus::AuthenticationFailure,
        format!("the target requires CHAP (AuthMethod), and {what}"),
        "switch CHAP on in the initiator, with a name and secret that the target accepts",
    )
}

fn out_of_step(what: &str) -> Refusal {
    Refusal::protocol(format!("the initiator sent {what}"))
}

/// CHAP_C (§12.1.3), bytes.
const MAX_CHALLENGE_LEN: usize = 1024;
