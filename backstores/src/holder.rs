//! Who holds a file or device that we were refused, as far as `/proc` tells.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::OpenError;

/// The error for a file or device that somebody else has locked.
pub(crate) fn in_use(path: &Path) -> OpenError {
    let (problem, fix) = match locker(path) {
        Some(pid) if pid == std::process::id() => (
            "is already served by this process".to_owned(),
            "export it once, or everywhere with ro".to_owned(),
        ),
        Some(pid) => (
            format!("is in use by process {pid} ({})", name_of(pid)),
            "stop that process first".to_owned(),
        ),
        None => (
            "is in use by another process".to_owned(),
            format!("find it with: fuser -v {}", path.display()),
        ),
    };
    OpenError {
        path: path.into(),
        problem,
        fix,
    }
}

/// The process that holds a flock on it. One of another process namespace shows as 0 or not at all.
pub(crate) fn locker(path: &Path) -> Option<u32> {
    let metadata = fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev()),
    );
    let file = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    find_locker(&fs::read_to_string("/proc/locks").ok()?, &file)
}

/// Lines are `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF`; those of waiters have `->` behind the number.
fn find_locker(locks: &str, file: &str) -> Option<u32> {
    locks
        .lines()
        .find_map(|line| match *line.split_whitespace().collect::<Vec<_>>() {
            [_, "FLOCK", _, _, pid, inode, ..] if inode == file => pid.parse().ok().filter(|pid| *pid > 0),
            _ => None,
        })
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim().is_empty() {
        "unknown".to_owned()
    } else {
        name.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locker_is_found_by_device_and_inode_and_waiters_do_not_count() {
        let locks = "1: FLOCK  ADVISORY  WRITE 17 fe:00:130 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 18 fe:00:131 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 19 fe:00:131 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 20 fe:00:131 0 EOF\n";
        assert_eq!(find_locker(locks, "fe:00:131"), Some(19));
        assert_eq!(find_locker(locks, "fe:00:130"), Some(17));
        assert_eq!(find_locker(locks, "fe:00:132"), None);
        assert_eq!(
            find_locker("1: FLOCK ADVISORY WRITE 0 fe:00:1 0 EOF", "fe:00:1"),
            None
        );
    }
}
