//! Who asks: found out once for each request, before any handler, and asked for by handlers as an argument that says how
//! far the role has to go.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use management::access::{Actor, CookieSession};
use management::model::Role;

use crate::serve::Peer;
use crate::{Refusal, Web};

/// Somebody who may look.
#[derive(Clone, Debug)]
pub(crate) struct Viewer(pub(crate) Actor);

/// Somebody who may change what is configured.
#[derive(Clone, Debug)]
pub(crate) struct Operator(pub(crate) Actor);

/// Somebody who may do everything.
#[derive(Clone, Debug)]
pub(crate) struct Admin(pub(crate) Actor);

/// A browser's session, for who has one.
#[derive(Clone, Debug)]
pub(crate) struct Browser(pub(crate) CookieSession);

/// The name of the cookie.
pub(crate) const COOKIE: &str = "lunaport_session";

/// Puts who it is into the request's extensions. A session's change without the page's proof goes no further.
pub(crate) async fn find_out(State(web): State<Web>, mut request: Request, next: Next) -> Response {
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let peer = request.extensions().get::<Peer>().copied();
    if let Some(token) = bearer(request.headers()) {
        if let Some(actor) = web.gate().by_token(token) {
            request.extensions_mut().insert(actor);
        }
    } else if let Some((actor, session)) = cookie(request.headers()).and_then(|it| web.gate().by_cookie(it)) {
        if is_change && !proves(request.headers(), &session) {
            return Refusal::no_csrf_proof().into_response();
        }
        request.extensions_mut().insert(actor);
        request.extensions_mut().insert(session);
    } else if let Some(Peer::User(uid)) = peer
        && let Some(actor) = web.gate().by_user_id(uid)
    {
        request.extensions_mut().insert(actor);
    }
    next.run(request).await
}

/// The value of our cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn proves(headers: &HeaderMap, session: &CookieSession) -> bool {
    headers.get("x-csrf-token").is_some_and(|value| {
        // Compared as hashes would be: the token is random, and its length no secret.
        let (given, kept) = (value.as_bytes(), session.csrf.as_bytes());
        given.len() == kept.len()
            && given
                .iter()
                .zip(kept)
                .fold(0, |sum, (one, other)| sum | (one ^ other))
                == 0
    })
}

fn at_least(parts: &Parts, web: &Web, role: Role, word: &str) -> Result<Actor, Refusal> {
    let Some(actor) = parts.extensions.get::<Actor>() else {
        return Err(Refusal::unknown_actor(web.gate().needs_set_up()));
    };
    if actor.role >= role {
        Ok(actor.clone())
    } else {
        Err(Refusal::not_allowed(word))
    }
}

impl FromRequestParts<Web> for Viewer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        at_least(parts, web, Role::Viewer, "viewer").map(Self)
    }
}

impl FromRequestParts<Web> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        at_least(parts, web, Role::Operator, "operator").map(Self)
    }
}

impl FromRequestParts<Web> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        at_least(parts, web, Role::Admin, "admin").map(Self)
    }
}

impl FromRequestParts<Web> for Browser {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Refusal> {
        at_least(parts, web, Role::Viewer, "viewer")?;
        let session = parts.extensions.get::<CookieSession>().cloned();
        session
            .map(Self)
            .ok_or_else(|| Refusal::not_found("session: this is a token"))
    }
}
