//! Backing stores: the list with their capacity and state, one store, making or adopting one.

mod create;
mod detail;

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use management::live::{Condition, StoreStatus};
use management::model::{LunMap, Model, Place, Store, Unit};

use super::frame::{Frame, Section, page};
use super::list::{ListQuery, Paging};
use super::luns::Usage;
use super::show;
use super::snapshot::{Snapshot, Status, lun_href};
use super::visitor::Visitor;
use crate::Web;

#[derive(Template)]
#[template(path = "stores/list.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<StoreRow>,
    paging: Paging,
}

/// A store as lists show it.
#[derive(Clone, Debug)]
struct StoreRow {
    id: String,
    href: String,
    place: String,
    size: String,
    usage: Option<Usage>,
    status: Status,
    luns: Vec<LunLink>,
    /// The value of the guided form for a disk that is mapped nowhere.
    map: Option<String>,
}

/// Where a store is used.
#[derive(Clone, Debug)]
struct LunLink {
    href: String,
    text: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/stores", get(list))
        .route("/new/store", get(create::form_page).post(create::create))
        .route("/stores/{id}", get(detail::show))
        .route("/stores/{id}/grow", post(detail::grow))
        .route(
            "/stores/{id}/delete",
            get(detail::ask_delete).post(detail::delete),
        )
}

async fn list(State(web): State<Web>, visitor: Visitor, Query(query): Query<ListQuery>) -> Response {
    let snapshot = Snapshot::of(&web);
    let index = UseIndex::of(&snapshot.model);
    let all: Vec<&Store> = snapshot.model.all::<Store>().collect();
    let count = all.len();
    let fits = |store: &&Store| query.finds([store.id.as_str(), place_words(&store.place).as_str()]);
    let (found, paging) = query.cut(all.into_iter().filter(fits).collect(), count);
    let rows = found
        .into_iter()
        .map(|store| row(&snapshot, &index, store))
        .collect();
    page(&ListPage {
        frame: visitor.frame(Section::Stores, "Stores"),
        rows,
        paging,
    })
}

/// Which unit is over which store, and which LUNs it has.
struct UseIndex<'a> {
    units: std::collections::BTreeMap<&'a str, &'a Unit>,
    luns: std::collections::BTreeMap<&'a str, Vec<&'a LunMap>>,
}

impl<'a> UseIndex<'a> {
    fn of(model: &'a Model) -> Self {
        let mut luns = std::collections::BTreeMap::<_, Vec<_>>::new();
        for map in model.all::<LunMap>() {
            luns.entry(map.unit.as_str()).or_default().push(map);
        }
        Self {
            units: model
                .all::<Unit>()
                .map(|unit| (unit.store.as_str(), unit))
                .collect(),
            luns,
        }
    }
}

fn row(snapshot: &Snapshot, index: &UseIndex<'_>, store: &Store) -> StoreRow {
    let status = snapshot.store(store.id.as_str());
    let unit = index.units.get(store.id.as_str()).copied();
    let luns = unit
        .and_then(|unit| index.luns.get(unit.id.as_str()))
        .map(Vec::as_slice)
        .unwrap_or_default();
    let link = |map: &&LunMap| LunLink {
        href: lun_href(&map.target.to_string(), map.lun),
        text: format!("LUN {} of {}", map.lun, map.target),
    };
    StoreRow {
        id: store.id.to_string(),
        href: href(store.id.as_str()),
        place: place_words(&store.place),
        size: snapshot
            .size_of(store.id.as_str())
            .map(show::bytes)
            .unwrap_or_default(),
        usage: status.and_then(Usage::of),
        status: condition(status),
        luns: luns.iter().map(link).collect(),
        map: luns.is_empty().then(|| {
            unit.map_or_else(
                || format!("store:{}", store.id),
                |unit| format!("unit:{}", unit.id),
            )
        }),
    }
}

/// How a store is, in a word.
fn condition(status: Option<&StoreStatus>) -> Status {
    match status {
        Some(StoreStatus {
            condition: Condition::Open,
            ..
        }) => Status {
            tone: "ok",
            word: "open",
            why: None,
        },
        Some(status) => {
            let since = status
                .missing_since
                .map(|since| format!(" ({})", show::ago(since * 1000)));
            let why = status
                .problem
                .clone()
                .map(|problem| problem + &since.unwrap_or_default());
            Status {
                tone: "bad",
                word: "missing",
                why,
            }
        }
        None => Status {
            tone: "bad",
            word: "missing",
            why: None,
        },
    }
}

/// The page of a store.
fn href(id: &str) -> String {
    format!("/stores/{}", show::segment(id))
}

fn place_words(place: &Place) -> String {
    match place {
        Place::Block { path } => format!("device {}", path.display()),
        Place::File { path, .. } => format!("file {}", path.display()),
        Place::Memory { .. } => "memory: gone when the program ends".to_owned(),
        Place::Null { .. } => "null: forgets what is written".to_owned(),
    }
}
