//! Whether a model makes sense as a whole. Every problem is told, with its path and what would be right; one is enough
//! to refuse the change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use iscsi_proto::Lun;
use serde::{Deserialize, Serialize};
use target_core::control::Parameters;
use utoipa::ToSchema;

use super::{
    AccessRule, AdvertisedAddress, Authentication, Credential, Device, Id, Initiator, InitiatorGroup, Kind,
    LunMap, Method, Model, Object, Place, Portal, Store, Target, Transport, Unit, VALUE_MAX,
};
use crate::state::is_own;

/// What is wrong with one place of the configuration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// Where, such as `luns/iqn.2026-11.org.example:a/3/unit`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub fix: String,
}

impl Problem {
    /// A problem with an object as a whole, or with one of its fields (`"kind/key"` or `"kind/key/field"`).
    pub fn new(path: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// All problems of a model; none when it may be served. `base` is the folder of relative paths.
#[must_use]
pub fn validate(model: &Model, base: &Path) -> Vec<Problem> {
    let mut found = Found::default();
    check_sizes(model, &mut found);
    check_settings(model, &mut found);
    for target in model.all::<Target>() {
        check_target(model, target, &mut found);
    }
    for map in model.all::<LunMap>() {
        check_lun(model, map, &mut found);
    }
    for rule in model.all::<AccessRule>() {
        check_access(model, rule, &mut found);
    }
    for initiator in model.all::<Initiator>() {
        check_initiator(model, initiator, &mut found);
    }
    for credential in model.all::<Credential>() {
        check_credential(credential, &mut found);
    }
    for store in model.all::<Store>() {
        check_store(model, store, base, &mut found);
    }
    for rule in model.all::<AdvertisedAddress>() {
        check_advertised(rule, &mut found);
    }
    check_portals(model, &mut found);
    check_units(model, &mut found);
    check_paths(model, base, &mut found);
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(
        &mut self,
        kind: Kind,
        key: &str,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let mut path = format!("{}/{key}", kind.path());
        if !field.is_empty() {
            path.push('/');
            path.push_str(field);
        }
        self.0.push(Problem::new(path, problem, fix));
    }

    /// A reference to an object that has to be there.
    fn reference<T: Object>(&mut self, model: &Model, from: (Kind, &str, &str), to: &str) {
        if model.get::<T>(to).is_none() {
            let kind = T::KIND.path();
            let problem = format!("there is no {to} among the {kind}");
            let fix = format!("make {kind}/{to} in the same change, or name one that is there");
            self.add(from.0, from.1, from.2, problem, fix);
        }
    }
}

fn check_sizes(model: &Model, found: &mut Found) {
    for (_, object) in model.objects() {
        let len = object.to_state().to_string().len();
        if len > VALUE_MAX {
            let problem = format!("needs {len} bytes, and an object has at most {VALUE_MAX}");
            found.add(
                object.kind(),
                &object.key(),
                "",
                problem,
                "shorten its texts and lists",
            );
        }
    }
}

fn check_settings(model: &Model, found: &mut Found) {
    let settings = model.settings();
    check_limits(&settings.limits, (Kind::Settings, super::Settings::KEY), found);
    check_authentication(
        model,
        &settings.discovery,
        (Kind::Settings, super::Settings::KEY, "discovery"),
        found,
    );
    for root in &settings.store_roots {
        if !root.is_absolute() || root.components().any(|part| part == Component::ParentDir) {
            let problem = format!("{} is no absolute path", root.display());
            found.add(
                Kind::Settings,
                super::Settings::KEY,
                "store_roots",
                problem,
                "write the whole path, beginning with / and without ..",
            );
        }
    }
}

fn check_limits(limits: &BTreeMap<String, String>, at: (Kind, &str), found: &mut Found) {
    let mut parameters = Parameters::default();
    for (key, value) in limits {
        if let Err(error) = parameters.set(key, value) {
            found.add(
                at.0,
                at.1,
                &format!("limits/{key}"),
                error.to_string(),
                "correct or leave it out",
            );
        }
    }
}

fn check_authentication(
    model: &Model,
    authentication: &Authentication,
    at: (Kind, &str, &str),
    found: &mut Found,
) {
    let Authentication {
        method,
        credentials,
        mutual,
    } = authentication;
    for id in credentials {
        found.reference::<Credential>(model, (at.0, at.1, &format!("{}/credentials", at.2)), id.as_str());
    }
    let Some(mutual) = mutual else { return };
    let field = format!("{}/mutual", at.2);
    found.reference::<Credential>(model, (at.0, at.1, &field), mutual.as_str());
    if *method == Method::None {
        found.add(
            at.0,
            at.1,
            &field,
            "the target would prove itself to initiators that prove nothing",
            "set method to chap as well, or leave mutual out",
        );
    }
    let secret = |id: &Id| {
        model
            .get::<Credential>(id.as_str())
            .and_then(|it| it.secret.clone())
    };
    let own = secret(mutual);
    if own.is_some() && credentials.iter().any(|id| secret(id) == own) {
        found.add(
            at.0,
            at.1,
            &field,
            "its secret is also one that initiators prove",
            "give the two directions different secrets (RFC 7143 §9.2.1)",
        );
    }
}

fn check_target(model: &Model, target: &Target, found: &mut Found) {
    let key = target.key();
    let mut add = |field: &str, problem: &str, fix: &str| found.add(Kind::Target, &key, field, problem, fix);
    if target
        .alias
        .as_ref()
        .is_some_and(|alias| alias.is_empty() || alias.len() > 255 || alias.contains('\0'))
    {
        add(
            "alias",
            "is empty, longer than 255 bytes or has a zero byte",
            "shorten it or leave it out",
        );
    }
    if target.portal_groups.contains(&0) {
        add("portal_groups", "0 is no tag of a portal group", "use 1 to 65535");
    }
    let mut tags = target.portal_groups.clone();
    tags.sort_unstable();
    tags.dedup();
    if tags.len() != target.portal_groups.len() || tags.len() > PORTAL_GROUPS_MAX {
        let problem = format!("names a tag twice, or more than {PORTAL_GROUPS_MAX}");
        add(
            "portal_groups",
            &problem,
            "name each tag once, or leave portal_groups out for all",
        );
    }
    check_limits(&target.limits, (Kind::Target, &key), found);
    check_authentication(
        model,
        &target.authentication,
        (Kind::Target, &key, "authentication"),
        found,
    );
}

fn check_lun(model: &Model, map: &LunMap, found: &mut Found) {
    let key = map.key();
    if map.lun > Lun::MAX_NUMBER {
        let problem = format!("{} is no LUN", map.lun);
        let fix = format!("use 0 to {}", Lun::MAX_NUMBER);
        found.add(Kind::Lun, &key, "lun", problem, fix);
    }
    found.reference::<Target>(model, (Kind::Lun, &key, "target"), &map.target.to_string());
    found.reference::<Unit>(model, (Kind::Lun, &key, "unit"), map.unit.as_str());
}

fn check_access(model: &Model, rule: &AccessRule, found: &mut Found) {
    let key = rule.key();
    found.reference::<Target>(model, (Kind::Access, &key, "target"), &rule.target.to_string());
    if let Some(group) = &rule.group {
        found.reference::<InitiatorGroup>(model, (Kind::Access, &key, "group"), group.as_str());
    }
    if !rule.has_condition() {
        found.add(
            Kind::Access,
            &key,
            "",
            "does not say whom it lets in",
            "give initiator, pattern, group or network, or \"any\": true for everyone",
        );
    }
    if rule.any && (rule.initiator.is_some() || rule.pattern.is_some() || rule.group.is_some()) {
        found.add(
            Kind::Access,
            &key,
            "any",
            "lets everyone in and names some at the same time",
            "leave out \"any\", or the initiator, pattern and group",
        );
    }
}

fn check_initiator(model: &Model, initiator: &Initiator, found: &mut Found) {
    let key = initiator.key();
    for group in &initiator.groups {
        found.reference::<InitiatorGroup>(model, (Kind::Initiator, &key, "groups"), group.as_str());
    }
    if let Some(credential) = &initiator.credential {
        found.reference::<Credential>(model, (Kind::Initiator, &key, "credential"), credential.as_str());
    }
}

fn check_credential(credential: &Credential, found: &mut Found) {
    let key = credential.key();
    if credential.name.is_empty() || credential.name.len() > CHAP_NAME_MAX || credential.name.contains('\0') {
        let problem = format!("a CHAP name has 1 to {CHAP_NAME_MAX} bytes and no zero byte");
        found.add(Kind::Credential, &key, "name", problem, "correct the name");
    }
    let problem = match credential.secret.as_ref().map(|secret| secret.expose().len()) {
        None => "is missing".to_owned(),
        Some(SECRET_MIN..=SECRET_MAX) => return,
        Some(len) => format!("has {len} bytes"),
    };
    let fix = format!("give one of {SECRET_MIN} to {SECRET_MAX} bytes (RFC 7143 §9.2.1 wants 96 bits)");
    found.add(Kind::Credential, &key, "secret", problem, fix);
}

fn check_store(model: &Model, store: &Store, base: &Path, found: &mut Found) {
    let key = store.key();
    if store
        .block_size
        .is_some_and(|size| !matches!(size, 512 | 2048 | 4096))
    {
        found.add(
            Kind::Store,
            &key,
            "block_size",
            "is not offered",
            "use 512 or 4096, or 2048 for a CD-ROM",
        );
    }
    if let Some(size) = store.physical_block_size
        && (!size.is_power_of_two() || !(512..=65_536).contains(&size))
    {
        let fix = "use a power of two from 512 to 65536";
        found.add(Kind::Store, &key, "physical_block_size", "does not fit", fix);
    }
    let size = match &store.place {
        Place::Block { .. } => None,
        Place::File { size, .. } => *size,
        Place::Memory { size } | Place::Null { size } => Some(*size),
    };
    let block_size = u64::from(store.block_size.unwrap_or(512).max(1));
    if let Some(size) = size
        && (size == 0 || !size.is_multiple_of(block_size) || i64::try_from(size).is_err())
    {
        let problem = format!("{size} bytes is no size of a disk with blocks of {block_size}");
        let fix = format!("use a multiple of {block_size} bytes from {block_size} on");
        found.add(Kind::Store, &key, "place/size", problem, fix);
    }
    for (field, path) in [
        ("place/path", store.path()),
        ("encrypt", store.encrypt.as_deref()),
    ] {
        if path.is_some_and(|path| is_own(base, path)) {
            let fix = "choose another name: this one is for the program's own state";
            found.add(Kind::Store, &key, field, "is no disk", fix);
        }
    }
    let key_file = store.encrypt.as_deref();
    if key_file.is_some_and(|path| !is_below_a_root(model, path, base)) {
        let fix = "choose a key file below one of settings/node/store_roots, or add its folder there";
        found.add(Kind::Store, &key, "encrypt", "is below no store root", fix);
    }
    if let Some(path) = store.path()
        && !is_below_a_root(model, path, base)
    {
        found.add(
            Kind::Store,
            &key,
            "place/path",
            format!("{} is below no store root", path.display()),
            "choose a path below one of settings/node/store_roots, or add its folder there",
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

/// Whether a path may be used: below the state directory or a root, without a way out of it by `..`. Links inside a root
/// are followed: who may make links there may put devices there as well.
fn is_below_a_root(model: &Model, path: &Path, base: &Path) -> bool {
    if path.as_os_str().is_empty() || path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    let whole = base.join(path);
    let settings = model.settings();
    let mut roots = settings
        .store_roots
        .iter()
        .map(std::path::PathBuf::as_path)
        .chain([base]);
    roots.any(|root| whole.starts_with(root) && whole != root)
}

fn check_advertised(rule: &AdvertisedAddress, found: &mut Found) {
    if let Err(problem) = rule.address.parse::<target_core::control::AdvertisedAddress>() {
        let fix = "write address:port or name:port, IPv6 addresses in brackets";
        found.add(Kind::Advertised, &rule.key(), "address", problem, fix);
    }
    if rule.portal_group == 0 {
        let fix = "use 1 to 65535";
        found.add(
            Kind::Advertised,
            &rule.key(),
            "portal_group",
            "0 is no tag of a portal group",
            fix,
        );
    }
}

fn check_portals(model: &Model, found: &mut Found) {
    let (mut seen, mut tags) = (BTreeMap::new(), BTreeSet::new());
    for portal in model.all::<Portal>() {
        let key = portal.key();
        if portal.portal_group == 0 {
            let fix = "use 1 to 65535";
            found.add(
                Kind::Portal,
                &key,
                "portal_group",
                "0 is no tag of a portal group",
                fix,
            );
        }
        if tags.insert(portal.portal_group) && tags.len() > PORTAL_GROUPS_MAX {
            let problem = format!("is one more than {PORTAL_GROUPS_MAX} portal groups");
            let fix = "give it the tag of another portal";
            found.add(Kind::Portal, &key, "portal_group", problem, fix);
        }
        if portal.address.port() == 0 {
            found.add(
                Kind::Portal,
                &key,
                "address",
                "has no port",
                "add one; iSCSI's is 3260",
            );
        }
        let over_rdma = portal.transport == Transport::Iser;
        if let Some(other) = seen.insert((portal.address, over_rdma), key.clone()) {
            let problem = format!("portals/{other} has the same address");
            found.add(
                Kind::Portal,
                &key,
                "address",
                problem,
                "use another address or port",
            );
        }
    }
}

/// A store behind two units would be written by both; two units with one identity would be taken for paths to one disk.
fn check_units(model: &Model, found: &mut Found) {
    let (mut stores, mut naas, mut serials) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for unit in model.all::<Unit>() {
        let key = unit.key();
        found.reference::<Store>(model, (Kind::Unit, &key, "store"), unit.store.as_str());
        check_device(model, unit, found);
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

/// Two stores over one file, as far as the paths tell; the lock of the file tells the rest.
fn check_paths(model: &Model, base: &Path, found: &mut Found) {
    let mut seen = BTreeMap::new();
    for store in model.all::<Store>() {
        let Some(path) = store.path() else { continue };
        let whole: std::path::PathBuf = base
            .join(path)
            .components()
            .filter(|part| *part != Component::CurDir)
            .collect();
        if let Some(other) = seen.insert(whole, store.key()) {
            let problem = format!("stores/{other} has the same path");
            found.add(
                Kind::Store,
                &store.key(),
                "place/path",
                problem,
                "use another path",
            );
        }
    }
}

/// Portal groups that a target has room for.
const PORTAL_GROUPS_MAX: usize = 64;
/// Blocks of CDs and DVDs.
const CDROM_BLOCK: u32 = 2048;
const CHAP_NAME_MAX: usize = 223;
const SECRET_MIN: usize = 12;
const SECRET_MAX: usize = 255;

#[cfg(test)]
mod tests;
