//! Who may manage: set-up, sessions of browsers, users and tokens.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Json};
use management::access::{NewSession, NewToken};
use management::control::{Change, Edit};
use management::model::{Id, Kind, Problem, Role, SecretText, Token, User};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::path::HttpMethod;

use super::extract::{Key, conditions, parse};
use super::objects::Page;
use super::routes::{Described, Routes};
use crate::serve::{Peer, Scheme};
use crate::who::{Admin, Browser, Viewer, address, cookie, ended_cookie, session_cookie};
use crate::{Refusal, Web};

/// The first user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetUp {
    /// The token that the program printed.
    token: SecretText,
    /// Login name of the first administrator.
    name: Id,
    /// Their password, 8 to 1024 bytes.
    password: SecretText,
}

/// A login.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogIn {
    /// Login name.
    name: String,
    /// Password.
    password: SecretText,
}

/// Who is logged in.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct WhoAmI {
    /// Who.
    actor: String,
    /// What they may do.
    role: Role,
    /// For the header `X-CSRF-Token` of changes; for sessions of browsers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
}

/// A user as they are to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutUser {
    /// What they may do.
    role: Role,
    /// A new password, 8 to 1024 bytes; left out, the one there is stays.
    #[serde(default)]
    password: Option<SecretText>,
}

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MakeToken {
    /// What it is called.
    id: Id,
    /// What its bearer may do.
    role: Role,
    /// Until when it is good, in seconds since 1970; left out, until it is deleted.
    #[serde(default)]
    expires: Option<u64>,
}

pub(super) fn add(routes: &mut Routes) {
    let new = |id: &str, summary: &str| Described::new("access", id, summary);
    let set_up = new(
        "set_up",
        "Make the first user, with the token that the program printed",
    )
    .takes::<SetUp>("application/json")
    .gives::<WhoAmI>("201", "Made, and logged in")
    .for_anybody();
    routes.add(HttpMethod::Post, "/set-up", post(first_user), set_up);
    let logged_in = new("log_in", "Log in")
        .takes::<LogIn>("application/json")
        .gives::<WhoAmI>("201", "Logged in")
        .for_anybody();
    routes.add(HttpMethod::Post, "/session", post(log_in), logged_in);
    let shown = new("who_am_i", "Show who is logged in").gives::<WhoAmI>("200", "You");
    routes.add(HttpMethod::Get, "/session", get(who_am_i), shown);
    let logged_out = new("log_out", "Log out")
        .gives_nothing("204", "Logged out")
        .for_anybody();
    routes.add(HttpMethod::Delete, "/session", delete(log_out), logged_out);

    let users = new("list_users", "List users").gives_page::<User>("By name");
    routes.add(HttpMethod::Get, "/users", get(list_users), users);
    let user = new("put_user", "Make a user, or change role and password of one")
        .in_path("name", "login name")
        .takes::<PutUser>("application/json")
        .gives::<User>("200", "As they are now");
    routes.add(HttpMethod::Put, "/users/{name}", put(put_user), user);
    let gone = new("delete_user", "Delete a user; their sessions end")
        .in_path("name", "login name")
        .gives_nothing("204", "They are not there");
    routes.add(HttpMethod::Delete, "/users/{name}", delete(delete_user), gone);

    let tokens = new("list_tokens", "List API tokens").gives_page::<Token>("By id, without the tokens");
    routes.add(HttpMethod::Get, "/tokens", get(list_tokens), tokens);
    let made = new("create_token", "Make an API token; it is shown this one time")
        .takes::<MakeToken>("application/json")
        .gives::<NewToken>("201", "Made");
    routes.add(HttpMethod::Post, "/tokens", post(create_token), made);
    let gone = new("delete_token", "Delete an API token")
        .in_path("id", "its id")
        .gives_nothing("204", "It is not there");
    routes.add(HttpMethod::Delete, "/tokens/{id}", delete(delete_token), gone);
}

async fn first_user(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    Extension(scheme): Extension<Scheme>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let SetUp {
        token,
        name,
        password,
    } = parse(&body)?;
    let password = password.expose().to_owned();
    let session = web
        .gate()
        .set_up(address(peer), token.expose(), name, password)
        .await?;
    Ok(begun(session, scheme))
}

async fn log_in(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    Extension(scheme): Extension<Scheme>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let LogIn { name, password } = parse(&body)?;
    let session = web
        .gate()
        .log_in(address(peer), &name, password.expose().to_owned())
        .await?;
    Ok(begun(session, scheme))
}

async fn who_am_i(Viewer(actor): Viewer, browser: Result<Browser, Refusal>) -> Json<WhoAmI> {
    Json(WhoAmI {
        actor: actor.to_string(),
        role: actor.role,
        csrf: browser.ok().map(|Browser(session)| session.csrf),
    })
}

async fn log_out(State(web): State<Web>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie(&headers) {
        web.gate().log_out(cookie);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, ended_cookie())]).into_response()
}

async fn list_users(State(web): State<Web>, _who: Admin) -> Json<Page<User>> {
    Json(whole(web.control().model().all::<User>().cloned().collect()))
}

async fn put_user(
    State(web): State<Web>,
    Admin(actor): Admin,
    Key(key): Key,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let PutUser { role, password } = parse(&body)?;
    let name = id(&key)?;
    let preconditions = conditions(&headers, Kind::User, &key)?;
    let password = password.map(|password| password.expose().to_owned());
    web.gate()
        .put_user(&actor, name, role, password, preconditions)
        .await?;
    let user = web.control().model().get::<User>(&key).cloned();
    user.map(|user| Json(user).into_response())
        .ok_or_else(|| Refusal::not_found("user"))
}

async fn delete_user(
    State(web): State<Web>,
    Admin(actor): Admin,
    Key(key): Key,
) -> Result<StatusCode, Refusal> {
    web.gate().delete_user(&actor, &id(&key)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn list_tokens(State(web): State<Web>, _who: Admin) -> Json<Page<Token>> {
    Json(whole(web.control().model().all::<Token>().cloned().collect()))
}

async fn create_token(State(web): State<Web>, Admin(actor): Admin, body: Bytes) -> Result<Response, Refusal> {
    let MakeToken { id, role, expires } = parse(&body)?;
    let made = web.gate().new_token(&actor, id, role, expires).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

async fn delete_token(
    State(web): State<Web>,
    Admin(actor): Admin,
    Key(key): Key,
) -> Result<StatusCode, Refusal> {
    web.control()
        .change(&actor, Change::of(vec![Edit::Delete(Kind::Token, key)]))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn begun(session: NewSession, scheme: Scheme) -> Response {
    let cookie = session_cookie(&session, scheme);
    let who = WhoAmI {
        actor: session.actor.to_string(),
        role: session.actor.role,
        csrf: Some(session.csrf),
    };
    (StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(who)).into_response()
}

fn id(key: &str) -> Result<Id, Refusal> {
    key.parse()
        .map_err(|problem: String| Refusal::malformed(Problem::new("path", problem, "choose another name")))
}

fn whole<T>(items: Vec<T>) -> Page<T> {
    Page {
        total: items.len(),
        items,
        next: None,
    }
}
