//! The command line as a client of the running program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::{Command, Output};

use common::Server;
use common::initiator::Login;

const TARGET: &str = "iqn.2026-11.org.example:a";

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn lunaport(server: &Server, environment: &[(&str, &str)], arguments: &[&str]) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_lunaport"))
        .current_dir(&server.directory)
        .env_clear()
        .envs(environment.iter().copied())
        .args(arguments)
        .output()
        .unwrap();
    Said {
        code: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

#[track_caller]
fn done(server: &Server, arguments: &[&str]) -> String {
    let directory = server.directory.to_str().unwrap();
    let said = lunaport(server, &[("LUNAPORT_STATE_DIR", directory)], arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
    said.out
}

#[track_caller]
fn refused(server: &Server, arguments: &[&str]) -> String {
    let directory = server.directory.to_str().unwrap();
    let said = lunaport(server, &[("LUNAPORT_STATE_DIR", directory)], arguments);
    assert_eq!(said.code, Some(1), "{arguments:?}: {}", said.out);
    said.err
}

#[test]
fn stores_are_copied_and_jobs_and_reservations_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    done(
        &server,
        &["store", "create", "one", "file:one.img", "--size", "1M"],
    );
    let shown = done(&server, &["store", "clone", "one", "two", "two.img", "--wait"]);
    assert!(shown.contains("done") && shown.contains("stores/two"), "{shown}");
    assert!(done(&server, &["store", "list"]).contains("two"));
    let jobs: serde_json::Value = serde_json::from_str(&done(&server, &["job", "list", "--json"])).unwrap();
    assert_eq!(
        (&jobs[0]["kind"], &jobs[0]["state"]),
        (&"clone".into(), &"done".into())
    );
    let zeroed = [
        "store",
        "create",
        "full",
        "file:full.img",
        "--size",
        "1M",
        "--zero",
        "--wait",
    ];
    let shown = done(&server, &zeroed);
    assert!(shown.contains("zero") && shown.contains("stores/full"), "{shown}");
    done(&server, &["job", "cancel", "1"]);
    done(&server, &["job", "wait", "1"]);
    let problem = refused(&server, &["store", "clone", "one", "two", "three.img"]);
    assert!(problem.contains("stores/two is there already"), "{problem}");
    assert_eq!(done(&server, &["reservation", "list"]).trim(), "none");
    let problem = refused(&server, &["reservation", "clear", "nothing"]);
    assert!(problem.contains("units/nothing"), "{problem}");
}

#[test]
fn on_this_host_a_disk_is_made_without_any_set_up() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    done(&server, &["target", "create", TARGET, "--alias", "disks"]);
    done(
        &server,
        &["store", "create", "one", "file:one.img", "--size", "1M"],
    );
    assert!(done(&server, &["lun", "add", TARGET, "3", "one"]).contains("one"));
    done(
        &server,
        &["initiator", "allow", TARGET, "iqn.2026-11.org.example:*"],
    );
    let session = Login::to(TARGET).at(server.portal).unwrap();
    let sessions = done(&server, &["session", "list"]);
    assert!(sessions.contains("iqn.2026-11.org.example:host"), "{sessions}");
    let problem = refused(&server, &["target", "delete", TARGET]);
    assert!(
        problem.contains("--force") && problem.contains("iqn.2026-11.org.example:host"),
        "{problem}"
    );
    done(&server, &["store", "grow", "one", "2M"]);
    let stores: serde_json::Value =
        serde_json::from_str(&done(&server, &["store", "list", "--json"])).unwrap();
    assert_eq!(stores[0]["size"], 2 << 20);
    done(&server, &["target", "delete", TARGET, "--force"]);
    assert!(session.was_closed());
    assert_eq!(done(&server, &["target", "list"]), "none\n");
}

#[test]
fn a_store_is_deleted_with_the_unit_that_was_made_over_it_once_no_lun_leads_there() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    done(&server, &["target", "create", TARGET]);
    done(&server, &["store", "create", "one", "memory:1M"]);
    done(&server, &["lun", "add", TARGET, "3", "one"]);
    let problem = refused(&server, &["store", "delete", "one"]);
    assert!(
        problem.contains(&format!("lunaport lun remove {TARGET} 3")),
        "{problem}"
    );
    done(&server, &["lun", "remove", TARGET, "3"]);
    done(&server, &["store", "delete", "one"]);
    assert_eq!(done(&server, &["store", "list"]), "none\n");
    server.here().get("/api/v1/units/one").is(404);
}

#[test]
fn a_number_that_is_a_lun_never_becomes_another_disk_by_adding() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    done(&server, &["target", "create", TARGET]);
    for store in ["one", "two"] {
        done(&server, &["store", "create", store, "memory:1M"]);
    }
    done(&server, &["lun", "add", TARGET, "10", "one"]);
    done(&server, &["lun", "add", TARGET, "2", "one"]);
    done(&server, &["lun", "add", TARGET, "2", "one"]);
    let problem = refused(&server, &["lun", "add", TARGET, "2", "two"]);
    assert!(
        problem.contains("is unit one already") && problem.contains(&format!("lun remove {TARGET} 2")),
        "{problem}"
    );
    let other = refused(
        &server,
        &["lun", "add", "iqn.2026-11.org.example:other", "2", "two"],
    );
    assert!(other.contains("targets/iqn.2026-11.org.example:other"), "{other}");
    let luns: serde_json::Value = serde_json::from_str(&done(&server, &["lun", "list", "--json"])).unwrap();
    let numbers: Vec<_> = luns
        .as_array()
        .unwrap()
        .iter()
        .map(|lun| (&lun["lun"], &lun["unit"]))
        .collect();
    assert_eq!(numbers, [(&2.into(), &"one".into()), (&10.into(), &"one".into())]);
}

