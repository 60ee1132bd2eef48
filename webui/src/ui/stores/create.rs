//! A new store: a file that is made, sparse or filled with zeroes, or a file or device that is there already.

use std::path::PathBuf;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use management::control::{Change, ChangeError, Edit, Precondition};
use management::model::{Cache, Id, Kind, Model, Object, Place, Settings, Store};

use super::href;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::luns::{file_in, folders, read_size};
use crate::ui::notice;
use crate::ui::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "stores/new.html")]
struct NewPage {
    frame: Frame,
    form: Form,
    folders: Vec<(String, String)>,
    roots: Vec<String>,
}

pub(super) async fn form_page(State(web): State<Web>, OperatorVisitor(visitor): OperatorVisitor) -> Response {
    let form = Form::of([
        ("kind", "new".to_owned()),
        ("size", "10 GiB".to_owned()),
        ("cache", "write_back".to_owned()),
    ]);
    page(&filled(&web, &visitor, form).await)
}

pub(super) async fn create(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    mut form: Form,
) -> Response {
    let Some(store) = read(&mut form) else {
        return form_again(&filled(&web, &visitor, form).await);
    };
    let key = store.key();
    let preconditions = vec![Precondition::Absent(Kind::Store, key.clone())];
    let change = Change {
        preconditions,
        ..Change::of(vec![Edit::Put(store.into())])
    };
    let is_new = form.has("kind", "new");
    let done = if is_new && form.is_set("zeroed") {
        let begun = web.control().make_zeroed(&visitor.actor, change).await;
        begun.map(|_| notice::done(&format!("Store {key} is being filled with zeroes."), "/jobs"))
    } else {
        let made = web.control().change(&visitor.actor, change).await;
        made.map(|_| {
            let text = format!("Store {key} is there. Map it to a LUN next.");
            notice::done(&text, &href(&key))
        })
    };
    match done {
        Ok(response) => return response,
        Err(ChangeError::Exists(_)) => form.complain("name", "is there already", "use another name"),
        Err(error) => form.refuse(&Refusal::from(error), |path| place(path, is_new)),
    }
    form_again(&filled(&web, &visitor, form).await)
}

fn read(form: &mut Form) -> Option<Store> {
    let id = form.parse::<Id>("name");
    let place = match form.value("kind") {
        "file" => path(form).map(|path| Place::File { path, size: None }),
        "block" => path(form).map(|path| Place::Block { path }),
        _ => {
            let size = read_size(form);
            let folder = form.value("folder").to_owned();
            id.as_ref().zip(size).map(|(id, size)| Place::File {
                path: file_in(&folder, id),
                size: Some(size),
            })
        }
    };
    let block_size = match form.value("block_size") {
        "" => None,
        _ => Some(form.parse::<u32>("block_size")?),
    };
    Some(Store {
        id: id?,
        place: place?,
        read_only: form.is_set("read_only"),
        block_size,
        physical_block_size: None,
        cache: if form.has("cache", "write_through") {
            Cache::WriteThrough
        } else {
            Cache::WriteBack
        },
        direct: form.is_set("direct"),
        protection: form.is_set("protection"),
        encrypt: form.filled("encrypt").map(PathBuf::from),
    })
}

fn path(form: &mut Form) -> Option<PathBuf> {
    let path = form.filled("path").map(PathBuf::from);
    if path.is_none() {
        form.complain(
            "path",
            "is missing",
            "write the path of the file or device on this host",
        );
    }
    path
}

fn place(path: &str, is_new: bool) -> Option<&'static str> {
    let (_, field) = path.strip_prefix("stores/")?.split_once('/')?;
    match field {
        "block_size" => Some("block_size"),
        "read_only" => Some("read_only"),
        "encrypt" => Some("encrypt"),
        "place" | "place/path" => Some(if is_new { "folder" } else { "path" }),
        "place/size" => Some("size"),
        _ => None,
    }
}

async fn filled(web: &Web, visitor: &Visitor, form: Form) -> NewPage {
    let folders = folders(web).await;
    let model = web.control().model();
    NewPage {
        frame: visitor.frame(Section::Stores, "New store"),
        form,
        folders,
        roots: roots(&model, web),
    }
}

/// Folders below which paths may be, as they are written.
fn roots(model: &Model, web: &Web) -> Vec<String> {
    let Settings { store_roots, .. } = model.settings();
    let own = web.control().directory().display().to_string();
    store_roots
        .into_iter()
        .map(|root| root.display().to_string())
        .chain([own])
        .collect()
}
