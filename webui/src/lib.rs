//! Management over HTTP: the pages, the REST API with its description, and who may use them.
//!
//! Decides nothing: a handler reads what it is asked, calls one method of `Control` or `Gate`, and shows the answer.
#![forbid(unsafe_code)]

mod api;
mod metrics;
mod patience;
mod places;
mod problem;
mod serve;
mod tls;
mod ui;
mod who;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use management::access::Gate;
use management::exposition::Cores;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use api::{ConfigQuery, DeleteQuery, Diff, JobRequest, Page, RateHistory, Status, description};
pub use problem::{ProblemDetails, Refusal};
pub use serve::{Peer, Scheme, serve_tcp, serve_unix};
pub use tls::{Certificate, TlsError, server_config};
pub use ui::moment;

/// What every handler can use.
#[derive(Clone, Debug)]
pub struct Web(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gate: Arc<Gate>,
    began: Instant,
    version: &'static str,
    cores: Cores,
    certificate: OnceLock<Certificate>,
    imports: ui::WaitingImports,
    /// Places of those who follow events.
    followers: Arc<Semaphore>,
}

impl Web {
    /// `version` is the program's; `cores` are asked when somebody wants metrics.
    #[must_use]
    pub fn new(gate: Arc<Gate>, version: &'static str, cores: Cores) -> Self {
        Self(Arc::new(Inner {
            gate,
            began: Instant::now(),
            version,
            cores,
            certificate: OnceLock::new(),
            imports: ui::WaitingImports::default(),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        }))
    }

    /// Tells pages of the certificate in use, once there is one.
    pub fn tell_certificate(&self, certificate: Certificate) {
        // Another one would be of another port: there is one.
        drop(self.0.certificate.set(certificate));
    }

    pub(crate) fn imports(&self) -> &ui::WaitingImports {
        &self.0.imports
    }

    pub(crate) fn certificate(&self) -> Option<&Certificate> {
        self.0.certificate.get()
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }

    /// A place among those who follow events.
    pub(crate) fn follower(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.followers).try_acquire_owned().ok()
    }

    pub(crate) fn control(&self) -> &Arc<management::control::Control> {
        self.0.gate.control()
    }
}

/// Everything that is answered.
pub fn router(web: Web) -> Router {
    let (api, description) = api::routes();
    let docs = utoipa_swagger_ui::SwaggerUi::new("/api/docs").url("/api/v1/openapi.json", description);
    let docs = Router::new().merge(docs).layer(middleware::map_response(confine));
    Router::new()
        .merge(api)
        .merge(ui::routes())
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(api::ready))
        .route("/metrics", get(metrics::scrape))
        .fallback(async || Refusal::not_found("page"))
        .layer(middleware::map_response(explain))
        .layer(middleware::from_fn_with_state(web.clone(), who::find_out))
        .layer(middleware::from_fn(limit))
        .layer(middleware::from_fn_with_state(web.clone(), ui::as_page))
        .with_state(web)
        .merge(docs)
        .layer(middleware::map_response(harden))
}

/// A body that is too long is refused before it is read when its length is announced, and while it is read otherwise.
async fn limit(mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let takes_document = DOCUMENTS.iter().any(|place| path.starts_with(place));
    let most = if takes_document { DOCUMENT_MAX } else { BODY_MAX };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced: Option<usize> = announced.and_then(|len| len.to_str().ok()?.parse().ok());
    if announced.is_some_and(|len| len > most) {
        return Refusal::by_status(StatusCode::PAYLOAD_TOO_LARGE).into_response();
    }
    DefaultBodyLimit::max(most).apply(&mut request);
    next.run(request).await
}

/// Refusals that come from below the handlers are problem details as well: a method that a path does not have, a body that
/// is too long.
async fn explain(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_bare = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !status.is_client_error() || !is_bare {
        return response;
    }
    let allowed = response.headers().get(header::ALLOW).cloned();
    let mut response = Refusal::by_status(status).into_response();
    if let Some(allowed) = allowed {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
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

/// The browser for the API's description has everything it needs from here.
async fn confine<B>(mut response: axum::http::Response<B>) -> axum::http::Response<B> {
    let policy = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
                  base-uri 'none'; form-action 'self'";
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

/// Bytes of a request's body: an object takes 4 kB at most.
const BODY_MAX: usize = 256 << 10;
/// Bytes of a whole configuration: one of some ten thousand disks.
const DOCUMENT_MAX: usize = 32 << 20;
/// Where whole configurations are taken.
const DOCUMENTS: [&str; 2] = ["/api/v1/config", "/configuration"];
/// Event streams at once.
const FOLLOWERS_MAX: usize = 64;
