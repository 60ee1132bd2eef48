//! Events and the audit log: what has happened, newest first, and what happens while the page is open. The audit log is
//! the events of changes, each with who made it and what was before and after.

use std::convert::Infallible;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::routing::get;
use futures_util::stream::{Stream, StreamExt};
use management::events::{Event, EventKind};
use serde::Deserialize;

use super::difference::ChangedObject;
use super::frame::{Frame, Section, page};
use super::visitor::Visitor;
use crate::api::followed;
use crate::{Refusal, Web};

/// What is to be seen.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Wanted {
    /// Only of this kind; any text that is none shows all.
    #[serde(default, deserialize_with = "kind")]
    kind: Option<EventKind>,
    /// Only those before this number.
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: Frame,
    /// Where the filter leads.
    path: &'static str,
    /// What one may filter by; nothing on the audit log.
    kinds: Vec<Choice>,
    is_audit: bool,
    is_filtered: bool,
    rows: Vec<Row>,
    /// Where what happens comes from; only the newest page has it.
    live: Option<String>,
    /// Query of the page before this one in time.
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "events_rows.html")]
struct Rows {
    rows: Vec<Row>,
}

/// A kind in the filter.
#[derive(Debug)]
struct Choice {
    name: String,
    word: &'static str,
    is_chosen: bool,
}

/// An event as a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) number: u64,
    /// Milliseconds since 1970.
    pub(super) time: u64,
    /// Its kind in words.
    pub(super) word: &'static str,
    /// `ok`, `warn`, `bad` or nothing.
    pub(super) tone: &'static str,
    pub(super) text: String,
    pub(super) actor: Option<String>,
    pub(super) objects: Vec<ChangedObject>,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/events", get(events))
        .route("/events/live", get(live))
        .route("/audit", get(audit))
}

async fn events(State(web): State<Web>, visitor: Visitor, Query(wanted): Query<Wanted>) -> Response {
    let (rows, older) = rows(&web, wanted);
    let name = wanted.kind.map(name).unwrap_or_default();
    page(&EventsPage {
        frame: visitor.frame(Section::Events, "Events"),
        path: "/events",
        kinds: KINDS
            .iter()
            .map(|kind| Choice {
                name: self::name(*kind),
                word: words(*kind).0,
                is_chosen: wanted.kind == Some(*kind),
            })
            .collect(),
        is_audit: false,
        is_filtered: wanted.kind.is_some(),
        rows,
        live: wanted
            .before
            .is_none()
            .then(|| format!("/events/live?kind={name}")),
        older: older.map(|before| format!("?kind={name}&before={before}")),
    })
}

async fn audit(State(web): State<Web>, visitor: Visitor, Query(wanted): Query<Wanted>) -> Response {
    let kind = Some(EventKind::Changed);
    let (rows, older) = rows(&web, Wanted { kind, ..wanted });
    page(&EventsPage {
        frame: visitor.frame(Section::Audit, "Audit log"),
        path: "/audit",
        kinds: Vec::new(),
        is_audit: true,
        is_filtered: false,
        rows,
        live: wanted
            .before
            .is_none()
            .then(|| "/events/live?kind=changed".to_owned()),
        older: older.map(|before| format!("?before={before}")),
    })
}

/// Rows as they come, for the top of the table.
async fn live(
    State(web): State<Web>,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let messages = followed(&web, visitor.actor, &headers)?.filter_map(move |event| {
        let is_wanted = wanted.kind.is_none_or(|kind| event.kind == kind);
        let message = is_wanted.then(|| message(&event)).flatten();
        std::future::ready(message.map(Ok))
    });
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn message(event: &Event) -> Option<sse::Event> {
    let rows = vec![Row::of(event)];
    let text = Rows { rows }.render().ok()?;
    Some(
        sse::Event::default()
            .id(event.number.to_string())
            .event("row")
            .data(text.trim()),
    )
}

/// The newest of all kinds.
pub(super) fn newest(web: &Web, count: usize) -> Vec<Row> {
    let recent = web.control().events().recent();
    recent.iter().take(count).map(|event| Row::of(event)).collect()
}

impl Row {
    fn of(event: &Event) -> Self {
        let (word, tone) = words(event.kind);
        Self {
            number: event.number,
            time: event.time,
            word,
            tone,
            text: event.text.clone(),
            actor: event.actor.clone(),
            objects: ChangedObject::of_event(&event.data),
        }
    }
}

/// Rows that are shown, newest first, and the number to go on before.
fn rows(web: &Web, wanted: Wanted) -> (Vec<Row>, Option<u64>) {
    let recent = web.control().events().recent();
    let mut rest = recent
        .iter()
        .filter(|event| wanted.kind.is_none_or(|kind| event.kind == kind))
        .filter(|event| wanted.before.is_none_or(|before| event.number < before))
        .peekable();
    let rows: Vec<_> = rest.by_ref().take(PAGE).map(|event| Row::of(event)).collect();
    let last = rows.last().map(|row| row.number);
    (rows, last.filter(|_| rest.peek().is_some()))
}

/// What an event is called, and how it is shown.
const fn words(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::AccessStatesReset => ("Access states reset", "warn"),
        EventKind::Changed => ("Changed", ""),
        EventKind::Grown => ("Grown", "ok"),
        EventKind::JobCancelled => ("Work cancelled", "warn"),
        EventKind::JobEnded => ("Work ended", ""),
        EventKind::JobStarted => ("Work started", ""),
        EventKind::Kicked => ("Session closed", "warn"),
        EventKind::LoggedIn => ("Logged in", "ok"),
        EventKind::LoginFailed => ("Login failed", "bad"),
        EventKind::Missed => ("Events lost", "bad"),
        EventKind::ReservationsCleared => ("Reservations cleared", "warn"),
        EventKind::SecretsShown => ("Secrets shown", "warn"),
        EventKind::SessionEnded => ("Session ended", ""),
        EventKind::Started => ("Started", ""),
        EventKind::StoreMissing => ("Store missing", "bad"),
        EventKind::StoreReturned => ("Store returned", "ok"),
        EventKind::TraceBegan => ("Trace began", "warn"),
        EventKind::TraceEnded => ("Trace ended", ""),
        EventKind::TraceTaken => ("Trace taken", "warn"),
        EventKind::UserLoggedIn => ("User logged in", ""),
        EventKind::UserRefused => ("User refused", "bad"),
    }
}

/// Its name in queries and in the API.
fn name(kind: EventKind) -> String {
    let value = serde_json::to_value(kind).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// A filter that was left empty is none.
fn kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<EventKind>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(KINDS.into_iter().find(|kind| name(*kind) == text))
}

/// In the order of the filter: what one looks for first.
const KINDS: [EventKind; 21] = [
    EventKind::LoginFailed,
    EventKind::LoggedIn,
    EventKind::SessionEnded,
    EventKind::Kicked,
    EventKind::Changed,
    EventKind::Grown,
    EventKind::AccessStatesReset,
    EventKind::ReservationsCleared,
    EventKind::JobStarted,
    EventKind::JobEnded,
    EventKind::JobCancelled,
    EventKind::StoreMissing,
    EventKind::StoreReturned,
    EventKind::TraceBegan,
    EventKind::TraceTaken,
    EventKind::TraceEnded,
    EventKind::UserLoggedIn,
    EventKind::UserRefused,
    EventKind::SecretsShown,
    EventKind::Started,
    EventKind::Missed,
];
/// Rows of a page.
const PAGE: usize = 50;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
