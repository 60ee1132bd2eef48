//! Making a target, changing it, switching it off and on, deleting it.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::model::{Authentication, Credential, Id, Kind, Method, Model, Name, Object, Target};

use crate::api::deletion;
use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::snapshot::target_href;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::ui::{notice, rule, show};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "targets/edit.html")]
struct EditPage {
    frame: Frame,
    form: Form,
    /// A target that is there keeps its name.
    is_new: bool,
    action: String,
    back: String,
    credentials: Vec<(String, String)>,
    groups: Vec<(String, String)>,
}

pub(super) async fn new_page(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    let form = Form::of([
        ("name", suggested_name()),
        ("method", "none".to_owned()),
        ("who", "initiator".to_owned()),
    ]);
    page(&new_form(&web, &visitor, form))
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let model = web.control().model();
    let name = form.parse::<Name>("name");
    let rule = rule::read(&mut form, name.as_ref(), &model);
    let target = name.clone().and_then(|name| read(&mut form, name));
    let (Some(name), Some(target), false) = (name, target, form.is_bad()) else {
        return form_again(&new_form(&web, &visitor, form));
    };
    let mut edits = vec![Edit::Put(target.into())];
    edits.extend(rule.map(|rule| Edit::Put(rule.into())));
    let preconditions = vec![Precondition::Absent(Kind::Target, name.to_string())];
    match web
        .control()
        .change(
            &visitor.actor,
            Change {
                preconditions,
                ..Change::of(edits)
            },
        )
        .await
    {
        Ok(_) => notice::done(
            &format!("Target {name} is made. Give it a disk next."),
            &target_href(&name.to_string()),
        ),
        Err(error) => {
            refuse(&mut form, error);
            form_again(&new_form(&web, &visitor, form))
        }
    }
}

pub(super) async fn edit_page(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let target = model
        .get::<Target>(&name)
        .ok_or_else(|| Refusal::not_found("target"))?;
    Ok(page(&edit_form(&web, &visitor, &name, form_of(&model, target))))
}

pub(super) async fn save(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let old = model
        .get::<Target>(&name)
        .ok_or_else(|| Refusal::not_found("target"))?;
    let Some(target) = read(&mut form, old.name.clone()) else {
        return Ok(form_again(&edit_form(&web, &visitor, &name, form)));
    };
    let target = Target {
        enabled: old.enabled,
        ..target
    };
    let change = Change {
        preconditions: form.conditions(Kind::Target, &name),
        ..Change::of(vec![Edit::Put(target.into())])
    };
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done("Saved.", &target_href(&name))),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Targets, "Save this change?"),
            effects: vec![format!("The target {name} is changed as the form says.")],
            uses,
            choices: Vec::new(),
            action: format!("{}/edit", target_href(&name)),
            hidden: form.fields(),
            verb: "Save".to_owned(),
            back: target_href(&name),
        }
        .ask_again()),
        Tried::Refused(error) => {
            refuse(&mut form, error);
            Ok(form_again(&edit_form(&web, &visitor, &name, form)))
        }
    }
}

pub(super) async fn enable(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    switch(&web, &visitor, &name, &form, true).await
}

pub(super) async fn disable(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    switch(&web, &visitor, &name, &form, false).await
}

pub(super) async fn ask_delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let change = Change::of(deletion(&web, Kind::Target, &name));
    let uses = web.control().preview(&change)?.uses;
    deletion_page(&web, &visitor, &name, uses).map(|confirm| confirm.ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let change = Change::of(deletion(&web, Kind::Target, &name));
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done(
            &format!("Target {name} is deleted. Its disks and their data are kept."),
            "/targets",
        )),
        Tried::InUse(uses) => deletion_page(&web, &visitor, &name, uses).map(|confirm| confirm.ask_again()),
        Tried::Refused(error) => Err(error.into()),
    }
}

async fn switch(
    web: &Web,
    visitor: &Visitor,
    name: &str,
    form: &Form,
    on: bool,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let old = model
        .get::<Target>(name)
        .ok_or_else(|| Refusal::not_found("target"))?;
    let target = Target {
        enabled: on,
        ..old.clone()
    };
    let change = Change::of(vec![Edit::Put(target.into())]);
    let href = target_href(name);
    match confirm::change(web, &visitor.actor, form, change).await {
        Tried::Done if on => Ok(notice::done("The target is switched on.", &href)),
        Tried::Done => Ok(notice::done(
            "The target is switched off. It keeps everything.",
            &href,
        )),
        Tried::Refused(error) => Err(error.into()),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Targets, "Switch this target off?"),
            effects: vec![
                format!("{name} is not served any more until it is switched on again."),
                "Its LUNs, rules and data are kept.".to_owned(),
            ],
            uses,
            choices: Vec::new(),
            action: format!("{href}/disable"),
            hidden: form.fields(),
            verb: "Switch off".to_owned(),
            back: href,
        }
        .ask_again()),
    }
}

