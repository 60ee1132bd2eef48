//! What units and targets keep over restarts: saved mode parameters, identifying information, states of target port
//! groups. A small file for each text.
//!
//! Like reservations they are no configuration, and change while initiators wait.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use target_core::scsi::{Keeping, NonVolatileMemory};

use super::unit_file;

/// A folder of the state directory as the memory of units and targets.
#[derive(Clone, Debug)]
pub struct UnitMemory {
    directory: PathBuf,
    /// Held while a file is replaced: all files of an owner have one temporary name.
    replacing: Arc<Mutex<()>>,
}

impl UnitMemory {
    /// That of `state_directory`. Nothing is made before there is something to keep.
    #[must_use]
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("units"),
            replacing: Arc::default(),
        }
    }

    /// Keeps a text under the name that the database of the first format had for it.
    pub(super) fn carry_over(&self, name: &str, text: &str) -> io::Result<()> {
        match name.split_once('/') {
            Some((unit, what)) => unit_file::replace(&self.directory.join(format!("{unit}.{what}")), text),
            None => Err(io::Error::other(format!("{name} is no text of a unit"))),
        }
    }

    fn path(&self, owner: &str, what: &str) -> PathBuf {
        self.directory.join(format!("{owner}.{what}"))
    }
}

impl NonVolatileMemory for UnitMemory {
    fn recall(&self, owner: &str, what: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path(owner, what)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep(&self, owner: &str, what: &'static str, text: String) -> Keeping {
        let path = self.path(owner, what);
        let replacing = Arc::clone(&self.replacing);
        // Syncing blocks; a data thread has others to serve meanwhile.
        let kept = tokio::task::spawn_blocking(move || {
            let _alone = replacing.lock().expect("nothing panics while it is held");
            if text.is_empty() {
                unit_file::remove(&path)
            } else {
                unit_file::replace(&path, &text)
            }
        });
        Box::pin(async move { kept.await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_unit_finds_its_own_again() {
        let directory = tempfile::tempdir().unwrap();
        let memory = UnitMemory::new(directory.path());
        assert_eq!(memory.recall("3001", "mode").unwrap(), None);
        memory.keep("3001", "mode", "one".into()).await.unwrap();
        memory.keep("3002", "mode", "two".into()).await.unwrap();
        memory.keep("3001", "mode", "three".into()).await.unwrap();
        let memory = UnitMemory::new(directory.path());
        assert_eq!(memory.recall("3001", "mode").unwrap().as_deref(), Some("three"));
        assert_eq!(memory.recall("3002", "mode").unwrap().as_deref(), Some("two"));
        assert_eq!(memory.recall("3002", "name").unwrap(), None);
        memory.keep("3002", "mode", String::new()).await.unwrap();
        assert_eq!(memory.recall("3002", "mode").unwrap(), None);
    }

    #[tokio::test]
    async fn texts_of_one_owner_do_not_get_into_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let memory = UnitMemory::new(directory.path());
        let long = |digit: &str| digit.repeat(100_000);
        for _ in 0..20 {
            let (one, two) = tokio::join!(
                memory.keep("3001", "mode", long("1")),
                memory.keep("3001", "name", long("2"))
            );
            one.and(two).unwrap();
            assert!(memory.recall("3001", "mode").unwrap() == Some(long("1")));
            assert!(memory.recall("3001", "name").unwrap() == Some(long("2")));
        }
    }
}
