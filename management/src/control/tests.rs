//! Changes against a node without a network.

use std::path::Path;

use iscsi_proto::IscsiName;
use serde_json::json;
use target_core::control::Directory;

use super::*;
use crate::access::Actor;
use crate::document::Document;
use crate::live::Condition;
use crate::model::{AnyObject, Kind, Unit};

const TARGET: &str = "iqn.2026-11.org.example:a";

fn entropy(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap();
}

fn start(directory: &Path) -> Arc<Control> {
    let (state, model) = State::open(directory, entropy).unwrap();
    let node = Node::new(Directory::default(), entropy, Vec::new);
    let defaults = Defaults {
        base: directory.to_owned(),
        ..Defaults::default()
    };
    let accept = Accept::new(|listener| tokio::spawn(async move { drop(listener) }).abort_handle());
    Control::start(state, model, node, defaults, accept, entropy).unwrap()
}

fn put(kind: Kind, value: serde_json::Value) -> Edit {
    Edit::Put(AnyObject::parse(kind, value).unwrap())
}

fn disk(id: &str, size: u64) -> Vec<Edit> {
    let place = json!({"kind": "file", "path": format!("{id}.img"), "size": size});
    vec![
        put(Kind::Store, json!({"id": id, "place": place})),
        put(Kind::Unit, json!({"id": id, "store": id})),
    ]
}

fn served_disk() -> Vec<Edit> {
    let mut edits = vec![put(Kind::Target, json!({"name": TARGET}))];
    edits.extend(disk("one", 1 << 20));
    edits.push(put(Kind::Lun, json!({"target": TARGET, "lun": 3, "unit": "one"})));
    edits
}

fn luns(control: &Control) -> Vec<u16> {
    let name: IscsiName = TARGET.parse().unwrap();
    let directory = control.node().directory();
    directory.targets.get(&name).map_or_else(Vec::new, |target| {
        target
            .device
            .luns()
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    })
}

async fn change(control: &Arc<Control>, edits: Vec<Edit>) -> Result<Outcome, ChangeError> {
    control.change(&Actor::program(), Change::of(edits)).await
}

fn paths(result: Result<Outcome, ChangeError>) -> Vec<String> {
    match result.unwrap_err() {
        ChangeError::Invalid(problems) => problems.into_iter().map(|problem| problem.path).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_change_is_served_saved_and_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let outcome = change(&control, served_disk()).await.unwrap();
    assert_eq!(outcome.generation, 1);
    assert_eq!(luns(&control), [3]);
    let unit = control.model().get::<Unit>("one").cloned().unwrap();
    assert!(unit.naa.is_some() && unit.serial.is_some());
    drop(control);
    let control = start(directory.path());
    assert_eq!(luns(&control), [3]);
    assert_eq!(
        control.model().get::<Unit>("one"),
        Some(&unit),
        "identities are made once"
    );
}

#[tokio::test]
async fn a_refused_change_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let mut edits = served_disk();
    edits.extend(disk("two", 1 << 20));
    let missing = json!({"id": "three", "place": {"kind": "file", "path": "three.img"}});
    edits.push(put(Kind::Store, missing));
    assert_eq!(paths(change(&control, edits).await), ["stores/three/place"]);
    assert!(!directory.path().join("one.img").exists() && !directory.path().join("two.img").exists());
    assert_eq!(control.model().generation, 0);
    assert_eq!(luns(&control), Vec::<u16>::new());

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut edits = served_disk();
    edits.push(put(
        Kind::Portal,
        json!({"id": "p", "address": taken.local_addr().unwrap().to_string()}),
    ));
    assert_eq!(paths(change(&control, edits).await), ["portals/p/address"]);
    assert!(!directory.path().join("one.img").exists());
}

