//! What in a state directory is the program's own. Disks may lie beside it; none of it may be one: it holds secrets, and
//! says who may do what.

use std::fs;
use std::path::{Component, Path};

/// Whether a path leads to something of the program's own, by its name alone.
pub(crate) fn is_own(directory: &Path, path: &Path) -> bool {
    let whole = directory.join(path);
    let Ok(inside) = whole.strip_prefix(directory) else {
        return false;
    };
    let first = inside.components().find_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::CurDir | Component::ParentDir | Component::Prefix(_) | Component::RootDir => None,
    });
    first.is_some_and(|name| {
        // `state.json.3` and `db.damaged.1` with what they are a copy of.
        OWN.iter().any(|own| {
            name.strip_prefix(own)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    })
}

/// The same for where the path really leads, or would: names can be links.
pub(crate) fn leads_to_own(directory: &Path, path: &Path) -> bool {
    let whole = directory.join(path);
    let there = fs::canonicalize(&whole).ok();
    let real = there.or_else(|| {
        let folder = fs::canonicalize(whole.parent()?).ok()?;
        Some(folder.join(whole.file_name()?))
    });
    match (fs::canonicalize(directory).ok(), real) {
        (Some(directory), Some(path)) => is_own(&directory, &path),
        _ => false,
    }
}

const OWN: [&str; 12] = [
    "db",
    "events.jsonl",
    "logins.jsonl",
    "lunaport.sock",
    "making",
    "reservations",
    "sanitizing",
    "socket.new",
    "state.json",
    "tls.crt",
    "tls.key",
    "units",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_keeps_is_its_own_and_disks_beside_it_are_not() {
        let directory = Path::new("/var/lib/lunaport");
        let own = |path: &str| is_own(directory, Path::new(path));
        for path in [
            "state.json",
            "./state.json",
            "state.json.3",
            "db/db",
            "db.damaged.1/conf",
            "/var/lib/lunaport/tls.key",
            "/var/lib//lunaport/./units/x",
        ] {
            assert!(own(path), "{path}");
        }
        for path in ["disk.img", "dbs/disk.img", "disks/state.json", "/srv/db/db"] {
            assert!(!own(path), "{path}");
        }
    }

    #[test]
    fn a_link_leads_where_it_leads() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("state.json"), "{}").unwrap();
        std::os::unix::fs::symlink("state.json", directory.path().join("disk.img")).unwrap();
        assert!(leads_to_own(directory.path(), Path::new("disk.img")));
        assert!(!leads_to_own(directory.path(), Path::new("absent.img")));
        std::os::unix::fs::symlink(".", directory.path().join("here")).unwrap();
        assert!(leads_to_own(directory.path(), Path::new("here/tls.key")));
        assert!(leads_to_own(directory.path(), Path::new("here/db")));
    }
}
