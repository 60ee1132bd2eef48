//! Addresses that discovery tells initiators of one network in place of the portals' own: for those behind a router that
//! translates addresses, or who come by a name.

use askama::Template;
use management::control::Edit;
use management::model::{AdvertisedAddress, Id, Model};

use super::read_group;
use crate::Web;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
use crate::ui::visitor::Visitor;

#[derive(Template)]
#[template(path = "settings_advertised.html")]
struct AdvertisedPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
}

impl Edited for AdvertisedAddress {
    const SECTION: Section = Section::Settings;
    const WORD: &'static str = "rule";
    const KEY_FIELD: &'static str = "id";
    const NEW: &'static str = "/settings/advertised/new";
    const LIST: &'static str = "/settings";
    const PATH: &'static str = "/settings/advertised";
    const SESSIONS_FEEL: bool = false;

    fn blank() -> Form {
        Form::of([("portal_group", "1".to_owned())])
    }

    fn form(&self, _model: &Model) -> Form {
        Form::of([
            ("from", self.from.to_string()),
            ("address", self.address.clone()),
            ("portal_group", self.portal_group.to_string()),
        ])
    }

    fn read(form: &mut Form, _model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        let id = match old {
            Some(old) => Some(old.id.clone()),
            None => form.parse::<Id>("id"),
        };
        let (from, address, portal_group) = (form.parse("from"), form.parse("address"), read_group(form));
        let rule = Self {
            id: id?,
            from: from?,
            portal_group: portal_group?,
            address: address?,
        };
        Some((rule, Vec::new()))
    }

    fn place(path: &str) -> Option<&'static str> {
        let last = path.rsplit('/').next()?;
        ["address", "from", "portal_group"]
            .into_iter()
            .find(|it| *it == last)
    }

    fn page(_web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let title = known.map_or_else(
            || "New advertised address".to_owned(),
            |it| format!("Rule {}", it.id),
        );
        AdvertisedPage {
            frame: visitor.frame(Section::Settings, title),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
        }
    }

    fn made(key: &str) -> (String, String) {
        let text = format!("Rule {key} is saved. It holds from the next discovery on.");
        (text, Self::LIST.to_owned())
    }

    fn saved(key: &str) -> (String, String) {
        Self::made(key)
    }

    fn deleted(key: &str) -> String {
        format!("Rule {key} is deleted.")
    }

    fn effects(&self, _model: &Model) -> Vec<String> {
        vec![
            format!(
                "Initiators from {} are told the portals' own addresses again, or those of a wider rule.",
                self.from
            ),
            "Sessions go on. An initiator that remembers the old address keeps using it.".to_owned(),
        ]
    }
}
