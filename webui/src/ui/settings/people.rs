//! Users: made, changed, deleted by administrators; and everybody's own password.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use management::access::{GateError, PASSWORD_MIN};
use management::control::{ChangeError, Precondition};
use management::model::{Id, Kind, Role, User};

use super::ROLES;
use crate::serve::Peer;
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, form_again, page};
use crate::ui::notice;
use crate::ui::sure::Sure;
use crate::ui::visitor::{AdminVisitor, Visitor};
use crate::who::address;
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "settings_users.html")]
struct UsersPage {
    frame: Frame,
    form: Form,
    users: Vec<User>,
    roles: &'static [(&'static str, &'static str)],
    password_hint: String,
}

#[derive(Template)]
#[template(path = "settings_user.html")]
struct UserPage {
    frame: Frame,
    form: Form,
    name: String,
    roles: &'static [(&'static str, &'static str)],
    password_hint: String,
}

#[derive(Template)]
#[template(path = "settings_password.html")]
struct PasswordPage {
    frame: Frame,
    form: Form,
    password_hint: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/settings/users", get(list).post(create))
        .route("/settings/users/{name}", get(edit).post(change))
        .route("/settings/users/{name}/delete", get(ask).post(delete))
        .route("/settings/password", get(own).post(change_own))
}

async fn list(State(web): State<Web>, AdminVisitor(visitor): AdminVisitor) -> Response {
    let form = Form::of([("role", "viewer".to_owned())]);
    page(&users(&web, &visitor, form))
}

async fn create(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    mut form: Form,
) -> Result<Response, Refusal> {
    let (name, role) = (form.parse::<Id>("name"), role(&mut form));
    let password = password_twice(&mut form);
    if password.is_none()
        && form.complaint("password").is_none()
        && form.complaint("password_again").is_none()
    {
        form.complain("password", "is missing", "choose one");
    }
    if let (Some(name), Some(role), Some(password)) = (name, role, password) {
        let absent = vec![Precondition::Absent(Kind::User, name.to_string())];
        let text = format!("User {name} is made.");
        match web
            .gate()
            .put_user(&visitor.actor, name, role, Some(password), absent)
            .await
        {
            Ok(()) => return Ok(notice::done(&text, "/settings/users")),
            Err(error) => refuse(&mut form, error),
        }
    }
    Ok(form_again(&users(&web, &visitor, form)))
}

async fn edit(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let model = web.control().model();
    let user = model
        .get::<User>(&name)
        .ok_or_else(|| Refusal::not_found("user"))?;
    let form = Form::of([("role", word(user.role).to_owned())]);
    Ok(page(&user_page(&visitor, form, &name)))
}

async fn change(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(name): Path<String>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let id = known(&web, &name)?;
    let role = role(&mut form);
    let password = password_twice(&mut form);
    if let (Some(role), false) = (role, form.is_bad()) {
        let present = vec![Precondition::Present(Kind::User, name.clone())];
        match web
            .gate()
            .put_user(&visitor.actor, id, role, password, present)
            .await
        {
            Ok(()) => return Ok(notice::done(&format!("User {name} is saved."), "/settings/users")),
            Err(error) => refuse(&mut form, error),
        }
    }
    Ok(form_again(&user_page(&visitor, form, &name)))
}

async fn ask(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    known(&web, &name)?;
    Ok(page(&Sure {
        frame: visitor.frame(Section::Settings, format!("Delete user {name}")),
        effects: vec![
            "Their sessions in the management end at once.".to_owned(),
            "What they have made stays, API tokens included: delete those as well if they should not be used any more."
                .to_owned(),
        ],
        action: format!("/settings/users/{name}/delete"),
        hidden: Vec::new(),
        verb: "Delete the user",
        back: "/settings/users",
    }))
}

async fn delete(
    State(web): State<Web>,
    AdminVisitor(visitor): AdminVisitor,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let id = known(&web, &name)?;
    web.gate().delete_user(&visitor.actor, &id).await?;
    Ok(notice::done(
        &format!("User {name} is deleted."),
        "/settings/users",
    ))
}

