//! A configuration of many targets: applied, compared, refused, found again. Deadlines are three times what a
//! release build has to keep.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::Server;
use common::initiator::discover;
use serde_json::{Value, json};

const LUNS: usize = 4;
const APPLIED: Duration = Duration::from_secs(3 * 10);
const SERVED_AGAIN: Duration = Duration::from_secs(3 * 3);

fn name(number: usize) -> String {
    format!("iqn.2026-11.org.example:t{number:04}")
}

/// Targets that everybody may use, each with four sparse disks of 1 GiB.
fn document(targets: usize) -> Value {
    let disks = || (0..targets).flat_map(|target| (0..LUNS).map(move |lun| (target, lun)));
    let disk = |(target, lun): (usize, usize)| format!("d{target:04}-{lun}");
    let store = |at| {
        let place = json!({"kind": "file", "path": format!("{}.img", disk(at)), "size": 1_u64 << 30});
        json!({"id": disk(at), "place": place})
    };
    json!({
        "targets": (0..targets).map(|target| json!({"name": name(target)})).collect::<Vec<_>>(),
        "stores": disks().map(store).collect::<Vec<_>>(),
        "units": disks().map(|at| json!({"id": disk(at), "store": disk(at)})).collect::<Vec<_>>(),
        "luns": disks()
            .map(|at| json!({"target": name(at.0), "lun": at.1, "unit": disk(at)}))
            .collect::<Vec<_>>(),
        "access": (0..targets)
            .map(|target| json!({"id": format!("a{target:04}"), "target": name(target), "any": true}))
            .collect::<Vec<_>>(),
    })
}

/// What a diff of the whole has to name, no more and no less.
fn paths(document: &Value) -> BTreeSet<String> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap().to_owned();
    let mut paths = BTreeSet::new();
    for (kind, objects) in document.as_object().unwrap() {
        for object in objects.as_array().unwrap() {
            let key = match kind.as_str() {
                "targets" => text(object, "name"),
                "luns" => format!("{}/{}", text(object, "target"), object["lun"]),
                _ => text(object, "id"),
            };
            paths.insert(format!("create {kind}/{key}"));
        }
    }
    paths
}

fn differences(diff: &Value) -> BTreeSet<String> {
    let differences = diff["differences"].as_array().unwrap().iter();
    let line = |it: &Value| {
        format!(
            "{} {}",
            it["action"].as_str().unwrap(),
            it["path"].as_str().unwrap()
        )
    };
    differences.map(line).collect()
}

fn targets_found(server: &Server) -> BTreeSet<String> {
    let records = discover(server.portal);
    let names = records
        .iter()
        .filter_map(|record| record.strip_prefix("TargetName="));
    names.map(ToOwned::to_owned).collect()
}

fn images(server: &Server) -> usize {
    let entries = std::fs::read_dir(&server.directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".img")).count()
}

/// `LUNAPORT_SCALE` is the number of targets; ./check asks a release build for a thousand.
#[test]
fn many_targets_are_applied_in_one_change_and_served_again_after_a_kill() {
    let targets = std::env::var("LUNAPORT_SCALE").map_or(200, |targets| targets.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path());
    let here = server.here();
    let whole = document(targets);

    let too_few = (targets * LUNS) as u64;
    server.limit_open_files(too_few);
    let problem = here.put("/api/v1/config", &whole).is(422);
    let told = problem["problems"][0]["problem"].as_str().unwrap();
    assert!(told.contains(&format!("(ulimit -n) is {too_few}")), "{problem}");
    assert_eq!(problem["problems"][0]["path"], "stores");
    server.limit_open_files(20_000);

    let mut wrong = whole.clone();
    let place = targets * LUNS / 2;
    let lun = wrong["luns"][place].clone();
    wrong["luns"][place]["unit"] = "nowhere".into();
    let problem = here.put("/api/v1/config", &wrong).is(422);
    let path = format!("luns/{}/{}/unit", lun["target"].as_str().unwrap(), lun["lun"]);
    assert_eq!(problem["problems"].as_array().unwrap().len(), 1, "{problem}");
    assert_eq!(problem["problems"][0]["path"], path);
    assert_eq!(here.get("/api/v1/status").is(200)["generation"], 0);
    assert_eq!(images(&server), 0, "nothing is made for what is refused");

    let dry = here.put("/api/v1/config?dry-run", &whole).is(200);
    assert_eq!(differences(&dry), paths(&whole));
    assert_eq!(images(&server), 0);

    let began = Instant::now();
    let applied = here.put("/api/v1/config", &whole).is(200);
    let took = began.elapsed();
    println!("{targets} targets with {LUNS} LUNs each: applied in {took:?}");
    assert_eq!(differences(&applied), paths(&whole));
    assert!(took < APPLIED, "applied in {took:?}");
    let expected: BTreeSet<String> = (0..targets).map(name).collect();
    assert_eq!(targets_found(&server), expected);

    server.kill();
    let began = Instant::now();
    let server = Server::start_limited(directory.path(), 20_000);
    let found = targets_found(&server);
    let took = began.elapsed();
    println!("served again in {took:?}");
    assert_eq!(found, expected);
    assert!(took < SERVED_AGAIN, "served again in {took:?}");
    let again = server.here().put("/api/v1/config", &whole).is(200);
    assert_eq!(again["differences"], json!([]));
    let stores = server.here().get("/api/v1/status").is(200)["stores"].clone();
    let open = stores
        .as_array()
        .unwrap()
        .iter()
        .filter(|store| store["condition"] == "open");
    assert_eq!(open.count(), targets * LUNS);
}
