//! States of target port groups that an initiator set: they hold over a kill, and an administrator sees and resets them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod initiator;

use common::{Server, one_disk};
use initiator::Initiator;
use serde_json::json;

const TARGET: &str = "iqn.2026-11.org.example:a";
const STATES: &str = "/api/v1/access-states/iqn.2026-11.org.example:a";

fn host(server: &Server, isid: u8) -> Initiator {
    let mut host = Initiator::log_in(&server.portal.to_string(), TARGET, isid);
    // The unit attention of a new nexus.
    assert_eq!(host.command(&[0; 6], 0, &[]).sense(), (6, 0x29, 0));
    host
}

/// SET TARGET PORT GROUPS for group 1.
fn set(host: &mut Initiator, state: u8) {
    let list = [0, 0, 0, 0, state, 0, 0, 1];
    let end = host.command(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], 0, &list);
    assert_eq!(end.status, 0);
}

/// State and STATUS CODE of group 1 (REPORT TARGET PORT GROUPS).
fn reported(host: &mut Initiator) -> (u8, u8) {
    let end = host.command(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64, &[]);
    assert_eq!(end.data[..4], [0, 0, 0, 12], "one group");
    (end.data[4] & 0x0f, end.data[9])
}

#[test]
fn what_an_initiator_was_told_is_so_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    server.here().put("/api/v1/config", &one_disk(TARGET)).is(200);
    assert_eq!(reported(&mut host(&server, 1)), (0, 0));
    // Each state is acknowledged, and the program killed at once.
    for state in [1, 2, 3, 0] {
        let mut by = host(&server, 1);
        set(&mut by, state);
        server.kill();
        server = Server::start(directory.path());
        assert_eq!(reported(&mut host(&server, 1)), (state, 1), "explicitly");
    }
}

#[test]
fn an_administrator_sees_who_set_a_state_and_takes_it_back_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let here = server.here();
    here.put("/api/v1/config", &one_disk(TARGET)).is(200);
    let as_configured = json!({"target": TARGET, "groups": [{"group": 1, "state": "optimized"}]});
    assert_eq!(here.get(STATES).is(200), as_configured);
    here.get("/api/v1/access-states/none").is(404);
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    set(&mut one, 2);
    assert_eq!(two.command(&[0; 6], 0, &[]).sense(), (6, 0x2a, 0x06));
    assert_eq!(two.command(&[0x28; 1], 512, &[]).sense(), (2, 0x04, 0x0b));
    let set = json!({"group": 1, "state": "standby", "set_by": "initiator"});
    assert_eq!(here.get(STATES).is(200)["groups"], json!([set]));
    assert_eq!(
        here.get("/api/v1/access-states").is(200)["items"][0]["groups"],
        json!([set])
    );
    here.delete(STATES).is(204);
    for host in [&mut one, &mut two] {
        assert_eq!(host.command(&[0; 6], 0, &[]).sense(), (6, 0x2a, 0x06));
        assert_eq!(reported(host), (0, 2), "implicitly");
    }
    let audit = here.get("/api/v1/events?kind=access-states-reset").is(200);
    assert_eq!(audit["items"][0]["data"]["before"]["groups"], json!([set]));
    server.kill();
    let server = Server::start(directory.path());
    assert_eq!(server.here().get(STATES).is(200), as_configured);
}

#[test]
fn a_target_of_the_name_of_a_deleted_one_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    here.put("/api/v1/config", &one_disk(TARGET)).is(200);
    set(&mut host(&server, 1), 2);
    let kept = directory.path().join(format!("units/{TARGET}.access-states"));
    assert!(kept.exists());
    here.delete(&format!("/api/v1/targets/{TARGET}?force")).is(204);
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while kept.exists() {
        assert!(std::time::Instant::now() < deadline, "it is kept still");
        std::thread::yield_now();
    }
}

#[test]
fn a_damaged_state_is_named_and_the_target_is_served_as_configured() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    server.here().put("/api/v1/config", &one_disk(TARGET)).is(200);
    set(&mut host(&server, 1), 2);
    server.kill();
    let kept = directory.path().join(format!("units/{TARGET}.access-states"));
    std::fs::write(&kept, "1=2").unwrap();
    let mut server = Server::start(directory.path());
    let said = server.said.join("\n");
    assert!(said.contains("access-states") && said.contains(TARGET), "{said}");
    assert_eq!(reported(&mut host(&server, 1)), (0, 0));
    server.kill();
}
