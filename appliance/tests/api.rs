//! The management API of the running program, as an administrator's script sees it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::initiator::{Login, NAME};
use common::{PATIENCE, Server, free_address, one_disk};
use iscsi_proto::pdu::LoginStatus;
use serde_json::{Value, json};

const TARGET: &str = "iqn.2026-11.org.example:a";
const LUN: &str = "/api/v1/luns/iqn.2026-11.org.example:a/0";
const PATH: &str = "/api/v1/targets/iqn.2026-11.org.example:a";

fn started() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

fn with_disk() -> (tempfile::TempDir, Server) {
    let (directory, server) = started();
    server.here().put("/api/v1/config", &one_disk(TARGET)).is(200);
    (directory, server)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_disk_is_made_step_by_step_served_changed_and_taken_away() {
    let (directory, server) = started();
    let here = server.here();
    let store = json!({"id": "one", "place": {"kind": "file", "path": "one.img", "size": 1 << 20}});
    let made = here.post("/api/v1/stores", &store);
    assert_eq!(made.header("location"), Some("/api/v1/stores/one"));
    assert_eq!(made.header("etag"), Some("\"1\""));
    made.is(201);
    let unit = here
        .post("/api/v1/units", &json!({"id": "one", "store": "one"}))
        .is(201);
    assert_eq!(unit["naa"].as_str().unwrap().len(), 16);
    here.post("/api/v1/targets", &json!({"name": "IQN.2026-11.org.example:A"}))
        .is(201);
    here.post(
        "/api/v1/luns",
        &json!({"target": TARGET, "lun": 0, "unit": "one"}),
    )
    .is(201);

    assert_eq!(
        Login::to(TARGET).at(server.portal).err(),
        Some(LoginStatus::AuthorizationFailure)
    );
    here.post(
        "/api/v1/access",
        &json!({"id": "any", "target": TARGET, "any": true}),
    )
    .is(201);
    let session = Login::to(TARGET).at(server.portal).unwrap();
    let sessions = here.get("/api/v1/sessions").is(200);
    assert_eq!(sessions["items"][0]["initiator"], NAME);
    assert_eq!(sessions["items"][0]["negotiated"]["MaxBurstLength"], 262_144);
    drop(session);
    wait_until("the session's end", || {
        here.get("/api/v1/sessions").is(200)["total"] == 0
    });

    let changed = here
        .patch(PATH, &json!({"alias": "disks", "enabled": false}))
        .is(200);
    assert_eq!(
        (&changed["alias"], &changed["enabled"]),
        (&json!("disks"), &json!(false))
    );
    assert_eq!(
        Login::to(TARGET).at(server.portal).err(),
        Some(LoginStatus::NotFound)
    );
    here.delete(PATH).is(204);
    here.delete(PATH).is(204);
    here.get(LUN).is(404);
    here.delete("/api/v1/units/one").is(204);
    here.delete("/api/v1/stores/one?delete-data").is(204);
    assert!(!directory.path().join("one.img").exists());
}

#[test]
fn problems_name_the_place_and_the_fix() {
    let (_directory, server) = started();
    let here = server.here();
    let lun = json!({"target": TARGET, "lun": 0, "unit": "nowhere"});
    let answer = here.post("/api/v1/luns", &lun);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.is(422);
    assert_eq!(problem["type"], "urn:lunaport:invalid");
    assert_eq!(
        problem["problems"][1]["path"],
        "luns/iqn.2026-11.org.example:a/0/unit"
    );
    assert!(
        problem["problems"][1]["fix"]
            .as_str()
            .unwrap()
            .contains("units/nowhere")
    );

    let cut = here.send("POST", "/api/v1/targets", Some("{\"name\":")).unwrap();
    let detail = cut.is(400)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("line 1 column 8"), "{detail}");
    let problem = here.post("/api/v1/targets", &json!({"name": "disks"})).is(400);
    assert_eq!(problem["problems"][0]["path"], "name");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("iqn.2026-11.org.example:name")
    );
    let problem = here
        .put(
            "/api/v1/config",
            &json!({"targets": [{"name": TARGET}, {"name": "x"}]}),
        )
        .is(400);
    assert_eq!(problem["problems"][0]["path"], "targets[1].name");
    let twice = json!({"targets": [{"name": TARGET}, {"name": TARGET}]});
    let problem = here.put("/api/v1/config", &twice).is(422);
    assert_eq!(problem["problems"][0]["path"], "targets[1]");

    here.get("/api/v1/nowhere").is(404);
    here.get("/api/v1/targets?limit=none").is(400);
    here.get("/api/v1/targets?colour=red").is(400);
    here.post("/api/v1/targets", &json!({"name": TARGET})).is(201);
    let problem = here.post("/api/v1/targets", &json!({"name": TARGET})).is(409);
    assert_eq!(problem["type"], "urn:lunaport:exists");
    let escape = json!({"id": "s", "place": {"kind": "file", "path": "../../etc/passwd"}});
    let problem = here.post("/api/v1/stores", &escape).is(422);
    assert_eq!(problem["problems"][0]["path"], "stores/s/place/path");
}