#[test]
fn what_is_wrong_is_told_in_the_words_of_whoever_typed_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let problem = refused(&server, &["target", "create", "foo"]);
    assert!(!problem.contains("line 1"), "{problem}");
    let problem = refused(&server, &["store", "grow", "none", "1G"]);
    assert!(problem.contains("there is no such stores/none"), "{problem}");
    done(&server, &["store", "create", "one", "memory:1M"]);
    done(&server, &["target", "create", TARGET]);
    done(&server, &["lun", "add", TARGET, "0", "one"]);
    let problem = server.here().delete("/api/v1/stores/one").is(422);
    let problem = &problem["problems"][0];
    assert_eq!(
        (&problem["path"], &problem["problem"]),
        (
            &"units/one/store".into(),
            &"needs stores/one, which is to be deleted".into()
        )
    );
}

#[test]
fn a_configuration_is_compared_and_applied_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    std::fs::write(
        directory.path().join("c.json"),
        common::one_disk(TARGET).to_string(),
    )
    .unwrap();
    assert!(done(&server, &["config", "apply", "c.json", "--dry-run"]).contains("create"));
    assert!(!directory.path().join("one.img").exists());
    done(&server, &["config", "apply", "c.json"]);
    assert_eq!(done(&server, &["config", "apply", "c.json"]), "none\n");
    assert!(done(&server, &["config", "show"]).contains(TARGET));
    let status = done(&server, &["status"]);
    let portal = server.portal.to_string();
    let row = status.lines().find(|line| line.contains(&portal)).unwrap();
    assert!(row.contains("command-line"), "{status}");
    std::fs::write(
        directory.path().join("c.json"),
        "{\"targets\": [{\"name\": \"x\"}]}",
    )
    .unwrap();
    let problem = refused(&server, &["config", "apply", "c.json"]);
    assert!(
        problem.contains("targets[0].name") && problem.contains("iqn.2026-11"),
        "{problem}"
    );
}

#[test]
fn elsewhere_it_needs_a_token_and_a_lost_password_is_replaced_here() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let made: serde_json::Value = serde_json::from_str(&done(
        &server,
        &["user", "token", "ci", "--role", "operator", "--json"],
    ))
    .unwrap();
    let url = format!("http://{}", server.admin);
    let token = made["token"].as_str().unwrap();
    let said = lunaport(&server, &[("LUNAPORT_URL", &url)], &["target", "list"]);
    assert!(said.code == Some(1) && said.err.contains("token"), "{}", said.err);
    let with = [("LUNAPORT_URL", url.as_str()), ("LUNAPORT_TOKEN", token)];
    assert_eq!(
        lunaport(&server, &with, &["target", "create", TARGET]).code,
        Some(0)
    );

    std::fs::write(directory.path().join("password"), "correct horse\n").unwrap();
    done(&server, &["user", "set", "ada", "--password-file", "password"]);
    let login = serde_json::json!({"name": "ada", "password": "correct horse"});
    server.nobody().post("/api/v1/session", &login).is(201);
}

#[test]
fn beyond_loopback_it_is_tls_unless_told_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let admin = format!("0.0.0.0:{}", common::free_address().port());
    let mut server = Server::start_at(directory.path(), &admin);
    assert!(
        server
            .said
            .iter()
            .any(|line| line.contains(&format!("https://{admin}"))),
        "{:?}",
        server.said
    );
    let token: serde_json::Value = serde_json::from_str(&done(
        &server,
        &["user", "token", "ci", "--role", "admin", "--json"],
    ))
    .unwrap();
    let url = format!("https://localhost:{}", server.admin.port());
    let with = [
        ("LUNAPORT_URL", url.as_str()),
        ("LUNAPORT_TOKEN", token["token"].as_str().unwrap()),
    ];
    let trusted = [with[0], with[1], ("LUNAPORT_CA", "tls.crt")];
    let said = lunaport(&server, &trusted, &["status"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let stranger = lunaport(
        &server,
        &[with[0], with[1], ("LUNAPORT_CA", "/dev/null")],
        &["status"],
    );
    assert_eq!(stranger.code, Some(1));
    assert!(
        server.nobody().send("GET", "/healthz", None).is_err(),
        "nobody is answered in plain"
    );
    server.kill();
}

#[test]
fn without_a_program_it_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    server.kill();
    let problem = refused(&server, &["status"]);
    assert!(
        problem.contains("lunaport.sock") && problem.contains("LUNAPORT_URL"),
        "{problem}"
    );
}

/// An answer to SendTargets of several pieces: `lunaport health` takes them all.
#[test]
fn three_hundred_targets_are_all_told_to_whoever_asks() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let name = |number: usize| format!("iqn.2026-11.org.example:target-with-a-long-name.{number}");
    let targets: Vec<_> = (0..300)
        .map(|number| serde_json::json!({"name": name(number)}))
        .collect();
    let access: Vec<_> = (0..300)
        .map(|number| serde_json::json!({"id": format!("any{number}"), "target": name(number), "any": true}))
        .collect();
    let config = serde_json::json!({"targets": targets, "access": access});
    server.here().put("/api/v1/config", &config).is(200);
    let portal = server.portal.to_string();
    let said = lunaport(&server, &[], &["health", "--portal", &portal]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let told = said.out.split("serves ").nth(1).unwrap();
    assert_eq!(told.trim().split(", ").count(), 300);
}
