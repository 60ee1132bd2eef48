//! One target: its LUNs, who may log in and how they prove it, where it is reached, who is there now.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::SessionStatus;
use management::model::{Method, Target};

use crate::ui::connect;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, page_with};
use crate::ui::rule;
use crate::ui::show;
use crate::ui::snapshot::{LunRow, Snapshot, target_href};
use crate::ui::visitor::Visitor;
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "targets/detail.html")]
struct DetailPage {
    frame: Frame,
    target: Target,
    name: String,
    href: String,
    chap: bool,
    luns: Vec<LunRow>,
    rules: Vec<Rule>,
    groups: Vec<(String, String)>,
    portals: Vec<connect::PortalLine>,
    sessions: Vec<SessionStatus>,
    form: Form,
}

struct Rule {
    id: String,
    words: String,
    /// Where it is removed.
    action: String,
}

pub(super) async fn show(
    State(web): State<Web>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let form = Form::of([("who", "initiator".to_owned())]);
    render(&web, &visitor, &name, form)
}

/// The page with the form for another rule as it stands.
pub(super) fn render(web: &Web, visitor: &Visitor, name: &str, form: Form) -> Result<Response, Refusal> {
    let snapshot = Snapshot::of(web);
    let model = &snapshot.model;
    let target = model
        .get::<Target>(name)
        .ok_or_else(|| Refusal::not_found("target"))?
        .clone();
    let href = target_href(name);
    let rules = model.access_of(&target.name).map(|rule| Rule {
        id: rule.id.to_string(),
        words: rule::words(rule),
        action: format!("{href}/access/{}/delete", show::segment(rule.id.as_str())),
    });
    let status = if form.is_bad() { 422 } else { 200 };
    let template = DetailPage {
        frame: visitor.frame(Section::Targets, name),
        name: name.to_owned(),
        chap: target.authentication.method == Method::Chap,
        luns: model.luns_of(&target.name).map(|map| snapshot.lun(map)).collect(),
        rules: rules.collect(),
        groups: rule::groups(model),
        portals: connect::portals(web, &target, visitor.host()),
        sessions: snapshot.sessions_of(name).cloned().collect(),
        target,
        href,
        form,
    };
    let status = axum::http::StatusCode::from_u16(status).unwrap_or_default();
    Ok(page_with(status, &template))
}
