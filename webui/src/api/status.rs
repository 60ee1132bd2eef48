//! How it goes: for people, for orchestrators, and for a report to whoever helps.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use management::control::{JobKind, JobState, StoreRoot};
use management::document::Document;
use management::live::{Condition, IserStatus, PortStatus, StoreStatus};
use management::model::{LunMap, Target, Unit};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::objects::Page;
use super::routes::{Described, Routes};
use crate::Web;
use crate::who::{Admin, Viewer};

/// How the node is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Seconds since the start.
    pub uptime: u64,
    /// Changes made to the configuration so far.
    pub generation: u64,
    /// Targets configured.
    pub targets: usize,
    /// Logical units configured.
    pub units: usize,
    /// LUNs configured.
    pub luns: usize,
    /// Sessions alive.
    pub sessions: usize,
    /// Connections in their login.
    pub half_open_logins: usize,
    /// Commands that were aborted while their store still works.
    pub abandoned_commands: usize,
    /// What needs somebody's attention, a line each.
    pub alerts: Vec<String>,
    /// Every address where initiators come in: those of the command line first, then those of the configuration.
    pub portals: Vec<PortStatus>,
    /// iSCSI over RDMA: whether this host can serve it.
    pub iser: IserStatus,
    /// Stores.
    pub stores: Vec<StoreStatus>,
}

pub(super) fn add(routes: &mut Routes) {
    let shown =
        Described::new("status", "read_status", "Show how the node is").gives::<Status>("200", "As it is");
    routes.add(HttpMethod::Get, "/status", get(status), shown);
    let roots = Described::new(
        "stores",
        "list_store_roots",
        "List the folders that files of disks can be in, and the space that is left there",
    )
    .gives_page::<StoreRoot>("All of them, the state directory last");
    routes.add(HttpMethod::Get, "/store-roots", get(store_roots), roots);
    let bundle = Described::new(
        "status",
        "read_support_bundle",
        "Everything that helps to find a fault, without secrets",
    )
    .gives::<serde_json::Value>("200", "Version, status, configuration, sessions and events");
    routes.add(HttpMethod::Get, "/support-bundle", get(support_bundle), bundle);
}

async fn status(State(web): State<Web>, _who: Viewer) -> Json<Status> {
    Json(status_of(&web))
}

async fn store_roots(State(web): State<Web>, _who: Viewer) -> Json<Page<StoreRoot>> {
    let items = web.control().store_roots().await;
    Json(Page {
        total: items.len(),
        items,
        next: None,
    })
}

async fn support_bundle(State(web): State<Web>, _who: Admin) -> Json<serde_json::Value> {
    let control = web.control();
    let events: Vec<_> = control
        .events()
        .recent()
        .iter()
        .take(1000)
        .map(|event| (**event).clone())
        .collect();
    Json(serde_json::json!({
        "status": status_of(&web),
        "configuration": Document::of(&control.model()),
        "sessions": control.sessions(),
        "half_open_logins": control.half_open_logins(),
        "events": events,
    }))
}

/// 200 while everything that is configured is served, 503 with the reasons otherwise.
pub(crate) async fn ready(State(web): State<Web>) -> Response {
    let alerts = status_of(&web).alerts;
    if alerts.is_empty() {
        return "ready\n".into_response();
    }
    // Names of stores are for who may look; how many there are is enough here.
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{} alerts\n", alerts.len()),
    )
        .into_response()
}

/// How the node is.
pub(crate) fn status_of(web: &Web) -> Status {
    let control = web.control();
    let model = control.model();
    let (portals, stores) = (control.port_statuses(), control.store_statuses());
    let missing = stores
        .iter()
        .filter(|store| store.condition == Condition::Missing);
    let missing = missing.map(|store| {
        format!(
            "store {} is missing: {}",
            store.id,
            store.problem.as_deref().unwrap_or("no reason known")
        )
    });
    let closed = portals
        .iter()
        .filter_map(|portal| Some(format!("portal {}: {}", portal.name(), portal.problem.as_ref()?)));
    let refused = control.refused_units().into_iter();
    let refused = refused.map(|(id, problem)| format!("unit {id} is not served: {problem}"));
    let jobs = control.jobs().into_iter();
    let closes = |kind| matches!(kind, JobKind::Format | JobKind::Sanitize);
    let jobs = jobs.filter(|job| closes(job.kind) && job.state == JobState::Failed);
    let closed_units = jobs.map(|job| format!("{}: {}", job.subject, job.problem.unwrap_or_default()));
    let unreached = control.unreached_targets().into_iter();
    let unreached = unreached.map(|name| format!("no portal leads to target {name}"));
    Status {
        version: web.0.version.to_owned(),
        uptime: web.0.began.elapsed().as_secs(),
        generation: model.generation,
        targets: model.all::<Target>().count(),
        units: model.all::<Unit>().count(),
        luns: model.all::<LunMap>().count(),
        sessions: control.sessions().len(),
        half_open_logins: control.half_open_logins().len(),
        abandoned_commands: control.node().abandoned_commands(),
        alerts: missing
            .chain(refused)
            .chain(closed)
            .chain(unreached)
            .chain(closed_units)
            .collect(),
        portals,
        iser: control.iser_status(),
        stores,
    }
}
