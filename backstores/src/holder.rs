//! Who holds a file or device that we were refused, as far as `/proc` tells, and how long it is worth waiting for it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use crate::OpenError;

/// Claims a file or device. As long as it is held with neither a living process that shows as holder nor another
/// explanation, tries again for up to [`PREDECESSOR_PATIENCE`]: io_uring keeps the files of a killed process until its
/// last operation has ended, which is after the process itself is gone, and a target that is started again at once
/// meets what is left of its predecessor.
pub(crate) fn claim<T>(
    path: &Path,
    attempt: impl Fn() -> io::Result<T>,
    explained: impl Fn() -> bool,
) -> io::Result<T> {
    let patience_ends = Instant::now() + PREDECESSOR_PATIENCE;
    loop {
        match attempt() {
            Err(error)
                if is_held(&error)
                    && Instant::now() < patience_ends
                    && locker(path).is_none()
                    && !explained() =>
            {
                thread::sleep(RETRY);
            }
            result => return result,
        }
    }
}

fn is_held(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EWOULDBLOCK))
}

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

/// Longer than a disk takes for what was under way.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An attempt that is refused a few times, and how often it was made.
    fn claim_after(refusals: u32, errno: i32, explained: bool) -> (io::Result<()>, u32) {
        let made = Cell::new(0);
        let attempt = || {
            made.set(made.get() + 1);
            if made.get() > refusals {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(errno))
            }
        };
        let result = claim(Path::new("/dev/null"), attempt, || explained);
        (result, made.get())
    }

    #[test]
    fn what_a_dead_process_still_holds_is_tried_again() {
        let (result, made) = claim_after(2, libc::EBUSY, false);
        assert!(result.is_ok());
        assert_eq!(made, 3);
    }

    #[test]
    fn what_is_held_for_a_known_reason_or_fails_otherwise_is_refused_at_once() {
        for (errno, explained) in [(libc::EBUSY, true), (libc::EACCES, false)] {
            let (result, made) = claim_after(2, errno, explained);
            assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
            assert_eq!(made, 1);
        }
    }

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
