//! A small file of a logical unit that is replaced whole: written and synced under another name, then put in the place of the
//! old one, which holds until that moment.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the text what the file holds; its directory is made if it is not there. Durable when this returns. On an error the
/// old file is still there, unless it was the last step that failed, the sync of the directory: then either of both may be
/// found after a power cut.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    if !directory.is_dir() {
        fs::create_dir_all(directory)?;
        directory.parent().map_or(Ok(()), sync_directory)?;
    }
    let temporary = path.with_extension("new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(directory)
}

/// Takes the file away, if it is there. Durable when this returns.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_directory(path.parent().unwrap_or_else(|| Path::new("."))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
