//! Making a target, changing it, switching it off and on, deleting it.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, Edit};
use management::model::{Authentication, Credential, Id, Method, Model, Name, Object, Target};

use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section};
use crate::ui::object::Edited;
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

impl Edited for Target {
    const SECTION: Section = Section::Targets;
    const WORD: &'static str = "target";
    const KEY_FIELD: &'static str = "name";
    const NEW: &'static str = "/new/target";
    const LIST: &'static str = "/targets";
    const PATH: &'static str = "/targets";
    const FORM: &'static str = "/edit";

    fn blank() -> Form {
        Form::of([
            ("name", suggested_name()),
            ("method", "none".to_owned()),
            ("who", "initiator".to_owned()),
        ])
    }

    fn form(&self, _model: &Model) -> Form {
        form_of(self)
    }

    /// A new one can have a rule with it.
    fn read(form: &mut Form, model: &Model, old: Option<&Self>) -> Option<(Self, Vec<Edit>)> {
        if let Some(old) = old {
            let target = read(form, old.name.clone())?;
            let target = Self {
                enabled: old.enabled,
                ..target
            };
            return Some((target, Vec::new()));
        }
        let name = form.parse::<Name>("name");
        let rule = rule::read(form, name.as_ref(), model);
        let target = read(form, name?)?;
        Some((
            target,
            rule.map(|rule| Edit::Put(rule.into())).into_iter().collect(),
        ))
    }

    fn place(path: &str) -> Option<&'static str> {
        place(path)
    }

    fn page(web: &Web, visitor: &Visitor, form: Form, known: Option<&Self>) -> impl Template {
        let model = web.control().model();
        let key = known.map(Object::key);
        let title = key.as_ref().map(|key| format!("Edit {key}"));
        EditPage {
            frame: visitor.frame(Section::Targets, title.as_deref().unwrap_or("New target")),
            form,
            is_new: known.is_none(),
            action: Self::action(known),
            back: key.as_deref().map_or_else(|| Self::LIST.to_owned(), Self::href),
            credentials: credentials(&model),
            groups: rule::groups(&model),
        }
    }

    fn made(key: &str) -> (String, String) {
        let text = format!("Target {key} is made. Give it a disk next.");
        (text, Self::href(key))
    }

    fn saved(key: &str) -> (String, String) {
        ("Saved.".to_owned(), Self::href(key))
    }

    fn deleted(key: &str) -> String {
        format!("Target {key} is deleted. Its disks and their data are kept.")
    }

    fn effects(&self, model: &Model) -> Vec<String> {
        let luns = model.luns_of(&self.name).count();
        let rules = model.access_of(&self.name).count();
        let mut effects = vec![format!("The target {} is deleted.", self.name)];
        if luns > 0 {
            let luns = show::count(luns, "LUN goes", "LUNs go");
            effects.push(format!(
                "Its {luns} with it. The disks behind stay in Stores with all data, and can be mapped again."
            ));
        }
        if rules > 0 {
            let rules = show::count(rules, "rule goes", "rules go");
            effects.push(format!("{rules} about who may log in with it."));
        }
        effects
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
            feels: true,
            choices: Vec::new(),
            action: format!("{href}/disable"),
            hidden: form.fields(),
            verb: "Switch off".to_owned(),
            back: href,
        }
        .ask_again()),
    }
}

fn form_of(target: &Target) -> Form {
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
    Form::of(fields)
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
