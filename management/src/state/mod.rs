//! What survives a restart, a kill and a power cut: the model, in a state directory that one process has open.
//!
//! `db/` is the sled database, one key per object. `state.json` and `state.json.1` to `.9` are readable copies of the
//! whole, written with every change. An acknowledged change is in both. A database that is damaged, or has less than the
//! newest copy, is put aside and made anew from the copy; where that is not possible nothing starts, least of all empty.

mod copies;
mod database;
mod error;
mod first_format;
mod makings;
mod memory;
mod own;
mod reservations;
mod reserve;
mod sanitize_marks;
mod unit_file;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tracing::{error, warn};

pub use error::StateError;
pub(crate) use makings::MakingRecords;
pub use memory::UnitMemory;
pub(crate) use own::{is_own, leads_to_own};
pub use reservations::ReservationFiles;
pub use sanitize_marks::SanitizeMarks;

use crate::identity::InstallationId;
use crate::model::{Kind, Model};
use copies::Copy;
use database::Database;

/// An open state directory.
#[derive(Debug)]
pub struct State {
    directory: PathBuf,
    installation: InstallationId,
    /// `None` after a change could not be saved: opened again before the next.
    database: Option<Database>,
}

impl State {
    /// Opens the state directory, creating it when there is none, and reads the model.
    ///
    /// # Errors
    /// The directory cannot be used, is used by another process, or what it holds is damaged beyond repair.
    pub fn open(directory: &Path, entropy: fn(&mut [u8])) -> Result<(Self, Model), StateError> {
        create_directory(directory).map_err(|error| {
            let fix = "choose a directory you may write to with --state-dir";
            StateError::new(directory, error, fix)
        })?;
        let opened = Self::read(directory, entropy)?;
        reserve::keep(directory);
        Ok(opened)
    }

    fn read(directory: &Path, entropy: fn(&mut [u8])) -> Result<(Self, Model), StateError> {
        let had_database = database::is_there(directory);
        let copy = copies::newest(directory);
        let opened = match Database::open(directory) {
            Err(_) if reserve::give_up(directory) => Database::open(directory),
            opened => opened,
        };
        let (database, found) = match opened {
            Ok(database) => match database.load() {
                Ok(found) => (Some(database), found),
                Err(damage) => (None, Some(Err(damage))),
            },
            Err(database::OpenError::Damaged(damage)) => (None, Some(Err(damage))),
            Err(database::OpenError::Refused(error)) => return Err(error),
        };
        match (found, copy) {
            // What the database has is at least what the newest copy has: the normal case.
            (Some(Ok(loaded)), copy)
                if copy
                    .as_ref()
                    .ok()
                    .and_then(Option::as_ref)
                    .is_none_or(|copy| copy.generation() <= loaded.model.generation) =>
            {
                if let Err(problem) = copy {
                    warn!(
                        "{}: {problem}; the database is whole, the next change writes a new one",
                        copies::NEWEST
                    );
                }
                let state = Self {
                    directory: directory.to_owned(),
                    installation: loaded.installation,
                    database,
                };
                Ok((state, loaded.model))
            }
            (None, Ok(None)) if !had_database => {
                let mut id = [0; 16];
                entropy(&mut id);
                Self::begin(directory, database, InstallationId(id), Model::default())
            }
            (found, Ok(Some(copy))) => {
                let damage = match found {
                    Some(Err(damage)) => damage,
                    Some(Ok(loaded)) => format!(
                        "it has generation {} and {} has {}",
                        loaded.model.generation,
                        copies::NEWEST,
                        copy.generation()
                    ),
                    None => "it is empty".to_owned(),
                };
                drop(database);
                Self::restore(directory, copy, &damage)
            }
            (found, copy) => {
                let damage = match found {
                    Some(Err(damage)) => damage,
                    Some(Ok(_)) | None => "it is empty".to_owned(),
                };
                let copy = match copy {
                    Err(problem) => problem,
                    Ok(_) => "there is none".to_owned(),
                };
                Err(StateError::damaged(directory, &damage, &copy))
            }
        }
    }

    /// Whether a state directory has ever been made there.
    #[must_use]
    pub fn is_there(directory: &Path) -> bool {
        database::is_there(directory) || directory.join(copies::NEWEST).exists()
    }

    /// This installation's random number, made once.
    #[must_use]
    pub const fn installation(&self) -> InstallationId {
        self.installation
    }

    /// The directory itself, for what else lives in it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Saves the step from one model to the next, whole, and durable when this returns. Blocks. After an error the state
    /// holds `before`.
    ///
    /// # Errors
    /// Nothing was saved.
    pub fn commit(&mut self, before: &Model, after: &Model) -> Result<(), StateError> {
        let failed = |error: &dyn std::fmt::Display| {
            let fix = "the change was not saved; free some space or check the disk, then try again";
            StateError::new(&self.directory, error, fix)
        };
        let prepared =
            copies::prepare(&self.directory, self.installation, after).map_err(|error| failed(&error))?;
        let database = match self.database.take() {
            Some(database) => database,
            // The last change could not be saved. What of it reached the disk all the same is undone first.
            None => {
                let opened = Database::open(&self.directory).map_err(|error| failed(&error))?;
                opened
                    .replace(self.installation, before)
                    .map_err(|error| failed(&error))?;
                opened
            }
        };
        database.apply(before, after).map_err(|error| failed(&error))?;
        self.database = Some(database);
        if let Err(problem) = prepared.publish() {
            error!(%problem, "the change is saved, but not in {}", copies::NEWEST);
        }
        Ok(())
    }

    fn begin(
        directory: &Path,
        database: Option<Database>,
        installation: InstallationId,
        model: Model,
    ) -> Result<(Self, Model), StateError> {
        let database = match database {
            Some(database) => database,
            None => Database::open(directory).map_err(|error| match error {
                database::OpenError::Refused(error) => error,
                database::OpenError::Damaged(damage) => {
                    StateError::damaged(directory, &damage, "not looked at")
                }
            })?,
        };
        database.replace(installation, &model).map_err(|error| {
            StateError::new(directory, error, "free some space or check the disk below it")
        })?;
        let state = Self {
            directory: directory.to_owned(),
            installation,
            database: Some(database),
        };
        Ok((state, model))
    }

    fn restore(directory: &Path, copy: Copy, damage: &str) -> Result<(Self, Model), StateError> {
        let aside = database::put_aside(directory)
            .map_err(|error| StateError::new(directory, error, "check its permissions"))?;
        warn!(
            generation = copy.generation(),
            "the database of {} was damaged ({damage}); it was made anew from {}, and the damaged one kept as {}",
            directory.display(),
            copies::NEWEST,
            aside.display()
        );
        Self::begin(directory, None, copy.installation, copy.model)
    }
}

/// The keys in which two models differ.
pub(crate) fn differences(before: &Model, after: &Model) -> Vec<(Kind, String)> {
    let mut differing = Vec::new();
    for kind in Kind::ALL.iter().copied() {
        let mut keys = before.keys(kind);
        keys.extend(after.keys(kind));
        keys.sort();
        keys.dedup();
        let changed = keys.into_iter().filter(|key| !before.shares(after, kind, key));
        differing.extend(changed.map(|key| (kind, key)));
    }
    differing
}

/// Creates the directory, for its owner alone, and makes its entry, and its parents', durable.
fn create_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if directory.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let parents = directory.ancestors().skip(1).take(2);
    for parent in parents.filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
