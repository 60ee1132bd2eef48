//! The sled database of a state directory: one key per object, values of readable JSON, every commit durable.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::generations;
use super::model::{SavedConfig, SavedTarget};
use crate::error::StartError;
use crate::identity::InstallationId;

/// An open state directory. Only one process has it open at a time.
#[derive(Debug)]
pub(crate) struct Database {
    directory: PathBuf,
    tree: sled::Db,
    /// sled's log file, for the sync that sled leaves out.
    log: File,
}

impl Database {
    /// Opens the state directory, creating it when there is none. A damaged database is repaired from what it still
    /// has; it never starts silently empty.
    pub(crate) fn open(directory: &Path) -> Result<Self, StartError> {
        let sled_directory = directory.join("db");
        let fresh = !Self::is_there(directory);
        let tree = create_directory(&sled_directory)
            .map_err(|error| {
                StartError::state(
                    directory,
                    error,
                    "choose a directory you may write to with --state-dir",
                )
            })
            .and_then(|()| open_sled(directory, &sled_directory))?;
        let log = File::open(sled_directory.join("db"))
            .map_err(|error| StartError::state(directory, error, "check its permissions"))?;
        let database = Self {
            directory: directory.to_owned(),
            tree,
            log,
        };
        database.check_format(fresh)?;
        Ok(database)
    }

    /// Whether a state directory has ever been made there.
    pub(crate) fn is_there(directory: &Path) -> bool {
        directory.join("db").join("db").exists()
    }

    /// The directory itself, for stores that live in it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// This installation's random number, made at first use.
    pub(crate) fn installation_id(&self, entropy: fn(&mut [u8])) -> Result<InstallationId, StartError> {
        if let Some(id) = self.read::<InstallationId>(INSTALLATION)? {
            return Ok(id);
        }
        let mut id = InstallationId([0; 16]);
        entropy(&mut id.0);
        let mut batch = sled::Batch::default();
        insert(&mut batch, INSTALLATION, &id);
        self.commit(batch)?;
        Ok(id)
    }

    /// The saved configuration; `None` when nothing was ever saved.
    pub(crate) fn config(&self) -> Result<Option<SavedConfig>, StartError> {
        let mut targets = Vec::new();
        for item in self.tree.scan_prefix(TARGET) {
            let (key, value) = item.map_err(|error| self.damaged(error))?;
            targets.push(self.decode::<SavedTarget>(&String::from_utf8_lossy(&key), &value)?);
        }
        Ok((!targets.is_empty()).then_some(SavedConfig { targets }))
    }

    /// Replaces the whole configuration in one step. Durable when this returns.
    pub(crate) fn save_config(&self, config: &SavedConfig) -> Result<(), StartError> {
        let wanted: BTreeMap<String, &SavedTarget> = config
            .targets
            .iter()
            .map(|target| (format!("{TARGET}{}", target.name), target))
            .collect();
        let mut batch = sled::Batch::default();
        for key in self.tree.scan_prefix(TARGET).keys() {
            let key = key.map_err(|error| self.damaged(error))?;
            if !wanted.contains_key(String::from_utf8_lossy(&key).as_ref()) {
                batch.remove(key);
            }
        }
        for (key, target) in &wanted {
            insert(&mut batch, key, target);
        }
        self.commit(batch)?;
        generations::keep(&self.directory, config)
            .map_err(|error| StartError::state(&self.directory, error, "free some space there"))
    }

    /// What a unit kept; `None` when nothing was.
    pub(crate) fn unit_text(&self, key: &str) -> Result<Option<String>, StartError> {
        self.read(&format!("{UNIT}{key}"))
    }

    /// Keeps a text of a unit. Durable when this returns.
    pub(crate) fn keep_unit_text(&self, key: &str, text: &str) -> Result<(), StartError> {
        let mut batch = sled::Batch::default();
        insert(&mut batch, &format!("{UNIT}{key}"), &text);
        self.commit(batch)
    }

    /// Applies a batch whole, and syncs everything it needs to survive a power cut, before it returns.
    fn commit(&self, batch: sled::Batch) -> Result<(), StartError> {
        let sync = || -> io::Result<()> {
            self.tree.apply_batch(batch)?;
            self.tree.flush()?;
            self.log.sync_data()?;
            sync_blobs(&self.directory.join("db").join("blobs"))
        };
        sync().map_err(|error| {
            let fix = "the change was not saved; free some space or check the disk, then try again";
            StartError::state(&self.directory, error, fix)
        })
    }

