//! Portals: where initiators come in.

use std::net::SocketAddr;

use askama::Template;
use management::control::Edit;
use management::model::{Id, Model, Portal, Transport};

use super::read_group;
use crate::Web;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
use crate::ui::visitor::Visitor;

#[derive(Template)]
#[template(path = "settings_portal.html")]
struct PortalPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
}

impl Edited for Portal {
    const SECTION: Section = Section::Settings;
    const WORD: &'static str = "portal";
    const KEY_FIELD: &'static str = "id";
    const NEW: &'static str = "/settings/portals/new";
    const LIST: &'static str = "/settings";
    const PATH: &'static str = "/settings/portals";
    const SESSIONS_FEEL: bool = false;

    fn blank() -> Form {
        Form::of([
            ("portal_group", "1".to_owned()),
            ("transport", "tcp".to_owned()),
            ("enabled", "1".to_owned()),
        ])
    }

    fn form(&self, _model: &Model) -> Form {
        let transport = match self.transport {
            Transport::Iser => "iser",
            Transport::Tcp => "tcp",
        };
        Form::of([
            ("address", self.address.to_string()),
            ("portal_group", self.portal_group.to_string()),
            ("transport", transport.to_owned()),
            ("enabled", if self.enabled { "1" } else { "" }.to_owned()),
        ])
    }

    fn read(form: &mut Form, _model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        let id = match old {
            Some(old) => Some(old.id.clone()),
            None => form.parse::<Id>("id"),
        };
        let address = form.value("address").parse::<SocketAddr>().ok();
        if address.is_none() {
            form.complain(
                "address",
                "is no address with a port",
                "write for example 192.0.2.1:3260 or [2001:db8::1]:3260",
            );
        }
        let portal_group = read_group(form);
        let transport = if form.has("transport", "iser") {
            Transport::Iser
        } else {
            Transport::Tcp
        };
        let portal = Self {
            id: id?,
            address: address?,
            portal_group: portal_group?,
            transport,
            enabled: form.is_set("enabled"),
        };
        Some((portal, Vec::new()))
    }

    fn place(path: &str) -> Option<&'static str> {
        let last = path.rsplit('/').next()?;
        ["address", "portal_group", "transport"]
            .into_iter()
            .find(|it| *it == last)
    }

    fn page(_web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let title = known.map_or_else(|| "New portal".to_owned(), |it| format!("Portal {}", it.id));
        PortalPage {
            frame: visitor.frame(Section::Settings, title),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
        }
    }

    fn made(key: &str) -> (String, String) {
        (format!("Portal {key} is saved."), Self::LIST.to_owned())
    }

    fn saved(key: &str) -> (String, String) {
        Self::made(key)
    }

    fn deleted(key: &str) -> String {
        format!("Portal {key} is deleted.")
    }

    fn effects(&self, _model: &Model) -> Vec<String> {
        vec![
            format!(
                "Nobody can log in at {} any more, and discovery does not name it.",
                self.address
            ),
            "Sessions that came in by it go on. When their connection is lost they need another way."
                .to_owned(),
        ]
    }
}
