//! Rates: now, of the last five minutes, and as they come.

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
use management::model::Problem;
use management::rates::Sample;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::extract::Params;
use super::routes::{Described, Routes};
use crate::who::Viewer;
use crate::{Refusal, Web};

/// The rates of some time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct RateHistory {
    /// Oldest first; rows in which nothing happened are left out.
    pub samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    #[serde(default = "default_seconds")]
    seconds: u64,
}

pub(super) fn add(routes: &mut Routes) {
    let now = Described::new(
        "stats",
        "read_rates",
        "Show the rates of the last interval, by LUN, initiator and session",
    )
    .gives::<Sample>("200", "With a row for everything that there is");
    routes.add(HttpMethod::Get, "/stats", get(latest), now);
    let history = Described::new("stats", "read_rate_history", "Show the rates of the last minutes")
        .in_query("seconds", "how far back, 1 to 300", Type::Integer)
        .gives::<RateHistory>("200", "One sample every two seconds");
    routes.add(HttpMethod::Get, "/stats/history", get(recent), history);
    let streamed = Described::new(
        "stats",
        "follow_rates",
        "Follow rates as they come (server-sent events)",
    )
    .header("Last-Event-ID", "number of the last sample that was seen")
    .gives_nothing(
        "200",
        "text/event-stream; each event's id is the sample's number, its data the sample as JSON",
    );
    routes.add(HttpMethod::Get, "/stats/stream", get(follow), streamed);
}

async fn latest(State(web): State<Web>, _who: Viewer, _query: Params<NoQuery>) -> Json<Sample> {
    let rates = web.control().rates();
    Json(
        rates
            .latest()
            .map_or_else(Sample::default, |sample| (*sample).clone()),
    )
}

async fn recent(
    State(web): State<Web>,
    _who: Viewer,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<RateHistory>, Refusal> {
    if !(1..=SECONDS_MAX).contains(&query.seconds) {
        let problem = format!("{} seconds are not kept", query.seconds);
        return Err(Refusal::malformed(Problem::new(
            "seconds",
            problem,
            "use 1 to 300",
        )));
    }
    let recent = web.control().rates().recent();
    let newest = recent.last().map_or(0, |sample| sample.time);
    let since = newest.saturating_sub(query.seconds * 1000);
    let samples = recent.iter().filter(|sample| sample.time > since);
    Ok(Json(RateHistory {
        samples: samples.map(|sample| (**sample).clone()).collect(),
    }))
}

async fn follow(
    State(web): State<Web>,
    Viewer(actor): Viewer,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refusal> {
    let place = web.follower().ok_or_else(Refusal::too_many_followers)?;
    let seen = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    // Who does not say what was seen wants what comes.
    let (missed, live) = web.control().rates().follow(seen.unwrap_or(u64::MAX));
    let missed = stream::iter(missed.into_iter().map(|sample| Ok(message(&sample))));
    let follower = Follower {
        live,
        web: web.clone(),
        actor,
        until: Instant::now() + LIFE,
        _place: place,
    };
    let stream = missed.chain(stream::unfold(follower, next));
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Somebody who follows rates.
struct Follower {
    live: Receiver<Arc<Sample>>,
    web: Web,
    actor: Actor,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

/// The next sample, for as long as the follower may see it; who is too slow misses some.
async fn next(mut follower: Follower) -> Option<(Result<sse::Event, Infallible>, Follower)> {
    loop {
        match timeout_at(follower.until, follower.live.recv()).await {
            Ok(Ok(sample)) if follower.web.gate().knows_still(&follower.actor) => {
                return Some((Ok(message(&sample)), follower));
            }
            Ok(Err(RecvError::Lagged(_))) => {}
            Ok(Ok(_) | Err(RecvError::Closed)) | Err(_) => return None,
        }
    }
}

fn message(sample: &Sample) -> sse::Event {
    let message = sse::Event::default().id(sample.number.to_string());
    message.json_data(sample).unwrap_or_default()
}

const fn default_seconds() -> u64 {
    SECONDS_MAX
}

const SECONDS_MAX: u64 = 300;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// After so long whoever follows has to ask again.
const LIFE: Duration = Duration::from_secs(3600);
