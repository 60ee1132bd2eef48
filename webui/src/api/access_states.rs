//! How well portal groups reach the disks of their targets (ALUA), and taking back what initiators said of them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use management::control::TargetStates;
use serde::Deserialize;
use utoipa::openapi::path::HttpMethod;

use super::extract::{Key, Params};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

pub(super) fn add(routes: &mut Routes) {
    let new = |id: &str, summary: &str| Described::new("access-states", id, summary);
    let listed = new(
        "list_access_states",
        "List targets that are served, with the states of their portal groups (ALUA)",
    )
    .gives_page::<TargetStates>("By target");
    routes.add(HttpMethod::Get, "/access-states", get(list), listed);
    let shown = new(
        "read_access_states",
        "Show the states of a target's portal groups",
    )
    .in_path("target", "name of the target")
    .gives::<TargetStates>("200", "As they are");
    routes.add(HttpMethod::Get, "/access-states/{target}", get(read), shown);
    let cleared = new(
        "reset_access_states",
        "Put portal groups whose states initiators set back into those of the start",
    )
    .in_path("target", "name of the target")
    .gives_nothing("204", "No state is an initiator's");
    routes.add(
        HttpMethod::Delete,
        "/access-states/{target}",
        delete(reset),
        cleared,
    );
}

async fn list(State(web): State<Web>, _who: Viewer, _query: Params<NoQuery>) -> Json<Page<TargetStates>> {
    let items = web.control().access_states();
    Json(Page {
        total: items.len(),
        items,
        next: None,
    })
}

async fn read(State(web): State<Web>, _who: Viewer, Key(target): Key) -> Result<Json<TargetStates>, Refusal> {
    let found = web.control().access_states_of(&target);
    found
        .map(Json)
        .ok_or_else(|| Refusal::not_found(&format!("targets/{target}")))
}

async fn reset(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(target): Key,
) -> Result<StatusCode, Refusal> {
    web.control().reset_access_states(&actor, &target).await?;
    Ok(StatusCode::NO_CONTENT)
}
