//! Why a login ends badly, before it is known whom it concerns.

use iscsi_proto::IscsiName;
use iscsi_proto::pdu::LoginStatus;

use crate::control::Redirect;

/// What [`LoginFailure`](super::LoginFailure) is made of, without names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: LoginStatus,
    pub(super) reason: String,
    pub(super) fix: String,
    /// TargetAddress that goes with it, when the initiator is sent elsewhere.
    pub(super) target_address: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: LoginStatus, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            fix: fix.into(),
            target_address: None,
        }
    }

    /// Not really one: the target is somewhere else (§11.13.5).
    pub(super) fn redirect(target: &IscsiName, redirect: &Redirect) -> Self {
        let (status, until) = if redirect.permanent {
            (LoginStatus::TargetMovedPermanently, "for good")
        } else {
            (LoginStatus::TargetMovedTemporarily, "for the time being")
        };
        Self {
            target_address: Some(redirect.to.to_string()),
            ..Self::new(
                status,
                format!("the target {target} is at {} {until}", redirect.to),
                "the initiator goes there by itself; to let it in here, set redirect=none",
            )
        }
    }

    /// A breach of the protocol, which only the initiator's maker can mend.
    pub(super) fn protocol(reason: impl Into<String>) -> Self {
        Self::new(
            LoginStatus::InitiatorError,
            reason,
            "update the initiator; if it persists, report it to its maker with a network trace",
        )
    }
}

/// Enough of a peer's text to recognise it in a log.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

const EXCERPT_CHARS: usize = 64;
