//! Deleting a LUN. Its data are kept unless the form says otherwise, and where the disk has other LUNs they are kept in any
//! case.

use axum::extract::{Path, State};
use axum::response::Response;
use management::control::{Change, Edit};
use management::live::InUse;
use management::model::{Kind, LunMap, Object, Place};

use super::change::parts;
use crate::ui::confirm::{self, Choice, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::Section;
use crate::ui::notice;
use crate::ui::snapshot::lun_href;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

/// What becomes of the disk behind it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rest {
    /// Everything goes, the file included.
    DeleteData,
    /// The disk is taken out of the configuration; its file or device stays as it is.
    ForgetDisk,
    /// The disk stays, without this LUN.
    KeepDisk,
}

impl Rest {
    fn of(form: &Form) -> Self {
        match form.value("data") {
            "delete" => Self::DeleteData,
            "forget" => Self::ForgetDisk,
            _ => Self::KeepDisk,
        }
    }
}

pub(super) async fn ask(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((target, lun)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let key = format!("{target}/{lun}");
    let change = change(&web, &key, Rest::KeepDisk)?;
    let uses = web.control().preview(&change)?.uses;
    question(&web, &visitor, &key, uses, Rest::KeepDisk).map(|confirm| confirm.ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path((target, lun)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Refusal> {
    let (key, rest) = (format!("{target}/{lun}"), Rest::of(&form));
    let change = change(&web, &key, rest)?;
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done => Ok(notice::done(
            match rest {
                Rest::DeleteData => "The LUN is deleted, and its data with it.",
                Rest::ForgetDisk => {
                    "The LUN is deleted. Its data are where they were; adopt them as a store to use them again."
                }
                Rest::KeepDisk => "The LUN is deleted. The disk is kept in Stores with all data.",
            },
            "/luns",
        )),
        Tried::InUse(uses) => question(&web, &visitor, &key, uses, rest).map(|confirm| confirm.ask_again()),
        Tried::Refused(error) => Err(error.into()),
    }
}

fn change(web: &Web, key: &str, rest: Rest) -> Result<Change, Refusal> {
    let model = web.control().model();
    let (map, unit, store) = parts(&model, key)?;
    let mut edits = vec![Edit::Delete(Kind::Lun, map.key())];
    let is_last = !model.all::<LunMap>().any(|it| it.unit == unit.id && it != map);
    if is_last && rest != Rest::KeepDisk {
        edits.push(Edit::Delete(Kind::Unit, unit.key()));
        edits.push(Edit::Delete(Kind::Store, store.key()));
    }
    Ok(Change {
        delete_data: is_last && rest == Rest::DeleteData,
        ..Change::of(edits)
    })
}

fn question(
    web: &Web,
    visitor: &Visitor,
    key: &str,
    uses: Vec<InUse>,
    rest: Rest,
) -> Result<Confirm, Refusal> {
    let model = web.control().model();
    let (map, unit, store) = parts(&model, key)?;
    let others = model
        .all::<LunMap>()
        .filter(|it| it.unit == unit.id && *it != map)
        .count();
    let href = lun_href(&map.target.to_string(), map.lun);
    let mut effects = vec![format!(
        "LUN {} of {} is deleted: hosts lose the disk {}.",
        map.lun, map.target, unit.id
    )];
    let mut choices = Vec::new();
    if others > 0 {
        effects.push("The disk has other LUNs and stays, with all data.".to_owned());
    } else {
        choices = self::choices(&store.place, rest);
    }
    Ok(Confirm {
        frame: visitor.frame(Section::Luns, format!("Delete LUN {}: {}?", map.lun, unit.id)),
        effects,
        uses,
        feels: true,
        choices,
        action: format!("{href}/delete"),
        hidden: Vec::new(),
        verb: "Delete the LUN".to_owned(),
        back: href,
    })
}

fn choices(place: &Place, rest: Rest) -> Vec<Choice> {
    let choice = |value, label: &str, hint: &str, chosen| Choice {
        name: "data",
        value,
        label: label.to_owned(),
        hint: hint.to_owned(),
        chosen,
    };
    let keep = "It stays in Stores with its identity and all data, and can be mapped again at any time.";
    let mut choices = vec![choice("keep", "Keep the disk", keep, rest == Rest::KeepDisk)];
    match place {
        Place::Block { path } => {
            let hint = format!(
                "It leaves the configuration. {} keeps what is on it.",
                path.display()
            );
            choices.push(choice(
                "forget",
                "Forget the disk",
                &hint,
                rest == Rest::ForgetDisk,
            ));
        }
        Place::File { path, .. } => {
            let hint = format!(
                "It leaves the configuration. The file {} stays where it is.",
                path.display()
            );
            choices.push(choice(
                "forget",
                "Forget the disk, keep its file",
                &hint,
                rest == Rest::ForgetDisk,
            ));
            let hint = format!(
                "The file {} is removed. This cannot be taken back.",
                path.display()
            );
            choices.push(choice(
                "delete",
                "Delete the data as well",
                &hint,
                rest == Rest::DeleteData,
            ));
        }
        Place::Memory { .. } | Place::Null { .. } => {
            let hint = "It leaves the configuration. What is in it is gone.";
            choices.push(choice(
                "forget",
                "Delete the disk",
                hint,
                rest == Rest::ForgetDisk,
            ));
        }
    }
    choices
}
