//! Why a request was not answered as hoped: problem details (RFC 9457), with the fix in them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use management::access::GateError;
use management::control::{ChangeError, TraceError};
use management::live::InUse;
use management::model::Problem;
use serde::{Deserialize, Serialize};
use target_core::trace::TraceRefusal;
use utoipa::ToSchema;

/// A request that was not answered as hoped.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal(Box<ProblemDetails>);

/// Problem details.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ProblemDetails {
    /// What kind of problem: `urn:lunaport:…`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// What would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Problems by their place in the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// What sessions use, and which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<InUse>,
    /// Seconds to wait before another try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemDetails {
            kind: format!("urn:lunaport:{kind}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            fix: None,
            problems: Vec::new(),
            in_use: Vec::new(),
            retry_after: None,
        }))
    }

    /// The details.
    #[must_use]
    pub fn details(&self) -> &ProblemDetails {
        &self.0
    }

    fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.0.fix = Some(fix.into());
        self
    }

    /// What the status says by itself.
    #[must_use]
    pub fn by_status(status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused");
        let (detail, fix) = match status {
            StatusCode::METHOD_NOT_ALLOWED => (
                "this path does not have this method",
                "see the API's description at /api/docs",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => ("the body is too long", "send less at once"),
            _ => (
                "the request could not be read",
                "see the API's description at /api/docs",
            ),
        };
        let kind = title.to_ascii_lowercase().replace(' ', "-");
        Self::new(status, &kind, title, detail).with_fix(fix)
    }

    /// As many as there may be follow events already.
    #[must_use]
    pub fn too_many_followers() -> Self {
        let mut refusal = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too-many-followers",
            "Too many followers",
            "no more event streams are possible at once",
        );
        refusal.0.retry_after = Some(10);
        refusal.with_fix("close one, or ask GET /api/v1/events from time to time")
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            "Not found",
            format!("there is no such {what}"),
        )
    }

    /// Nobody knows who asks.
    #[must_use]
    pub fn unknown_actor(set_up: bool) -> Self {
        let refusal = Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "Who are you?",
            "this needs a session or a token",
        );
        if set_up {
            return refusal
                .with_fix("make the first user: POST /api/v1/set-up with the token from the program's log");
        }
        refusal.with_fix("log in with POST /api/v1/session, or send Authorization: Bearer with an API token")
    }

    /// The actor's role does not go as far.
    #[must_use]
    pub fn not_allowed(needed: &str) -> Self {
        let detail = format!("this needs the role {needed}");
        Self::new(StatusCode::FORBIDDEN, "not-allowed", "Not allowed", detail)
            .with_fix("ask an administrator for the role, or to do it")
    }

    /// A change by a browser without the page's proof.
    #[must_use]
    pub fn no_csrf_proof() -> Self {
        let detail = "a change by a browser's session needs the header X-CSRF-Token";
        Self::new(StatusCode::FORBIDDEN, "csrf", "Not from our page", detail)
            .with_fix("send the value that GET /api/v1/session gives")
    }

    /// The request makes no sense.
    #[must_use]
    pub fn invalid(problems: Vec<Problem>) -> Self {
        let detail = match problems.as_slice() {
            [one] => format!("{}: {}", one.path, one.problem),
            _ => format!("{} problems; nothing was changed", problems.len()),
        };
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid", detail);
        refusal.0.fix = problems.first().map(|problem| problem.fix.clone());
        refusal.0.problems = problems;
        refusal
    }

    /// A body that is not what it should be.
    #[must_use]
    pub fn malformed(problem: Problem) -> Self {
        let mut refusal = Self::invalid(vec![problem]);
        refusal.0.status = StatusCode::BAD_REQUEST.as_u16();
        "urn:lunaport:malformed".clone_into(&mut refusal.0.kind);
        "Malformed".clone_into(&mut refusal.0.title);
        refusal
    }

    fn conflict(kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, kind, title, detail)
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::Exists(_) => Self::conflict("exists", "There already", text)
                .with_fix("choose another name, or replace what is there (PUT)"),
            ChangeError::InUse(in_use) => {
                let mut refusal = Self::conflict("in-use", "In use", text);
                refusal.0.fix = in_use.first().map(|it| it.fix.clone());
                refusal.0.in_use = in_use;
                refusal
            }
            ChangeError::Invalid(problems) => Self::invalid(problems),
            ChangeError::NotAllowed(_) => {
                Self::new(StatusCode::FORBIDDEN, "not-allowed", "Not allowed", text)
                    .with_fix("ask an administrator to do it")
            }
            ChangeError::NotFound(_) => Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", text),
            ChangeError::NotSaved(error) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "not-saved", "Not saved", text)
                    .with_fix(error.fix)
            }
            ChangeError::Stale(_) => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "stale",
                "Changed in between",
                text,
            )
            .with_fix("read it again and repeat the change"),
        }
    }
}

impl From<GateError> for Refusal {
    fn from(error: GateError) -> Self {
        let text = error.to_string();
        match error {
            GateError::Change(error) => error.into(),
            GateError::LastAdministrator => Self::conflict("last-administrator", "Last administrator", text),
            GateError::Password(_) => {
                Self::invalid(vec![Problem::new("password", text, "choose another password")])
            }
            GateError::SetUpAlready => Self::conflict("set-up-already", "Set up already", text)
                .with_fix("on the host: lunaport user set NAME --password-file FILE"),
            GateError::TooManyTries(wait) => {
                let mut refusal = Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too-many-tries",
                    "Too many tries",
                    text,
                );
                refusal.0.retry_after = Some(wait.as_secs() + 1);
                refusal
            }
            GateError::Wrong(_) => Self::new(StatusCode::UNAUTHORIZED, "wrong", "Wrong", text),
        }
    }
}

impl From<TraceError> for Refusal {
    fn from(error: TraceError) -> Self {
        let text = error.to_string();
        match error {
            TraceError::Invalid(problem) => Self::invalid(vec![problem]),
            TraceError::Refused(TraceRefusal::NoSuchSession(_)) => Self::invalid(vec![Problem::new(
                "session",
                text,
                "see GET /api/v1/sessions for those there are",
            )]),
            TraceError::Refused(TraceRefusal::TooMany) => {
                Self::conflict("too-many-traces", "Too many traces", text)
                    .with_fix("delete one: DELETE /api/v1/traces/{id}")
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.0.retry_after;
        let mut response = (status, Json(&self.0)).into_response();
        // Where people look, they see a page of it instead.
        response.extensions_mut().insert(*self.0);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
