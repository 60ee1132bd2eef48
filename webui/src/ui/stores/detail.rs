//! One store: growing it, deleting it.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use management::control::{Change, Edit};
use management::live::InUse;
use management::model::{Cache, Kind, LunMap, Object, Place, Store, Unit};

use super::{StoreRow, UseIndex, href, row};
use crate::ui::confirm::{self, Choice, Confirm, Tried};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, page_with};
use crate::ui::luns::{read_size, space_beside};
use crate::ui::snapshot::Snapshot;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::ui::{notice, show};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "stores/detail.html")]
struct DetailPage {
    frame: Frame,
    row: StoreRow,
    facts: Vec<(&'static str, String)>,
    can_grow: bool,
    /// Below the field for the new size.
    grow_hint: String,
    form: Form,
}

pub(super) async fn show(
    State(web): State<Web>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    render(&web, &visitor, &id, Form::default()).await
}

pub(super) async fn grow(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let store = model
        .get::<Store>(&id)
        .ok_or_else(|| Refusal::not_found("store"))?;
    let Some(size) = read_size(&mut form) else {
        return render(&web, &visitor, &id, form).await;
    };
    let Place::File { path, .. } = &store.place else {
        form.complain(
            "size",
            "cannot be set here",
            "a device grows by itself; anything else is made anew",
        );
        return render(&web, &visitor, &id, form).await;
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
        Ok(_) => Ok(notice::done(
            &format!("It has {} now.", show::bytes(size)),
            &href(&id),
        )),
        Err(error) => {
            form.refuse(&Refusal::from(error), |path| {
                path.starts_with("stores/").then_some("size")
            });
            render(&web, &visitor, &id, form).await
        }
    }
}

pub(super) async fn ask_delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let change = deletion(&web, &id, false)?;
    let uses = web.control().preview(&change)?.uses;
    question(&web, &visitor, &id, uses, false).map(|confirm| confirm.ask())
}

pub(super) async fn delete(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let with_data = form.has("data", "delete");
    let change = deletion(&web, &id, with_data)?;
    match confirm::change(&web, &visitor.actor, &form, change).await {
        Tried::Done if with_data => Ok(notice::done(
            "The store is deleted, and its data with it.",
            "/stores",
        )),
        Tried::Done => Ok(notice::done(
            "The store is out of the configuration. Its data are where they were.",
            "/stores",
        )),
        Tried::InUse(uses) => {
            question(&web, &visitor, &id, uses, with_data).map(|confirm| confirm.ask_again())
        }
        Tried::Refused(error) => Err(error.into()),
    }
}

/// A store goes with its unit and that unit's LUNs, which are nothing without it.
fn deletion(web: &Web, id: &str, delete_data: bool) -> Result<Change, Refusal> {
    let model = web.control().model();
    let store = model
        .get::<Store>(id)
        .ok_or_else(|| Refusal::not_found("store"))?;
    let units: Vec<&Unit> = model
        .all::<Unit>()
        .filter(|unit| unit.store == store.id)
        .collect();
    let luns = model
        .all::<LunMap>()
        .filter(|map| units.iter().any(|unit| unit.id == map.unit));
    let mut edits: Vec<Edit> = luns.map(|map| Edit::Delete(Kind::Lun, map.key())).collect();
    edits.extend(units.iter().map(|unit| Edit::Delete(Kind::Unit, unit.key())));
    edits.push(Edit::Delete(Kind::Store, id.to_owned()));
    Ok(Change {
        delete_data,
        ..Change::of(edits)
    })
}

fn question(
    web: &Web,
    visitor: &Visitor,
    id: &str,
    uses: Vec<InUse>,
    with_data: bool,
) -> Result<Confirm, Refusal> {
    let model = web.control().model();
    let store = model
        .get::<Store>(id)
        .ok_or_else(|| Refusal::not_found("store"))?;
    let units: Vec<&Unit> = model
        .all::<Unit>()
        .filter(|unit| unit.store == store.id)
        .collect();
    let mut effects = vec![format!("The store {id} leaves the configuration.")];
    for unit in &units {
        effects.push(format!(
            "The disk {} goes with it, and its identity is gone.",
            unit.id
        ));
    }
    let luns = model
        .all::<LunMap>()
        .filter(|map| units.iter().any(|unit| unit.id == map.unit));
    effects.extend(luns.map(|map| {
        format!(
            "LUN {} of {} is deleted: hosts lose this disk.",
            map.lun, map.target
        )
    }));
    let mut choices = Vec::new();
    if let Place::File { path, .. } = &store.place {
        let choice = |value, label: &str, hint, chosen| Choice {
            name: "data",
            value,
            label: label.to_owned(),
            hint,
            chosen,
        };
        let keep = format!("{} stays where it is and can be adopted again.", path.display());
        choices.push(choice("keep", "Keep the file", keep, !with_data));
        let delete = format!("{} is removed. This cannot be taken back.", path.display());
        choices.push(choice("delete", "Delete the file", delete, with_data));
    }
    Ok(Confirm {
        frame: visitor.frame(Section::Stores, format!("Delete the store {id}?")),
        effects,
        uses,
        feels: true,
        choices,
        action: format!("{}/delete", href(id)),
        hidden: Vec::new(),
        verb: "Delete the store".to_owned(),
        back: href(id),
    })
}

async fn render(web: &Web, visitor: &Visitor, id: &str, form: Form) -> Result<Response, Refusal> {
    let snapshot = Snapshot::of(web);
    let store = snapshot
        .model
        .get::<Store>(id)
        .ok_or_else(|| Refusal::not_found("store"))?;
    let space = space_beside(web, store).await;
    let status = snapshot.store(id);
    let block_size = status.and_then(|status| status.block_size).or(store.block_size);
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut facts = vec![
        (
            "Block size",
            block_size.map(|size| format!("{size} bytes")).unwrap_or_default(),
        ),
        (
            "Cache",
            match store.cache {
                Cache::WriteBack => "write-back".to_owned(),
                Cache::WriteThrough => "write-through".to_owned(),
            },
        ),
        ("Read-only", yes(store.read_only)),
        ("Bypasses the page cache", yes(store.direct)),
        ("Protection information", yes(store.protection)),
    ];
    if let Some(key_file) = &store.encrypt {
        facts.push(("Encrypted with", key_file.display().to_string()));
    }
    facts.retain(|(_, value)| !value.is_empty());
    let code = if form.is_bad() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    };
    let template = DetailPage {
        frame: visitor.frame(Section::Stores, id),
        row: row(&snapshot, &UseIndex::of(&snapshot.model), store),
        facts,
        can_grow: matches!(store.place, Place::File { .. }) && !store.protection && store.encrypt.is_none(),
        grow_hint: format!("Larger than it is. Hosts are told at once.{space}"),
        form,
    };
    Ok(page_with(code, &template))
}
