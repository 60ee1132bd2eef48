//! A group of initiators: its members are written one a line, and those that are not known yet become so.

use std::collections::BTreeSet;

use askama::Template;
use management::control::Edit;
use management::model::{AccessRule, Id, Initiator, InitiatorGroup, Kind, Model, Name, Object};

use crate::Web;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
use crate::ui::snapshot::target_href;
use crate::ui::visitor::Visitor;

#[derive(Template)]
#[template(path = "initiators/group.html")]
struct EditPage {
    frame: Frame,
    form: Form,
    is_new: bool,
    action: String,
    /// Targets that let it in: address and name.
    targets: Vec<(String, String)>,
}

impl Edited for InitiatorGroup {
    const SECTION: Section = Section::Initiators;
    const WORD: &'static str = "group";
    const KEY_FIELD: &'static str = "name";
    const NEW: &'static str = "/new/group";
    const LIST: &'static str = "/initiators";
    const PATH: &'static str = "/groups";

    fn form(&self, model: &Model) -> Form {
        let members = members_of(model, &self.id).map(|it| it.name.to_string());
        Form::of([
            ("description", self.description.clone().unwrap_or_default()),
            ("members", members.collect::<Vec<_>>().join("\n")),
        ])
    }

    fn read(form: &mut Form, model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        let id = match old {
            Some(old) => Some(old.id.clone()),
            None => form.parse::<Id>("name"),
        };
        let members = read_members(form);
        let (id, members) = (id?, members?);
        let edits = edits(model, &id, &members);
        let group = Self {
            id,
            description: form.filled("description"),
        };
        Some((group, edits))
    }

    fn place(_path: &str) -> Option<&'static str> {
        None
    }

    fn page(web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let model = web.control().model();
        let key = known.map(Object::key);
        let rules = model
            .all::<AccessRule>()
            .filter(|rule| known.is_some_and(|group| rule.group.as_ref() == Some(&group.id)));
        let mut targets: Vec<_> = rules
            .map(|rule| (target_href(&rule.target.to_string()), rule.target.to_string()))
            .collect();
        targets.dedup();
        EditPage {
            frame: visitor.frame(Section::Initiators, key.as_deref().unwrap_or("New group")),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
            targets,
        }
    }

    fn made(key: &str) -> (String, String) {
        (format!("Group {key} is made."), Self::LIST.to_owned())
    }

    fn deleted(key: &str) -> String {
        format!("Group {key} is deleted.")
    }

    /// The group leaves its members. Rules that let it in keep it from being deleted: they say whom they are for.
    fn deletion(&self, web: &Web) -> Vec<Edit> {
        let model = web.control().model();
        let left = members_of(&model, &self.id).map(|it| without(it, &self.id));
        let mut edits: Vec<Edit> = left.map(|it| Edit::Put(it.into())).collect();
        edits.push(Edit::Delete(Kind::Group, self.key()));
        edits
    }

    fn effects(&self, _model: &Model) -> Vec<String> {
        vec!["Its members stay known, and are in it no more.".to_owned()]
    }
}

/// Who joins the group and who leaves it.
fn edits(model: &Model, id: &Id, members: &BTreeSet<Name>) -> Vec<Edit> {
    let gone = members_of(model, id).filter(|it| !members.contains(&it.name));
    let mut edits: Vec<Edit> = gone.map(|it| Edit::Put(without(it, id).into())).collect();
    for name in members {
        let known = model.get::<Initiator>(&name.to_string()).cloned();
        let mut initiator = known.unwrap_or_else(|| Initiator {
            name: name.clone(),
            description: None,
            groups: Vec::new(),
            credential: None,
        });
        if !initiator.groups.contains(id) {
            initiator.groups.push(id.clone());
            edits.push(Edit::Put(initiator.into()));
        }
    }
    edits
}

fn members_of<'a>(model: &'a Model, id: &'a Id) -> impl Iterator<Item = &'a Initiator> {
    model.all::<Initiator>().filter(move |it| it.groups.contains(id))
}

fn without(initiator: &Initiator, id: &Id) -> Initiator {
    let groups = initiator
        .groups
        .iter()
        .filter(|group| *group != id)
        .cloned()
        .collect();
    Initiator {
        groups,
        ..initiator.clone()
    }
}

fn read_members(form: &mut Form) -> Option<BTreeSet<Name>> {
    let mut members = BTreeSet::new();
    let text = form.value("members").to_owned();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.parse::<Name>() {
            Ok(name) => drop(members.insert(name)),
            Err(problem) => {
                form.complain("members", problem, "");
                return None;
            }
        }
    }
    Some(members)
}
