//! Readable copies of the configuration beside the database: what an administrator restores from, by hand if need be.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::model::SavedConfig;

/// How the files are called, for messages.
pub(super) const PATTERN: &str = "state.json*";

/// Writes `state.json`, keeping the copies before it as `state.json.1` (newest) to `state.json.9`. Readable by their
/// owner alone from the first moment.
pub(super) fn keep(directory: &Path, config: &SavedConfig) -> io::Result<()> {
    let current = directory.join("state.json");
    let temporary = directory.join("state.json.new");
    let mut text = serde_json::to_string_pretty(config).expect("plain values have a JSON form");
    text.push('\n');
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    for age in (1..KEPT).rev() {
        rename_if_there(&numbered(directory, age), &numbered(directory, age + 1))?;
    }
    rename_if_there(&current, &numbered(directory, 1))?;
    fs::rename(&temporary, &current)?;
    File::open(directory)?.sync_all()
}

fn numbered(directory: &Path, age: usize) -> PathBuf {
    directory.join(format!("state.json.{age}"))
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

const KEPT: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::SavedTarget;

    fn named(name: &str) -> SavedConfig {
        SavedConfig {
            targets: vec![SavedTarget {
                name: name.into(),
                units: Vec::new(),
            }],
        }
    }

    #[test]
    fn nine_older_generations_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..12 {
            keep(directory.path(), &named(&number.to_string())).unwrap();
        }
        let read = |file: &str| fs::read_to_string(directory.path().join(file)).unwrap();
        assert!(read("state.json").contains("\"11\""));
        assert!(read("state.json.1").contains("\"10\""));
        assert!(read("state.json.9").contains("\"2\""));
        assert!(!directory.path().join("state.json.10").exists());
    }
}
