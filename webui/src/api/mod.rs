//! `/api/v1`: every route with its description, registered together, so that the document cannot say anything else.

mod access;
mod access_states;
mod config;
mod events;
mod extract;
mod jobs;
mod log_filter;
mod objects;
mod reservations;
mod routes;
mod sessions;
mod stats;
mod status;
mod traces;

use axum::Router;
use utoipa::openapi::OpenApi;

pub use config::{ConfigQuery, Diff};
pub(crate) use events::followed;
pub use jobs::JobRequest;
pub(crate) use objects::deletion;
pub use objects::{DeleteQuery, Page};
pub use stats::RateHistory;
pub use status::Status;
pub(crate) use status::{ready, status_of};

use crate::Web;
use routes::Routes;

/// All routes, and the document that describes them.
pub(crate) fn routes() -> (Router<Web>, OpenApi) {
    let mut routes = Routes::default();
    objects::add_all(&mut routes);
    config::add(&mut routes);
    sessions::add(&mut routes);
    reservations::add(&mut routes);
    access_states::add(&mut routes);
    jobs::add(&mut routes);
    traces::add(&mut routes);
    events::add(&mut routes);
    status::add(&mut routes);
    stats::add(&mut routes);
    log_filter::add(&mut routes);
    access::add(&mut routes);
    routes.finish()
}

/// The OpenAPI document.
#[must_use]
pub fn description() -> OpenApi {
    routes().1
}

#[cfg(test)]
mod tests;
