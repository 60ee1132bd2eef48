//! Targets: the list, one target with all that belongs to it, making and changing one.

mod access;
mod detail;
mod edit;

pub(super) use edit::{credentials, place, suggested_name};

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use management::model::{AccessRule, LunMap, Method, Target};

use super::frame::{Frame, Section, page};
use super::list::{ListQuery, Paging};
use super::object;
use super::show;
use super::snapshot::{Snapshot, target_href};
use super::visitor::{OperatorVisitor, Visitor};
use crate::Web;

#[derive(Template)]
#[template(path = "targets/list.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<Row>,
    paging: Paging,
}

struct Row {
    name: String,
    href: String,
    alias: String,
    enabled: bool,
    luns: usize,
    access: String,
    is_closed: bool,
    chap: bool,
    sessions: usize,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/targets", get(list))
        .route("/targets/{key}", get(detail::show))
        .route("/targets/{key}/enable", post(edit::enable))
        .route("/targets/{key}/disable", post(edit::disable))
        .route("/targets/{key}/access", post(access::add))
        .route("/targets/{key}/access/{id}/delete", post(access::remove))
        .merge(object::routes::<Target, OperatorVisitor>())
}

async fn list(State(web): State<Web>, visitor: Visitor, Query(query): Query<ListQuery>) -> Response {
    let snapshot = Snapshot::of(&web);
    let (model, sessions) = (&snapshot.model, snapshot.sessions_by_target());
    let mut luns = std::collections::BTreeMap::new();
    for map in model.all::<LunMap>() {
        *luns.entry(&map.target).or_insert(0) += 1;
    }
    let mut rules = std::collections::BTreeMap::<_, Vec<&AccessRule>>::new();
    for rule in model.all::<AccessRule>() {
        rules.entry(&rule.target).or_default().push(rule);
    }
    let all: Vec<&Target> = model.all::<Target>().collect();
    let count = all.len();
    let fits = |target: &&Target| {
        let alias = target.alias.as_deref().unwrap_or_default();
        query.finds([target.name.0.as_str(), alias])
    };
    let (found, paging) = query.cut(all.into_iter().filter(fits).collect(), count);
    let row = |target: &Target| {
        let name = target.name.to_string();
        let rules = rules.get(&target.name).map(Vec::as_slice).unwrap_or_default();
        Row {
            href: target_href(&name),
            alias: target.alias.clone().unwrap_or_default(),
            enabled: target.enabled,
            luns: luns.get(&target.name).copied().unwrap_or_default(),
            access: access_words(rules),
            is_closed: rules.is_empty(),
            chap: target.authentication.method == Method::Chap,
            sessions: sessions.get(name.as_str()).copied().unwrap_or_default(),
            name,
        }
    };
    let rows = found.into_iter().map(row).collect();
    page(&ListPage {
        frame: visitor.frame(Section::Targets, "Targets"),
        rows,
        paging,
    })
}

fn access_words(rules: &[&AccessRule]) -> String {
    match rules {
        [] => "nobody yet".to_owned(),
        [one] => super::rule::words(one),
        more => show::count(more.len(), "rule", "rules"),
    }
}
