//! Who asks: found out once for each request, before any handler, and asked for by handlers as an argument that says how
//! far the role has to go.

use std::net::IpAddr;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use management::access::{Actor, CookieSession, NewSession};
use management::model::Role;

use crate::serve::{Peer, Scheme};
use crate::{Refusal, Web, ui};

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
            request = match form_that_proves(request, &session).await {
                Ok(request) => request,
                Err(refusal) => return refusal.into_response(),
            };
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
    cookie_named(headers, COOKIE)
}

/// The value of a cookie.
pub(crate) fn cookie_named<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// A cookie that no script reads, no other site sends, and no plain connection carries where there is TLS.
pub(crate) fn session_cookie(session: &NewSession, scheme: Scheme) -> String {
    let secure = match scheme {
        Scheme::Http => "",
        Scheme::Https => "; Secure",
    };
    format!(
        "{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/{secure}",
        session.cookie
    )
}

/// What makes a browser forget it.
pub(crate) fn ended_cookie() -> String {
    format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
}

/// The address at the other end; `None` on this host's socket.
pub(crate) const fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Address(address) => Some(address),
        Peer::User(_) => None,
    }
}

/// Whether two texts are the same. As long for every two of a length: what is random and secret is compared with it.
pub(crate) fn is_same(given: &str, kept: &str) -> bool {
    let (given, kept) = (given.as_bytes(), kept.as_bytes());
    given.len() == kept.len()
        && given
            .iter()
            .zip(kept)
            .fold(0, |sum, (one, other)| sum | (one ^ other))
            == 0
}

fn proves(headers: &HeaderMap, session: &CookieSession) -> bool {
    let given = headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
    given.is_some_and(|given| is_same(given, &session.csrf))
}

/// A page's form has the proof among its fields. All forms come by here, so that none can forget to ask for it; those of
/// the entrance, where the session of before says nothing, bring their own.
async fn form_that_proves(request: Request, session: &CookieSession) -> Result<Request, Refusal> {
    let path = request.uri().path();
    if ui::ENTRANCE.contains(&path) {
        return Ok(request);
    }
    if path.starts_with("/api/") || !ui::is_form(request.headers()) {
        return Err(Refusal::no_csrf_proof());
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, FORM_MAX)
        .await
        .map_err(|_| Refusal::no_csrf_proof())?;
    match ui::proof_in(&bytes) {
        Some(given) if is_same(&given, &session.csrf) => Ok(Request::from_parts(parts, Body::from(bytes))),
        _ => Err(Refusal::no_csrf_proof()),
    }
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

/// Bytes of a page's form: an uploaded configuration is the longest.
const FORM_MAX: usize = 32 << 20;
