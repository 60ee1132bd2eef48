//! What initiators have reserved, and taking it away from them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use management::control::UnitReservations;
use serde::Deserialize;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::extract::{Key, Params, flag};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearQuery {
    #[serde(default, deserialize_with = "flag")]
    force: bool,
}

pub(super) fn add(routes: &mut Routes) {
    let new = |id: &str, summary: &str| Described::new("reservations", id, summary);
    let listed = new(
        "list_reservations",
        "List logical units on which something is reserved, with registrants and holder",
    )
    .gives_page::<UnitReservations>("By unit");
    routes.add(HttpMethod::Get, "/reservations", get(list), listed);
    let shown = new("read_reservations", "Show what is reserved on a logical unit")
        .in_path("unit", "id of the logical unit")
        .gives::<UnitReservations>("200", "As it is");
    routes.add(HttpMethod::Get, "/reservations/{unit}", get(read), shown);
    let cleared = new(
        "clear_reservations",
        "Take all registrations and reservations of a logical unit away; nothing happens when there are none",
    )
    .in_path("unit", "id of the logical unit")
    .in_query(
        "force",
        "do it even while registrants have sessions",
        Type::Boolean,
    )
    .gives_nothing("204", "Nothing is reserved on it");
    routes.add(HttpMethod::Delete, "/reservations/{unit}", delete(clear), cleared);
}

async fn list(State(web): State<Web>, _who: Viewer, _query: Params<NoQuery>) -> Json<Page<UnitReservations>> {
    let items = web.control().reservations();
    Json(Page {
        total: items.len(),
        items,
        next: None,
    })
}

async fn read(
    State(web): State<Web>,
    _who: Viewer,
    Key(unit): Key,
) -> Result<Json<UnitReservations>, Refusal> {
    let found = web.control().reservations_of(&unit);
    found
        .map(Json)
        .ok_or_else(|| Refusal::not_found(&format!("units/{unit}")))
}

async fn clear(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(unit): Key,
    Params(query): Params<ClearQuery>,
) -> Result<StatusCode, Refusal> {
    web.control()
        .clear_reservations(&actor, &unit, query.force)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
