//! An initiator that is known by name.

use askama::Template;
use management::control::Edit;
use management::model::{Id, Initiator, InitiatorGroup, Model, Name, Object};

use crate::Web;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
use crate::ui::targets::credentials;
use crate::ui::visitor::Visitor;

#[derive(Template)]
#[template(path = "initiators/initiator.html")]
struct EditPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
    groups: Vec<(String, String)>,
    credentials: Vec<(String, String)>,
}

impl Edited for Initiator {
    const SECTION: Section = Section::Initiators;
    const WORD: &'static str = "initiator";
    const KEY_FIELD: &'static str = "name";
    const NEW: &'static str = "/new/initiator";
    const LIST: &'static str = "/initiators";
    const PATH: &'static str = "/initiators";

    fn form(&self, _model: &Model) -> Form {
        let credential = self.credential.as_ref().map(ToString::to_string);
        let mut fields = vec![
            ("description", self.description.clone().unwrap_or_default()),
            ("credential", credential.unwrap_or_default()),
        ];
        fields.extend(self.groups.iter().map(|group| ("groups", group.to_string())));
        Form::of(fields)
    }

    fn read(form: &mut Form, _model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        let name = match old {
            Some(old) => Some(old.name.clone()),
            None => form.parse::<Name>("name"),
        };
        let groups: Result<Vec<Id>, String> = form.all("groups").map(str::parse).collect();
        let credential = form.parse_filled("credential");
        let groups = match groups {
            Ok(groups) => groups,
            Err(problem) => {
                form.complain("groups", problem, "");
                return None;
            }
        };
        let initiator = Self {
            name: name?,
            description: form.filled("description"),
            groups,
            credential,
        };
        Some((initiator, Vec::new()))
    }

    fn place(path: &str) -> Option<&'static str> {
        let (_, field) = path.strip_prefix("initiators/")?.split_once('/')?;
        ["credential", "groups"].into_iter().find(|it| *it == field)
    }

    fn page(web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let model = web.control().model();
        let key = known.map(Object::key);
        let label = |group: &InitiatorGroup| {
            let description = group.description.as_ref().map(|text| format!(" ({text})"));
            let label = format!("{}{}", group.id, description.unwrap_or_default());
            (group.key(), label)
        };
        let none = (String::new(), "none of its own".to_owned());
        EditPage {
            frame: visitor.frame(Section::Initiators, key.as_deref().unwrap_or("New initiator")),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
            groups: model.all::<InitiatorGroup>().map(label).collect(),
            credentials: std::iter::once(none).chain(credentials(&model)).collect(),
        }
    }

    fn made(key: &str) -> (String, String) {
        (format!("{key} is known now."), Self::LIST.to_owned())
    }

    fn deleted(key: &str) -> String {
        format!("{key} is not known any more.")
    }

    fn effects(&self, _model: &Model) -> Vec<String> {
        vec![
            "It is in no group any more, and has no credential of its own.".to_owned(),
            "Rules that name it stay: delete those at their targets.".to_owned(),
        ]
    }
}
