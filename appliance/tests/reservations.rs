//! Reservations as an administrator sees them, and clears them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod initiator;

use common::{Server, one_disk};
use initiator::Initiator;
use serde_json::{Value, json};

const TARGET: &str = "iqn.2026-11.org.example:a";
const ONE: &str = "/api/v1/reservations/one";
const CONFLICT: u8 = 0x18;

/// PERSISTENT RESERVE OUT with a service action, a type, two keys and APTPL.
fn reserve_out(host: &mut Initiator, action: u8, kind: u8, key: u64, action_key: u64) -> u8 {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    list[20] = 1;
    host.command(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], 0, &list)
        .status
}

fn write(host: &mut Initiator) -> u8 {
    host.command(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[7; 512])
        .status
}

fn host(server: &Server, isid: u8) -> Initiator {
    let mut host = Initiator::log_in(&server.portal.to_string(), TARGET, isid);
    // The unit attention of a new nexus.
    assert_eq!(host.command(&[0; 6], 0, &[]).sense(), (6, 0x29, 0));
    host
}

/// Two hosts; the first is registered with a key and holds the disk for itself.
fn reserved(server: &Server) -> (Initiator, Initiator) {
    server.here().put("/api/v1/config", &one_disk(TARGET)).is(200);
    let (mut one, mut two) = (host(server, 1), host(server, 2));
    assert_eq!(reserve_out(&mut one, 0, 0, 0, 0xabcd), 0);
    assert_eq!(reserve_out(&mut one, 1, 1, 0xabcd, 0), 0);
    assert_eq!(reserve_out(&mut two, 0, 0, 0, 0x1234), 0);
    assert_eq!(write(&mut two), CONFLICT);
    (one, two)
}

fn registrant(of: &Value, key: &str) -> Value {
    let registrants = of["registrants"].as_array().unwrap();
    registrants.iter().find(|it| it["key"] == key).unwrap().clone()
}

#[test]
fn registrants_holder_type_and_aptpl_are_shown_by_unit() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    assert_eq!(
        here.get("/api/v1/reservations").is(200),
        json!({"items": [], "total": 0})
    );
    here.get("/api/v1/reservations/none").is(404);
    let _hosts = reserved(&server);
    let listed = here.get("/api/v1/reservations").is(200);
    let shown = here.get(ONE).is(200);
    assert_eq!((&listed["total"], &listed["items"][0]), (&json!(1), &shown));
    assert_eq!(shown["type"], "write-exclusive");
    assert_eq!(shown["aptpl"], true);
    assert_eq!(shown["luns"], json!([{"target": TARGET, "lun": 0}]));
    let one = registrant(&shown, "000000000000abcd");
    assert_eq!(one["initiator"], "iqn.2026-11.org.example:host");
    assert_eq!(
        (&one["isid"], &one["holder"]),
        (&json!("800000000001"), &json!(true))
    );
    assert_eq!(
        (&one["target"], &one["portal_group"]),
        (&json!(TARGET), &json!(1))
    );
    assert!(one["tsih"].is_u64());
    assert_eq!(registrant(&shown, "0000000000001234")["holder"], false);
}

#[test]
fn clearing_needs_force_while_registrants_are_there_and_lets_everybody_write_after() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    let (mut one, mut two) = reserved(&server);
    let problem = here.delete(ONE).is(409);
    assert_eq!(problem["type"], "urn:lunaport:in-use");
    assert_eq!(problem["in_use"][0]["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(write(&mut two), CONFLICT, "nothing was changed");
    here.delete(&format!("{ONE}?force")).is(204);
    here.delete(ONE).is(204);
    assert_eq!(here.get(ONE).is(200)["registrants"], json!([]));
    for host in [&mut one, &mut two] {
        let told = host.command(&[0; 6], 0, &[]).sense();
        assert_eq!(told, (6, 0x2a, 0x03), "RESERVATIONS PREEMPTED");
        assert_eq!(write(host), 0);
    }
    let audit = here.get("/api/v1/events?kind=reservations-cleared").is(200);
    assert_eq!(audit["items"][0]["data"]["before"]["type"], "write-exclusive");
    assert!(audit["items"][0]["actor"].as_str().unwrap().contains("uid"));
}

#[test]
fn what_a_host_left_behind_outlives_a_restart_and_is_cleared_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    drop(reserved(&server));
    server.kill();
    let mut server = Server::start(directory.path());
    let shown = server.here().get(ONE).is(200);
    assert_eq!(shown["type"], "write-exclusive");
    assert_eq!(registrant(&shown, "000000000000abcd")["tsih"], Value::Null);
    // Nobody is there who would lose anything.
    server.here().delete(ONE).is(204);
    server.kill();
    let server = Server::start(directory.path());
    assert_eq!(server.here().get(ONE).is(200)["registrants"], json!([]));
    assert_eq!(write(&mut host(&server, 2)), 0);
}

#[test]
fn what_is_kept_for_a_unit_that_is_switched_off_can_be_cleared() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    drop(reserved(&server));
    let off = json!({"enabled": false});
    here.patch("/api/v1/units/one?force", &off).is(200);
    let shown = here.get(ONE).is(200);
    assert_eq!(
        (&shown["aptpl"], &shown["type"]),
        (&json!(true), &json!("write-exclusive"))
    );
    here.delete(&format!("{ONE}?force")).is(204);
    here.patch("/api/v1/units/one", &json!({"enabled": true})).is(200);
    assert_eq!(write(&mut host(&server, 2)), 0);
}