async fn own(visitor: Visitor) -> Response {
    page(&password_page(&visitor, Form::default()))
}

/// The password there is has to be said once more: a browser that was left open is not enough.
async fn change_own(
    State(web): State<Web>,
    visitor: Visitor,
    Extension(peer): Extension<Peer>,
    mut form: Form,
) -> Result<Response, Refusal> {
    let name = visitor.actor.name.clone();
    let id = known(&web, &name)?;
    let password = password_twice(&mut form);
    if password.is_none() && !form.is_bad() {
        form.complain("password", "is missing", "choose one");
    }
    if let (Some(password), false) = (password, form.is_bad()) {
        let given = form
            .secret("password_now")
            .map(|it| it.expose().to_owned())
            .unwrap_or_default();
        let role = visitor.actor.role;
        let changed = match web.gate().log_in(address(peer), &name, given).await {
            Ok(_) => {
                web.gate()
                    .put_user(&visitor.actor, id, role, Some(password), Vec::new())
                    .await
            }
            Err(GateError::Wrong(_)) => {
                form.complain(
                    "password_now",
                    "is not your password",
                    "write the one you logged in with",
                );
                return Ok(form_again(&password_page(&visitor, form)));
            }
            Err(error) => Err(error),
        };
        match changed {
            Ok(()) => {
                return Ok(notice::done(
                    "Your password is changed: log in with the new one.",
                    "/login",
                ));
            }
            Err(error) => refuse(&mut form, error),
        }
    }
    Ok(form_again(&password_page(&visitor, form)))
}

/// The role that a form has.
pub(super) fn role(form: &mut Form) -> Option<Role> {
    let role = match form.value("role") {
        "admin" => Some(Role::Admin),
        "operator" => Some(Role::Operator),
        "viewer" => Some(Role::Viewer),
        _ => None,
    };
    if role.is_none() {
        form.complain("role", "is none", "choose one of the list");
    }
    role
}

/// The name of a role in forms.
const fn word(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Operator => "operator",
        Role::Viewer => "viewer",
    }
}

/// A password that was written twice in the same way; `None` when there is none, or something is wrong with it.
fn password_twice(form: &mut Form) -> Option<String> {
    let secret = |name: &str| form.secret(name).map(|it| it.expose().to_owned());
    let (password, again) = (secret("password"), secret("password_again"));
    if password != again {
        form.complain("password_again", "is not the same", "write the password twice");
        return None;
    }
    password
}

fn refuse(form: &mut Form, error: GateError) {
    match error {
        GateError::Change(ChangeError::Exists(_)) => {
            form.complain("name", "is another user's", "choose another name");
        }
        GateError::Password(problem) => form.complain("password", problem, "choose another password"),
        error => form.refuse(&Refusal::from(error), |_| None),
    }
}

fn known(web: &Web, name: &str) -> Result<Id, Refusal> {
    let model = web.control().model();
    let user = model
        .get::<User>(name)
        .ok_or_else(|| Refusal::not_found("user"))?;
    Ok(user.name.clone())
}

fn users(web: &Web, visitor: &Visitor, form: Form) -> UsersPage {
    UsersPage {
        frame: visitor.frame(Section::Settings, "Users"),
        form,
        users: web.control().model().all::<User>().cloned().collect(),
        roles: &ROLES,
        password_hint: password_hint(),
    }
}

fn user_page(visitor: &Visitor, form: Form, name: &str) -> UserPage {
    UserPage {
        frame: visitor.frame(Section::Settings, format!("User {name}")),
        form,
        name: name.to_owned(),
        roles: &ROLES,
        password_hint: format!("Left empty, the one there is stays. {}", password_hint()),
    }
}

fn password_page(visitor: &Visitor, form: Form) -> PasswordPage {
    PasswordPage {
        frame: visitor.frame(Section::Settings, "Your password"),
        form,
        password_hint: password_hint(),
    }
}

fn password_hint() -> String {
    format!("{PASSWORD_MIN} characters at least.")
}
