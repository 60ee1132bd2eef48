//! Stores over their life: filled with zeroes, copied, with holes and keys, and grown.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use common::http::Client;
use common::initiator::Login;
use common::{PATIENCE, Server, one_disk};
use serde_json::{Value, json};

const TARGET: &str = "iqn.2026-11.org.example:a";
const MIB: u64 = 1 << 20;

/// A file that is all holes but for what is written at an offset.
fn make_file(path: &Path, size: u64, at: u64, data: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(data, at).unwrap();
}

fn make_key(path: &Path, byte: u8) {
    let key: Vec<u8> = (0..64).map(|place| byte ^ place).collect();
    fs::write(path, key).unwrap();
}

fn adopt(here: &Client, id: &str, path: &str) {
    let store = json!({"id": id, "place": {"kind": "file", "path": path}});
    here.post("/api/v1/stores", &store).is(201);
}

fn clone(here: &Client, body: &Value) -> String {
    begun(here, "/api/v1/stores/one/clone", body)
}

fn zeroed(here: &Client, store: &Value) -> String {
    begun(here, "/api/v1/jobs", &json!({"kind": "zero", "store": store}))
}

/// Where the job is that a request begins.
fn begun(here: &Client, path: &str, body: &Value) -> String {
    let answer = here.post(path, body);
    let place = answer.header("location").map(ToOwned::to_owned);
    answer.is(202);
    place.unwrap()
}

/// Waits until a job is what it is to be.
fn ended(here: &Client, job: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = here.get(job).is(200);
        if shown["state"] != "running" {
            return shown;
        }
        assert!(Instant::now() < deadline, "it never ends: {shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_copy_has_the_content_and_the_holes_and_is_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    make_file(&directory.path().join("one.img"), 64 * MIB, 10 * MIB, &data);
    adopt(&here, "one", "one.img");
    let job = clone(&here, &json!({"id": "two", "path": "two.img"}));
    let shown = ended(&here, &job);
    assert_eq!(
        (&shown["state"], &shown["kind"]),
        (&json!("done"), &json!("clone"))
    );
    assert_eq!(
        (&shown["done"], &shown["total"]),
        (&json!(64 * MIB), &json!(64 * MIB))
    );
    let copy = directory.path().join("two.img");
    assert_eq!(
        fs::read(&copy).unwrap(),
        fs::read(directory.path().join("one.img")).unwrap()
    );
    assert!(
        fs::metadata(&copy).unwrap().blocks() * 512 < 8 * MIB,
        "holes stay holes"
    );
    assert!(!directory.path().join("two.img.partial").exists());
    let store = here.get("/api/v1/stores/two").is(200);
    assert_eq!(store["place"]["path"], "two.img");
    let stores = here.get("/api/v1/status").is(200)["stores"].clone();
    assert_eq!(stores[1]["condition"], "open");
    here.delete("/api/v1/stores/one").is(204);
    here.delete(&job).is(204);
    assert_eq!(
        here.get(&job).is(200)["state"],
        "done",
        "what has ended cannot be cancelled"
    );
    here.get("/api/v1/jobs/none").is(404);
    here.delete("/api/v1/jobs/none").is(204);
    let told = here.get("/api/v1/events?kind=job-ended").is(200);
    assert!(
        told["items"][0]["text"]
            .as_str()
            .unwrap()
            .contains("store two is made")
    );
}

#[test]
fn a_copy_that_cannot_be_made_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    make_file(&directory.path().join("one.img"), MIB, 0, b"content");
    make_file(&directory.path().join("there.img"), MIB, 0, b"somebody's");
    adopt(&here, "one", "one.img");
    let memory = json!({"id": "memory", "place": {"kind": "memory", "size": MIB}});
    here.post("/api/v1/stores", &memory).is(201);
    here.post(
        "/api/v1/stores/none/clone",
        &json!({"id": "two", "path": "two.img"}),
    )
    .is(404);
    here.post(
        "/api/v1/stores/memory/clone",
        &json!({"id": "two", "path": "two.img"}),
    )
    .is(422);
    for (id, path, status) in [
        ("one", "two.img", 409),
        ("two", "one.img", 422),
        ("two", "there.img", 422),
        ("two", "../two.img", 422),
        ("two", "nowhere/two.img", 422),
    ] {
        let refused = here.post("/api/v1/stores/one/clone", &json!({"id": id, "path": path}));
        let problem = refused.is(status);
        assert!(problem["fix"].is_string(), "{problem}");
    }
    let content = fs::read(directory.path().join("there.img")).unwrap();
    assert!(content.starts_with(b"somebody's"));
    here.get("/api/v1/stores/two").is(404);
    assert!(!directory.path().join("two.img").exists());
}

