//! Portal groups: a target is found and reached by its own portals, and by no others.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::initiator::{Login, discover};
use common::{PATIENCE, Server, free_address, one_disk};
use iscsi_proto::pdu::LoginStatus;
use serde_json::{Value, json};

const TARGET: &str = "iqn.2026-11.org.example:a";
const PATH: &str = "/api/v1/targets/iqn.2026-11.org.example:a";

/// One disk, and a portal of group 7 beside the start's of group 1.
fn with_two_groups() -> (tempfile::TempDir, Server, std::net::SocketAddr) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let seventh = free_address();
    let here = server.here();
    here.put("/api/v1/config", &one_disk(TARGET)).is(200);
    let portal = json!({"id": "seventh", "address": seventh.to_string(), "portal_group": 7});
    here.post("/api/v1/portals", &portal).is(201);
    (directory, server, seventh)
}

#[test]
fn a_target_that_names_no_groups_is_found_and_reached_by_every_portal() {
    let (_directory, server, seventh) = with_two_groups();
    let first = server.portal;
    let mut found = discover(first);
    found.sort();
    let mut expected = vec![
        format!("TargetAddress={first},1"),
        format!("TargetAddress={seventh},7"),
        format!("TargetName={TARGET}"),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let _one = Login::to(TARGET).at(first).unwrap();
    let _seven = Login::to(TARGET).at(seventh).unwrap();
    assert_eq!(
        server.here().get("/api/v1/sessions").is(200)["total"],
        2,
        "two nexuses"
    );
}

#[test]
fn a_target_is_reached_by_the_portals_of_its_groups_alone() {
    let (_directory, server, seventh) = with_two_groups();
    let (first, here) = (server.portal, server.here());
    here.patch(PATH, &json!({"portal_groups": [7]})).is(200);
    assert_eq!(
        discover(first),
        [
            format!("TargetName={TARGET}"),
            format!("TargetAddress={seventh},7")
        ]
    );
    assert_eq!(Login::to(TARGET).at(first).err(), Some(LoginStatus::NotFound));
    assert!(Login::to(TARGET).at(seventh).is_ok());
    let failure = noted_failure(&server);
    assert!(
        failure["reason"]
            .as_str()
            .unwrap()
            .contains("is not reached by the portal"),
        "{failure}"
    );
    assert!(
        failure["fix"].as_str().unwrap().contains("portal group"),
        "{failure}"
    );
    // Without a portal of its group nobody finds it, and the status says so.
    here.delete("/api/v1/portals/seventh").is(204);
    assert_eq!(discover(first), Vec::<String>::new());
    let status = here.get("/api/v1/status").is(200);
    assert!(
        status["alerts"][0]
            .as_str()
            .unwrap()
            .contains("no portal leads to"),
        "{status}"
    );
    for wrong in [json!([0]), json!([1, 1])] {
        let problem = here.patch(PATH, &json!({"portal_groups": wrong})).is(422);
        assert_eq!(
            problem["problems"][0]["path"],
            format!("targets/{TARGET}/portal_groups")
        );
    }
}

/// The newest failure. It is noted after the refusal went out.
fn noted_failure(server: &Server) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let newest = server.here().get("/api/v1/login-failures").is(200)["items"][0].clone();
        if newest.is_object() {
            return newest;
        }
        assert!(Instant::now() < deadline, "the failed login is not listed");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sessions_of_a_group_that_is_taken_away_are_named_and_the_others_go_on() {
    let (_directory, server, seventh) = with_two_groups();
    let here = server.here();
    let one = Login::to(TARGET).at(server.portal).unwrap();
    let seven = Login::to(TARGET).at(seventh).unwrap();
    let only_one = json!({"portal_groups": [1]});
    let problem = here.patch(PATH, &only_one).is(409);
    let uses = problem["in_use"].as_array().unwrap();
    assert_eq!(uses[0]["path"], format!("targets/{TARGET}/portal_groups"));
    assert_eq!(uses[0]["sessions"].as_array().unwrap().len(), 1, "{problem}");
    here.patch(&format!("{PATH}?force"), &only_one).is(200);
    assert!(seven.was_closed());
    assert_eq!(here.get("/api/v1/sessions").is(200)["total"], 1);
    drop(one);
}

#[test]
fn groups_and_their_target_ports_are_the_same_after_a_restart() {
    let (directory, server, _) = with_two_groups();
    server
        .here()
        .patch(PATH, &json!({"portal_groups": [7, 1]}))
        .is(200);
    drop(server);
    let server = Server::start(directory.path());
    let here = server.here();
    assert_eq!(here.get("/api/v1/portals/seventh").is(200)["portal_group"], 7);
    assert_eq!(here.get(PATH).is(200)["portal_groups"], json!([7, 1]));
    let found = discover(server.portal);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|record| record.ends_with(",7")), "{found:?}");
}