    fn check_format(&self, fresh: bool) -> Result<(), StartError> {
        match self.read::<u32>(FORMAT)? {
            Some(FORMAT_VERSION) => Ok(()),
            None if fresh || self.tree.is_empty() => {
                let mut batch = sled::Batch::default();
                insert(&mut batch, FORMAT, &FORMAT_VERSION);
                self.commit(batch)
            }
            found => {
                let found = found.map_or_else(|| "no version".into(), |version| format!("version {version}"));
                let problem =
                    format!("its database has {found} of the format, this program knows {FORMAT_VERSION}");
                Err(StartError::state(
                    &self.directory,
                    problem,
                    "use the release that wrote it, or another directory",
                ))
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StartError> {
        let value = self.tree.get(key).map_err(|error| self.damaged(error))?;
        value.map(|value| self.decode(key, &value)).transpose()
    }

    fn decode<T: DeserializeOwned>(&self, key: &str, value: &[u8]) -> Result<T, StartError> {
        serde_json::from_slice(value).map_err(|error| self.damaged(format!("{key}: {error}")))
    }

    fn damaged(&self, error: impl std::fmt::Display) -> StartError {
        damaged(&self.directory, error)
    }
}

fn damaged(directory: &Path, error: impl std::fmt::Display) -> StartError {
    let fix = format!(
        "keep a copy of it, then restore the newest of {}/{} by hand or start with another --state-dir",
        directory.display(),
        generations::PATTERN,
    );
    StartError::state(directory, format!("its database is damaged: {error}"), fix)
}

/// sled fails on a snapshot that a crash left half-written, and can do without any: snapshots only shorten recovery.
fn open_sled(directory: &Path, sled_directory: &Path) -> Result<sled::Db, StartError> {
    remove_matching(sled_directory, |name| {
        name.starts_with("snap.") && name.ends_with(".generating")
    });
    let open = || {
        sled::Config::new()
            .path(sled_directory)
            .cache_capacity(8 << 20)
            .mode(sled::Mode::HighThroughput)
            .flush_every_ms(None)
            .open()
    };
    let opened = open().or_else(|error| match error {
        sled::Error::Corruption { .. } => {
            remove_matching(sled_directory, |name| name.starts_with("snap."));
            open()
        }
        error => Err(error),
    });
    opened.map_err(|error| match &error {
        sled::Error::Io(io) if is_locked(io) => StartError::state(
            directory,
            "another lunaport uses it",
            "stop that one or choose another --state-dir",
        ),
        sled::Error::Io(io) => {
            StartError::state(directory, io, "check its permissions and the disk below it")
        }
        error => damaged(directory, error),
    })
}

/// sled reports a lock it cannot have with a kind of its own choosing and this text.
fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

/// Creates the directory and makes its entry, and its parents', durable.
fn create_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    for parent in directory
        .ancestors()
        .skip(1)
        .take(2)
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// sled moves large values to files that it never syncs. Ours stay below its threshold; what it puts there all the
/// same is synced with the directory.
fn sync_blobs(blobs: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(blobs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(blobs)?.sync_all()
}

fn remove_matching(directory: &Path, matches: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&matches) {
            // What cannot be removed makes the open below fail, and that is told.
            drop(fs::remove_file(entry.path()));
        }
    }
}

fn insert(batch: &mut sled::Batch, key: &str, value: &impl Serialize) {
    let value = serde_json::to_vec(value).expect("plain values have a JSON form");
    batch.insert(key, value);
}

const FORMAT: &str = "format/version";
const FORMAT_VERSION: u32 = 1;
const INSTALLATION: &str = "installation/id";
const TARGET: &str = "target/";
const UNIT: &str = "unit/";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{SavedStore, SavedUnit};

    fn config() -> SavedConfig {
        let unit = SavedUnit {
            lun: 0,
            store: SavedStore::File {
                path: "disk0.img".into(),
                size: 1 << 30,
            },
            naa: "3011223344556677".into(),
            serial: "abc".into(),
            read_only: false,
            thin: true,
            removable: false,
            block_size: None,
            physical_block_size: None,
            write_through: false,
            direct: false,
        };
        SavedConfig {
            targets: vec![SavedTarget {
                name: "iqn.2026-11.org.example:a".into(),
                units: vec![unit],
            }],
        }
    }

    fn sevens(bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn nines(bytes: &mut [u8]) {
        bytes.fill(9);
    }

    #[test]
    fn what_was_saved_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        {
            let database = Database::open(directory.path()).unwrap();
            assert_eq!(database.config().unwrap(), None);
            assert_eq!(database.installation_id(sevens).unwrap(), InstallationId([7; 16]));
            database.save_config(&config()).unwrap();
        }
        let database = Database::open(directory.path()).unwrap();
        assert_eq!(database.config().unwrap(), Some(config()));
        assert_eq!(
            database.installation_id(nines).unwrap(),
            InstallationId([7; 16]),
            "made once"
        );
    }

    #[test]
    fn saving_replaces_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        database.save_config(&config()).unwrap();
        let mut other = config();
        other.targets[0].name = "iqn.2026-11.org.example:b".into();
        database.save_config(&other).unwrap();
        assert_eq!(database.config().unwrap(), Some(other));
    }

    #[test]
    fn a_second_process_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let _first = Database::open(directory.path()).unwrap();
        let message = Database::open(directory.path()).unwrap_err().to_string();
        assert!(message.contains("another lunaport uses it"), "{message}");
    }

    #[test]
    fn a_half_written_snapshot_does_not_keep_the_state_from_opening() {
        let directory = tempfile::tempdir().unwrap();
        Database::open(directory.path())
            .unwrap()
            .save_config(&config())
            .unwrap();
        fs::write(
            directory.path().join("db/snap.00000000000000FF.generating"),
            b"torn",
        )
        .unwrap();
        assert_eq!(
            Database::open(directory.path()).unwrap().config().unwrap(),
            Some(config())
        );
    }

    #[test]
    fn a_damaged_record_is_told_and_nothing_starts_empty() {
        let directory = tempfile::tempdir().unwrap();
        {
            let database = Database::open(directory.path()).unwrap();
            database
                .tree
                .insert("target/iqn.2026-11.org.example:a", b"{\"name\":")
                .unwrap();
        }
        let message = Database::open(directory.path())
            .unwrap()
            .config()
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("damaged") && message.contains("target/iqn.2026-11.org.example:a"),
            "{message}"
        );
    }

    #[test]
    fn a_newer_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Database::open(directory.path())
            .unwrap()
            .tree
            .insert(FORMAT, b"2")
            .unwrap();
        let message = Database::open(directory.path()).unwrap_err().to_string();
        assert!(message.contains("version 2"), "{message}");
    }
}
