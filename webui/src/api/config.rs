//! The whole configuration: shown, compared, applied.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use management::control::{Change, Outcome};
use management::diff::Difference;
use management::document::Document;
use management::model::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::Type;

use super::extract::{Params, etag, flag, generation};
use super::routes::{Described, Routes};
use crate::who::{Operator, Viewer};
use crate::{Refusal, Web};

/// What a change did, or would do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Diff {
    /// The generation that the configuration has now.
    pub generation: u64,
    /// Every object that is different.
    pub differences: Vec<Difference>,
}

/// The query of an application.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigQuery {
    /// The diff alone.
    #[serde(default, rename = "dry-run", deserialize_with = "flag")]
    pub dry_run: bool,
    /// Take away what the document does not name.
    #[serde(default, deserialize_with = "flag")]
    pub prune: bool,
    /// Even when sessions lose something.
    #[serde(default, deserialize_with = "flag")]
    pub force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    #[serde(default, deserialize_with = "flag")]
    secrets: bool,
}

impl From<Outcome> for Diff {
    fn from(outcome: Outcome) -> Self {
        Self {
            generation: outcome.generation,
            differences: outcome.differences,
        }
    }
}

pub(super) fn add(routes: &mut Routes) {
    let read = Described::new("config", "read_config", "Show the whole configuration")
        .in_query(
            "secrets",
            "with the secrets of credentials; for administrators",
            Type::Boolean,
        )
        .gives::<Document>("200", "As it is");
    routes.add(HttpMethod::Get, "/config", get(read_config), read);
    let applied = Described::new(
        "config",
        "apply_config",
        "Make the configuration what the document says",
    )
    .in_query("dry-run", "say what would be done, and do nothing", Type::Boolean)
    .in_query(
        "prune",
        "take away what the document does not name",
        Type::Boolean,
    )
    .in_query(
        "force",
        "do it even where sessions lose something by it",
        Type::Boolean,
    )
    .header("If-Match", "ETag that the configuration must have")
    .takes::<Document>("application/json")
    .gives::<Diff>("200", "What was different");
    routes.add(HttpMethod::Put, "/config", put(apply), applied);
}

async fn read_config(
    State(web): State<Web>,
    Viewer(actor): Viewer,
    Params(query): Params<ReadQuery>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let document = Document::of(&model);
    let tag = [(header::ETAG, etag(model.generation))];
    if !query.secrets {
        return Ok((tag, Json(document)).into_response());
    }
    if actor.role < Role::Admin {
        return Err(Refusal::not_allowed("admin"));
    }
    web.control().secrets_shown(&actor);
    Ok((tag, Json(document.with_secrets())).into_response())
}

async fn apply(
    State(web): State<Web>,
    Operator(actor): Operator,
    Params(query): Params<ConfigQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let document = Document::parse(&body).map_err(Refusal::malformed)?;
    let change = Change {
        preconditions: generation(&headers)?,
        force: query.force,
        dry_run: query.dry_run,
        ..Change::default()
    };
    let outcome = web.control().apply(&actor, document, query.prune, change).await?;
    Ok((
        [(header::ETAG, etag(outcome.generation))],
        Json(Diff::from(outcome)),
    )
        .into_response())
}
