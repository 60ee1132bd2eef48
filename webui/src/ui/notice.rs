//! A line that says what was just done, carried over the redirect behind a form in a cookie that the next page uses up.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};

use crate::who::cookie_named;

/// Sends the browser on, and has the page there say what was done.
pub(crate) fn done(text: &str, to: &str) -> Response {
    let mut response = Redirect::to(to).into_response();
    let encoded: String = text
        .bytes()
        .take(LEN_MAX)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let cookie = format!("{COOKIE}={encoded}; HttpOnly; SameSite=Strict; Path=/; Max-Age=60");
    append(&mut response, &cookie);
    response
}

/// The line that a request brings along.
pub(super) fn given(headers: &HeaderMap) -> Option<String> {
    let encoded = cookie_named(headers, COOKIE)?;
    if encoded.is_empty() || !encoded.is_ascii() || !encoded.len().is_multiple_of(2) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..encoded.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&encoded[at..at + 2], 16).ok())
        .collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

/// The page has shown it.
pub(super) fn used_up(response: &mut Response) {
    append(
        response,
        &format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"),
    );
}

/// Adds a cookie to an answer.
pub(super) fn append(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

const COOKIE: &str = "lunaport_notice";
const LEN_MAX: usize = 600;
