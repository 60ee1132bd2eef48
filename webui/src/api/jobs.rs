//! Long work: begun, looked at, ended.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use management::control::{Change, CloneRequest, Edit, Job, Precondition};
use management::model::{Kind, Object, Store};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::extract::{Key, Params, parse};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

/// Long work that can be begun.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "kind")]
pub enum JobRequest {
    /// A new file is filled with zeroes, so that all its space is taken, and becomes a store.
    Zero {
        /// The store: a file with a size.
        store: Store,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

pub(super) fn add(routes: &mut Routes) {
    let new = |id: &str, summary: &str| Described::new("jobs", id, summary);
    let listed = new(
        "list_jobs",
        "List long work with its progress: stores that are copied or filled with zeroes, disks that are formatted or \
         sanitized",
    )
    .gives_page::<Job>("The oldest first");
    routes.add(HttpMethod::Get, "/jobs", get(list), listed);
    let begun = new(
        "begin_job",
        "Make a store whose file is filled with zeroes; a sparse one is made at once, among the stores",
    )
    .takes::<JobRequest>("application/json")
    .gives::<Job>("202", "Begun; the store is there when the job is done");
    routes.add(HttpMethod::Post, "/jobs", post(begin), begun);
    let shown = new("read_job", "Show how far a job is")
        .in_path("id", "its id")
        .gives::<Job>("200", "As it is");
    routes.add(HttpMethod::Get, "/jobs/{id}", get(read), shown);
    let cancelled = new(
        "cancel_job",
        "End a job before it is done; nothing happens when it has ended, or cannot be ended",
    )
    .in_path("id", "its id")
    .gives_nothing("204", "It ends soon, or does not go on");
    routes.add(HttpMethod::Delete, "/jobs/{id}", delete(cancel), cancelled);
    let begun = Described::new(
        "stores",
        "clone_store",
        "Copy a store to a new file; holes stay holes, and blocks are shared where the file system can do that",
    )
    .in_path("id", "the store to copy")
    .takes::<CloneRequest>("application/json")
    .gives::<Job>("202", "Begun; the store is there when the job is done");
    routes.add(HttpMethod::Post, "/stores/{id}/clone", post(clone), begun);
}

async fn list(State(web): State<Web>, _who: Viewer, _query: Params<NoQuery>) -> Json<Page<Job>> {
    let items = web.control().jobs();
    Json(Page {
        total: items.len(),
        items,
        next: None,
    })
}

async fn begin(State(web): State<Web>, Operator(actor): Operator, body: Bytes) -> Result<Response, Refusal> {
    let JobRequest::Zero { store } = parse(&body)?;
    let change = Change {
        preconditions: vec![Precondition::Absent(Kind::Store, store.key())],
        ..Change::of(vec![Edit::Put(store.into())])
    };
    Ok(accepted(web.control().make_zeroed(&actor, change).await?))
}

async fn read(State(web): State<Web>, _who: Viewer, Key(id): Key) -> Result<Json<Job>, Refusal> {
    let found = web.control().job(&id);
    found
        .map(Json)
        .ok_or_else(|| Refusal::not_found(&format!("jobs/{id}")))
}

async fn cancel(State(web): State<Web>, Operator(actor): Operator, Key(id): Key) -> StatusCode {
    web.control().cancel_job(&actor, &id);
    StatusCode::NO_CONTENT
}

async fn clone(
    State(web): State<Web>,
    Operator(actor): Operator,
    Key(source): Key,
    body: Bytes,
) -> Result<Response, Refusal> {
    let wanted: CloneRequest = parse(&body)?;
    Ok(accepted(
        web.control().clone_store(&actor, &source, wanted).await?,
    ))
}

fn accepted(job: Job) -> Response {
    let place = [(header::LOCATION, format!("/api/v1/jobs/{}", job.id))];
    (StatusCode::ACCEPTED, place, Json(job)).into_response()
}
