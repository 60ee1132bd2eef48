//! Logins that fail: each is explained where it is looked for, in the log, in the API and on the page.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::time::Instant;

use common::http::Client;
use common::initiator::{Login, NAME, prove_wrongly};
use common::{PATIENCE, Server};
use iscsi_proto::pdu::LoginStatus;
use serde_json::{Value, json};

const OPEN: &str = "iqn.2026-11.org.example:open";
const CLOSED: &str = "iqn.2026-11.org.example:closed";
const CHAP: &str = "iqn.2026-11.org.example:chap";
const DIGEST: &str = "iqn.2026-11.org.example:digest";
const FULL: &str = "iqn.2026-11.org.example:full";

fn configured() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let rule = |id: &str, target: &str| json!({"id": id, "target": target, "any": true});
    let document = json!({
        "credentials": [{"id": "c", "name": "alice", "secret": "a long enough secret"}],
        "targets": [
            {"name": OPEN},
            {"name": CLOSED},
            {"name": CHAP, "authentication": {"method": "chap", "credentials": ["c"]}},
            {"name": DIGEST, "limits": {"HeaderDigest": "CRC32C"}},
            {"name": FULL, "limits": {"max-sessions": "1"}},
        ],
        "access": [rule("open", OPEN), rule("chap", CHAP), rule("digest", DIGEST), rule("full", FULL)],
    });
    server.here().put("/api/v1/config", &document).is(200);
    (directory, server)
}

/// The newest failure, once it is of this target and tells this.
fn explained(server: &Server, target: &str, reason: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let failures = server.here().get("/api/v1/login-failures").is(200);
        let newest = failures["items"][0].clone();
        if newest["target"] == target && newest["reason"].as_str().unwrap().contains(reason) {
            return newest;
        }
        assert!(
            Instant::now() < deadline,
            "{target}: {reason} is not told, but {newest}"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A browser with somebody logged in who may look.
fn viewer(server: &Server) -> Client {
    let (name, password) = ("vera", "correct horse battery");
    let user = json!({"role": "viewer", "password": password});
    server.here().put(&format!("/api/v1/users/{name}"), &user).is(200);
    let session = json!({"name": name, "password": password});
    let answer = server.nobody().post("/api/v1/session", &session);
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    answer.is(201);
    server.nobody().with("Cookie", cookie.split(';').next().unwrap())
}

/// The newest failure on the page, as it is read: without markup.
fn on_page(viewer: &Client) -> String {
    let page = viewer.get("/login-failures").body;
    let newest = page.split("<article").nth(1).expect("the page has a failure");
    let newest = newest.split("</article>").next().unwrap_or_default();
    let text = newest
        .split('<')
        .map(|part| part.split_once('>').map_or("", |(_, text)| text));
    text.collect::<String>()
        .replace("&#34;", "\"")
        .replace("&#39;", "'")
}

fn status(initiator: &str, target: &str, more: &[(&str, &str)], server: &Server) -> LoginStatus {
    let login = Login {
        initiator,
        target,
        more,
    };
    login.at(server.portal).err().unwrap()
}

#[test]
fn each_tells_its_reason_and_the_fix_in_log_api_and_page() {
    use LoginStatus::{
        AuthenticationFailure, AuthorizationFailure, InitiatorError, NotFound, OutOfResources,
    };
    let (_directory, mut server) = configured();
    let unknown = "iqn.2026-11.org.example:none";
    let other = "iqn.2026-11.org.example:other";
    let viewer = viewer(&server);
    let _only = Login::to(FULL).at(server.portal).unwrap();
    type Try<'a> = &'a dyn Fn(&Server) -> LoginStatus;
    let cases: [(&str, &str, Try<'_>, LoginStatus, &str, &str, &str); 7] = [
        (
            "wrong name",
            OPEN,
            &|it| status("Bad Name", OPEN, &[], it),
            InitiatorError,
            "InitiatorName",
            "InitiatorName is malformed",
            "correct InitiatorName",
        ),
        (
            "not allowed",
            CLOSED,
            &|it| status(NAME, CLOSED, &[], it),
            AuthorizationFailure,
            "InitiatorName",
            "does not admit the initiator",
            "add iqn.2026-11.org.example:host",
        ),
        (
            "wrong secret",
            CHAP,
            &|it| prove_wrongly(it.portal, CHAP, "alice"),
            AuthenticationFailure,
            "CHAP_R",
            "secret of the name \"alice\" is wrong",
            "enter the same secret",
        ),
        (
            "CHAP missing",
            CHAP,
            &|it| status(NAME, CHAP, &[], it),
            AuthenticationFailure,
            "AuthMethod",
            "requires CHAP",
            "switch CHAP on",
        ),
        (
            "unknown target",
            unknown,
            &|it| status(NAME, unknown, &[], it),
            NotFound,
            "TargetName",
            "there is no target iqn.2026-11.org.example:none",
            "compare the target name",
        ),
        (
            "no common digest",
            DIGEST,
            &|it| status(NAME, DIGEST, &[("HeaderDigest", "None")], it),
            InitiatorError,
            "HeaderDigest",
            "HeaderDigest=CRC32C",
            "switch HeaderDigest on",
        ),
        (
            "too many sessions",
            FULL,
            &|it| status(other, FULL, &[], it),
            OutOfResources,
            "max-sessions",
            "max-sessions is 1",
            "raise max-sessions",
        ),
    ];
    for (what, target, fails, sent, key, reason, fix) in cases {
        assert_eq!(fails(&server), sent, "{what}");
        let told = explained(&server, target, reason);
        assert_eq!(told["key"], key, "{what}: {told}");
        assert!(told["fix"].as_str().unwrap().contains(fix), "{what}: {told}");
        let line = server.says(reason);
        assert!(line.contains(fix), "{what}: the log says {line}");
        let page = on_page(&viewer);
        for text in [reason, fix] {
            assert!(page.contains(text), "{what}: the page says {page}");
        }
    }
    let total = server.here().get("/api/v1/login-failures").is(200)["total"].clone();
    assert_eq!(total, 7);
}