#[test]
fn a_lost_update_is_refused() {
    let (_directory, server) = with_disk();
    let here = server.here();
    let tag = here.get(PATH).header("etag").unwrap().to_owned();
    let with_alias = |alias: &str| json!({"name": TARGET, "alias": alias});
    here.with("If-Match", &tag)
        .put(PATH, &with_alias("first"))
        .is(200);
    let problem = here
        .with("If-Match", &tag)
        .put(PATH, &with_alias("second"))
        .is(412);
    assert_eq!(problem["type"], "urn:lunaport:stale");
    assert_eq!(here.get(PATH).is(200)["alias"], "first");
    here.with("If-None-Match", "*")
        .put(PATH, &with_alias("third"))
        .is(409);
    let whole = here.get("/api/v1/config");
    let tag = whole.header("etag").unwrap().to_owned();
    here.put(PATH, &with_alias("fourth")).is(200);
    here.with("If-Match", &tag)
        .put("/api/v1/config", &whole.is(200))
        .is(412);
}

#[test]
fn what_is_in_use_is_named_with_its_sessions_and_force_is_quick() {
    let (_directory, server) = with_disk();
    let here = server.here();
    let session = Login::to(TARGET).at(server.portal).unwrap();
    for path in [PATH, LUN] {
        let problem = here.delete(path).is(409);
        assert_eq!(problem["type"], "urn:lunaport:in-use");
        assert_eq!(
            problem["in_use"][0]["sessions"][0]["initiator"], NAME,
            "{problem}"
        );
    }
    here.patch(PATH, &json!({"enabled": false})).is(409);
    here.delete("/api/v1/access/any").is(409);
    // What takes nothing from it needs no force.
    here.patch(
        PATH,
        &json!({"alias": "still here", "limits": {"nop-interval": "60s"}}),
    )
    .is(200);
    let began = Instant::now();
    here.delete(&format!("{PATH}?force")).is(204);
    assert!(session.was_closed());
    wait_until("the session's end", || {
        here.get("/api/v1/sessions").is(200)["total"] == 0
    });
    assert!(began.elapsed() < Duration::from_secs(2));
    here.get(PATH).is(404);
}

#[test]
fn a_number_that_a_session_knows_is_not_given_to_another_disk() {
    let (_directory, server) = with_disk();
    let here = server.here();
    here.post(
        "/api/v1/stores",
        &json!({"id": "two", "place": {"kind": "memory", "size": 1 << 20}}),
    )
    .is(201);
    here.post("/api/v1/units", &json!({"id": "two", "store": "two"}))
        .is(201);
    let session = Login::to(TARGET).at(server.portal).unwrap();
    here.delete(&format!("{LUN}?force")).is(204);
    let other = json!({"target": TARGET, "lun": 0, "unit": "two"});
    let problem = here.post("/api/v1/luns?force", &other).is(409);
    assert_eq!(problem["in_use"][0]["forcible"], false);
    here.post(
        "/api/v1/luns",
        &json!({"target": TARGET, "lun": 0, "unit": "one"}),
    )
    .is(201);
    here.delete(&format!("{LUN}?force")).is(204);
    drop(session);
    wait_until("the session's end", || {
        here.get("/api/v1/sessions").is(200)["total"] == 0
    });
    here.post("/api/v1/luns", &other).is(201);
}

