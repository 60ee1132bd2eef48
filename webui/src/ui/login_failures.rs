//! Logins that failed, each with what was wrong and what would help.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use management::events::EventKind;

use super::frame::{Frame, Section, page};
use super::visitor::Visitor;
use crate::Web;

#[derive(Template)]
#[template(path = "login_failures.html")]
struct LoginFailuresPage {
    frame: Frame,
    failures: Vec<Failure>,
    /// Failures that are not shown any more.
    is_cut: bool,
}

/// A login that failed; the same failure of the same initiator again is counted, not repeated.
#[derive(Debug, PartialEq)]
struct Failure {
    /// When the last one was, milliseconds since 1970.
    time: u64,
    count: usize,
    initiator: String,
    peer: String,
    target: String,
    local: String,
    status: String,
    reason: String,
    fix: String,
}

pub(super) fn routes() -> Router<Web> {
    Router::new().route("/login-failures", get(show))
}

async fn show(State(web): State<Web>, visitor: Visitor) -> Response {
    let recent = web.control().events().recent();
    let failed = recent.iter().filter(|event| event.kind == EventKind::LoginFailed);
    let all = failed.map(|event| Failure::of(event.time, &event.data));
    let mut failures = gathered(all);
    let is_cut = failures.len() > SHOWN;
    failures.truncate(SHOWN);
    page(&LoginFailuresPage {
        frame: visitor.frame(Section::LoginFailures, "Login failures"),
        failures,
        is_cut,
    })
}

/// The newest of each, with how often it happened.
fn gathered(all: impl Iterator<Item = Failure>) -> Vec<Failure> {
    let mut kept: Vec<Failure> = Vec::new();
    for failure in all {
        match kept.iter_mut().find(|it| it.is_like(&failure)) {
            Some(known) => known.count += 1,
            None => kept.push(failure),
        }
        if kept.len() > SHOWN {
            break;
        }
    }
    kept
}

impl Failure {
    fn of(time: u64, data: &serde_json::Value) -> Self {
        let text = |field: &str| {
            let value = data.get(field).and_then(|it| it.as_str());
            value.unwrap_or_default().to_owned()
        };
        Self {
            time,
            count: 1,
            initiator: text("initiator"),
            peer: text("peer"),
            target: text("target"),
            local: text("local"),
            status: spaced(&text("status")),
            reason: text("reason"),
            fix: text("fix"),
        }
    }

    /// Whether it is the same thing again, from the same host.
    fn is_like(&self, other: &Self) -> bool {
        let host = |peer: &str| {
            peer.rsplit_once(':')
                .map_or_else(String::new, |(host, _)| host.to_owned())
        };
        let rest = |it: &Self| (it.initiator.clone(), it.target.clone(), it.reason.clone());
        host(&self.peer) == host(&other.peer) && rest(self) == rest(other)
    }
}

/// `AuthorizationFailure` as words.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
            words.extend(letter.to_lowercase());
        } else {
            words.push(letter);
        }
    }
    words
}

/// Different failures on the page.
const SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(time: u64, peer: &str, reason: &str) -> Failure {
        Failure::of(
            time,
            &json!({"peer": peer, "reason": reason, "status": "NotFound"}),
        )
    }

    #[test]
    fn the_same_failure_from_the_same_host_is_counted() {
        let all = [
            failure(3, "192.0.2.1:5000", "a"),
            failure(2, "192.0.2.1:4000", "a"),
            failure(1, "192.0.2.2:4000", "a"),
            failure(0, "192.0.2.1:3000", "b"),
        ];
        let kept = gathered(all.into_iter());
        let seen: Vec<_> = kept.iter().map(|it| (it.time, it.count)).collect();
        assert_eq!(seen, [(3, 2), (1, 1), (0, 1)]);
    }

    #[test]
    fn a_status_is_shown_in_words() {
        assert_eq!(spaced("AuthorizationFailure"), "Authorization failure");
        assert_eq!(spaced(""), "");
    }
}