#[tokio::test]
async fn a_target_without_a_rule_admits_nobody_and_any_is_a_rule() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let admits = || {
        let name: IscsiName = TARGET.parse().unwrap();
        let target = control.node().directory().targets[&name].clone();
        target.access.admits(
            &"iqn.2026-11.org.example:host".parse().unwrap(),
            [192, 0, 2, 1].into(),
        )
    };
    assert!(!admits());
    let rule = json!({"id": "all", "target": TARGET, "any": true});
    change(&control, vec![put(Kind::Access, rule)]).await.unwrap();
    assert!(admits());
    let members = vec![
        put(Kind::Group, json!({"id": "cluster"})),
        put(
            Kind::Access,
            json!({"id": "all", "target": TARGET, "group": "cluster"}),
        ),
    ];
    change(&control, members).await.unwrap();
    assert!(!admits());
    let member = json!({"name": "iqn.2026-11.org.example:HOST", "groups": ["cluster"]});
    change(&control, vec![put(Kind::Initiator, member)])
        .await
        .unwrap();
    assert!(admits());
}

#[tokio::test]
async fn other_targets_keep_their_devices_and_other_luns_their_units() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let name: IscsiName = TARGET.parse().unwrap();
    let device = || control.node().directory().targets[&name].device.clone();
    let (before, unit) = (device(), device().luns()[0].1.clone());
    let mut edits = disk("two", 1 << 20);
    edits.push(put(Kind::Lun, json!({"target": TARGET, "lun": 4, "unit": "two"})));
    edits.push(put(
        Kind::Target,
        json!({"name": TARGET, "alias": "disks", "limits": {"nop-interval": "5s"}}),
    ));
    change(&control, edits).await.unwrap();
    assert!(Arc::ptr_eq(&before, &device()));
    assert!(Arc::ptr_eq(&unit, &device().luns()[0].1));
    assert_eq!(luns(&control), [3, 4]);
}

#[tokio::test]
async fn a_missing_store_keeps_its_place_and_comes_back_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one.img");
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let unit = control.model().get::<Unit>("one").cloned();
    drop(control);
    std::fs::rename(&file, directory.path().join("away")).unwrap();
    std::fs::create_dir(&file).unwrap();

    let control = start(directory.path());
    assert_eq!(luns(&control), Vec::<u16>::new());
    let status = &control.store_statuses()[0];
    assert_eq!(status.condition, Condition::Missing);
    assert!(status.problem.as_ref().unwrap().contains("one.img"), "{status:?}");
    assert_eq!(control.model().get::<Unit>("one"), unit.as_ref());
    // Others can be changed meanwhile.
    change(&control, disk("two", 1 << 20)).await.unwrap();

    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(directory.path().join("away"), &file).unwrap();
    control.retry_once().await;
    assert_eq!(luns(&control), [3]);
    assert_eq!(control.store_statuses()[0].condition, Condition::Open);
}

#[tokio::test]
async fn a_file_that_is_gone_is_missing_and_not_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one.img");
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    drop(control);
    std::fs::rename(&file, directory.path().join("away")).unwrap();

    let control = start(directory.path());
    control.retry_once().await;
    let status = &control.store_statuses()[0];
    assert_eq!(status.condition, Condition::Missing);
    assert!(status.problem.as_ref().unwrap().contains("one.img"), "{status:?}");
    assert!(
        !file.exists(),
        "an empty disk in its place would be worse than none"
    );

    std::fs::rename(directory.path().join("away"), &file).unwrap();
    control.retry_once().await;
    assert_eq!(luns(&control), [3]);
}

#[tokio::test]
async fn a_store_grows_and_does_not_shrink() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let store = |size: u64| vec![disk("one", size).remove(0)];
    change(&control, store(2 << 20)).await.unwrap();
    assert_eq!(control.store_statuses()[0].size, Some(2 << 20));
    assert_eq!(luns(&control), [3]);
    assert_eq!(
        paths(change(&control, store(1 << 20)).await),
        ["stores/one/place/size"]
    );
    assert_eq!(
        std::fs::metadata(directory.path().join("one.img")).unwrap().len(),
        2 << 20
    );
}

