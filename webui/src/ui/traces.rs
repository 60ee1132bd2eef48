//! Traces: what initiators and the target say to each other, followed from here, read here, and taken away as a file.

use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use management::control::{TraceState, TraceStatus, TraceWish};
use management::model::{Cidr, Pattern};
use management::trace::TraceRow;
use serde::Deserialize;

use super::form::Form;
use super::frame::{Frame, Section, form_again, page};
use super::visitor::{OperatorVisitor, Visitor};
use super::{notice, show};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "traces.html")]
struct TracesPage {
    frame: Frame,
    traces: Vec<Listed>,
    form: Form,
}

#[derive(Template)]
#[template(path = "trace.html")]
struct TracePage {
    frame: Frame,
    trace: Listed,
    rows: Vec<Line>,
    /// Where the next entries are, when there are more.
    next: Option<u64>,
    /// Whether these are not the first.
    goes_on: bool,
}

/// A trace, for people.
struct Listed {
    id: u32,
    subject: String,
    began: String,
    state: &'static str,
    tone: &'static str,
    is_running: bool,
    kept: String,
    lost: u64,
    payload: String,
}

/// An entry, for people.
struct Line {
    number: u64,
    time: String,
    connection: u64,
    arrow: &'static str,
    from: &'static str,
    name: String,
    details: String,
}

/// What the form begins with.
#[derive(Debug, Default, Deserialize)]
struct Wanted {
    session: Option<String>,
    initiator: Option<String>,
    address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct From {
    #[serde(default)]
    after: u64,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/traces", get(list).post(begin))
        .route("/traces/{id}", get(show_one))
        .route("/traces/{id}/stop", post(stop))
        .route("/traces/{id}/delete", post(delete))
}

async fn list(State(web): State<Web>, visitor: Visitor, Query(wanted): Query<Wanted>) -> Response {
    let form = Form::of([
        ("session", wanted.session.unwrap_or_default()),
        ("initiator", wanted.initiator.unwrap_or_default()),
        ("address", wanted.address.unwrap_or_default()),
        ("seconds", "60".to_owned()),
        ("payload", "0".to_owned()),
    ]);
    page(&traces(&web, &visitor, form))
}

async fn begin(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let wish = TraceWish {
        session: form.parse_filled::<u16>("session"),
        initiator: form.parse_filled::<Pattern>("initiator"),
        address: form.parse_filled::<Cidr>("address"),
        seconds: form.parse::<u32>("seconds").unwrap_or_default(),
        payload: form.parse_filled::<u32>("payload").unwrap_or_default(),
        stop_when_full: form.is_set("stop_when_full"),
    };
    if !form.is_bad() {
        match web.control().begin_trace(&visitor.actor, &wish) {
            Ok(trace) => return notice::done("The trace runs.", &format!("/traces/{}", trace.id)),
            Err(error) => form.refuse(&Refusal::from(error), |path| {
                ["session", "seconds", "payload"]
                    .into_iter()
                    .find(|field| *field == path)
            }),
        }
    }
    form_again(&traces(&web, &visitor, form))
}

async fn show_one(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<u32>,
    Query(from): Query<From>,
) -> Result<Response, Refusal> {
    let trace = web
        .control()
        .trace(id)
        .ok_or_else(|| Refusal::not_found("trace"))?;
    let entries = trace.entries(from.after, ROWS);
    let last = entries.last().map(|entry| entry.number);
    let next = last.filter(|&last| !trace.entries(last, 1).is_empty());
    let line = |entry: &std::sync::Arc<target_core::trace::TraceEntry>| {
        let row = TraceRow::of(&trace, entry);
        let (arrow, from) = match row.from.as_deref() {
            Some("initiator") => ("→", "initiator to target"),
            Some(_) => ("←", "target to initiator"),
            None => ("", "connection"),
        };
        Line {
            number: row.number,
            time: format!("{}.{:06}", entry.at.as_secs(), entry.at.subsec_micros()),
            connection: row.connection,
            arrow,
            from,
            details: row.details(),
            name: row.name,
        }
    };
    Ok(page(&TracePage {
        frame: visitor.frame(Section::Traces, format!("Trace {id}")),
        trace: Listed::of(&TraceStatus::of(&trace)),
        rows: entries.iter().map(line).collect(),
        next,
        goes_on: from.after > 0,
    }))
}

async fn stop(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<u32>,
) -> Result<Response, Refusal> {
    let stopped = web.control().stop_trace(&visitor.actor, id);
    stopped.ok_or_else(|| Refusal::not_found("trace"))?;
    Ok(Redirect::to(&format!("/traces/{id}")).into_response())
}

async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<u32>,
) -> Response {
    web.control().delete_trace(&visitor.actor, id);
    notice::done("The trace is deleted.", "/traces")
}

fn traces(web: &Web, visitor: &Visitor, form: Form) -> TracesPage {
    TracesPage {
        frame: visitor.frame(Section::Traces, "Traces"),
        traces: web.control().traces().iter().map(Listed::of).collect(),
        form,
    }
}

impl Listed {
    /// Where something is done with it.
    fn action(&self, verb: &str) -> String {
        format!("/traces/{}/{verb}", self.id)
    }

    fn of(status: &TraceStatus) -> Self {
        let (state, tone) = match status.state {
            TraceState::Full => ("full", "info"),
            TraceState::Running => ("running", "ok"),
            TraceState::SessionEnded => ("session ended", "info"),
            TraceState::Stopped => ("stopped", "none"),
            TraceState::TimeOver => ("time over", "none"),
        };
        Self {
            id: status.id,
            subject: status.wish.subject(),
            began: show::moment(status.began),
            state,
            tone,
            is_running: status.state == TraceState::Running,
            kept: format!(
                "{}, {}",
                show::count(status.entries, "entry", "entries"),
                show::bytes(status.bytes as u64)
            ),
            lost: status.lost,
            payload: match status.wish.payload {
                0 => "not kept".to_owned(),
                bytes => format!("up to {} of each PDU", show::bytes(bytes.into())),
            },
        }
    }
}

/// Entries of a page.
const ROWS: usize = 200;
