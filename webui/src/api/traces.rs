//! Traces of PDUs: begun, watched, taken away as a file.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_util::stream;
use management::control::{TraceStatus, TraceWish};
use management::model::Problem;
use management::trace::{Capture, TraceRow};
use serde::Deserialize;
use target_core::trace::Trace;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::extract::{Key, Params, parse};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsQuery {
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default)]
    after: u64,
}

pub(super) fn add(routes: &mut Routes) {
    let listed = Described::new("traces", "list_traces", "List traces of PDUs")
        .gives_page::<TraceStatus>("Oldest first; there are four at most");
    routes.add(HttpMethod::Get, "/traces", get(list), listed);
    let begun = Described::new(
        "traces",
        "begin_trace",
        "Trace the PDUs of a session, or of logins to come",
    )
    .takes::<TraceWish>("application/json")
    .gives::<TraceStatus>("201", "It runs; Location is where it is");
    routes.add(HttpMethod::Post, "/traces", post(begin), begun);
    let one = || "number of the trace";
    let shown = Described::new("traces", "show_trace", "Show how a trace is")
        .in_path("id", one())
        .gives::<TraceStatus>("200", "As it is now");
    routes.add(HttpMethod::Get, "/traces/{id}", get(show), shown);
    let deleted = Described::new(
        "traces",
        "delete_trace",
        "End a trace and forget what it holds; that frees its place",
    )
    .in_path("id", one())
    .gives_nothing("204", "It is gone, or was not there");
    routes.add(HttpMethod::Delete, "/traces/{id}", delete(remove), deleted);
    let stopped = Described::new("traces", "stop_trace", "End a trace and keep what it holds")
        .in_path("id", one())
        .gives::<TraceStatus>("200", "It has ended");
    routes.add(HttpMethod::Post, "/traces/{id}/stop", post(stop), stopped);
    let rows = Described::new("traces", "list_trace_pdus", "List what was traced, decoded")
        .in_path("id", one())
        .in_query("limit", "entries at once, 1 to 1000", Type::Integer)
        .in_query("after", "number of the entry to go on after", Type::Integer)
        .gives_page::<TraceRow>("Oldest first");
    routes.add(HttpMethod::Get, "/traces/{id}/pdus", get(pdus), rows);
    let file = Described::new(
        "traces",
        "download_trace",
        "Download what was traced as a capture file (pcapng)",
    )
    .in_path("id", one())
    .gives_nothing("200", "application/x-pcapng, as Wireshark reads it");
    routes.add(HttpMethod::Get, "/traces/{id}/pcap", get(pcap), file);
}

async fn list(State(web): State<Web>, _who: Viewer) -> Json<Page<TraceStatus>> {
    let items = web.control().traces();
    Json(Page {
        total: items.len(),
        items,
        next: None,
    })
}

async fn begin(
    State(web): State<Web>,
    Operator(actor): Operator,
    body: Bytes,
) -> Result<impl IntoResponse, Refusal> {
    let wish: TraceWish = parse(&body)?;
    let status = web.control().begin_trace(&actor, &wish)?;
    let place = format!("/api/v1/traces/{}", status.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(status)))
}

async fn show(State(web): State<Web>, _who: Viewer, Key(key): Key) -> Result<Json<TraceStatus>, Refusal> {
    Ok(Json(TraceStatus::of(&*find(&web, &key)?)))
}

async fn remove(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
) -> Result<StatusCode, Refusal> {
    web.control().delete_trace(&actor, number(&key)?);
    Ok(StatusCode::NO_CONTENT)
}

async fn stop(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(key): Key,
) -> Result<Json<TraceStatus>, Refusal> {
    let stopped = web.control().stop_trace(&actor, number(&key)?);
    stopped.map(Json).ok_or_else(|| Refusal::not_found("trace"))
}

async fn pdus(
    State(web): State<Web>,
    _who: Operator,
    Key(key): Key,
    Params(query): Params<RowsQuery>,
) -> Result<Json<Page<TraceRow>>, Refusal> {
    if !(1..=1000).contains(&query.limit) {
        let problem = format!("{} entries cannot be listed at once", query.limit);
        return Err(Refusal::malformed(Problem::new(
            "limit",
            problem,
            "use 1 to 1000",
        )));
    }
    let trace = find(&web, &key)?;
    let entries = trace.entries(query.after, query.limit);
    let items: Vec<TraceRow> = entries.iter().map(|entry| TraceRow::of(&trace, entry)).collect();
    let last = items.last().map(|row| row.number);
    let more = last.filter(|&last| !trace.entries(last, 1).is_empty());
    Ok(Json(Page {
        items,
        total: trace.extent().0,
        next: more.map(|number| number.to_string()),
    }))
}

/// Made while it is sent: a trace in memory is not there a second time.
async fn pcap(State(web): State<Web>, Operator(actor): Operator, Key(key): Key) -> Result<Response, Refusal> {
    let trace = find(&web, &key)?;
    web.control().trace_taken(&actor, &trace);
    let pieces = Capture::of(&trace).map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    let name = format!(
        "attachment; filename=\"lunaport-trace-{}.pcapng\"",
        trace.number()
    );
    let name = HeaderValue::try_from(name).map_err(|_| Refusal::not_found("trace"))?;
    let mut response = Body::from_stream(stream::iter(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-pcapng"),
    );
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

fn find(web: &Web, key: &str) -> Result<Arc<Trace>, Refusal> {
    let trace = web.control().trace(number(key)?);
    trace.ok_or_else(|| Refusal::not_found("trace"))
}

fn number(key: &str) -> Result<u32, Refusal> {
    key.parse().map_err(|_| Refusal::not_found("trace"))
}

const fn default_limit() -> usize {
    100
}