#[test]
fn the_configuration_is_compared_applied_pruned_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    let dry = here.put("/api/v1/config?dry-run", &one_disk(TARGET)).is(200);
    let paths = |diff: &Value| -> Vec<String> {
        let differences = diff["differences"].as_array().unwrap().iter();
        differences
            .map(|it| {
                format!(
                    "{} {}",
                    it["action"].as_str().unwrap(),
                    it["path"].as_str().unwrap()
                )
            })
            .collect()
    };
    let expected = [
        "create access/any".to_owned(),
        format!("create luns/{TARGET}/0"),
        "create stores/one".to_owned(),
        format!("create targets/{TARGET}"),
        "create units/one".to_owned(),
    ];
    assert_eq!(paths(&dry), expected);
    assert_eq!(here.get("/api/v1/config").is(200)["targets"], json!([]));
    assert_eq!(
        paths(&here.put("/api/v1/config", &one_disk(TARGET)).is(200)),
        expected
    );
    assert_eq!(
        here.put("/api/v1/config", &one_disk(TARGET)).is(200)["differences"],
        json!([])
    );
    let exported = here.get("/api/v1/config").is(200);
    drop(server);

    let server = Server::start(directory.path());
    let here = server.here();
    assert_eq!(here.get("/api/v1/config").is(200), exported);
    assert!(Login::to(TARGET).at(server.portal).is_ok());
    wait_until("the session's end", || {
        here.get("/api/v1/sessions").is(200)["total"] == 0
    });
    assert_eq!(
        here.put("/api/v1/config", &json!({})).is(200)["differences"],
        json!([]),
        "nothing is pruned unasked"
    );
    let pruned = here.put("/api/v1/config?prune=true", &json!({})).is(200);
    assert_eq!(pruned["differences"].as_array().unwrap().len(), 5);
    let import = here.put("/api/v1/config", &exported).is(200);
    assert_eq!(import["differences"].as_array().unwrap().len(), 5);
    assert_eq!(
        here.get("/api/v1/config").is(200),
        exported,
        "identities come back with the document"
    );
}

#[test]
fn nobody_gets_in_and_the_first_user_needs_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let line = server.says("set-up token");
    let token = line.rsplit(' ').next().unwrap();
    let nobody = server.nobody();
    for path in [
        "/api/v1/targets",
        "/api/v1/config",
        "/api/v1/events",
        "/metrics",
        "/api/v1/session",
    ] {
        let problem = nobody.get(path).is(401);
        assert!(problem["fix"].as_str().unwrap().contains("set-up"), "{problem}");
    }
    nobody.get("/healthz").is(200);
    nobody.get("/api/v1/openapi.json").is(200);
    let docs = nobody.get("/api/docs/");
    let policy = docs.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self'"), "{policy}");
    assert!(docs.body.contains("swagger-ui"));
    assert!(
        !docs.body.contains("://"),
        "everything is from here: {}",
        docs.body
    );
    nobody.put("/api/v1/config?prune", &json!({})).is(401);

    let first = |token: &str| json!({"token": token, "name": "ada", "password": "correct horse"});
    nobody.post("/api/v1/set-up", &first("wrong")).is(401);
    nobody.post("/api/v1/set-up", &first(token)).is(201);
    nobody.post("/api/v1/set-up", &first(token)).is(409);
    let problem = nobody.get("/api/v1/targets").is(401);
    assert!(problem["fix"].as_str().unwrap().contains("/api/v1/session"));
    nobody
        .post("/api/v1/session", &json!({"name": "ada", "password": "wrong"}))
        .is(401);
    nobody
        .post("/api/v1/session", &json!({"name": "eve", "password": "wrong"}))
        .is(401);
}

