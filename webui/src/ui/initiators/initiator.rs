//! An initiator that is known by name.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::live::InUse;
use management::model::{Id, Initiator, InitiatorGroup, Kind, Name, Object};

use super::initiator_href;
use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::targets::credentials;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

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

pub(super) async fn new_page(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    page(&filled(&web, &visitor, Form::default(), None))
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let name = form.parse::<Name>("name");
    let Some(initiator) = name.and_then(|name| read(&mut form, name)) else {
        return form_again(&filled(&web, &visitor, form, None));
    };
    let key = initiator.key();
    let preconditions = vec![Precondition::Absent(Kind::Initiator, key.clone())];
    let change = Change {
        preconditions,
        ..Change::of(vec![Edit::Put(initiator.into())])
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => notice::done(&format!("{key} is known now."), "/initiators"),
        Err(error) => {
            refuse(&mut form, error);
            form_again(&filled(&web, &visitor, form, None))
        }
    }
}

pub(super) async fn edit_page(
    State(web): State<Web>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let initiator = model
        .get::<Initiator>(&name)
        .ok_or_else(|| Refusal::not_found("initiator"))?;
    let mut fields = vec![
        ("description", initiator.description.clone().unwrap_or_default()),
        (
            "credential",
            initiator
                .credential
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ),
    ];
    fields.extend(initiator.groups.iter().map(|group| ("groups", group.to_string())));
    Ok(page(&filled(
        &web,
        &visitor,
        Form::of(fields).remember(&model, Kind::Initiator, &name),
        Some(&name),
    )))
}

pub(super) async fn save(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let old = model
        .get::<Initiator>(&name)
        .ok_or_else(|| Refusal::not_found("initiator"))?;
    let Some(initiator) = read(&mut form, old.name.clone()) else {
        return Ok(form_again(&filled(&web, &visitor, form, Some(&name))));
    };
    let change = Change {
        preconditions: form.conditions(Kind::Initiator, &name),
        ..Change::of(vec![Edit::Put(initiator.into())])
    };
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done("Saved.", "/initiators")),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Initiators, "Save this change?"),
            effects: vec![format!("{name} is changed as the form says.")],
            uses,
            choices: Vec::new(),
            action: initiator_href(&name),
            hidden: form.fields(),
            verb: "Save".to_owned(),
            back: initiator_href(&name),
        }
        .ask_again()),
        Tried::Refused(error) => {
            refuse(&mut form, error);
            Ok(form_again(&filled(&web, &visitor, form, Some(&name))))
        }
    }
}

pub(super) async fn ask_delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let uses = web.control().preview(&deletion(&name))?.uses;
    Ok(question(&visitor, &name, uses).ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    match confirm::change(&web, &visitor.actor, &form, deletion(&name)).await {
        Tried::Done => Ok(notice::done(
            &format!("{name} is not known any more."),
            "/initiators",
        )),
        Tried::InUse(uses) => Ok(question(&visitor, &name, uses).ask_again()),
        Tried::Refused(error) => Err(error.into()),
    }
}

fn deletion(name: &str) -> Change {
    Change::of(vec![Edit::Delete(Kind::Initiator, name.to_owned())])
}

fn question(visitor: &Visitor, name: &str, uses: Vec<InUse>) -> Confirm {
    Confirm {
        frame: visitor.frame(Section::Initiators, format!("Delete {name}?")),
        effects: vec![
            "It is in no group any more, and has no credential of its own.".to_owned(),
            "Rules that name it stay: delete those at their targets.".to_owned(),
        ],
        uses,
        choices: Vec::new(),
        action: format!("{}/delete", initiator_href(name)),
        hidden: Vec::new(),
        verb: "Delete it".to_owned(),
        back: initiator_href(name),
    }
}

fn read(form: &mut Form, name: Name) -> Option<Initiator> {
    let groups: Result<Vec<Id>, String> = form.all("groups").map(str::parse).collect();
    let credential = form.parse_filled("credential");
    let groups = match groups {
        Ok(groups) => groups,
        Err(problem) => {
            form.complain("groups", problem, "");
            return None;
        }
    };
    if form.is_bad() {
        return None;
    }
    Some(Initiator {
        name,
        description: form.filled("description"),
        groups,
        credential,
    })
}

fn refuse(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(_) = error {
        form.complain("name", "is there already", "change the one that is there");
        return;
    }
    form.refuse(&Refusal::from(error), |path| {
        let (_, field) = path.strip_prefix("initiators/")?.split_once('/')?;
        match field {
            "credential" => Some("credential"),
            "groups" => Some("groups"),
            _ => None,
        }
    });
}

fn filled(web: &Web, visitor: &Visitor, form: Form, known: Option<&str>) -> EditPage {
    let model = web.control().model();
    let label = |group: &InitiatorGroup| {
        let description = group
            .description
            .as_ref()
            .map(|text| format!(" ({text})"))
            .unwrap_or_default();
        (group.key(), format!("{}{description}", group.id))
    };
    EditPage {
        frame: visitor.frame(Section::Initiators, known.unwrap_or("New initiator")),
        form,
        is_new: known.is_none(),
        action: known.map_or_else(|| "/new/initiator".to_owned(), initiator_href),
        groups: model.all::<InitiatorGroup>().map(label).collect(),
        credentials: std::iter::once((String::new(), "none of its own".to_owned()))
            .chain(credentials(&model))
            .collect(),
    }
}
