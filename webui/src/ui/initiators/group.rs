//! A group of initiators: its members are written one a line, and those that are not known yet become so.

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::live::InUse;
use management::model::{AccessRule, Id, Initiator, InitiatorGroup, Kind, Model, Name};

use super::group_href;
use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::snapshot::target_href;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

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

pub(super) async fn new_page(OperatorVisitor(visitor): OperatorVisitor, State(web): State<Web>) -> Response {
    page(&filled(&web, &visitor, Form::default(), None))
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let model = web.control().model();
    let id = form.parse::<Id>("name");
    let members = read_members(&mut form);
    let (Some(id), Some(members)) = (id, members) else {
        return form_again(&filled(&web, &visitor, form, None));
    };
    let preconditions = vec![Precondition::Absent(Kind::Group, id.to_string())];
    let change = Change {
        preconditions,
        ..Change::of(edits(&model, &form, &id, &members))
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => notice::done(&format!("Group {id} is made."), "/initiators"),
        Err(error) => {
            refuse(&mut form, error);
            form_again(&filled(&web, &visitor, form, None))
        }
    }
}

pub(super) async fn edit_page(
    State(web): State<Web>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let group = model
        .get::<InitiatorGroup>(&id)
        .ok_or_else(|| Refusal::not_found("group"))?;
    let members: Vec<String> = members_of(&model, &group.id)
        .map(|it| it.name.to_string())
        .collect();
    let form = Form::of([
        ("description", group.description.clone().unwrap_or_default()),
        ("members", members.join("\n")),
    ])
    .remember(&model, Kind::Group, &id);
    Ok(page(&filled(&web, &visitor, form, Some(&id))))
}

pub(super) async fn save(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let group = model
        .get::<InitiatorGroup>(&id)
        .ok_or_else(|| Refusal::not_found("group"))?;
    let Some(members) = read_members(&mut form) else {
        return Ok(form_again(&filled(&web, &visitor, form, Some(&id))));
    };
    let change = Change {
        preconditions: form.conditions(Kind::Group, &id),
        ..Change::of(edits(&model, &form, &group.id, &members))
    };
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done("Saved.", "/initiators")),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Initiators, "Save this change?"),
            effects: vec![format!("The group {id} gets the members of the form.")],
            uses,
            choices: Vec::new(),
            action: group_href(&id),
            hidden: form.fields(),
            verb: "Save".to_owned(),
            back: group_href(&id),
        }
        .ask_again()),
        Tried::Refused(error) => {
            refuse(&mut form, error);
            Ok(form_again(&filled(&web, &visitor, form, Some(&id))))
        }
    }
}

pub(super) async fn ask_delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let change = deletion(&web, &id)?;
    let uses = web.control().preview(&change)?.uses;
    Ok(question(&visitor, &id, uses).ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let change = deletion(&web, &id)?;
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done(&format!("Group {id} is deleted."), "/initiators")),
        Tried::InUse(uses) => Ok(question(&visitor, &id, uses).ask_again()),
        Tried::Refused(error) => Err(error.into()),
    }
}

/// The group leaves its members. Rules that let it in keep it from being deleted: they say whom they are for.
fn deletion(web: &Web, id: &str) -> Result<Change, Refusal> {
    let model = web.control().model();
    let group = model
        .get::<InitiatorGroup>(id)
        .ok_or_else(|| Refusal::not_found("group"))?;
    let left = members_of(&model, &group.id).map(|it| without(it, &group.id));
    let mut edits: Vec<Edit> = left.map(|it| Edit::Put(it.into())).collect();
    edits.push(Edit::Delete(Kind::Group, id.to_owned()));
    Ok(Change::of(edits))
}

fn question(visitor: &Visitor, id: &str, uses: Vec<InUse>) -> Confirm {
    Confirm {
        frame: visitor.frame(Section::Initiators, format!("Delete the group {id}?")),
        effects: vec!["Its members stay known, and are in it no more.".to_owned()],
        uses,
        choices: Vec::new(),
        action: format!("{}/delete", group_href(id)),
        hidden: Vec::new(),
        verb: "Delete the group".to_owned(),
        back: group_href(id),
    }
}

fn edits(model: &Model, form: &Form, id: &Id, members: &BTreeSet<Name>) -> Vec<Edit> {
    let group = InitiatorGroup {
        id: id.clone(),
        description: form.filled("description"),
    };
    let mut edits = vec![Edit::Put(group.into())];
    let gone = members_of(model, id).filter(|it| !members.contains(&it.name));
    edits.extend(gone.map(|it| Edit::Put(without(it, id).into())));
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

fn refuse(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(_) = error {
        form.complain("name", "is there already", "use another name");
        return;
    }
    form.refuse(&Refusal::from(error), |_| None);
}

fn filled(web: &Web, visitor: &Visitor, form: Form, known: Option<&str>) -> EditPage {
    let model = web.control().model();
    let rules = model
        .all::<AccessRule>()
        .filter(|rule| rule.group.as_ref().map(Id::as_str) == known && known.is_some());
    let mut targets: Vec<_> = rules
        .map(|rule| (target_href(&rule.target.to_string()), rule.target.to_string()))
        .collect();
    targets.dedup();
    EditPage {
        frame: visitor.frame(Section::Initiators, known.unwrap_or("New group")),
        form,
        is_new: known.is_none(),
        action: known.map_or_else(|| "/new/group".to_owned(), group_href),
        targets,
    }
}
