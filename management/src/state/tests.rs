//! What survives: reopening, torn files, damage; and what is refused.

use serde_json::json;

use super::*;
use crate::model::AnyObject;

fn sevens(bytes: &mut [u8]) {
    bytes.fill(7);
}

fn open(directory: &Path) -> (State, Model) {
    State::open(directory, sevens).unwrap()
}

fn with_group(before: &Model, id: &str) -> Model {
    let mut after = before.clone();
    after.generation += 1;
    let generation = after.generation;
    let group = AnyObject::parse(Kind::Group, json!({"id": id, "description": "x".repeat(100)})).unwrap();
    group.put(&mut after, generation);
    after
}

/// A directory with `count` groups in it, closed.
fn filled(count: usize) -> (tempfile::TempDir, Model) {
    let directory = tempfile::tempdir().unwrap();
    let (mut state, mut model) = open(directory.path());
    for number in 0..count {
        let after = with_group(&model, &format!("g{number}"));
        state.commit(&model, &after).unwrap();
        model = after;
    }
    (directory, model)
}

#[test]
fn what_was_saved_is_there_after_reopening() {
    let (directory, model) = filled(3);
    let (state, found) = open(directory.path());
    assert_eq!(found, model);
    assert_eq!(found.generation, 3);
    assert_eq!(state.installation(), InstallationId([7; 16]));
    drop(state);
    let (state, _) = State::open(directory.path(), |bytes| bytes.fill(9)).unwrap();
    assert_eq!(state.installation(), InstallationId([7; 16]), "made once");
}

#[test]
fn secrets_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (mut state, before) = open(directory.path());
    let mut after = before.clone();
    after.generation = 1;
    let credential = json!({"id": "c", "name": "n", "secret": "a long enough secret"});
    AnyObject::parse(Kind::Credential, credential)
        .unwrap()
        .put(&mut after, 1);
    state.commit(&before, &after).unwrap();
    drop(state);
    let (_state, found) = open(directory.path());
    let secret = found.credentials["c"].value.secret.as_ref().unwrap();
    assert_eq!(secret.expose(), "a long enough secret");
}

#[test]
fn a_second_process_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path());
    let message = State::open(directory.path(), sevens).unwrap_err().to_string();
    assert!(message.contains("another lunaport uses it"), "{message}");
}

#[test]
fn a_lock_that_is_about_to_go_is_waited_for() {
    let (directory, model) = filled(1);
    let lock = File::open(directory.path().join("db/db")).unwrap();
    lock.lock().unwrap();
    let opened = std::thread::scope(|scope| {
        let opening = scope.spawn(|| State::open(directory.path(), sevens));
        std::thread::sleep(std::time::Duration::from_millis(200));
        lock.unlock().unwrap();
        opening.join().unwrap()
    });
    assert_eq!(opened.unwrap().1, model);
}

#[test]
fn a_half_written_snapshot_does_not_keep_the_state_from_opening() {
    let (directory, model) = filled(2);
    fs::write(
        directory.path().join("db/snap.00000000000000FF.generating"),
        b"torn",
    )
    .unwrap();
    assert_eq!(open(directory.path()).1, model);
}

#[test]
fn nine_older_copies_are_kept_and_nobody_else_may_read_them() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, _) = filled(12);
    let generation = |name: &str| {
        let text = fs::read_to_string(directory.path().join(name)).unwrap();
        text.lines().next().unwrap().split(',').nth(1).unwrap().to_owned()
    };
    assert_eq!(generation("state.json"), "\"generation\":12");
    assert_eq!(generation("state.json.1"), "\"generation\":11");
    assert_eq!(generation("state.json.9"), "\"generation\":3");
    assert!(!directory.path().join("state.json.10").exists());
    let mode = fs::metadata(directory.path().join("state.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_truncated_database_is_made_anew_from_the_copy_and_loses_nothing() {
    let (directory, model) = filled(40);
    let log = directory.path().join("db/db");
    for len in [0, 100, fs::metadata(&log).unwrap().len() / 2] {
        File::options()
            .write(true)
            .open(&log)
            .unwrap()
            .set_len(len)
            .unwrap();
        let (_state, found) = open(directory.path());
        assert_eq!(found.groups.len(), 40, "cut to {len}");
        assert_eq!(found, model);
    }
}

#[test]
fn flipped_bytes_in_the_database_are_noticed_or_harmless() {
    let (directory, model) = filled(20);
    let log = directory.path().join("db/db");
    let whole = fs::read(&log).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 17) {
        drop(fs::remove_dir_all(directory.path().join("db")));
        fs::create_dir(directory.path().join("db")).unwrap();
        let mut spoiled = whole.clone();
        spoiled[at] ^= 0xff;
        fs::write(&log, &spoiled).unwrap();
        assert_eq!(open(directory.path()).1, model, "byte {at}");
    }
}

#[test]
fn a_database_that_is_gone_is_made_anew_from_the_copy() {
    let (directory, model) = filled(5);
    fs::remove_dir_all(directory.path().join("db")).unwrap();
    assert_eq!(open(directory.path()).1, model);
}

#[test]
fn a_damaged_copy_does_no_harm_while_the_database_is_whole() {
    let (directory, model) = filled(5);
    fs::write(directory.path().join("state.json"), b"{}\n").unwrap();
    assert_eq!(open(directory.path()).1, model);
}

#[test]
fn damage_to_both_is_told_and_nothing_starts_empty() {
    let (directory, _) = filled(5);
    fs::remove_dir_all(directory.path().join("db")).unwrap();
    let copy = directory.path().join("state.json");
    let mut text = fs::read(&copy).unwrap();
    let last = text.len() - 10;
    text[last] ^= 1;
    fs::write(&copy, text).unwrap();
    let message = State::open(directory.path(), sevens).unwrap_err().to_string();
    assert!(
        message.contains("damaged") && message.contains("state.json.N"),
        "{message}"
    );
    assert!(
        State::open(directory.path(), sevens).is_err(),
        "nor the second time"
    );
    fs::copy(directory.path().join("state.json.1"), &copy).unwrap();
    assert_eq!(open(directory.path()).1.generation, 4, "as the message said");
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let (directory, _) = filled(1);
    {
        let database = Database::open(directory.path()).unwrap();
        database
            .replace(InstallationId([1; 16]), &Model::default())
            .unwrap();
    }
    let tree = sled::open(directory.path().join("db")).unwrap();
    tree.insert("format/version", b"3").unwrap();
    tree.flush().unwrap();
    drop(tree);
    fs::remove_file(directory.path().join("state.json")).unwrap();
    let message = State::open(directory.path(), sevens).unwrap_err().to_string();
    assert!(message.contains("version 3"), "{message}");
}
