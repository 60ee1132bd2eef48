//! Reservations: what initiators have registered and reserved on each unit, and clearing it for a host that is gone for
//! good.

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use management::control::{Port, ReservationKind, UnitReservations};

use super::form::Form;
use super::frame::{Frame, Section, page};
use super::notice;
use super::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "reservations.html")]
struct ReservationsPage {
    frame: Frame,
    units: Vec<UnitReservations>,
}

#[derive(Template)]
#[template(path = "reservations_clear.html")]
struct ClearPage {
    frame: Frame,
    unit: UnitReservations,
    /// Those that have a session now.
    present: Vec<Port>,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/reservations", get(list))
        .route("/reservations/{unit}/clear", get(ask).post(clear))
}

async fn list(State(web): State<Web>, visitor: Visitor) -> Response {
    page(&ReservationsPage {
        frame: visitor.frame(Section::Reservations, "Reservations"),
        units: web.control().reservations(),
    })
}

async fn ask(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(unit): Path<String>,
) -> Result<Response, Refusal> {
    let unit = find(&web, &unit)?;
    let ports = unit.registrants.iter().map(|registrant| &registrant.port);
    let present = ports.chain(&unit.reserved_by).filter(|port| port.tsih.is_some());
    Ok(page(&ClearPage {
        frame: visitor.frame(
            Section::Reservations,
            format!("Clear the reservations of {}", unit.unit),
        ),
        present: present.cloned().collect(),
        unit,
    }))
}

async fn clear(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(unit): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let done = web
        .control()
        .clear_reservations(&visitor.actor, &unit, form.is_set("force"))
        .await;
    match done {
        Ok(()) => Ok(notice::done(
            &format!("Nothing is reserved on {unit} any more."),
            "/reservations",
        )),
        Err(problem) => Ok(Refusal::from(problem).into_response()),
    }
}

fn find(web: &Web, unit: &str) -> Result<UnitReservations, Refusal> {
    web.control()
        .reservations_of(unit)
        .ok_or_else(|| Refusal::not_found("logical unit"))
}

/// What a type of reservation means for who has none.
const fn meaning(kind: ReservationKind) -> (&'static str, &'static str) {
    match kind {
        ReservationKind::ExclusiveAccess => ("Exclusive access", "Only the holder reads and writes."),
        ReservationKind::ExclusiveAccessAllRegistrants => (
            "Exclusive access, all registrants",
            "Only registrants read and write, and each of them is a holder.",
        ),
        ReservationKind::ExclusiveAccessRegistrantsOnly => (
            "Exclusive access, registrants only",
            "Only registrants read and write; one of them is the holder.",
        ),
        ReservationKind::WriteExclusive => ("Write exclusive", "Everybody reads, only the holder writes."),
        ReservationKind::WriteExclusiveAllRegistrants => (
            "Write exclusive, all registrants",
            "Everybody reads, only registrants write, and each of them is a holder.",
        ),
        ReservationKind::WriteExclusiveRegistrantsOnly => (
            "Write exclusive, registrants only",
            "Everybody reads, only registrants write; one of them is the holder.",
        ),
    }
}
