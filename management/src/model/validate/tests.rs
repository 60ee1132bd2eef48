//! What is refused, by path.

use serde_json::json;

use super::*;
use crate::model::AnyObject;

fn model(objects: &[(Kind, serde_json::Value)]) -> Model {
    let mut model = Model::default();
    for (kind, value) in objects {
        AnyObject::parse(*kind, value.clone()).unwrap().put(&mut model, 1);
    }
    model
}

fn disk(id: &str) -> Vec<(Kind, serde_json::Value)> {
    vec![
        (
            Kind::Store,
            json!({"id": id, "place": {"kind": "file", "path": format!("{id}.img"), "size": 1_048_576}}),
        ),
        (Kind::Unit, json!({"id": id, "store": id})),
    ]
}

fn target() -> Vec<(Kind, serde_json::Value)> {
    vec![(Kind::Target, json!({"name": "iqn.2026-11.org.example:a"}))]
}

fn problems(objects: &[(Kind, serde_json::Value)]) -> Vec<String> {
    let found = validate(&model(objects), Path::new("/state"));
    found.into_iter().map(|problem| problem.path).collect()
}

#[test]
fn a_whole_disk_with_access_is_right() {
    let mut objects = [target(), disk("one")].concat();
    objects.push((
        Kind::Lun,
        json!({"target": "iqn.2026-11.org.example:a", "lun": 0, "unit": "one"}),
    ));
    objects.push((
        Kind::Access,
        json!({"id": "all", "target": "iqn.2026-11.org.example:a", "any": true}),
    ));
    assert_eq!(problems(&objects), Vec::<String>::new());
}

#[test]
fn references_to_nothing_are_named() {
    let objects = [
        (
            Kind::Lun,
            json!({"target": "iqn.2026-11.org.example:a", "lun": 3, "unit": "x"}),
        ),
        (
            Kind::Access,
            json!({"id": "r", "target": "iqn.2026-11.org.example:a", "group": "g"}),
        ),
        (Kind::Unit, json!({"id": "u", "store": "s"})),
        (
            Kind::Initiator,
            json!({"name": "iqn.2026-11.org.example:h", "groups": ["g"], "credential": "c"}),
        ),
    ];
    assert_eq!(
        problems(&objects),
        [
            "luns/iqn.2026-11.org.example:a/3/target",
            "luns/iqn.2026-11.org.example:a/3/unit",
            "access/r/target",
            "access/r/group",
            "initiators/iqn.2026-11.org.example:h/groups",
            "initiators/iqn.2026-11.org.example:h/credential",
            "units/u/store",
        ]
    );
}

#[test]
fn identities_stores_and_addresses_are_there_once() {
    let objects = [
        (
            Kind::Store,
            json!({"id": "a", "place": {"kind": "file", "path": "x.img"}}),
        ),
        (
            Kind::Store,
            json!({"id": "b", "place": {"kind": "file", "path": "./x.img"}}),
        ),
        (
            Kind::Unit,
            json!({"id": "u", "store": "a", "naa": "3a1b2c3d4e5f6071", "serial": "1"}),
        ),
        (
            Kind::Unit,
            json!({"id": "v", "store": "a", "naa": "3A1B2C3D4E5F6071", "serial": "1"}),
        ),
        (Kind::Portal, json!({"id": "p", "address": "192.0.2.1:3260"})),
        (Kind::Portal, json!({"id": "q", "address": "192.0.2.1:3260"})),
    ];
    assert_eq!(
        problems(&objects),
        [
            "portals/q/address",
            "units/v/store",
            "units/v/naa",
            "units/v/serial",
            "stores/b/place/path"
        ]
    );
}

#[test]
fn paths_stay_below_the_roots() {
    let file = |path: &str| {
        (
            Kind::Store,
            json!({"id": "s", "place": {"kind": "file", "path": path}}),
        )
    };
    assert_eq!(problems(&[file("/etc/shadow")]), ["stores/s/place/path"]);
    assert_eq!(problems(&[file("../x.img")]), ["stores/s/place/path"]);
    assert_eq!(
        problems(&[file("/srv/disks/../../etc/x")]),
        ["stores/s/place/path"]
    );
    let root = (Kind::Settings, json!({"store_roots": ["/srv/disks"]}));
    assert_eq!(
        problems(&[root.clone(), file("/srv/disks/x.img")]),
        Vec::<String>::new()
    );
    assert_eq!(
        problems(&[root, file("/srv/disks-of-others/x.img")]),
        ["stores/s/place/path"]
    );
}

