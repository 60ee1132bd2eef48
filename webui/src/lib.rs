//! Management over HTTP: the pages, the REST API with its description, and who may use them.
//!
//! Decides nothing: a handler reads what it is asked, calls one method of `Control` or `Gate`, and shows the answer.
#![forbid(unsafe_code)]

mod api;
mod metrics;
mod problem;
mod serve;
mod tls;
#[allow(dead_code, reason = "some parts are for pages that are not there yet")]
mod ui;
mod who;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::routing::get;
use management::access::Gate;

pub use api::{ConfigQuery, DeleteQuery, Diff, Page, Status, description};
pub use problem::{ProblemDetails, Refusal};
pub use serve::{Peer, Scheme, serve_tcp, serve_unix};
pub use tls::{TlsError, server_config};

/// What every handler can use.
#[derive(Clone, Debug)]
pub struct Web(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gate: Arc<Gate>,
    began: Instant,
    version: &'static str,
    metrics: fn() -> String,
}

impl Web {
    /// `version` is the program's; `metrics` gives further lines for `/metrics`, in Prometheus' text form.
    #[must_use]
    pub fn new(gate: Arc<Gate>, version: &'static str, metrics: fn() -> String) -> Self {
        Self(Arc::new(Inner {
            gate,
            began: Instant::now(),
            version,
            metrics,
        }))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }

    pub(crate) fn control(&self) -> &Arc<management::control::Control> {
        self.0.gate.control()
    }
}

/// Everything that is answered.
pub fn router(web: Web) -> Router {
    let (api, description) = api::routes();
    let docs = utoipa_swagger_ui::SwaggerUi::new("/api/docs").url("/api/v1/openapi.json", description);
    Router::new()
        .merge(api)
        .merge(ui::routes())
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(api::ready))
        .route("/metrics", get(metrics::scrape))
        .fallback(async || Refusal::not_found("page"))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn_with_state(web.clone(), who::find_out))
        .layer(middleware::from_fn_with_state(web.clone(), ui::as_page))
        .with_state(web)
        .merge(docs)
        .layer(middleware::map_response(harden))
}

/// What a browser is told about every answer.
async fn harden<B>(mut response: axum::http::Response<B>) -> axum::http::Response<B> {
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Bytes of a request's body: a configuration of some ten thousand disks.
const BODY_MAX: usize = 32 << 20;
