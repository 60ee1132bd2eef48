//! API tokens: made, shown once, deleted.

use std::time::{SystemTime, UNIX_EPOCH};

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use management::access::{GateError, NewToken};
use management::control::{Change, ChangeError, Edit};
use management::model::{Id, Kind, Token};

use super::ROLES;
use super::people::role;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::sure::Sure;
use crate::ui::visitor::{AdminVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "settings_tokens.html")]
struct TokensPage {
    frame: Frame,
    form: Form,
    tokens: Vec<Token>,
    /// The one that was just made, this one time.
    made: Option<NewToken>,
    now: u64,
    roles: &'static [(&'static str, &'static str)],
    lives: &'static [(&'static str, &'static str)],
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/settings/tokens", get(list).post(create))
        .route("/settings/tokens/{id}/delete", get(ask).post(delete))
}

async fn list(State(web): State<Web>, AdminVisitor(visitor): AdminVisitor) -> Response {
    page(&shown(&web, &visitor, first(), None))
}

async fn create(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    mut form: Form,
) -> Result<Response, Refusal> {
    let (id, role) = (form.parse::<Id>("id"), role(&mut form));
    let days: u64 = form.value("days").parse().unwrap_or(0);
    let expires = (days > 0).then(|| now() + days * 86_400);
    if let (Some(id), Some(role)) = (id, role) {
        match web.gate().new_token(&visitor.actor, id, role, expires).await {
            // Not sent on: the answer to this request is the only place that has it.
            Ok(made) => return Ok(page(&shown(&web, &visitor, first(), Some(made)))),
            Err(GateError::Change(ChangeError::Exists(_))) => {
                form.complain("id", "is another token's", "choose another name");
            }
            Err(error) => form.refuse(&Refusal::from(error), |_| None),
        }
    }
    Ok(form_again(&shown(&web, &visitor, form, None)))
}

async fn ask(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    model
        .get::<Token>(&id)
        .ok_or_else(|| Refusal::not_found("token"))?;
    Ok(page(&Sure {
        frame: visitor.frame(Section::Settings, format!("Delete token {id}")),
        effects: vec!["Whatever uses it is refused from that moment on.".to_owned()],
        action: format!("/settings/tokens/{id}/delete"),
        hidden: Vec::new(),
        verb: "Delete the token",
        back: "/settings/tokens",
    }))
}

async fn delete(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let edits = vec![Edit::Delete(Kind::Token, id.clone())];
    web.control().change(&visitor.actor, Change::of(edits)).await?;
    Ok(notice::done(
        &format!("Token {id} is deleted."),
        "/settings/tokens",
    ))
}

fn first() -> Form {
    Form::of([("role", "viewer".to_owned()), ("days", "90".to_owned())])
}

fn shown(web: &Web, visitor: &Visitor, form: Form, made: Option<NewToken>) -> TokensPage {
    TokensPage {
        frame: visitor.frame(Section::Settings, "API tokens"),
        form,
        tokens: web.control().model().all::<Token>().cloned().collect(),
        made,
        now: now(),
        roles: &ROLES,
        lives: &LIVES,
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

const LIVES: [(&str, &str); 4] = [
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "A year"),
    ("0", "Until it is deleted"),
];
