//! LUNs of all targets: the list, the guided way to a new one, one LUN with the commands to use it.

mod change;
mod create;
mod delete;
mod detail;
mod request;

pub(super) use detail::Usage;
pub(super) use request::{file_in, folders, read_size, space_beside};

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use management::model::LunMap;

use super::frame::{Frame, Section, page};
use super::list::{ListQuery, Paging};
use super::snapshot::{LunRow, Snapshot, target_href};
use super::visitor::Visitor;
use crate::Web;

#[derive(Template)]
#[template(path = "luns/list.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<LunRow>,
    paging: Paging,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/luns", get(list))
        .route("/new/lun", get(create::form_page).post(create::create))
        .route("/luns/{target}/{lun}", get(detail::show))
        .route("/luns/{target}/{lun}/grow", post(change::grow))
        .route("/luns/{target}/{lun}/read-only", post(change::read_only))
        .route("/luns/{target}/{lun}/enabled", post(change::enabled))
        .route(
            "/luns/{target}/{lun}/delete",
            get(delete::ask).post(delete::delete),
        )
}

async fn list(State(web): State<Web>, visitor: Visitor, Query(query): Query<ListQuery>) -> Response {
    let snapshot = Snapshot::of(&web);
    let all: Vec<&LunMap> = snapshot.model.all::<LunMap>().collect();
    let count = all.len();
    let fits = |map: &&LunMap| query.finds([map.target.0.as_str(), map.unit.as_str()]);
    let (found, paging) = query.cut(all.into_iter().filter(fits).collect(), count);
    let rows = found.into_iter().map(|map| snapshot.lun(map)).collect();
    page(&ListPage {
        frame: visitor.frame(Section::Luns, "LUNs"),
        rows,
        paging,
    })
}

impl LunRow {
    /// The page of its target.
    fn target_href(&self) -> String {
        target_href(&self.target)
    }
}
