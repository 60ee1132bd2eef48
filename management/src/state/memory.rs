//! What units keep over restarts: saved mode parameters and identifying information, a small file for each text.
//!
//! Like reservations they are no configuration, and change while initiators wait.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use target_core::scsi::{Keeping, NonVolatileMemory};

use super::unit_file;

/// A folder of the state directory as the memory of units.
#[derive(Clone, Debug)]
pub struct UnitMemory {
    directory: PathBuf,
}

impl UnitMemory {
    /// That of `state_directory`. Nothing is made before there is something to keep.
    #[must_use]
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("units"),
        }
    }

    /// Keeps a text under the name that the database of the first format had for it.
    pub(super) fn carry_over(&self, name: &str, text: &str) -> io::Result<()> {
        match name.split_once('/') {
            Some((unit, what)) => unit_file::replace(&self.directory.join(format!("{unit}.{what}")), text),
            None => Err(io::Error::other(format!("{name} is no text of a unit"))),
        }
    }

    fn path(&self, unit: &[u8], what: &str) -> PathBuf {
        let mut name = String::new();
        for byte in unit {
            write!(name, "{byte:02x}").expect("a string takes everything");
        }
        self.directory.join(format!("{name}.{what}"))
    }
}

impl NonVolatileMemory for UnitMemory {
    fn recall(&self, unit: &[u8], what: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path(unit, what)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep(&self, unit: &[u8], what: &'static str, text: String) -> Keeping {
        let path = self.path(unit, what);
        // Syncing blocks; a data thread has others to serve meanwhile.
        let kept = tokio::task::spawn_blocking(move || unit_file::replace(&path, &text));
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
        assert_eq!(memory.recall(&[0x30, 1], "mode").unwrap(), None);
        memory.keep(&[0x30, 1], "mode", "one".into()).await.unwrap();
        memory.keep(&[0x30, 2], "mode", "two".into()).await.unwrap();
        memory.keep(&[0x30, 1], "mode", "three".into()).await.unwrap();
        let memory = UnitMemory::new(directory.path());
        assert_eq!(
            memory.recall(&[0x30, 1], "mode").unwrap().as_deref(),
            Some("three")
        );
        assert_eq!(memory.recall(&[0x30, 2], "mode").unwrap().as_deref(), Some("two"));
        assert_eq!(memory.recall(&[0x30, 2], "name").unwrap(), None);
    }
}