#[test]
fn a_store_filled_with_zeroes_has_all_its_space_and_is_there_when_the_job_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    make_key(&directory.path().join("key"), 0x55);
    let place = |id: &str| json!({"kind": "file", "path": format!("{id}.img"), "size": 3 * MIB + 4096});
    for (id, more) in [
        ("plain", json!({})),
        ("secret", json!({"encrypt": "key"})),
        ("tagged", json!({"protection": true})),
    ] {
        let mut store = json!({"id": id, "place": place(id)});
        let fields = more.as_object().unwrap().clone();
        store.as_object_mut().unwrap().extend(fields);
        let shown = ended(&here, &zeroed(&here, &store));
        assert_eq!(
            (&shown["state"], &shown["kind"]),
            (&json!("done"), &json!("zero")),
            "{shown}"
        );
        assert_eq!(shown["done"], 3 * MIB + 4096);
        let metadata = fs::metadata(directory.path().join(format!("{id}.img"))).unwrap();
        assert_eq!(metadata.len(), 3 * MIB + 4096);
        assert!(metadata.blocks() * 512 >= 3 * MIB + 4096, "{id} has holes");
        let status = here.get("/api/v1/status").is(200);
        let stores = status["stores"].as_array().unwrap();
        let store = stores.iter().find(|store| store["id"] == id).unwrap();
        assert_eq!(store["condition"], "open");
    }
    let plain = fs::read(directory.path().join("plain.img")).unwrap();
    assert!(plain.iter().all(|byte| *byte == 0));
    let left = fs::read_dir(directory.path()).unwrap();
    let left = left.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .to_string_lossy()
            .contains("partial")
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn what_a_killed_program_was_making_is_gone_after_its_next_start_which_tells_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut server = Server::start(directory.path());
    for id in ["ours", "changed"] {
        let place = json!({"kind": "file", "path": format!("{id}.img"), "size": 2048 * MIB});
        zeroed(&server.here(), &json!({"id": id, "place": place}));
    }
    // From when it is written down which files are made.
    let written_down = || {
        let records = fs::read_dir(at("making")).into_iter().flatten();
        let records = records.map(|record| record.unwrap().path());
        let records = records.filter(|record| record.extension().is_none());
        let texts = records.filter_map(|record| fs::read_to_string(record).ok());
        texts.filter(|text| text.contains("inode")).count()
    };
    let deadline = Instant::now() + PATIENCE;
    while written_down() < 2 {
        assert!(Instant::now() < deadline, "it never begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill();
    assert!(at("ours.img.partial").exists() && at("changed.img.partial").exists());
    fs::write(at("other"), "somebody's").unwrap();
    fs::rename(at("other"), at("changed.img.partial")).unwrap();

    let server = Server::start(directory.path());
    let here = server.here();
    assert!(!at("ours.img.partial").exists());
    assert_eq!(fs::read(at("changed.img.partial")).unwrap(), b"somebody's");
    let jobs = here.get("/api/v1/jobs").is(200)["items"].clone();
    let told = |id: &str| {
        let subject = format!("stores/{id}");
        let mut jobs = jobs.as_array().unwrap().iter();
        let job = jobs.find(|job| job["subject"] == subject).unwrap().clone();
        assert_eq!(
            (&job["state"], &job["kind"]),
            (&json!("failed"), &json!("zero")),
            "{job}"
        );
        job["problem"].as_str().unwrap().to_owned()
    };
    assert!(told("ours").contains("nothing of it is left"), "{}", told("ours"));
    assert!(
        told("changed").contains("may be left of it: remove it"),
        "{}",
        told("changed")
    );
    let place = json!({"kind": "file", "path": "changed.img", "size": MIB});
    let again = json!({"kind": "zero", "store": {"id": "changed", "place": place}});
    let problem = here.post("/api/v1/jobs", &again).is(422);
    assert!(
        problem["fix"].as_str().unwrap().contains("remove that"),
        "{problem}"
    );
    fs::remove_file(at("changed.img.partial")).unwrap();
    drop(server);
    Server::start(directory.path());
    assert_eq!(fs::read_dir(at("making")).unwrap().count(), 0);
}

#[test]
fn zeroing_that_is_cancelled_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    let place = json!({"kind": "file", "path": "one.img", "size": 4096 * MIB});
    let store = json!({"id": "one", "protection": true, "place": place});
    let job = zeroed(&here, &store);
    let shown = here.get(&job).is(200);
    assert_eq!(
        (&shown["state"], &shown["cancellable"]),
        (&json!("running"), &json!(true))
    );
    here.get("/api/v1/stores/one").is(404);
    let again = json!({"kind": "zero", "store": store});
    here.post("/api/v1/jobs", &again).is(422);
    here.delete(&job).is(204);
    let shown = ended(&here, &job);
    assert_eq!(shown["state"], "cancelled");
    assert!(shown["done"].as_u64().unwrap() < 4096 * MIB);
    here.get("/api/v1/stores/one").is(404);
    let left = fs::read_dir(directory.path()).unwrap();
    let left: Vec<_> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!left.iter().any(|name| name.starts_with("one")), "{left:?}");
}

