//! The sled database of a state directory: one key per object, values of readable JSON, every commit durable.
//!
//! sled's own flush reaches neither the file's metadata nor the drive's cache, so [`Database::commit`] adds the syncs
//! that make a change durable. Each commit also writes a seal over all objects: how many there are, and a sum of their
//! hashes. What is read back without fitting its seal is damaged.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::differences;
use super::error::StateError;
use super::first_format::{self, FirstTarget};
use super::memory::UnitMemory;
use crate::identity::InstallationId;
use crate::model::{AnyObject, Kind, Model};

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    directory: PathBuf,
    tree: sled::Db,
    /// sled's log file, for the sync that sled leaves out.
    log: File,
}

/// What a database holds.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) installation: InstallationId,
    pub(super) model: Model,
}

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// It can be put aside and made anew.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// It is to be left alone.
    #[error(transparent)]
    Refused(StateError),
}

/// Generation, number and hash sum of all objects.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Seal {
    generation: u64,
    objects: u64,
    sum: u64,
}

#[derive(Deserialize, Serialize)]
struct Value {
    revision: u64,
    value: serde_json::Value,
}

/// Whether a database has ever been made there.
pub(super) fn is_there(directory: &Path) -> bool {
    directory.join("db").join("db").exists()
}

/// Moves a damaged database out of the way; its new place.
pub(super) fn put_aside(directory: &Path) -> io::Result<PathBuf> {
    let free = (1..)
        .map(|number| directory.join(format!("db.damaged.{number}")))
        .find(|path| !path.exists());
    let aside = free.expect("numbers do not end");
    match fs::rename(directory.join("db"), &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::open(directory)?.sync_all()?;
    Ok(aside)
}

impl Database {
    /// Opens or makes it.
    pub(super) fn open(directory: &Path) -> Result<Self, OpenError> {
        let refused = |error: io::Error| {
            let fix = "check its permissions and the disk below it";
            OpenError::Refused(StateError::new(directory, error, fix))
        };
        let place = directory.join("db");
        fs::create_dir_all(&place).map_err(refused)?;
        File::open(directory)
            .and_then(|folder| folder.sync_all())
            .map_err(refused)?;
        let tree = open_sled(directory, &place)?;
        let log = File::open(place.join("db")).map_err(refused)?;
        // sled syncs neither the file of its settings nor the folder it may have made both in.
        File::open(place.join("conf"))
            .and_then(|settings| settings.sync_all())
            .and_then(|()| File::open(&place)?.sync_all())
            .map_err(refused)?;
        Ok(Self {
            directory: directory.to_owned(),
            tree,
            log,
        })
    }

    /// Everything in it; `None` when nothing was ever written, an error that says what is damaged.
    pub(super) fn load(&self) -> Result<Option<Result<Loaded, String>>, String> {
        let version: Option<u32> = self.read(FORMAT)?;
        match version {
            None if self.tree.is_empty() => Ok(None),
            Some(FORMAT_VERSION) => Ok(Some(self.load_objects())),
            Some(1) => Ok(Some(self.load_first_format())),
            Some(other) => Err(format!(
                "it has version {other} of the format, this program knows {FORMAT_VERSION}: use the release that wrote it"
            )),
            None => Err("it has no version of the format".to_owned()),
        }
    }

    /// Brings it from whatever it holds to this model.
    pub(super) fn replace(&self, installation: InstallationId, model: &Model) -> io::Result<()> {
        let mut batch = sled::Batch::default();
        for key in self.tree.iter().keys() {
            batch.remove(key?);
        }
        let mut seal = Seal {
            generation: model.generation,
            ..Seal::default()
        };
        for (revision, object) in model.objects() {
            let (key, value) = encode(revision, &object);
            seal.add(&key, &value);
            batch.insert(key.into_bytes(), value);
        }
        insert(&mut batch, FORMAT, &FORMAT_VERSION);
        insert(&mut batch, INSTALLATION, &installation);
        insert(&mut batch, SEAL, &seal);
        self.commit(batch)
    }

    /// The step from one model to the next.
    pub(super) fn apply(&self, before: &Model, after: &Model) -> io::Result<()> {
        let mut seal: Seal = self.read(SEAL).map_err(io::Error::other)?.unwrap_or_default();
        let mut batch = sled::Batch::default();
        for (kind, key) in differences(before, after) {
            if let Some((revision, object)) = before.find(kind, &key) {
                let (key, value) = encode(revision, &object);
                seal.take(&key, &value);
                batch.remove(key.into_bytes());
            }
            if let Some((revision, object)) = after.find(kind, &key) {
                let (key, value) = encode(revision, &object);
                seal.add(&key, &value);
                batch.insert(key.into_bytes(), value);
            }
        }
        seal.generation = after.generation;
        insert(&mut batch, SEAL, &seal);
        self.commit(batch)
    }

    /// Applies a batch whole, and syncs everything it needs to survive a power cut, before it returns.
    fn commit(&self, batch: sled::Batch) -> io::Result<()> {
        self.tree.apply_batch(batch)?;
        self.tree.flush()?;
        self.log.sync_data()?;
        sync_blobs(&self.directory.join("db").join("blobs"))
    }

    fn load_objects(&self) -> Result<Loaded, String> {
        let sealed: Seal = self.read(SEAL)?.ok_or("it has no seal")?;
        let installation = self.read(INSTALLATION)?.ok_or("it has no installation id")?;
        let mut model = Model {
            generation: sealed.generation,
            ..Model::default()
        };
        let mut found = Seal {
            generation: sealed.generation,
            ..Seal::default()
        };
        for item in self.tree.iter() {
            let (key, value) = item.map_err(|error| error.to_string())?;
            let key = String::from_utf8_lossy(&key).into_owned();
            if OWN_KEYS.contains(&key.as_str()) {
                continue;
            }
            found.add(&key, &value);
            decode(&key, &value, &mut model).map_err(|error| format!("{key}: {error}"))?;
        }
        if found != sealed {
            return Err(format!(
                "it has {} objects that do not fit the seal over {}",
                found.objects, sealed.objects
            ));
        }
        Ok(Loaded { installation, model })
    }

    fn load_first_format(&self) -> Result<Loaded, String> {
        let installation = self.read(INSTALLATION)?.unwrap_or(InstallationId([0; 16]));
        let mut targets = Vec::new();
        for item in self.tree.scan_prefix("target/") {
            let (key, value) = item.map_err(|error| error.to_string())?;
            let target: FirstTarget = serde_json::from_slice(&value)
                .map_err(|error| format!("{}: {error}", String::from_utf8_lossy(&key)))?;
            targets.push(target);
        }
        for item in self.tree.scan_prefix(FIRST_UNIT) {
            let (key, value) = item.map_err(|error| error.to_string())?;
            let name = String::from_utf8_lossy(&key[FIRST_UNIT.len()..]).into_owned();
            let text: String = serde_json::from_slice(&value).map_err(|error| format!("{name}: {error}"))?;
            UnitMemory::new(&self.directory)
                .carry_over(&name, &text)
                .map_err(|error| error.to_string())?;
        }
        let model = first_format::carry_over(&targets)?;
        self.replace(installation, &model)
            .map_err(|error| error.to_string())?;
        Ok(Loaded { installation, model })
    }

    fn read<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        let value = self.tree.get(key).map_err(|error| error.to_string())?;
        let decode = |value: sled::IVec| serde_json::from_slice(&value);
        value
            .map(decode)
            .transpose()
            .map_err(|error| format!("{key}: {error}"))
    }
}

