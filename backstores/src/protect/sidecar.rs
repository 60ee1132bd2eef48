//! The file with the tags of a disk that is a file: `NAME.pi` beside `NAME`. It begins with a line that says which blocks
//! the tags belong to, in a header of 4096 bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::TAGS_LEN;
use crate::OpenError;
use crate::file::{parent, sync_directory};

/// Where the tags of a disk lie.
pub(crate) fn path_of(disk: &Path) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(".pi");
    name.into()
}

/// Makes the file for tags of a disk of `size` bytes, or sees to it that an existing one fits: it grows with the disk.
/// Returns its length. Blocking.
pub(crate) fn prepare(path: &Path, size: u64, block_size: u32, read_only: bool) -> Result<u64, OpenError> {
    let refuse = |problem: String, fix: &str| OpenError {
        path: path.into(),
        problem,
        fix: fix.into(),
    };
    let blocks = size / u64::from(block_size);
    let needed = HEADER_LEN + (blocks * TAGS_LEN as u64).next_multiple_of(HEADER_LEN);
    let system = |error: io::Error| refuse(error.to_string(), "check the path and its permissions");
    let header = format!("lunaport protection information 1, blocks of {block_size} bytes\n");
    match File::open(path) {
        Ok(mut file) => {
            let mut found = vec![0; header.len()];
            let whole = file.read_exact(&mut found).is_ok();
            if !whole || found != header.as_bytes() {
                return Err(refuse(
                    format!("is not the protection information of blocks of {block_size} bytes"),
                    "give the block-size= it was made with, or remove it and lose what it protects",
                ));
            }
            let len = file.metadata().map_err(system)?.len();
            if len < needed && !read_only {
                let file = OpenOptions::new().write(true).open(path).map_err(system)?;
                file.set_len(needed)
                    .and_then(|()| file.sync_all())
                    .map_err(system)?;
            }
            Ok(len.max(needed))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && read_only => Err(refuse(
            "no such file: the disk has no protection information".into(),
            "leave out pi=1",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let make = || {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)?;
                file.write_all(header.as_bytes())?;
                file.set_len(needed)?;
                file.sync_all()?;
                sync_directory(parent(path))
            };
            make().map_err(system)?;
            Ok(needed)
        }
        Err(error) => Err(system(error)),
    }
}

/// Bytes in front of the tags.
pub(crate) const HEADER_LEN: u64 = 4096;
