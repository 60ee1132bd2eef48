//! The way in and out: set-up, login, logout; and the theme. Who logs in has no session yet that a proof could belong to:
//! form and cookie carry the same random value instead, which another site can neither read nor set.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use management::access::{GateError, NewSession, PASSWORD_MIN};
use management::model::Id;
use serde::Deserialize;

use super::form::{Form, PROOF};
use super::frame::{Frame, Theme, form_again, page, page_with};
use super::notice;
use super::visitor::Visitor;
use crate::serve::{Peer, Scheme};
use crate::who::{address, cookie, cookie_named, ended_cookie, is_same, session_cookie};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    form: Form,
    next: String,
}

#[derive(Template)]
#[template(path = "set_up.html")]
struct SetUpPage {
    frame: Frame,
    form: Form,
    password_hint: String,
}

#[derive(Debug, Deserialize)]
struct LoginQuery {
    #[serde(default)]
    next: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/login", get(login_page).post(log_in))
        .route("/logout", post(log_out))
        .route("/set-up", get(set_up_page).post(set_up))
        .route("/theme", post(set_theme))
}

async fn login_page(State(web): State<Web>, Query(query): Query<LoginQuery>, headers: HeaderMap) -> Response {
    if web.gate().needs_set_up() {
        return Redirect::to("/set-up").into_response();
    }
    if cookie(&headers).is_some_and(|cookie| web.gate().by_cookie(cookie).is_some()) {
        return Redirect::to(inside(&query.next)).into_response();
    }
    with_proof(
        &web,
        &headers,
        |frame| {
            page(&LoginPage {
                frame,
                form: Form::default(),
                next: inside(&query.next).to_owned(),
            })
        },
        "Log in",
    )
}

async fn log_in(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    Extension(scheme): Extension<Scheme>,
    headers: HeaderMap,
    mut form: Form,
) -> Result<Response, Refusal> {
    check_proof(&headers, &form)?;
    let next = inside(form.value("next")).to_owned();
    let password = form
        .secret("password")
        .map(|it| it.expose().to_owned())
        .unwrap_or_default();
    match web
        .gate()
        .log_in(address(peer), form.value("name"), password)
        .await
    {
        Ok(session) => Ok(begun(&session, scheme, &next)),
        Err(problem) => {
            let status = status_of(&problem);
            form.banner = Some(Refusal::from(problem).details().clone());
            Ok(with_proof(
                &web,
                &headers,
                |frame| page_with(status, &LoginPage { frame, form, next }),
                "Log in",
            ))
        }
    }
}

async fn log_out(State(web): State<Web>, headers: HeaderMap) -> Response {
    if let Some(cookie) = cookie(&headers) {
        web.gate().log_out(cookie);
    }
    let mut response = Redirect::to("/login").into_response();
    notice::append(&mut response, &ended_cookie());
    response
}

async fn set_up_page(State(web): State<Web>, headers: HeaderMap) -> Response {
    if !web.gate().needs_set_up() {
        return Redirect::to("/login").into_response();
    }
    let form = Form::of([("name", "admin".to_owned())]);
    with_proof(
        &web,
        &headers,
        |frame| {
            page(&SetUpPage {
                frame,
                form,
                password_hint: password_hint(),
            })
        },
        "Set up",
    )
}

async fn set_up(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    Extension(scheme): Extension<Scheme>,
    headers: HeaderMap,
    mut form: Form,
) -> Result<Response, Refusal> {
    check_proof(&headers, &form)?;
    let secret = |name: &str| {
        form.secret(name)
            .map(|it| it.expose().trim_end_matches(['\r', '\n']).to_owned())
    };
    let (token, password, again) = (secret("token"), secret("password"), secret("password_again"));
    let name = form.parse::<Id>("name");
    if token.is_none() {
        form.complain("token", "is missing", "copy it from the program's log");
    }
    if password.is_none() {
        form.complain("password", "is missing", "choose one");
    } else if password != again {
        form.complain("password_again", "is not the same", "write the password twice");
    }
    if let (Some(name), Some(token), Some(password), false) = (name, token, password, form.is_bad()) {
        match web
            .gate()
            .set_up(address(peer), token.trim(), name, password)
            .await
        {
            Ok(session) => return Ok(begun(&session, scheme, "/")),
            Err(GateError::Wrong(problem)) => {
                form.complain(
                    "token",
                    problem,
                    "copy it from the program's log; it changes with every start",
                );
            }
            Err(problem) => {
                let place = |path: &str| (path == "password").then_some("password");
                form.refuse(&Refusal::from(problem), place);
            }
        }
    }
    let render = |frame| {
        form_again(&SetUpPage {
            frame,
            form,
            password_hint: password_hint(),
        })
    };
    Ok(with_proof(&web, &headers, render, "Set up"))
}

async fn set_theme(_who: Visitor, form: Form) -> Response {
    let theme = match form.value("theme") {
        "dark" => Theme::Dark,
        "light" => Theme::Light,
        _ => Theme::Auto,
    };
    let mut response = Redirect::to(inside(form.value("next"))).into_response();
    let cookie = format!(
        "{}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age=31536000",
        Theme::COOKIE,
        theme.name()
    );
    notice::append(&mut response, &cookie);
    response
}

fn begun(session: &NewSession, scheme: Scheme, next: &str) -> Response {
    let mut response = Redirect::to(next).into_response();
    notice::append(&mut response, &session_cookie(session, scheme));
    response
}

/// Renders a page whose form has a proof, and sends the cookie that it has to agree with.
fn with_proof(
    web: &Web,
    headers: &HeaderMap,
    render: impl FnOnce(Frame) -> Response,
    title: &str,
) -> Response {
    let mut bytes = [0; 16];
    web.control().entropy()(&mut bytes);
    let proof: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut frame = Frame::outside(title, Theme::of(headers));
    frame.csrf.clone_from(&proof);
    let mut response = render(frame);
    notice::append(
        &mut response,
        &format!("{COOKIE}={proof}; HttpOnly; SameSite=Strict; Path=/; Max-Age=3600"),
    );
    response
}

fn check_proof(headers: &HeaderMap, form: &Form) -> Result<(), Refusal> {
    let kept = cookie_named(headers, COOKIE).unwrap_or_default();
    if !kept.is_empty() && is_same(kept, form.value(PROOF)) {
        Ok(())
    } else {
        Err(Refusal::no_csrf_proof())
    }
}

fn status_of(problem: &GateError) -> StatusCode {
    let status = Refusal::from(problem.clone()).details().status;
    StatusCode::from_u16(status).unwrap_or(StatusCode::UNAUTHORIZED)
}

fn password_hint() -> String {
    format!("At least {PASSWORD_MIN} characters.")
}

/// A place on this host, or the first page: nobody is sent elsewhere by a link to our login.
fn inside(next: &str) -> &str {
    let is_path = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    let path = next.split('?').next().unwrap_or_default();
    if is_path && !matches!(path, "/login" | "/logout" | "/theme") {
        next
    } else {
        "/"
    }
}

const COOKIE: &str = "lunaport_form";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_no_other_host() {
        assert_eq!(inside("/targets?q=a"), "/targets?q=a");
        for bad in [
            "",
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/logout",
            "evil",
        ] {
            assert_eq!(inside(bad), "/", "{bad}");
        }
    }
}