#[test]
fn a_browser_proves_that_its_page_asks_and_roles_are_kept() {
    let (_directory, server) = started();
    let here = server.here();
    for (name, role) in [("ada", "admin"), ("oscar", "operator"), ("vera", "viewer")] {
        let user = json!({"role": role, "password": "correct horse"});
        here.put(&format!("/api/v1/users/{name}"), &user).is(200);
    }
    let log_in = |name: &str| {
        let answer = server.nobody().post(
            "/api/v1/session",
            &json!({"name": name, "password": "correct horse"}),
        );
        let cookie = answer.header("set-cookie").unwrap().to_owned();
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
            "{cookie}"
        );
        let csrf = answer.is(201)["csrf"].as_str().unwrap().to_owned();
        let page = server.nobody().with("Cookie", cookie.split(';').next().unwrap());
        (page.clone(), page.with("X-CSRF-Token", &csrf))
    };
    let target = |name: &str| json!({"name": format!("iqn.2026-11.org.example:{name}")});
    let (forged, oscar) = log_in("oscar");
    forged.get("/api/v1/targets").is(200);
    assert_eq!(
        forged.post("/api/v1/targets", &target("x")).is(403)["type"],
        "urn:lunaport:csrf"
    );
    oscar.post("/api/v1/targets", &target("x")).is(201);
    oscar.get("/api/v1/users").is(403);
    oscar.get("/api/v1/config?secrets").is(403);
    let (_, vera) = log_in("vera");
    vera.get("/api/v1/targets").is(200);
    vera.post("/api/v1/targets", &target("y")).is(403);
    vera.delete("/api/v1/sessions/1").is(403);
    let (_, ada) = log_in("ada");
    ada.get("/api/v1/users").is(200);

    // A role that is taken away is gone at once, and so is a session with its password.
    ada.put("/api/v1/users/oscar", &json!({"role": "viewer"})).is(200);
    oscar.post("/api/v1/targets", &target("z")).is(403);
    ada.put(
        "/api/v1/users/oscar",
        &json!({"role": "viewer", "password": "another horse"}),
    )
    .is(200);
    oscar.get("/api/v1/targets").is(401);
    ada.delete("/api/v1/users/ada").is(409);
    vera.delete("/api/v1/session").is(204);
    vera.get("/api/v1/targets").is(401);

    let audit = here.get("/api/v1/events?kind=changed").is(200).to_string();
    assert!(
        audit.contains("user oscar") && audit.contains("created targets/iqn.2026-11.org.example:x"),
        "{audit}"
    );
    assert!(!audit.contains("horse") && !audit.contains("argon2"), "{audit}");
}

#[test]
fn tokens_work_until_they_expire_or_are_deleted() {
    let (_directory, server) = started();
    let here = server.here();
    let made = here
        .post("/api/v1/tokens", &json!({"id": "backup", "role": "viewer"}))
        .is(201);
    let token = made["token"].as_str().unwrap();
    let machine = server.nobody().bearer(token);
    machine.get("/api/v1/targets").is(200);
    machine.post("/api/v1/targets", &json!({"name": TARGET})).is(403);
    assert!(!here.get("/api/v1/tokens").is(200).to_string().contains(token));
    server
        .nobody()
        .bearer("lunaport_wrong")
        .get("/api/v1/targets")
        .is(401);
    let old = here
        .post(
            "/api/v1/tokens",
            &json!({"id": "old", "role": "admin", "expires": 1}),
        )
        .is(201);
    server
        .nobody()
        .bearer(old["token"].as_str().unwrap())
        .get("/api/v1/targets")
        .is(401);
    here.delete("/api/v1/tokens/backup").is(204);
    machine.get("/api/v1/targets").is(401);
}

#[test]
fn passwords_are_not_tried_without_end() {
    let (_directory, server) = started();
    server
        .here()
        .put(
            "/api/v1/users/ada",
            &json!({"role": "admin", "password": "correct horse"}),
        )
        .is(200);
    let guess = || {
        server.nobody().post(
            "/api/v1/session",
            &json!({"name": "ada", "password": "a guess of it"}),
        )
    };
    let statuses: Vec<u16> = (0..7).map(|_| guess().status).collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses[5..].contains(&429), "{statuses:?}");
}

