//! The guided way to a LUN: one form, one change, and then the commands to use it.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use management::control::{Change, ChangeError, Edit};
use management::model::{Kind, LunMap, Model, Name, Object, Target};
use serde::Deserialize;

use super::request::{self, Request};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::snapshot::lun_href;
use crate::ui::targets::{credentials, place as target_place, suggested_name};
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::ui::{notice, rule};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "luns/new.html")]
struct NewPage {
    frame: Frame,
    form: Form,
    folders: Vec<(String, String)>,
    existing: Vec<(String, String)>,
    targets: Vec<(String, String)>,
    credentials: Vec<(String, String)>,
    groups: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewQuery {
    #[serde(default)]
    target: String,
    #[serde(default)]
    existing: String,
}

pub(super) async fn form_page(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Query(query): Query<NewQuery>,
) -> Response {
    let model = web.control().model();
    let at = if model.get::<Target>(&query.target).is_some() {
        "existing"
    } else {
        "new"
    };
    let disk = if query.existing.is_empty() {
        "new"
    } else {
        "existing"
    };
    let form = Form::of([
        ("disk", disk.to_owned()),
        ("existing", query.existing),
        ("size", "10 GiB".to_owned()),
        ("block_size", "512".to_owned()),
        ("at", at.to_owned()),
        ("target", query.target),
        ("target_name", suggested_name()),
        ("who", "initiator".to_owned()),
        ("chap", "none".to_owned()),
    ]);
    page(&filled(&web, &visitor, form).await)
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let model = web.control().model();
    let Some(request) = request::read(&mut form, &model) else {
        return form_again(&filled(&web, &visitor, form).await);
    };
    let (target, unit) = (request.target.to_string(), request.unit.to_string());
    let is_zeroed = request.is_zeroed;
    let (change, number) = numbered(&web, &model, request);
    let done = if is_zeroed {
        let begun = web.control().make_zeroed(&visitor.actor, change).await;
        begun.map(|_| {
            let text =
                format!("Its file is being filled with zeroes. Then {unit} is LUN {number} of {target}.");
            notice::done(&text, "/jobs")
        })
    } else {
        let made = web.control().change(&visitor.actor, change).await;
        made.map(|_| {
            let text = format!("{unit} is LUN {number} of {target}. The commands to use it are below.");
            notice::done(&text, &format!("{}#connect", lun_href(&target, number)))
        })
    };
    match done {
        Ok(response) => response,
        Err(error) => {
            refuse(&mut form, error);
            form_again(&filled(&web, &visitor, form).await)
        }
    }
}

/// The change with a number: the one that was asked for, or the first that is free and that no session knows as another
/// disk.
fn numbered(web: &Web, model: &Model, request: Request) -> (Change, u16) {
    let Request {
        edits,
        preconditions,
        target,
        unit,
        number,
        is_zeroed: _,
    } = request;
    let with = |lun: u16| {
        let mut edits = edits.clone();
        edits.push(Edit::Put(
            LunMap {
                target: target.clone(),
                lun,
                unit: unit.clone(),
            }
            .into(),
        ));
        let absent = management::control::Precondition::Absent(Kind::Lun, format!("{target}/{lun}"));
        let preconditions = preconditions.iter().cloned().chain([absent]).collect();
        Change {
            preconditions,
            ..Change::of(edits)
        }
    };
    if let Some(number) = number {
        return (with(number), number);
    }
    let free: Vec<u16> = (0..=LUN_MAX)
        .filter(|lun| is_free(model, &target, *lun))
        .take(TRIES)
        .collect();
    let usable = free.iter().copied().find(|lun| {
        let preview = web.control().preview(&with(*lun));
        !preview.is_ok_and(|preview| preview.uses.iter().any(|it| !it.forcible))
    });
    let number = usable.or_else(|| free.first().copied()).unwrap_or(0);
    (with(number), number)
}

fn is_free(model: &Model, target: &Name, lun: u16) -> bool {
    model.revision(Kind::Lun, &format!("{target}/{lun}")).is_none()
}

async fn filled(web: &Web, visitor: &Visitor, form: Form) -> NewPage {
    let folders = request::folders(web).await;
    let model = web.control().model();
    let existing = request::mappable(&model, form.value("existing"));
    let targets = model.all::<Target>().map(|target| {
        let alias = target
            .alias
            .as_ref()
            .map(|alias| format!(" ({alias})"))
            .unwrap_or_default();
        (target.key(), format!("{}{alias}", target.name))
    });
    NewPage {
        frame: visitor.frame(Section::Luns, "New LUN"),
        form,
        folders,
        existing,
        targets: targets.collect(),
        credentials: credentials(&model),
        groups: rule::groups(&model),
    }
}

fn refuse(form: &mut Form, error: ChangeError) {
    if let ChangeError::Exists(path) = &error {
        let (field, fix) = match path.split('/').next().unwrap_or_default() {
            "targets" => ("target_name", "use another name, or choose the one that is there"),
            "luns" => ("lun", "use another number, or leave it empty"),
            "stores" | "units" if form.has("disk", "new") => ("name", "use another name"),
            _ => ("existing", "choose another disk"),
        };
        form.complain(field, "is there already", fix);
        return;
    }
    form.refuse(&Refusal::from(error), place);
}

fn place(path: &str) -> Option<&'static str> {
    let (kind, rest) = path.split_once('/')?;
    match kind {
        "credentials" if rest.ends_with("/secret") => Some("chap_secret"),
        "credentials" if rest.ends_with("/name") => Some("chap_name"),
        "luns" => Some("lun"),
        "stores" if rest.ends_with("/size") => Some("size"),
        "stores" if rest.ends_with("/path") || rest.ends_with("/place") => Some("folder"),
        _ => target_place(path).map(|field| {
            if field == "credentials" {
                "credential"
            } else {
                field
            }
        }),
    }
}

const LUN_MAX: u16 = 16_383;
/// Numbers that are tried; what sessions still know is seldom more than a few.
const TRIES: usize = 64;
