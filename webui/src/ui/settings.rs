//! Settings: portals, how the management is reached, what holds for the node, users, and tokens.

mod advertised;
mod node;
mod people;
mod portals;
mod tokens;

use askama::Template;
use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use management::live::PortStatus;
use management::model::{AdvertisedAddress, Method, Portal, Settings, Transport};

use super::form::Form;
use super::frame::{Frame, Section, page};
use super::object;
use super::visitor::{OperatorVisitor, Visitor};
use crate::serve::Scheme;
use crate::{Certificate, Web};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    portals: Vec<PortStatus>,
    advertised: Vec<AdvertisedAddress>,
    certificate: Option<Certificate>,
    is_tls: bool,
    settings: Settings,
    limits: Vec<(String, String)>,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/settings", get(overview))
        .merge(node::routes())
        .merge(people::routes())
        .merge(object::routes::<AdvertisedAddress, OperatorVisitor>())
        .merge(object::routes::<Portal, OperatorVisitor>())
        .merge(tokens::routes())
}

async fn overview(
    State(web): State<Web>,
    visitor: Visitor,
    Extension(scheme): Extension<Scheme>,
) -> Response {
    let model = web.control().model();
    let settings = model.settings();
    page(&SettingsPage {
        frame: visitor.frame(Section::Settings, "Settings"),
        portals: web.control().port_statuses(),
        advertised: model.all::<AdvertisedAddress>().cloned().collect(),
        certificate: web.certificate().cloned(),
        is_tls: scheme == Scheme::Https,
        limits: settings.limits.clone().into_iter().collect(),
        settings,
    })
}

impl SettingsPage {
    const fn transport(portal: &PortStatus) -> &'static str {
        match portal.transport {
            Transport::Iser => "iSER",
            Transport::Tcp => "TCP",
        }
    }

    /// What discovery sessions have to prove.
    fn discovery(&self) -> String {
        let discovery = &self.settings.discovery;
        match discovery.method {
            Method::None => "nothing".to_owned(),
            Method::Chap => {
                let ids: Vec<_> = discovery.credentials.iter().map(ToString::to_string).collect();
                format!("CHAP: {}", ids.join(", "))
            }
        }
    }
}

/// The tag of a portal group that a form names.
fn read_group(form: &mut Form) -> Option<u16> {
    let group = form.parse::<u16>("portal_group").filter(|group| *group > 0);
    if group.is_none() && form.complaint("portal_group").is_none() {
        form.complain("portal_group", "is no tag", "use 1 to 65535");
    }
    group
}

/// Everybody who has a role may have it by these names.
pub(super) const ROLES: [(&str, &str); 3] = [
    ("viewer", "Viewer: looks"),
    ("operator", "Operator: looks, and changes what is configured"),
    ("admin", "Administrator: everything, users and tokens included"),
];
