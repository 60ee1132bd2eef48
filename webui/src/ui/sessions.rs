//! Sessions: who is logged in where, what was agreed, and closing one.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use management::control::{HalfOpenLogin, SessionStatus};
use management::model::{Initiator, LunMap};

use super::frame::{Frame, Section, page};
use super::negotiated::{Agreed, agreed};
use super::notice;
use super::visitor::{OperatorVisitor, Visitor};
use super::words::Shown;
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    rows: Vec<Row>,
    logins: Vec<HalfOpenLogin>,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: Frame,
    session: SessionStatus,
    description: String,
    luns: Vec<LunMap>,
    rates: Shown,
    agreed: Vec<Agreed>,
}

#[derive(Template)]
#[template(path = "session_close.html")]
struct ClosePage {
    frame: Frame,
    session: SessionStatus,
    luns: Vec<LunMap>,
    /// Its other sessions at the same target, which stay.
    others: usize,
}

/// A session in the list.
struct Row {
    session: SessionStatus,
    /// What the initiator is called.
    description: String,
    rates: Shown,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/sessions", get(list))
        .route("/sessions/{tsih}", get(show))
        .route("/sessions/{tsih}/close", get(ask).post(close))
}

async fn list(State(web): State<Web>, visitor: Visitor) -> Response {
    let model = web.control().model();
    let names: BTreeMap<String, String> = model
        .all::<Initiator>()
        .filter_map(|it| Some((it.name.to_string(), it.description.clone()?)))
        .collect();
    let sessions = web.control().sessions().into_iter();
    let sample = web.control().rates().latest();
    let rows = sessions.map(|session| Row {
        description: names.get(&session.initiator).cloned().unwrap_or_default(),
        rates: Shown::of_session(sample.as_deref(), session.tsih),
        session,
    });
    page(&SessionsPage {
        frame: visitor.frame(Section::Sessions, "Sessions"),
        rows: rows.collect(),
        logins: web.control().half_open_logins(),
    })
}

async fn show(
    State(web): State<Web>,
    visitor: Visitor,
    Path(tsih): Path<String>,
) -> Result<Response, Refusal> {
    let session = find(&web, &tsih)?;
    let model = web.control().model();
    let known = model.get::<Initiator>(&session.initiator);
    Ok(page(&SessionPage {
        frame: visitor.frame(Section::Sessions, format!("Session {}", session.tsih)),
        description: known.and_then(|it| it.description.clone()).unwrap_or_default(),
        luns: luns(&web, &session),
        rates: Shown::of_session(web.control().rates().latest().as_deref(), session.tsih),
        agreed: agreed(&session.negotiated),
        session,
    }))
}

async fn ask(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(tsih): Path<String>,
) -> Result<Response, Refusal> {
    let session = find(&web, &tsih)?;
    let is_other = |it: &SessionStatus| {
        it.tsih != session.tsih && it.initiator == session.initiator && it.target == session.target
    };
    let others = web.control().sessions().iter().filter(|it| is_other(it)).count();
    Ok(page(&ClosePage {
        frame: visitor.frame(Section::Sessions, format!("Close session {}", session.tsih)),
        luns: luns(&web, &session),
        others,
        session,
    }))
}

async fn close(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(tsih): Path<String>,
) -> Result<Response, Refusal> {
    let session = find(&web, &tsih)?;
    web.control().kick(&visitor.actor, session.tsih);
    let text = format!("Session {} of {} is told to go.", session.tsih, session.initiator);
    Ok(notice::done(&text, "/sessions"))
}

fn find(web: &Web, tsih: &str) -> Result<SessionStatus, Refusal> {
    let wanted: Option<u16> = tsih.parse().ok();
    let found = web
        .control()
        .sessions()
        .into_iter()
        .find(|session| Some(session.tsih) == wanted);
    found.ok_or_else(|| Refusal::not_found("session any more"))
}

/// The LUNs of its target.
fn luns(web: &Web, session: &SessionStatus) -> Vec<LunMap> {
    let model = web.control().model();
    let of_target = |map: &&LunMap| session.target.as_deref() == Some(&map.target.to_string());
    model.all::<LunMap>().filter(of_target).cloned().collect()
}
