//! What surrounds every page: title, navigation, who looks, theme; what `layout.html` needs.

use askama::Template;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use tracing::error;

use super::assets;
use crate::who::cookie_named;

/// What surrounds a page.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Of the page.
    pub(crate) title: String,
    /// The part of the navigation that the page belongs to.
    pub(crate) section: Section,
    /// Who looks; empty where nobody is logged in.
    pub(crate) user: String,
    /// Their role in words.
    pub(crate) role: &'static str,
    /// The proof that forms carry.
    pub(crate) csrf: String,
    /// Light, dark, or as the system has it.
    pub(crate) theme: Theme,
    /// What has just been done.
    pub(crate) notice: Option<String>,
    /// Path and query of this page.
    pub(crate) here: String,
    /// Whether buttons that change the configuration are shown.
    pub(crate) may_change: bool,
    /// Whether what is for administrators is shown.
    pub(crate) may_all: bool,
}

/// A part of the navigation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Section {
    Audit,
    Configuration,
    Dashboard,
    Events,
    Initiators,
    Jobs,
    LoginFailures,
    Luns,
    /// A page outside of the navigation.
    None,
    Reservations,
    Sessions,
    Settings,
    Stores,
    Targets,
    Traces,
}

/// Light or dark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Theme {
    /// As the system has it.
    Auto,
    /// Always dark.
    Dark,
    /// Always light.
    Light,
}

/// A link of the navigation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) section: Section,
    pub(super) href: &'static str,
    pub(super) label: &'static str,
}

/// Links under one heading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) label: &'static str,
    pub(super) links: &'static [Link],
}

impl Frame {
    /// The frame of a page for who is not logged in.
    pub(super) fn outside(title: &str, theme: Theme) -> Self {
        Self {
            title: title.to_owned(),
            section: Section::None,
            user: String::new(),
            role: "",
            csrf: String::new(),
            theme,
            notice: None,
            here: "/".to_owned(),
            may_change: false,
            may_all: false,
        }
    }

    /// A link for who may change something, nothing for others.
    pub(super) const fn change_link<'a>(&self, href: &'a str) -> &'a str {
        if self.may_change { href } else { "" }
    }

    /// The navigation.
    pub(super) fn groups(&self) -> &'static [Group] {
        &NAVIGATION
    }

    /// The address of an asset.
    pub(super) fn asset(&self, name: &str) -> String {
        assets::url(name)
    }
}

impl Theme {
    /// The cookie that keeps it.
    pub(super) const COOKIE: &'static str = "lunaport_theme";

    /// What the browser asks for.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        match cookie_named(headers, Self::COOKIE) {
            Some("dark") => Self::Dark,
            Some("light") => Self::Light,
            _ => Self::Auto,
        }
    }

    /// Its name in the cookie, in forms and in the page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dark => "dark",
            Self::Light => "light",
        }
    }
}

/// A page as an answer.
pub(crate) fn page(template: &impl Template) -> Response {
    page_with(StatusCode::OK, template)
}

/// A form again, with what is wrong in it: 422.
pub(crate) fn form_again(template: &impl Template) -> Response {
    page_with(StatusCode::UNPROCESSABLE_ENTITY, template)
}

/// A page as an answer with another status.
pub(crate) fn page_with(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(problem) => {
            // Only writing can fail, and a string takes everything.
            error!(%problem, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

const fn link(section: Section, href: &'static str, label: &'static str) -> Link {
    Link { section, href, label }
}

static NAVIGATION: [Group; 4] = [
    Group {
        label: "",
        links: &[link(Section::Dashboard, "/", "Dashboard")],
    },
    Group {
        label: "Storage",
        links: &[
            link(Section::Targets, "/targets", "Targets"),
            link(Section::Luns, "/luns", "LUNs"),
            link(Section::Stores, "/stores", "Stores"),
            link(Section::Initiators, "/initiators", "Initiators"),
        ],
    },
    Group {
        label: "Activity",
        links: &[
            link(Section::Sessions, "/sessions", "Sessions"),
            link(Section::LoginFailures, "/login-failures", "Login failures"),
            link(Section::Traces, "/traces", "Traces"),
            link(Section::Reservations, "/reservations", "Reservations"),
            link(Section::Jobs, "/jobs", "Long work"),
            link(Section::Events, "/events", "Events"),
            link(Section::Audit, "/audit", "Audit"),
        ],
    },
    Group {
        label: "System",
        links: &[
            link(Section::Configuration, "/configuration", "Configuration"),
            link(Section::Settings, "/settings", "Settings"),
        ],
    },
];
