//! Pages that are not built yet: each says so and where the same is found in the API.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;

use super::frame::{Frame, Section, page};
use super::visitor::Visitor;
use crate::Web;

#[derive(Template)]
#[template(path = "placeholder.html")]
struct PlaceholderPage {
    frame: Frame,
    api: &'static str,
}

pub(super) fn routes() -> Router<Web> {
    let all = [
        ("/", Section::Dashboard, "Dashboard", "/api/v1/status"),
        ("/targets", Section::Targets, "Targets", "/api/v1/targets"),
        ("/luns", Section::Luns, "LUNs", "/api/v1/luns"),
        ("/stores", Section::Stores, "Stores", "/api/v1/stores"),
        (
            "/initiators",
            Section::Initiators,
            "Initiators",
            "/api/v1/initiators",
        ),
        ("/sessions", Section::Sessions, "Sessions", "/api/v1/sessions"),
        (
            "/login-failures",
            Section::LoginFailures,
            "Login failures",
            "/api/v1/login-failures",
        ),
        (
            "/reservations",
            Section::Reservations,
            "Reservations",
            "/api/v1/units",
        ),
        ("/events", Section::Events, "Events", "/api/v1/events"),
        ("/audit", Section::Audit, "Audit", "/api/v1/events"),
        (
            "/configuration",
            Section::Configuration,
            "Configuration",
            "/api/v1/config",
        ),
        ("/settings", Section::Settings, "Settings", "/api/v1/settings"),
    ];
    all.into_iter()
        .fold(Router::new(), |router, (path, section, title, api)| {
            router.route(
                path,
                get(move |visitor: Visitor| show(visitor, section, title, api)),
            )
        })
}

async fn show(visitor: Visitor, section: Section, title: &'static str, api: &'static str) -> Response {
    page(&PlaceholderPage {
        frame: visitor.frame(section, title),
        api,
    })
}