#[test]
fn what_cannot_be_filled_with_zeroes_is_refused_before_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    make_file(&directory.path().join("there.img"), MIB, 0, b"somebody's");
    adopt(&here, "one", "there.img");
    let file = |path: &str, size: u64| json!({"kind": "file", "path": path, "size": size});
    for (id, place, status, path) in [
        ("one", file("two.img", MIB), 409, ""),
        ("two", file("there.img", MIB), 422, "stores/two/place/path"),
        ("two", file("two.img", 1 << 60), 422, "stores/two/place/size"),
        ("two", file("two.img", 1000), 422, "stores/two/place/size"),
        ("two", file("db/two.img", MIB), 422, "stores/two/place/path"),
        (
            "two",
            json!({"kind": "file", "path": "two.img"}),
            422,
            "stores/two/place/size",
        ),
        (
            "two",
            json!({"kind": "memory", "size": MIB}),
            422,
            "stores/two/place",
        ),
    ] {
        let store = json!({"id": id, "place": place});
        let body = json!({"kind": "zero", "store": store});
        let problem = here.post("/api/v1/jobs", &body).is(status);
        if status == 422 {
            assert_eq!(problem["problems"][0]["path"], path, "{problem}");
        }
    }
    assert_eq!(here.get("/api/v1/jobs").is(200)["total"], 0);
    let content = fs::read(directory.path().join("there.img")).unwrap();
    assert!(content.starts_with(b"somebody's"));
}

#[test]
fn folders_for_disks_are_listed_with_the_space_that_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    let root = tempfile::tempdir().unwrap();
    let roots = json!({"store_roots": [root.path(), "/nowhere/at/all"]});
    here.put("/api/v1/settings", &roots).is(200);
    let found = here.get("/api/v1/store-roots").is(200);
    let paths: Vec<_> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["path"])
        .collect();
    assert_eq!(
        paths,
        [
            &json!(root.path()),
            &json!("/nowhere/at/all"),
            &json!(directory.path())
        ]
    );
    assert!(found["items"][0]["free"].as_u64().unwrap() > 0);
    assert!(found["items"][1]["free"].is_null());
}

/// A copy under another key shares nothing, whatever the file system can do.
#[test]
fn a_copy_can_have_a_key_and_that_of_an_encrypted_store_needs_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    make_file(&directory.path().join("one.img"), 4 * MIB, MIB, &[b'x'; 5000]);
    make_key(&directory.path().join("first.key"), 0x11);
    make_key(&directory.path().join("second.key"), 0x22);
    adopt(&here, "one", "one.img");
    let job = clone(
        &here,
        &json!({"id": "two", "path": "two.img", "encrypt": "first.key"}),
    );
    assert_eq!(ended(&here, &job)["state"], "done");
    let copy = fs::read(directory.path().join("two.img")).unwrap();
    assert_eq!(copy.len() as u64, 4 * MIB);
    assert!(
        !copy.windows(100).any(|window| window == [b'x'; 100]),
        "it is readable"
    );
    let back = json!({"id": "three", "path": "three.img"});
    let problem = here.post("/api/v1/stores/two/clone", &back).is(422);
    assert_eq!(problem["problems"][0]["path"], "encrypt");
    let with_key = json!({"id": "three", "path": "three.img", "encrypt": "second.key"});
    let begun = here.post("/api/v1/stores/two/clone", &with_key).is(202);
    let job = format!("/api/v1/jobs/{}", begun["id"].as_str().unwrap());
    assert_eq!(ended(&here, &job)["state"], "done");
    assert_ne!(fs::read(directory.path().join("three.img")).unwrap(), copy);
}

