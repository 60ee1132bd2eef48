//! The event log, and the stream of events as they happen.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::routing::get;
use futures_util::stream::{self, Stream, StreamExt};
use management::access::Actor;
use management::events::{Event, EventKind};
use management::model::Problem;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::extract::Params;
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::Viewer;
use crate::{Refusal, Web};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default = "default_limit")]
    limit: usize,
    before: Option<u64>,
    kind: Option<EventKind>,
}

pub(super) fn add(routes: &mut Routes) {
    let listed = Described::new("events", "list_events", "List what has happened, newest first")
        .in_query("limit", "events at once, 1 to 1000", Type::Integer)
        .in_query("before", "number to go on before", Type::Integer)
        .in_query(
            "kind",
            "only of this kind; changed is the audit log",
            Type::String,
        )
        .gives_page::<Event>("Some of them");
    routes.add(HttpMethod::Get, "/events", get(list), listed);
    let streamed = Described::new(
        "events",
        "follow_events",
        "Follow events as they happen (server-sent events)",
    )
    .header("Last-Event-ID", "number of the last event that was seen")
    .gives_nothing(
        "200",
        "text/event-stream; each event's id is its number, its data the event as JSON",
    );
    routes.add(HttpMethod::Get, "/events/stream", get(follow), streamed);
}

async fn list(
    State(web): State<Web>,
    _who: Viewer,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page<Event>>, Refusal> {
    if !(1..=1000).contains(&query.limit) {
        let problem = format!("{} events cannot be listed at once", query.limit);
        return Err(Refusal::malformed(Problem::new(
            "limit",
            problem,
            "use 1 to 1000",
        )));
    }
    let recent = web.control().events().recent();
    let of_kind = |event: &&Arc<Event>| query.kind.is_none_or(|kind| event.kind == kind);
    let total = recent.iter().filter(of_kind).count();
    let before = |event: &&Arc<Event>| query.before.is_none_or(|before| event.number < before);
    let mut rest = recent.iter().filter(of_kind).filter(before).peekable();
    let items: Vec<Event> = rest
        .by_ref()
        .take(query.limit)
        .map(|event| (**event).clone())
        .collect();
    let last = items.last().map(|event| event.number.to_string());
    let next = last.filter(|_| rest.peek().is_some());
    Ok(Json(Page { items, total, next }))
}

async fn follow(
    State(web): State<Web>,
    Viewer(actor): Viewer,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let messages = followed(&web, actor, &headers)?.map(|event| Ok(message(&event)));
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Events after the last one that was seen, and those that come, for as long as `actor` may see them.
pub(crate) fn followed(
    web: &Web,
    actor: Actor,
    headers: &HeaderMap,
) -> Result<impl Stream<Item = Arc<Event>> + use<>, Refusal> {
    let place = web.follower().ok_or_else(Refusal::too_many_followers)?;
    let log = web.control().events();
    let seen = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    // Who does not say what was seen wants what comes.
    let seen = seen.unwrap_or_else(|| log.recent().first().map_or(0, |event| event.number));
    let (missed, live) = log.follow(seen);
    let follower = Follower {
        live,
        web: web.clone(),
        actor,
        until: Instant::now() + LIFE,
        _place: place,
    };
    Ok(stream::iter(missed).chain(stream::unfold(follower, next)))
}

/// Somebody who follows events.
struct Follower {
    live: Receiver<Arc<Event>>,
    web: Web,
    actor: Actor,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

/// The next event, for as long as the follower may see it. Whoever is sent away asks again with the last number they have:
/// also those who are too slow, and everybody after a while, since who may look may have changed.
async fn next(mut follower: Follower) -> Option<(Arc<Event>, Follower)> {
    match timeout_at(follower.until, follower.live.recv()).await {
        Ok(Ok(event)) if follower.web.gate().knows_still(&follower.actor) => Some((event, follower)),
        Ok(Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed)) | Err(_) => None,
    }
}

fn message(event: &Event) -> sse::Event {
    let message = sse::Event::default().id(event.number.to_string());
    message.json_data(event).unwrap_or_default()
}

const fn default_limit() -> usize {
    100
}

/// How long a stream lasts.
const LIFE: Duration = Duration::from_secs(600);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
