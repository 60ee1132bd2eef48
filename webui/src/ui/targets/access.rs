//! Rules of a target: one more, one less.

use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, Edit, Precondition};
use management::model::{Kind, Object, Target};

use super::detail;
use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::Section;
use crate::ui::notice;
use crate::ui::rule;
use crate::ui::snapshot::target_href;
use crate::ui::visitor::OperatorVisitor;
use crate::{Refusal, Web};

pub(super) async fn add(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(name): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let target = model
        .get::<Target>(&name)
        .ok_or_else(|| Refusal::not_found("target"))?;
    let Some(rule) = rule::read(&mut form, Some(&target.name), &model) else {
        return detail::render(&web, &visitor, &name, form);
    };
    let text = format!("Lets in {} now.", rule::words(&rule));
    let change = Change {
        preconditions: vec![Precondition::Absent(Kind::Access, rule.key())],
        ..Change::of(vec![Edit::Put(rule.into())])
    };
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => Ok(notice::done(&text, &format!("{}#access", target_href(&name)))),
        Err(error) => {
            form.refuse(&Refusal::from(error), rule::place);
            detail::render(&web, &visitor, &name, form)
        }
    }
}

pub(super) async fn remove(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((name, id)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Refusal> {
    let back = format!("{}#access", target_href(&name));
    let change = Change::of(vec![Edit::Delete(Kind::Access, id.clone())]);
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done("The rule is removed.", &back)),
        Tried::Refused(error) => Err(error.into()),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Targets, "Remove this rule?"),
            effects: vec![format!(
                "The rule {id} of {name} is removed; nobody is let in by it any more."
            )],
            uses,
            feels: true,
            choices: Vec::new(),
            action: format!(
                "{}/access/{}/delete",
                target_href(&name),
                crate::ui::show::segment(&id)
            ),
            hidden: form.fields(),
            verb: "Remove the rule".to_owned(),
            back,
        }
        .ask_again()),
    }
}
