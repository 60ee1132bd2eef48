//! What is logged: shown, and changed while the program runs.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::{get, put};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::extract::parse;
use super::routes::{Described, Routes};
use crate::who::{Admin, Viewer};
use crate::{Refusal, Web};

/// What is logged.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogFilter {
    /// error, warn, info, debug, trace, or a filter such as info,target_core=debug.
    filter: String,
}

pub(super) fn add(routes: &mut Routes) {
    let shown =
        Described::new("log", "read_log_filter", "Show what is logged").gives::<LogFilter>("200", "In force");
    routes.add(HttpMethod::Get, "/log-filter", get(read), shown);
    let changed = Described::new(
        "log",
        "put_log_filter",
        "Change what is logged, until the program ends",
    )
    .takes::<LogFilter>("application/json")
    .gives::<LogFilter>("200", "In force now");
    routes.add(HttpMethod::Put, "/log-filter", put(change), changed);
}

async fn read(State(web): State<Web>, _who: Viewer) -> Result<Json<LogFilter>, Refusal> {
    let filter = web.control().log_filter().current();
    let filter = filter.ok_or_else(|| Refusal::not_found("filter of the log"))?;
    Ok(Json(LogFilter { filter }))
}

async fn change(
    State(web): State<Web>,
    Admin(actor): Admin,
    body: Bytes,
) -> Result<Json<LogFilter>, Refusal> {
    let LogFilter { filter } = parse(&body)?;
    web.control()
        .set_log_filter(&actor, &filter)
        .map_err(Refusal::malformed)?;
    Ok(Json(LogFilter { filter }))
}