#[tokio::test]
async fn deleting_keeps_the_data_unless_told_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let delete = |id: &str| {
        vec![
            Edit::Delete(Kind::Unit, id.to_owned()),
            Edit::Delete(Kind::Store, id.to_owned()),
        ]
    };
    change(&control, disk("one", 1 << 20)).await.unwrap();
    change(&control, delete("one")).await.unwrap();
    assert!(directory.path().join("one.img").exists());
    change(&control, disk("one", 1 << 20)).await.unwrap();
    let with_data = Change {
        delete_data: true,
        ..Change::of(delete("one"))
    };
    control.change(&Actor::program(), with_data).await.unwrap();
    assert!(!directory.path().join("one.img").exists());
}

#[tokio::test]
async fn what_is_referred_to_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let delete = vec![Edit::Delete(Kind::Store, "one".to_owned())];
    assert_eq!(paths(change(&control, delete).await), ["units/one/store"]);
}

#[tokio::test]
async fn conditions_hold_or_nothing_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    change(&control, served_disk()).await.unwrap();
    let with = |precondition| Change {
        preconditions: vec![precondition],
        ..Change::of(vec![put(Kind::Target, json!({"name": TARGET, "alias": "x"}))])
    };
    let key = || (Kind::Target, TARGET.to_owned());
    let refused = |precondition| {
        let control = Arc::clone(&control);
        async move {
            control
                .change(&Actor::program(), with(precondition))
                .await
                .unwrap_err()
        }
    };
    let exists = refused(Precondition::Absent(key().0, key().1)).await;
    assert_eq!(exists, ChangeError::Exists(format!("targets/{TARGET}")));
    let stale = refused(Precondition::Revision(key().0, key().1, 7)).await;
    assert_eq!(stale, ChangeError::Stale(format!("targets/{TARGET}")));
    let stale = refused(Precondition::Generation(0)).await;
    assert_eq!(stale, ChangeError::Stale("the configuration".to_owned()));
    let made = control
        .change(
            &Actor::program(),
            with(Precondition::Revision(key().0, key().1, 1)),
        )
        .await;
    assert_eq!(made.unwrap().generation, 2);
}

/// Targets with four sparse disks of 1 GiB each.
fn fleet(targets: usize) -> Document {
    let mut document = json!({"targets": [], "stores": [], "units": [], "luns": [], "access": []});
    let mut add = |list: &str, value: serde_json::Value| {
        document[list].as_array_mut().unwrap().push(value);
    };
    for target in 0..targets {
        let name = format!("iqn.2026-11.org.example:t{target}");
        add("targets", json!({"name": name}));
        add(
            "access",
            json!({"id": format!("a{target}"), "target": name, "any": true}),
        );
        for lun in 0..4 {
            let id = format!("d{target}-{lun}");
            let place = json!({"kind": "file", "path": format!("{id}.img"), "size": 1_u64 << 30});
            add("stores", json!({"id": id, "place": place}));
            add("units", json!({"id": id, "store": id}));
            add("luns", json!({"target": name, "lun": lun, "unit": id}));
        }
    }
    serde_json::from_value(document).unwrap()
}

#[tokio::test]
async fn a_thousand_targets_are_shown_by_a_dry_run_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let dry = || Change {
        dry_run: true,
        ..Change::default()
    };
    let outcome = control
        .apply(&Actor::program(), fleet(1000), false, dry())
        .await
        .unwrap();
    assert_eq!(outcome.differences.len(), 1000 * (1 + 1 + 3 * 4));
    assert_eq!(outcome.generation, 0);
    assert_eq!(control.model().generation, 0);
    assert!(!directory.path().join("d0-0.img").exists());

    let mut wrong = fleet(1000);
    wrong.luns[1234].unit = "nowhere".parse().unwrap();
    let refused = control.apply(&Actor::program(), wrong, false, dry()).await;
    assert_eq!(paths(refused), ["luns/iqn.2026-11.org.example:t308/2/unit"]);
}

