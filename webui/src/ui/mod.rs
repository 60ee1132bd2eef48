//! The pages: what people see of the node in a browser. Each is rendered here, whole, and works without a script: forms
//! are posted and answered with a redirect or with the form and what is wrong with it. Like the API, a page decides
//! nothing: it reads what it is asked, calls `Control` or `Gate`, and shows the answer. How a page is added is told in
//! `webui/UI.md`.

mod assets;
mod configuration;
mod confirm;
mod connect;
mod dashboard;
mod difference;
mod entrance;
mod events;
mod failure;
mod form;
mod frame;
mod initiators;
mod jobs;
mod list;
mod login_failures;
mod luns;
mod negotiated;
mod notice;
mod object;
mod reservations;
mod rule;
mod sessions;
mod settings;
mod show;
mod snapshot;
mod stores;
mod sure;
mod targets;
mod traces;
mod visitor;
mod words;

use axum::Router;
use axum::routing::get;

pub(crate) use configuration::WaitingImports;
pub(crate) use failure::as_page;
pub(crate) use form::{is_form, proof_in};
pub use show::moment;

use crate::Web;

/// Forms of who has no session yet.
pub(crate) const ENTRANCE: [&str; 2] = ["/login", "/set-up"];

/// The routes of all pages.
pub(crate) fn routes() -> Router<Web> {
    Router::new()
        .route("/assets/{name}", get(assets::send))
        .merge(configuration::routes())
        .merge(dashboard::routes())
        .merge(entrance::routes())
        .merge(events::routes())
        .merge(initiators::routes())
        .merge(jobs::routes())
        .merge(login_failures::routes())
        .merge(luns::routes())
        .merge(reservations::routes())
        .merge(sessions::routes())
        .merge(settings::routes())
        .merge(stores::routes())
        .merge(targets::routes())
        .merge(traces::routes())
}

#[cfg(test)]
mod tests;