/// Enough to copy that something can happen meanwhile.
fn long_copy(directory: &Path, here: &Client) {
    here.put("/api/v1/config", &one_disk(TARGET)).is(200);
    let path = directory.join("one.img");
    make_file(&path, 512 * MIB, 0, &vec![0x5a; 256 << 20]);
    make_key(&directory.join("key"), 0x33);
    here.patch("/api/v1/stores/one", &json!({"place": {"size": 512 * MIB}}))
        .is(200);
}

const ENCRYPTED: &str = r#"{"id": "two", "path": "two.img", "encrypt": "key"}"#;

#[test]
fn a_copy_that_is_cancelled_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    long_copy(directory.path(), &here);
    let body: Value = serde_json::from_str(ENCRYPTED).unwrap();
    let job = clone(&here, &body);
    let shown = here.get(&job).is(200);
    assert_eq!(
        (&shown["state"], &shown["cancellable"]),
        (&json!("running"), &json!(true))
    );
    here.post("/api/v1/stores/one/clone", &body).is(422);
    here.delete(&job).is(204);
    let shown = ended(&here, &job);
    assert_eq!(shown["state"], "cancelled");
    assert!(shown["done"].as_u64().unwrap() < 512 * MIB);
    here.get("/api/v1/stores/two").is(404);
    for left in ["two.img", "two.img.partial"] {
        assert!(!directory.path().join(left).exists(), "{left}");
    }
}

#[test]
fn a_copy_by_pieces_is_of_one_moment_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    long_copy(directory.path(), &here);
    let body: Value = serde_json::from_str(ENCRYPTED).unwrap();
    let session = Login::to(TARGET).at(server.portal).unwrap();
    let problem = here.post("/api/v1/stores/one/clone", &body).is(409);
    assert_eq!(problem["in_use"][0]["forcible"], false, "{problem}");
    drop(session);
    let deadline = Instant::now() + PATIENCE;
    while here.get("/api/v1/sessions").is(200)["total"] != 0 {
        assert!(Instant::now() < deadline);
    }
    let job = clone(&here, &body);
    let _session = Login::to(TARGET).at(server.portal).unwrap();
    let shown = ended(&here, &job);
    assert_eq!(shown["state"], "failed");
    assert!(
        shown["problem"].as_str().unwrap().contains("logged in"),
        "{shown}"
    );
    assert!(!directory.path().join("two.img.partial").exists());
}

#[test]
fn encrypted_and_protected_stores_grow_while_sessions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let here = server.here();
    make_key(&directory.path().join("key"), 0x44);
    let store = |id: &str, more: Value| {
        let mut store =
            json!({"id": id, "place": {"kind": "file", "path": format!("{id}.img"), "size": MIB}});
        store
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        store
    };
    let document = json!({
        "targets": [{"name": TARGET}],
        "stores": [store("secret", json!({"encrypt": "key"})), store("tagged", json!({"protection": true}))],
        "units": [{"id": "secret", "store": "secret"}, {"id": "tagged", "store": "tagged"}],
        "luns": [{"target": TARGET, "lun": 0, "unit": "secret"}, {"target": TARGET, "lun": 1, "unit": "tagged"}],
        "access": [{"id": "any", "target": TARGET, "any": true}],
    });
    here.put("/api/v1/config", &document).is(200);
    let _session = Login::to(TARGET).at(server.portal).unwrap();
    for id in ["secret", "tagged"] {
        let larger = json!({"place": {"size": 3 * MIB}});
        here.patch(&format!("/api/v1/stores/{id}"), &larger).is(200);
        let smaller = json!({"place": {"size": 2 * MIB}});
        here.patch(&format!("/api/v1/stores/{id}"), &smaller).is(422);
    }
    let status = here.get("/api/v1/status").is(200);
    for store in status["stores"].as_array().unwrap() {
        assert_eq!(store["size"], 3 * MIB, "{store}");
    }
    assert_eq!(here.get("/api/v1/sessions").is(200)["total"], 1);
}
