//! Logical units: what they say of themselves, and that no two are over one store or have one identity.

use std::collections::BTreeMap;

use super::Found;
use crate::model::{Device, Kind, Model, Object, Store, Unit};

/// A store behind two units would be written by both; two units with one identity would be taken for paths to one disk.
pub(super) fn check_units(model: &Model, found: &mut Found) {
    let (mut stores, mut naas, mut serials) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for unit in model.all::<Unit>() {
        let key = unit.key();
        found.reference::<Store>(model, (Kind::Unit, &key, "store"), unit.store.as_str());
        check_device(model, unit, found);
        check_texts(unit, found);
        let mut unique = |seen: &mut BTreeMap<String, String>, field, value: Option<String>, fix| {
            if let Some(other) = value.and_then(|value| seen.insert(value, key.clone())) {
                let problem = format!("units/{other} has the same");
                found.add(Kind::Unit, &key, field, problem, fix);
            }
        };
        unique(
            &mut stores,
            "store",
            Some(unit.store.to_string()),
            "use another store; one unit can be mapped to several LUNs",
        );
        let naa = unit.naa.as_ref().map(|naa| naa.to_ascii_lowercase());
        unique(&mut naas, "naa", naa, "leave it out to have one made");
        unique(
            &mut serials,
            "serial",
            unit.serial.clone(),
            "leave it out to have one made",
        );
    }
}

/// What a unit says of itself.
fn check_texts(unit: &Unit, found: &mut Found) {
    let key = unit.key();
    let printable = |text: &str, max| {
        !text.is_empty()
            && text.len() <= max
            && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
    };
    if unit.naa.is_some() && unit.naa_bytes().is_none() {
        found.add(
            Kind::Unit,
            &key,
            "naa",
            "is no NAA identifier",
            "write 16 hexadecimal digits that begin with 2, 3 or 5, or 32 that begin with 6, or leave it out",
        );
    }
    if unit
        .serial
        .as_deref()
        .is_some_and(|serial| !printable(serial, 36) || serial.contains(' '))
    {
        let fix = "use 1 to 36 printable ASCII characters without spaces";
        found.add(Kind::Unit, &key, "serial", "is no serial number", fix);
    }
    if unit
        .product
        .as_deref()
        .is_some_and(|product| !printable(product, 16))
    {
        let fix = "use 1 to 16 printable ASCII characters";
        found.add(Kind::Unit, &key, "product", "is no product identification", fix);
    }
    for (field, text, max) in [("vendor", &unit.vendor, 8), ("revision", &unit.revision, 4)] {
        if text.as_deref().is_some_and(|text| !printable(text, max)) {
            let fix = format!("use 1 to {max} printable ASCII characters");
            found.add(Kind::Unit, &key, field, "is not what initiators can show", fix);
        }
    }
    if unit
        .soft_threshold_percent
        .is_some_and(|percent| !(1..=100).contains(&percent))
    {
        found.add(
            Kind::Unit,
            &key,
            "soft_threshold_percent",
            "is no share of the size",
            "use 1 to 100",
        );
    }
}

/// A drive has its one kind of medium.
fn check_device(model: &Model, unit: &Unit, found: &mut Found) {
    let Some(store) = model.get::<Store>(unit.store.as_str()) else {
        return;
    };
    let has_disc = store.read_only && store.block_size == Some(CDROM_BLOCK);
    let problem = match unit.device {
        Device::Cdrom if !has_disc => "a CD-ROM is over a read-only store with blocks of 2048 bytes",
        Device::Disk if store.block_size == Some(CDROM_BLOCK) => "a disk has no blocks of 2048 bytes",
        Device::Cdrom | Device::Disk => return,
    };
    let fix = "change the store's block_size and read_only, or the unit's device";
    found.add(Kind::Unit, &unit.key(), "device", problem, fix);
}

/// Blocks of CDs and DVDs.
const CDROM_BLOCK: u32 = 2048;