impl Seal {
    fn add(&mut self, key: &str, value: &[u8]) {
        self.objects += 1;
        self.sum = self.sum.wrapping_add(hash(key, value));
    }

    fn take(&mut self, key: &str, value: &[u8]) {
        self.objects = self.objects.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash(key, value));
    }
}

fn hash(key: &str, value: &[u8]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(key.as_bytes());
    hash.update([0]);
    hash.update(value);
    let digest = hash.finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

fn encode(revision: u64, object: &AnyObject) -> (String, Vec<u8>) {
    let key = format!("{}/{}", object.kind().path(), object.key());
    let value = Value {
        revision,
        value: object.to_state(),
    };
    (
        key,
        serde_json::to_vec(&value).expect("plain values have a JSON form"),
    )
}

fn decode(key: &str, value: &[u8], model: &mut Model) -> Result<(), String> {
    let (path, _) = key.split_once('/').ok_or("is no key of an object")?;
    let kind = Kind::from_path(path).ok_or("is no kind of object")?;
    let Value { revision, value } = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    AnyObject::parse(kind, value)?.put(model, revision);
    Ok(())
}

fn insert(batch: &mut sled::Batch, key: &str, value: &impl Serialize) {
    let value = serde_json::to_vec(value).expect("plain values have a JSON form");
    batch.insert(key, value);
}

/// sled fails on a snapshot that a crash left half-written, and can do without any: snapshots only shorten recovery.
///
/// Its threads may hold the lock for a moment after the database was dropped or could not be opened, and so may what is
/// left of a killed process: a lock is worth waiting for up to [`PREDECESSOR_PATIENCE`].
fn open_sled(directory: &Path, place: &Path) -> Result<sled::Db, OpenError> {
    remove_matching(place, |name| {
        name.starts_with("snap.") && name.ends_with(".generating")
    });
    let patience_ends = Instant::now() + PREDECESSOR_PATIENCE;
    let open = || loop {
        let opened = sled::Config::new()
            .path(place)
            .cache_capacity(8 << 20)
            .mode(sled::Mode::HighThroughput)
            .flush_every_ms(None)
            .open();
        match opened {
            Err(sled::Error::Io(error)) if is_locked(&error) && Instant::now() < patience_ends => {
                thread::sleep(RETRY);
            }
            result => return result,
        }
    };
    let opened = open().or_else(|error| match error {
        sled::Error::Corruption { .. } => {
            remove_matching(place, |name| name.starts_with("snap."));
            open()
        }
        error => Err(error),
    });
    opened.map_err(|error| match &error {
        sled::Error::Io(io) if is_locked(io) => OpenError::Refused(StateError::new(
            directory,
            "another lunaport uses it",
            "stop that one or choose another --state-dir",
        )),
        sled::Error::Io(io)
            if !matches!(
                io.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other
            ) =>
        {
            let fix = "check its permissions and the disk below it";
            OpenError::Refused(StateError::new(directory, io, fix))
        }
        error => OpenError::Damaged(error.to_string()),
    })
}

/// sled reports a lock it cannot have with a kind of its own choosing and this text.
fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
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

/// What units kept, in the first format.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(20);
const FIRST_UNIT: &str = "unit/";
const FORMAT: &str = "format/version";
const FORMAT_VERSION: u32 = 2;
const INSTALLATION: &str = "installation/id";
const SEAL: &str = "state/seal";
const OWN_KEYS: [&str; 3] = [FORMAT, INSTALLATION, SEAL];
