//! Records of files that are being made: one small file each, there from before the first byte is until what was made has its
//! place or is gone. So a start finds what a run that was killed has left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::unit_file;

/// The records of a state directory.
#[derive(Clone, Debug)]
pub(crate) struct MakingRecords {
    directory: PathBuf,
}

impl MakingRecords {
    /// Those of `state_directory`. Nothing is made before there is something to record.
    pub(crate) fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("making"),
        }
    }

    /// Durable when this returns.
    pub(crate) fn save(&self, name: &str, text: &str) -> io::Result<()> {
        unit_file::replace(&self.directory.join(name), text)
    }

    /// Nothing happens when there is none.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        unit_file::remove(&self.directory.join(name))
    }

    /// All of them, with their names. Nobody may be saving one.
    pub(crate) fn all(&self) -> io::Result<Vec<(String, String)>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry?.path();
            // What was to replace another and never did.
            if path.extension().is_some_and(|extension| extension == "new") {
                fs::remove_file(&path)?;
            } else if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                records.push((name.to_owned(), fs::read_to_string(&path)?));
            }
        }
        records.sort();
        Ok(records)
    }
}
