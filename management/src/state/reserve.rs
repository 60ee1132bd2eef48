//! A little space kept back in the state directory, for a start on a file system that is full: opening the database needs
//! some, and without it what is saved could not even be served.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use tracing::{debug, warn};

/// Keeps space back, as far as there is some. Nothing depends on it.
pub(super) fn keep(directory: &Path) {
    let path = path(directory);
    if path.exists() {
        return;
    }
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let kept = file.and_then(|file| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED)?;
        file.sync_all()?;
        File::open(directory)?.sync_all()
    });
    if let Err(error) = kept {
        debug!(%error, "no space is kept back");
        drop(fs::remove_file(path));
    }
}

/// Gives the space free when there is no other. `true` when it was: what failed for want of space may be tried again.
pub(super) fn give_up(directory: &Path) -> bool {
    let free = rustix::fs::statvfs(directory).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    let is_full = free.is_ok_and(|free| free < RESERVED);
    let given = is_full && fs::remove_file(path(directory)).is_ok();
    if given {
        warn!(
            "the file system of {} is full: it starts with the space that was kept back for that; free some before \
             the next start",
            directory.display()
        );
    }
    given
}

fn path(directory: &Path) -> PathBuf {
    directory.join("reserve")
}

/// Bytes: several segments of the database's log.
const RESERVED: u64 = 4 << 20;