#[test]
fn a_rule_says_whom_it_lets_in() {
    let rule = |more: serde_json::Value| {
        let mut rule = json!({"id": "r", "target": "iqn.2026-11.org.example:a"});
        rule.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        problems(&[target(), vec![(Kind::Access, rule)]].concat())
    };
    assert_eq!(rule(json!({})), ["access/r"]);
    assert_eq!(rule(json!({"any": true, "pattern": "iqn.*"})), ["access/r/any"]);
    assert_eq!(rule(json!({"network": "192.0.2.0/24"})), Vec::<String>::new());
}

#[test]
fn secrets_have_their_length_and_the_two_directions_their_own() {
    let credential =
        |id: &str, secret: &str| (Kind::Credential, json!({"id": id, "name": id, "secret": secret}));
    assert_eq!(problems(&[credential("c", "tooshort")]), ["credentials/c/secret"]);
    let authentication = json!({"method": "chap", "credentials": ["c"], "mutual": "d"});
    let target = json!({"name": "iqn.2026-11.org.example:a", "authentication": authentication});
    let objects = [
        credential("c", "the same secret"),
        credential("d", "the same secret"),
        (Kind::Target, target),
    ];
    assert_eq!(
        problems(&objects),
        ["targets/iqn.2026-11.org.example:a/authentication/mutual"]
    );
}

#[test]
fn limits_are_checked_by_name_and_value() {
    let target =
        json!({"name": "iqn.2026-11.org.example:a", "limits": {"MaxBurstLength": "1", "colour": "red"}});
    assert_eq!(
        problems(&[(Kind::Target, target)]),
        [
            "targets/iqn.2026-11.org.example:a/limits/MaxBurstLength",
            "targets/iqn.2026-11.org.example:a/limits/colour"
        ]
    );
}

#[test]
fn an_object_that_does_not_fit_into_the_state_is_refused() {
    let initiator = json!({"name": "iqn.2026-11.org.example:h", "description": "x".repeat(5000)});
    assert_eq!(
        problems(&[(Kind::Initiator, initiator)]),
        ["initiators/iqn.2026-11.org.example:h"]
    );
}

#[test]
fn what_is_not_said_is_inherited() {
    let mut model = model(&[(
        Kind::Credential,
        json!({"id": "c", "name": "n", "secret": "a long enough secret"}),
    )]);
    let again = AnyObject::parse(Kind::Credential, json!({"id": "c", "name": "other"})).unwrap();
    again.put(&mut model, 2);
    let stored = &model.credentials["c"];
    assert_eq!(
        stored.value.secret.as_ref().unwrap().expose(),
        "a long enough secret"
    );
    assert_eq!((stored.revision, stored.value.name.as_str()), (2, "other"));
    let same = AnyObject::parse(Kind::Credential, json!({"id": "c", "name": "other"})).unwrap();
    same.put(&mut model, 3);
    assert_eq!(model.credentials["c"].revision, 2, "nothing changed");
}

#[test]
fn a_drive_has_its_kind_of_medium() {
    let unit = (Kind::Unit, json!({"id": "u", "store": "s", "device": "cdrom"}));
    let store = |more: serde_json::Value| {
        let mut store = json!({"id": "s", "place": {"kind": "file", "path": "a.iso"}});
        store
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        (Kind::Store, store)
    };
    let disc = store(json!({"block_size": 2048, "read_only": true}));
    assert_eq!(problems(&[disc.clone(), unit.clone()]), Vec::<String>::new());
    assert_eq!(problems(&[store(json!({})), unit]), ["units/u/device"]);
    let disk = (Kind::Unit, json!({"id": "u", "store": "s"}));
    assert_eq!(problems(&[disc, disk]), ["units/u/device"]);
    assert_eq!(
        problems(&[store(json!({"encrypt": "/etc/key"}))]),
        ["stores/s/encrypt"]
    );
}
