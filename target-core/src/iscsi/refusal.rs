//! Why a login ends badly, before it is known whom it concerns.

use iscsi_proto::pdu::LoginStatus;

/// What [`LoginFailure`](super::LoginFailure) is made of, without names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: LoginStatus,
    pub(super) reason: String,
    pub(super) fix: String,
}

impl Refusal {
    pub(super) fn new(status: LoginStatus, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            fix: fix.into(),
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
