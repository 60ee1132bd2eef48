//! Logins by how they ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use iscsi_proto::pdu::LoginStatus;

use crate::iscsi::NodeEvent;

/// Logins since the start. Their number of kinds is that of the statuses there are.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

/// Logins that ended alike.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginRow {
    /// Transport name.
    pub transport: &'static str,
    /// How they ended, see [`login_result`].
    pub result: &'static str,
    /// How many.
    pub count: u64,
}

impl Logins {
    /// Counts what is a login.
    pub(crate) fn count(&self, event: &NodeEvent) {
        let key = match event {
            NodeEvent::LoggedIn(session) => (session.transport, "success"),
            NodeEvent::LoginFailed {
                transport, failure, ..
            } => {
                let status = failure.as_ref().map(|failure| failure.status);
                (*transport, status.map_or("incomplete", login_result))
            }
            NodeEvent::SessionEnded { .. } => return,
        };
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key)
            .or_default() += 1;
    }

    pub(crate) fn rows(&self) -> Vec<LoginRow> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = counts.iter().map(|((transport, result), count)| LoginRow {
            transport,
            result,
            count: *count,
        });
        rows.collect()
    }
}

/// The name of a login's end (RFC 7143 §11.13.5) as a label.
#[must_use]
pub const fn login_result(status: LoginStatus) -> &'static str {
    match status {
        LoginStatus::Success => "success",
        LoginStatus::TargetMovedTemporarily => "target_moved_temporarily",
        LoginStatus::TargetMovedPermanently => "target_moved_permanently",
        LoginStatus::InitiatorError => "initiator_error",
        LoginStatus::AuthenticationFailure => "authentication_failure",
        LoginStatus::AuthorizationFailure => "authorization_failure",
        LoginStatus::NotFound => "not_found",
        LoginStatus::TargetRemoved => "target_removed",
        LoginStatus::UnsupportedVersion => "unsupported_version",
        LoginStatus::TooManyConnections => "too_many_connections",
        LoginStatus::MissingParameter => "missing_parameter",
        LoginStatus::CannotIncludeInSession => "cannot_include_in_session",
        LoginStatus::SessionTypeNotSupported => "session_type_not_supported",
        LoginStatus::SessionDoesNotExist => "session_does_not_exist",
        LoginStatus::InvalidDuringLogin => "invalid_during_login",
        LoginStatus::TargetError => "target_error",
        LoginStatus::ServiceUnavailable => "service_unavailable",
        LoginStatus::OutOfResources => "out_of_resources",
        LoginStatus::Other(..) => "other",
    }
}
