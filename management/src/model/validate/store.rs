//! Stores: their sizes, and where their files may be.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::Found;
use crate::model::{Kind, Model, Object, Place, Store};
use crate::state::is_own;

pub(super) fn check_store(model: &Model, store: &Store, base: &Path, found: &mut Found) {
    check_sizes(store, found);
    check_files(model, store, base, found);
}

fn check_sizes(store: &Store, found: &mut Found) {
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
}

/// Its files may be there, and are not the program's own.
fn check_files(model: &Model, store: &Store, base: &Path, found: &mut Found) {
    let key = store.key();
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

/// Two stores over one file, as far as the paths tell; the lock of the file tells the rest.
pub(super) fn check_paths(model: &Model, base: &Path, found: &mut Found) {
    let mut seen = BTreeMap::new();
    for store in model.all::<Store>() {
        let Some(path) = store.path() else { continue };
        let whole: PathBuf = base
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

/// Whether a path may be used: below the state directory or a root, without a way out of it by `..`. Links inside a root
/// are followed: who may make links there may put devices there as well.
fn is_below_a_root(model: &Model, path: &Path, base: &Path) -> bool {
    if path.as_os_str().is_empty() || path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    let whole = base.join(path);
    let settings = model.settings();
    let mut roots = settings.store_roots.iter().map(PathBuf::as_path).chain([base]);
    roots.any(|root| whole.starts_with(root) && whole != root)
}
