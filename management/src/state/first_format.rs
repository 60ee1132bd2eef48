//! The first format of the state: whole targets under `target/NAME`, open to every initiator. Read to be carried over,
//! never written.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use crate::model::{AnyObject, Kind, Model};

#[derive(Debug, Deserialize)]
pub(super) struct FirstTarget {
    name: String,
    units: Vec<FirstUnit>,
}

#[derive(Debug, Deserialize)]
struct FirstUnit {
    lun: u16,
    store: FirstStore,
    naa: String,
    serial: String,
    read_only: bool,
    thin: bool,
    removable: bool,
    block_size: Option<u32>,
    physical_block_size: Option<u32>,
    write_through: bool,
    direct: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum FirstStore {
    Memory { size: u64 },
    File { path: PathBuf, size: u64 },
    Block { path: PathBuf },
    Null { size: u64 },
}

/// The same as objects. Names and identities stay as they are.
pub(super) fn carry_over(targets: &[FirstTarget]) -> Result<Model, String> {
    let mut model = Model {
        generation: 1,
        ..Model::default()
    };
    let mut put = |kind: Kind, value: serde_json::Value| {
        AnyObject::parse(kind, value).map(|object| object.put(&mut model, 1))
    };
    for (number, target) in targets.iter().enumerate() {
        put(Kind::Target, json!({"name": target.name}))?;
        put(
            Kind::Access,
            json!({"id": format!("all-{number}"), "target": target.name, "any": true}),
        )?;
        for unit in &target.units {
            let id = format!("disk-{number}-{}", unit.lun);
            put(Kind::Store, store(&id, unit))?;
            let identity = json!({
                "id": id, "store": id, "naa": unit.naa, "serial": unit.serial,
                "thin": unit.thin, "removable": unit.removable,
            });
            put(Kind::Unit, identity)?;
            put(
                Kind::Lun,
                json!({"target": target.name, "lun": unit.lun, "unit": id}),
            )?;
        }
    }
    Ok(model)
}

fn store(id: &str, unit: &FirstUnit) -> serde_json::Value {
    let place = match &unit.store {
        FirstStore::Memory { size } => json!({"kind": "memory", "size": size}),
        FirstStore::File { path, size } => json!({"kind": "file", "path": path, "size": size}),
        FirstStore::Block { path } => json!({"kind": "block", "path": path}),
        FirstStore::Null { size } => json!({"kind": "null", "size": size}),
    };
    json!({
        "id": id, "place": place, "read_only": unit.read_only, "direct": unit.direct,
        "block_size": unit.block_size, "physical_block_size": unit.physical_block_size,
        "cache": if unit.write_through { "write_through" } else { "write_back" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LunMap, Store, Unit};

    #[test]
    fn a_disk_keeps_its_place_and_its_identity() {
        let saved = json!([{"name": "iqn.2026-11.org.lunaport:disks", "units": [{
            "lun": 0, "store": {"kind": "file", "path": "disk0.img", "size": 1_073_741_824},
            "naa": "3011223344556677", "serial": "abc", "read_only": false, "thin": true, "removable": false,
            "block_size": null, "physical_block_size": null, "write_through": true, "direct": false,
        }]}]);
        let targets: Vec<FirstTarget> = serde_json::from_value(saved).unwrap();
        let model = carry_over(&targets).unwrap();
        let map = model.get::<LunMap>("iqn.2026-11.org.lunaport:disks/0").unwrap();
        let unit = model.get::<Unit>(map.unit.as_str()).unwrap();
        assert_eq!(unit.naa.as_deref(), Some("3011223344556677"));
        assert_eq!(unit.serial.as_deref(), Some("abc"));
        let store = model.get::<Store>(unit.store.as_str()).unwrap();
        assert_eq!(store.path().unwrap().to_str(), Some("disk0.img"));
        assert_eq!(store.cache, crate::model::Cache::WriteThrough);
        assert_eq!(crate::model::validate(&model, std::path::Path::new("/state")), []);
    }
}
