//! Initiators that are known by name, their groups, and CHAP credentials.

mod credential;
mod group;
mod initiator;

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use management::model::{AccessRule, Credential, Initiator, InitiatorGroup, Model, Object, Target};

use super::frame::{Frame, Section, page};
use super::list::{ListQuery, Paging};
use super::object::{self, Edited};
use super::snapshot::target_href;
use super::visitor::Visitor;
use crate::Web;

#[derive(Template)]
#[template(path = "initiators/list.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<InitiatorRow>,
    paging: Paging,
    groups: Vec<GroupRow>,
    credentials: Vec<CredentialRow>,
}

struct InitiatorRow {
    name: String,
    href: String,
    description: String,
    groups: String,
    credential: String,
    sessions: usize,
}

struct GroupRow {
    id: String,
    href: String,
    description: String,
    members: usize,
    rules: usize,
}

struct CredentialRow {
    id: String,
    href: String,
    name: String,
    uses: Vec<Use>,
}

/// Where a credential is used: address and text.
struct Use {
    href: String,
    text: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/initiators", get(list))
        .merge(object::routes::<Initiator, Visitor>())
        .merge(object::routes::<InitiatorGroup, Visitor>())
        .merge(object::routes::<Credential, Visitor>())
}

async fn list(State(web): State<Web>, visitor: Visitor, Query(query): Query<ListQuery>) -> Response {
    let (model, sessions) = (web.control().model(), web.control().sessions());
    let all: Vec<&Initiator> = model.all::<Initiator>().collect();
    let count = all.len();
    let fits =
        |it: &&Initiator| query.finds([it.name.0.as_str(), it.description.as_deref().unwrap_or_default()]);
    let (found, paging) = query.cut(all.into_iter().filter(fits).collect(), count);
    let row = |it: &Initiator| {
        let name = it.name.to_string();
        InitiatorRow {
            href: Initiator::href(&name),
            description: it.description.clone().unwrap_or_default(),
            groups: it
                .groups
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            credential: it
                .credential
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            sessions: sessions
                .iter()
                .filter(|session| session.initiator == name)
                .count(),
            name,
        }
    };
    let groups = model.all::<InitiatorGroup>().map(|group| GroupRow {
        id: group.key(),
        href: InitiatorGroup::href(&group.key()),
        description: group.description.clone().unwrap_or_default(),
        members: model
            .all::<Initiator>()
            .filter(|it| it.groups.contains(&group.id))
            .count(),
        rules: model
            .all::<AccessRule>()
            .filter(|rule| rule.group.as_ref() == Some(&group.id))
            .count(),
    });
    let credentials = model.all::<Credential>().map(|it| CredentialRow {
        id: it.key(),
        href: Credential::href(&it.key()),
        name: it.name.clone(),
        uses: uses(&model, it),
    });
    page(&ListPage {
        frame: visitor.frame(Section::Initiators, "Initiators"),
        rows: found.into_iter().map(row).collect(),
        paging,
        groups: groups.collect(),
        credentials: credentials.collect(),
    })
}

/// Who proves something with a credential.
fn uses(model: &Model, credential: &Credential) -> Vec<Use> {
    let id = &credential.id;
    let targets = model.all::<Target>().filter(|target| {
        target.authentication.credentials.contains(id) || target.authentication.mutual.as_ref() == Some(id)
    });
    let targets = targets.map(|target| Use {
        href: target_href(&target.key()),
        text: target.key(),
    });
    let initiators = model
        .all::<Initiator>()
        .filter(|it| it.credential.as_ref() == Some(id));
    let initiators = initiators.map(|it| Use {
        href: Initiator::href(&it.key()),
        text: it.key(),
    });
    let discovery = model.settings().discovery;
    let discovery = discovery.credentials.contains(id) || discovery.mutual.as_ref() == Some(id);
    let discovery = discovery.then(|| Use {
        href: "/settings".to_owned(),
        text: "discovery".to_owned(),
    });
    targets.chain(initiators).chain(discovery).collect()
}
