//! Changes of a LUN that keep it: larger, read-only, switched off and on.

use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, Edit};
use management::model::{LunMap, Model, Place, Store, Unit};

use super::{detail, request};
use crate::ui::confirm::{self, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::Section;
use crate::ui::snapshot::lun_href;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::ui::{notice, show};
use crate::{Refusal, Web};

/// Target and number in the path.
type Key = Path<(String, String)>;

pub(super) async fn grow(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((target, lun)): Key,
    mut form: Form,
) -> Result<Response, Refusal> {
    let key = format!("{target}/{lun}");
    let model = web.control().model();
    let (map, _, store) = parts(&model, &key)?;
    let Some(size) = request::read_size(&mut form) else {
        return detail::render(&web, &visitor, &key, form).await;
    };
    let Place::File { path, .. } = &store.place else {
        form.complain(
            "size",
            "cannot be set here",
            "a device grows by itself; anything else is made anew",
        );
        return detail::render(&web, &visitor, &key, form).await;
    };
    let place = Place::File {
        path: path.clone(),
        size: Some(size),
    };
    let change = Change::of(vec![Edit::Put(
        Store {
            place,
            ..store.clone()
        }
        .into(),
    )]);
    match web.control().change(&visitor.actor, change).await {
        Ok(_) => {
            let text = format!(
                "It has {} now, and hosts that are logged in have been told. How they take it up is below.",
                show::bytes(size)
            );
            let page = lun_href(&map.target.to_string(), map.lun);
            Ok(notice::done(&text, &format!("{page}#grown")))
        }
        Err(error) => {
            let place = |path: &str| path.starts_with("stores/").then_some("size");
            form.refuse(&Refusal::from(error), place);
            detail::render(&web, &visitor, &key, form).await
        }
    }
}

/// Field `on`: 1 to refuse writes from now on, 0 to take them again.
pub(super) async fn read_only(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((target, lun)): Key,
    form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let (map, _, store) = parts(&model, &format!("{target}/{lun}"))?;
    let on = form.is_set("on");
    let edit = Edit::Put(
        Store {
            read_only: on,
            ..store.clone()
        }
        .into(),
    );
    let words = if on {
        Words {
            question: "Make it read-only?",
            effect: "Hosts can read it, and their writes are refused.",
            verb: "Make it read-only",
            done: "It is read-only now.",
        }
    } else {
        Words {
            question: "Allow writes again?",
            effect: "Hosts can write to it again.",
            verb: "Allow writes",
            done: "It takes writes again.",
        }
    };
    carry_out(&web, &visitor, map, &form, edit, "read-only", &words).await
}

/// Field `on`: 0 to switch the unit off, 1 to switch it on.
pub(super) async fn enabled(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((target, lun)): Key,
    form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let (map, unit, _) = parts(&model, &format!("{target}/{lun}"))?;
    let on = form.is_set("on");
    let edit = Edit::Put(
        Unit {
            enabled: on,
            ..unit.clone()
        }
        .into(),
    );
    let words = if on {
        Words {
            question: "Switch it on?",
            effect: "It is served again, at every LUN that it has.",
            verb: "Switch on",
            done: "It is switched on.",
        }
    } else {
        Words {
            question: "Switch it off?",
            effect: "It is at no LUN until it is switched on again. It keeps its identity and all data.",
            verb: "Switch off",
            done: "It is switched off. It keeps its identity and all data.",
        }
    };
    carry_out(&web, &visitor, map, &form, edit, "enabled", &words).await
}

struct Words {
    question: &'static str,
    effect: &'static str,
    verb: &'static str,
    done: &'static str,
}

async fn carry_out(
    web: &Web,
    visitor: &Visitor,
    map: &LunMap,
    form: &Form,
    edit: Edit,
    what: &str,
    words: &Words,
) -> Result<Response, Refusal> {
    let href = lun_href(&map.target.to_string(), map.lun);
    match confirm::change(web, &visitor.actor, form, Change::of(vec![edit])).await {
        Tried::Done => Ok(notice::done(words.done, &href)),
        Tried::Refused(error) => Err(error.into()),
        Tried::InUse(uses) => Ok(Confirm {
            frame: visitor.frame(Section::Luns, words.question),
            effects: vec![words.effect.to_owned()],
            uses,
            feels: true,
            choices: Vec::new(),
            action: format!("{href}/{what}"),
            hidden: form.fields(),
            verb: words.verb.to_owned(),
            back: href,
        }
        .ask_again()),
    }
}

/// A LUN with what is behind it.
pub(super) fn parts<'a>(model: &'a Model, key: &str) -> Result<(&'a LunMap, &'a Unit, &'a Store), Refusal> {
    let gone = || Refusal::not_found("LUN");
    let map = model.get::<LunMap>(key).ok_or_else(gone)?;
    let unit = model.get::<Unit>(map.unit.as_str()).ok_or_else(gone)?;
    let store = model.get::<Store>(unit.store.as_str()).ok_or_else(gone)?;
    Ok((map, unit, store))
}