fn deletion_page(
    web: &Web,
    visitor: &Visitor,
    name: &str,
    uses: Vec<management::live::InUse>,
) -> Result<Confirm, Refusal> {
    let model = web.control().model();
    let target = model
        .get::<Target>(name)
        .ok_or_else(|| Refusal::not_found("target"))?;
    let (luns, rules) = (
        model.luns_of(&target.name).count(),
        model.access_of(&target.name).count(),
    );
    let mut effects = vec![format!("The target {name} is deleted.")];
    if luns > 0 {
        let luns = show::count(luns, "LUN goes", "LUNs go");
        effects.push(format!(
            "Its {luns} with it. The disks behind stay in Stores with all data, and can be mapped again."
        ));
    }
    if rules > 0 {
        effects.push(format!(
            "{} about who may log in with it.",
            show::count(rules, "rule goes", "rules go")
        ));
    }
    let href = target_href(name);
    Ok(Confirm {
        frame: visitor.frame(Section::Targets, format!("Delete {name}?")),
        effects,
        uses,
        choices: Vec::new(),
        action: format!("{href}/delete"),
        hidden: Vec::new(),
        verb: "Delete the target".to_owned(),
        back: href,
    })
}

fn new_form(web: &Web, visitor: &Visitor, form: Form) -> EditPage {
    let model = web.control().model();
    EditPage {
        frame: visitor.frame(Section::Targets, "New target"),
        form,
        is_new: true,
        action: "/new/target".to_owned(),
        back: "/targets".to_owned(),
        credentials: credentials(&model),
        groups: rule::groups(&model),
    }
}

fn edit_form(web: &Web, visitor: &Visitor, name: &str, form: Form) -> EditPage {
    let model = web.control().model();
    EditPage {
        frame: visitor.frame(Section::Targets, format!("Edit {name}")),
        form,
        is_new: false,
        action: format!("{}/edit", target_href(name)),
        back: target_href(name),
        credentials: credentials(&model),
        groups: Vec::new(),
    }
}

fn form_of(model: &Model, target: &Target) -> Form {
    let Authentication {
        method,
        credentials,
        mutual,
    } = &target.authentication;
    let limits = target.limits.iter().map(|(key, value)| format!("{key}={value}"));
    let groups: Vec<_> = target.portal_groups.iter().map(ToString::to_string).collect();
    let mut fields = vec![
        ("alias", target.alias.clone().unwrap_or_default()),
        ("portal_groups", groups.join(", ")),
        (
            "method",
            if *method == Method::Chap { "chap" } else { "none" }.to_owned(),
        ),
        (
            "mutual",
            mutual.as_ref().map(ToString::to_string).unwrap_or_default(),
        ),
        ("limits", limits.collect::<Vec<_>>().join("\n")),
    ];
    fields.extend(credentials.iter().map(|id| ("credentials", id.to_string())));
    Form::of(fields).remember(model, Kind::Target, &target.key())
}

/// The target that a form asks for; `None` when a field is wrong, which the form then says.
fn read(form: &mut Form, name: Name) -> Option<Target> {
    let portal_groups = read_groups(form);
    let limits = read_limits(form);
    let method = if form.has("method", "chap") {
        Method::Chap
    } else {
        Method::None
    };
    let chosen: Vec<String> = form
        .all("credentials")
        .filter(|id| !id.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let credentials: Result<Vec<Id>, String> = chosen.iter().map(|id| id.parse()).collect();
    let mutual = form.parse_filled("mutual");
    let credentials = match credentials {
        Ok(credentials) if method == Method::Chap => credentials,
        Ok(_) => Vec::new(),
        Err(problem) => {
            form.complain("credentials", problem, "");
            return None;
        }
    };
    if form.is_bad() {
        return None;
    }
    Some(Target {
        name,
        alias: form.filled("alias"),
        enabled: true,
        portal_groups: portal_groups?,
        authentication: Authentication {
            method,
            credentials,
            mutual: mutual.filter(|_| method == Method::Chap),
        },
        limits: limits?,
    })
}

/// Tags with commas or blanks between them.
fn read_groups(form: &mut Form) -> Option<Vec<u16>> {
    let text = form.value("portal_groups").to_owned();
    let tags = text.split([',', ' ']).filter(|tag| !tag.is_empty());
    let groups: Result<Vec<u16>, _> = tags.map(str::parse).collect();
    if groups.is_err() {
        form.complain("portal_groups", "is no list of tags", "write for example 1, 2");
    }
    groups.ok()
}

/// Lines of `name=value`.
fn read_limits(form: &mut Form) -> Option<BTreeMap<String, String>> {
    let mut limits = BTreeMap::new();
    let text = form.value("limits").to_owned();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((key, value)) = line.split_once('=') else {
            form.complain(
                "limits",
                format!("{line:?} has no “=”"),
                "write one name=value on each line",
            );
            return None;
        };
        limits.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Some(limits)
}

fn refuse(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(_) = error {
        form.complain(
            "name",
            "is there already",
            "use another name, or change the one that is there",
        );
        return;
    }
    form.refuse(&Refusal::from(error), place);
}

/// The field that a problem belongs to.
pub(in crate::ui) fn place(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix("targets/") else {
        return rule::place(path);
    };
    let (_, field) = rest.split_once('/')?;
    Some(match field {
        "alias" => "alias",
        "authentication/credentials" => "credentials",
        "authentication/mutual" => "mutual",
        "portal_groups" => "portal_groups",
        limit if limit.starts_with("limits/") => "limits",
        _ => return None,
    })
}

/// Credentials to choose from, with their CHAP names.
pub(in crate::ui) fn credentials(model: &Model) -> Vec<(String, String)> {
    let all = model.all::<Credential>();
    all.map(|it| (it.key(), format!("{} (CHAP name {})", it.id, it.name)))
        .collect()
}

/// How a name may begin where the organisation has none of its own.
pub(in crate::ui) fn suggested_name() -> String {
    "iqn.2026-11.org.lunaport:".to_owned()
}
