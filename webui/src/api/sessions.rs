//! Sessions, half-open logins, and logins that failed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use management::control::{HalfOpenLogin, SessionStatus};
use management::events::{Event, EventKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::extract::{Key, Params};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

/// A login that failed, explained.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
struct LoginFailure {
    /// Number of its event.
    number: u64,
    /// When, milliseconds since 1970.
    time: u64,
    /// Where it came from.
    peer: String,
    /// The portal it came in by.
    local: String,
    /// The initiator's name, when it was said.
    initiator: Option<String>,
    /// The target's name, when it was said.
    target: Option<String>,
    /// Status that the initiator was sent.
    status: Option<String>,
    /// The key of the login, or the limit, that stood against it.
    key: Option<String>,
    /// What happened, with the name or value that was wrong.
    reason: String,
    /// What would help.
    fix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

pub(super) fn add(routes: &mut Routes) {
    let listed = Described::new(
        "sessions",
        "list_sessions",
        "List every session with all that was agreed",
    )
    .gives_page::<SessionStatus>("By handle");
    routes.add(HttpMethod::Get, "/sessions", get(list), listed);
    let kicked = Described::new(
        "sessions",
        "close_session",
        "Close a session; its initiator may log in again",
    )
    .in_path("tsih", "handle of the session")
    .gives_nothing("204", "It is told to go, or was not there");
    routes.add(HttpMethod::Delete, "/sessions/{tsih}", delete(kick), kicked);
    let half_open = Described::new(
        "sessions",
        "list_logins",
        "List connections that are in their login",
    )
    .gives_page::<HalfOpenLogin>("In the order they came");
    routes.add(HttpMethod::Get, "/logins", get(logins), half_open);
    let failures = Described::new(
        "sessions",
        "list_login_failures",
        "List logins that failed, and why",
    )
    .gives_page::<LoginFailure>("The latest hundred, newest first");
    routes.add(HttpMethod::Get, "/login-failures", get(failures_list), failures);
}

async fn list(State(web): State<Web>, _who: Viewer, _query: Params<NoQuery>) -> Json<Page<SessionStatus>> {
    Json(whole(web.control().sessions()))
}

async fn kick(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
) -> Result<StatusCode, Refusal> {
    let tsih = key.parse().map_err(|_| Refusal::not_found("session"))?;
    web.control().kick(&actor, tsih);
    Ok(StatusCode::NO_CONTENT)
}

async fn logins(State(web): State<Web>, _who: Viewer) -> Json<Page<HalfOpenLogin>> {
    Json(whole(web.control().half_open_logins()))
}

async fn failures_list(State(web): State<Web>, _who: Viewer) -> Json<Page<LoginFailure>> {
    let events = web.control().events().recent();
    let failed = events.iter().filter(|event| event.kind == EventKind::LoginFailed);
    Json(whole(failed.take(FAILURES_SHOWN).map(failure).collect()))
}

fn failure(event: &Arc<Event>) -> LoginFailure {
    let text = |field: &str| {
        event
            .data
            .get(field)
            .and_then(|it| it.as_str())
            .map(ToOwned::to_owned)
    };
    LoginFailure {
        number: event.number,
        time: event.time,
        peer: text("peer").unwrap_or_default(),
        local: text("local").unwrap_or_default(),
        initiator: text("initiator"),
        target: text("target"),
        status: text("status"),
        key: text("key"),
        reason: text("reason").unwrap_or_default(),
        fix: text("fix").unwrap_or_default(),
    }
}

fn whole<T>(items: Vec<T>) -> Page<T> {
    Page {
        total: items.len(),
        items,
        next: None,
    }
}

const FAILURES_SHOWN: usize = 100;