#[tokio::test]
async fn a_fleet_is_applied_pruned_and_its_diff_is_exact() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let actor = Actor::program();
    control
        .apply(&actor, fleet(20), false, Change::default())
        .await
        .unwrap();
    assert_eq!(control.node().directory().targets.len(), 20);
    let again = control
        .apply(&actor, fleet(20), true, Change::default())
        .await
        .unwrap();
    assert_eq!(
        (again.generation, again.differences.len()),
        (1, 0),
        "it is as it should be already"
    );

    let kept = control
        .apply(&actor, fleet(19), false, Change::default())
        .await
        .unwrap();
    assert_eq!(kept.differences.len(), 0, "without prune what is not named stays");
    let pruned = control
        .apply(&actor, fleet(19), true, Change::default())
        .await
        .unwrap();
    assert_eq!(pruned.differences.len(), 14);
    assert_eq!(control.node().directory().targets.len(), 19);
    drop(control);
    assert_eq!(start(directory.path()).node().directory().targets.len(), 19);
}

#[tokio::test]
async fn secrets_do_not_come_out_by_document_difference_or_event() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let credential = |secret: &str| {
        vec![put(
            Kind::Credential,
            json!({"id": "c", "name": "n", "secret": secret}),
        )]
    };
    change(&control, credential("a long enough secret"))
        .await
        .unwrap();
    let outcome = change(&control, credential("another long secret")).await.unwrap();
    assert_eq!(
        outcome.differences[0].after,
        Some(json!({"id": "c", "name": "n", "secret": "changed"}))
    );
    let shown = [
        serde_json::to_string(&outcome.differences).unwrap(),
        serde_json::to_string(&Document::of(&control.model())).unwrap(),
        format!("{:?}", control.events().recent()),
        std::fs::read_to_string(directory.path().join("events.jsonl")).unwrap(),
        format!("{:?}", control.model()),
    ];
    for text in shown {
        assert!(!text.contains("long"), "{text}");
    }
    let asked_for = Document::of(&control.model()).with_secrets();
    assert_eq!(asked_for["credentials"][0]["secret"], "another long secret");
}

#[tokio::test]
async fn changes_at_once_are_all_made_and_none_is_half() {
    let directory = tempfile::tempdir().unwrap();
    let control = start(directory.path());
    let changes = (0..20).map(|number| {
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            change(&control, disk(&format!("d{number}"), 1 << 20))
                .await
                .unwrap();
        })
    });
    for made in changes.collect::<Vec<_>>() {
        made.await.unwrap();
    }
    assert_eq!(control.model().generation, 20);
    drop(control);
    let control = start(directory.path());
    assert_eq!(control.model().units.len(), 20);
    assert_eq!(control.store_statuses().len(), 20);
}

#[tokio::test]
async fn an_encrypted_store_and_a_disc_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let key: Vec<u8> = (0..64).collect();
    std::fs::write(directory.path().join("key"), key).unwrap();
    std::fs::write(directory.path().join("a.iso"), vec![1; 40 * 2048]).unwrap();
    let control = start(directory.path());
    let place = json!({"kind": "file", "path": "e.img", "size": 1 << 20});
    let iso = json!({"kind": "file", "path": "a.iso"});
    let edits = vec![
        put(Kind::Store, json!({"id": "e", "place": place, "encrypt": "key"})),
        put(Kind::Unit, json!({"id": "e", "store": "e"})),
        put(
            Kind::Store,
            json!({"id": "i", "place": iso, "block_size": 2048, "read_only": true}),
        ),
        put(Kind::Unit, json!({"id": "i", "store": "i", "device": "cdrom"})),
        put(Kind::Target, json!({"name": TARGET})),
        put(Kind::Lun, json!({"target": TARGET, "lun": 0, "unit": "e"})),
        put(Kind::Lun, json!({"target": TARGET, "lun": 1, "unit": "i"})),
    ];
    change(&control, edits).await.unwrap();
    assert_eq!(luns(&control), [0, 1]);
    drop(control);
    assert_eq!(luns(&start(directory.path())), [0, 1]);
}
