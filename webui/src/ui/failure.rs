//! Refusals as people see them: who is not logged in is sent to log in, everything else is a page with cause and fix, in
//! the API's own words. And what browsers are told about pages: where scripts and styles may come from.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::frame::{Frame, Section, Theme, page_with};
use super::notice;
use super::visitor::Visitor;
use crate::{ProblemDetails, Web};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    problem: ProblemDetails,
}

/// Everything outside the API: refusals become pages, and pages get their policy.
pub(crate) async fn as_page(State(web): State<Web>, request: Request, next: Next) -> Response {
    if !is_page(request.uri().path()) {
        return next.run(request).await;
    }
    let (headers, uri, method) = (
        request.headers().clone(),
        request.uri().clone(),
        request.method().clone(),
    );
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<ProblemDetails>() {
        response = shown(&web, &headers, &uri, &method, problem);
    }
    let is_html = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if is_html && method == Method::GET && notice::given(&headers).is_some() {
        notice::used_up(&mut response);
    }
    let policy = HeaderValue::from_static(POLICY);
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn shown(web: &Web, headers: &HeaderMap, uri: &Uri, method: &Method, problem: ProblemDetails) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status == StatusCode::UNAUTHORIZED && web.gate().needs_set_up() {
        return Redirect::to("/set-up").into_response();
    }
    if status == StatusCode::UNAUTHORIZED {
        // A form cannot be sent twice: after the login comes the page it was on, as far as that is known.
        let next = if *method == Method::GET {
            uri.path_and_query().map_or("/", |it| it.as_str())
        } else {
            "/"
        };
        let login = format!("/login?{}", super::show::query(&[("next", next)]));
        let mut response = Redirect::to(&login).into_response();
        if headers.contains_key("hx-request")
            && let Ok(place) = HeaderValue::from_str(&login)
        {
            response = ([("hx-redirect", place)], "").into_response();
        }
        return response;
    }
    let mut problem = problem;
    if problem.kind == CSRF {
        // What the API's clients should do is of no help here.
        problem.fix = Some("open the page again and repeat it there".to_owned());
    }
    let frame = Visitor::of(web, headers, uri).map_or_else(
        || Frame::outside(&problem.title, Theme::of(headers)),
        |visitor| visitor.frame(Section::None, &problem.title),
    );
    let wait = problem.retry_after;
    let mut response = page_with(status, &ProblemPage { frame, problem });
    if let Some(wait) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, wait.into());
    }
    response
}

/// Whether people look at what is there. Machines get problem details.
fn is_page(path: &str) -> bool {
    !MACHINES.iter().any(|place| {
        path.strip_prefix(place)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

const CSRF: &str = "urn:lunaport:csrf";
const MACHINES: [&str; 4] = ["/api", "/healthz", "/metrics", "/readyz"];

/// Scripts and styles from here alone, none inside a page; no frames, no forms to elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