#[test]
fn secrets_go_in_and_never_come_out() {
    let (directory, mut server) = with_disk();
    let here = server.here();
    let secret = "A&b!#'\" c%d\\e longer";
    let credential = |secret: &str| json!({"id": "c", "name": "n", "secret": secret});
    here.post("/api/v1/credentials", &credential(secret)).is(201);
    here.put("/api/v1/credentials/c", &credential(&format!("{secret}2")))
        .is(200);
    here.put("/api/v1/credentials/c", &credential(secret)).is(200);
    here.patch("/api/v1/credentials/c", &json!({"name": "other"}))
        .is(200);
    here.put(
        "/api/v1/credentials/d",
        &json!({"id": "d", "name": "n", "secret": "short"}),
    )
    .is(422);
    for path in [
        "/api/v1/credentials",
        "/api/v1/credentials/c",
        "/api/v1/config",
        "/api/v1/events",
        "/api/v1/support-bundle",
        "/metrics",
        "/api/v1/status",
    ] {
        let answer = here.get(path);
        assert_eq!(answer.status, 200, "{path}");
        let escaped = serde_json::to_string(secret).unwrap();
        assert!(
            !answer.body.contains(escaped.trim_matches('"')),
            "{path}: {}",
            answer.body
        );
    }
    let asked_for = here.get("/api/v1/config?secrets").is(200);
    assert_eq!(
        asked_for["credentials"][0]["secret"], secret,
        "as it was, after a change of the name"
    );
    let events = here.get("/api/v1/events").is(200);
    assert_eq!(events["items"][0]["kind"], "secrets-shown");
    server.kill();
    assert!(server.said.iter().all(|line| !line.contains("longer")));
    for file in ["state.json", "events.jsonl", "lunaport.sock"] {
        let mode = std::fs::metadata(directory.path().join(file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
}

#[test]
fn events_are_followed_and_resumed() {
    let (_directory, server) = started();
    let here = server.here();
    here.post("/api/v1/targets", &json!({"name": TARGET})).is(201);
    let seen = here.get("/api/v1/events?limit=1").is(200)["items"][0]["number"]
        .as_u64()
        .unwrap();
    let mut lines = BufReader::new(
        here.with("Last-Event-ID", &(seen - 1).to_string())
            .follow("/api/v1/events/stream"),
    )
    .lines()
    .map_while(Result::ok);
    let mut next = |wanted: &str| {
        lines
            .find(|line| line.starts_with("data:") && line.contains(wanted))
            .unwrap()
    };
    next("created targets");
    here.delete(PATH).is(204);
    next("deleted targets");
    let _failed = Login::to(TARGET).at(server.portal);
    next("login-failed");
}

#[test]
fn portals_open_and_close_while_it_runs() {
    let (_directory, server) = with_disk();
    let here = server.here();
    let (one, taken) = (
        free_address(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    here.post("/api/v1/portals", &json!({"id": "p", "address": one.to_string()}))
        .is(201);
    let session = Login::to(TARGET).at(one).unwrap();
    let refused = json!({"id": "q", "address": taken.local_addr().unwrap().to_string()});
    let problem = here.post("/api/v1/portals", &refused).is(422);
    assert!(
        problem["detail"].as_str().unwrap().contains("ss -ltnp"),
        "{problem}"
    );
    here.delete("/api/v1/portals/p").is(204);
    wait_until("the port's end", || std::net::TcpStream::connect(one).is_err());
    assert_eq!(here.get("/api/v1/sessions").is(200)["total"], 1, "sessions go on");
    drop(session);
}

/// The address is one for documentation, so no device of any host has it.
#[test]
fn a_portal_over_rdma_says_what_it_waits_for_and_tcp_goes_on() {
    let (_directory, server) = with_disk();
    let here = server.here();
    let portal = json!({"id": "rdma", "address": "192.0.2.1:3260", "transport": "iser"});
    here.post("/api/v1/portals", &portal).is(201);
    let status = here.get("/api/v1/status").is(200);
    let shown = &status["portals"][1];
    assert_eq!(
        (&shown["address"], &shown["listening"]),
        (&json!("192.0.2.1:3260"), &json!(false))
    );
    assert!(!shown["problem"].as_str().unwrap().is_empty(), "{status}");
    if status["iser"]["available"] == false {
        assert!(!status["iser"]["problem"].as_str().unwrap().is_empty());
    }
    assert!(Login::to(TARGET).at(server.portal).is_ok());
    let told = common::initiator::discover(server.portal);
    assert!(
        !told.iter().any(|record| record.contains("192.0.2.1")),
        "{told:?}"
    );
    here.delete("/api/v1/portals/rdma").is(204);
    let status = here.get("/api/v1/status").is(200);
    assert_eq!(status["portals"].as_array().unwrap().len(), 1, "{status}");
}

#[test]
fn every_address_that_is_listened_on_is_shown_with_who_asked_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_with_options(directory.path(), &["--portal", "iser:192.0.2.1:3260,group=2"]);
    let (here, portal) = (server.here(), server.portal.to_string());
    for (id, address, transport) in [
        ("again", portal.as_str(), "tcp"),
        ("off", "192.0.2.3:3260", "tcp"),
        ("rdma-again", "192.0.2.1:3260", "iser"),
    ] {
        let portal = json!({"id": id, "address": address, "transport": transport, "enabled": id != "off"});
        here.post("/api/v1/portals", &portal).is(201);
    }
    let status = here.get("/api/v1/status").is(200);
    let shown = status["portals"].as_array().unwrap();
    let of = |fields: &[&str]| -> Vec<Value> {
        let row = |portal: &Value| fields.iter().map(|field| portal[field].clone()).collect();
        shown.iter().map(row).collect()
    };
    let asked = of(&["source", "id", "address", "transport", "portal_group"]);
    let expected = [
        json!(["command-line", null, portal, "tcp", 1]),
        json!(["command-line", null, "192.0.2.1:3260", "iser", 2]),
        json!(["configuration", "again", portal, "tcp", 1]),
        json!(["configuration", "off", "192.0.2.3:3260", "tcp", 1]),
        json!(["configuration", "rdma-again", "192.0.2.1:3260", "iser", 1]),
    ];
    assert_eq!(asked, expected);
    let listening = of(&["enabled", "listening"]);
    let expected = [
        [true, true],
        [true, false],
        [true, true],
        [false, false],
        [true, false],
    ];
    assert_eq!(listening, expected.map(|row| json!(row)));
    for portal in shown {
        let problem = portal["problem"].as_str().unwrap_or_default();
        assert_eq!(problem.is_empty(), portal["transport"] == "tcp", "{portal}");
        assert!(!problem.contains('\n'), "{problem}");
    }
    let metrics = here.get("/metrics").body;
    for line in [
        format!("lunaport_portal_listening{{portal=\"{portal}\"}} 1"),
        "lunaport_portal_listening{portal=\"192.0.2.1:3260\"} 0".to_owned(),
        "lunaport_portal_listening{portal=\"again\"} 1".to_owned(),
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    assert!(
        !metrics.contains("portal=\"off\""),
        "nobody wants it open: {metrics}"
    );
}

#[test]
fn what_is_not_there_is_deleted_without_a_word_and_not_shown() {
    let (_directory, server) = started();
    let here = server.here();
    for path in [
        "access/x",
        "advertised/x",
        "credentials/x",
        "groups/x",
        "initiators/x",
        "luns/x/0",
        "portals/x",
        "sessions/7",
        "stores/x",
        "targets/x",
        "tokens/x",
        "units/x",
        "users/x",
        "jobs/7",
    ] {
        here.delete(&format!("/api/v1/{path}")).is(204);
    }
    for path in [
        "groups/x",
        "luns/x/0",
        "portals/x",
        "stores/x",
        "targets/x",
        "units/x",
        "reservations/x",
    ] {
        here.get(&format!("/api/v1/{path}")).is(404);
    }
    assert_eq!(here.get("/api/v1/status").is(200)["generation"], 0);
}

#[test]
fn lists_come_in_pages() {
    let (_directory, server) = started();
    let here = server.here();
    let targets: Vec<Value> = (0..25)
        .map(|n| json!({"name": format!("iqn.2026-11.org.example:t{n:02}")}))
        .collect();
    here.put("/api/v1/config", &json!({"targets": targets})).is(200);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = here.get(&format!("/api/v1/targets?limit=10{after}")).is(200);
        assert_eq!(page["total"], 25);
        seen.extend(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 25);
    assert_eq!(seen[24]["name"], "iqn.2026-11.org.example:t24");
}

#[test]
fn health_readiness_and_metrics_tell_of_a_missing_store() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.here().put("/api/v1/config", &one_disk(TARGET)).is(200);
    server.nobody().get("/readyz").is(200);
    drop(server);
    std::fs::rename(
        directory.path().join("one.img"),
        directory.path().join("away.img"),
    )
    .unwrap();
    std::fs::create_dir(directory.path().join("one.img")).unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    server.nobody().get("/healthz").is(200);
    server.nobody().get("/readyz").is(503);
    let status = here.get("/api/v1/status").is(200);
    assert!(
        status["alerts"][0]
            .as_str()
            .unwrap()
            .contains("store one is missing"),
        "{status}"
    );
    assert!(
        here.get("/metrics")
            .body
            .contains("lunaport_store_open{store=\"one\"} 0")
    );
    std::fs::remove_dir(directory.path().join("one.img")).unwrap();
    std::fs::rename(
        directory.path().join("away.img"),
        directory.path().join("one.img"),
    )
    .unwrap();
    wait_until("the store", || server.nobody().get("/readyz").status == 200);
    assert!(
        here.get("/api/v1/events")
            .is(200)
            .to_string()
            .contains("store one is back")
    );
}

#[test]
fn a_session_is_sent_away_by_hand() {
    let (_directory, server) = with_disk();
    let here = server.here();
    let session = Login::to(TARGET).at(server.portal).unwrap();
    let tsih = here.get("/api/v1/sessions").is(200)["items"][0]["tsih"]
        .as_u64()
        .unwrap();
    here.delete(&format!("/api/v1/sessions/{tsih}")).is(204);
    assert!(session.was_closed());
    here.delete(&format!("/api/v1/sessions/{tsih}")).is(204);
}
