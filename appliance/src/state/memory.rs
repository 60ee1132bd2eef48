//! What logical units keep over restarts, in the database: one key for each text of a unit.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use target_core::scsi::{Keeping, NonVolatileMemory};

use super::Database;

/// The database as the memory of units.
#[derive(Debug)]
pub(crate) struct UnitMemory(pub(crate) Arc<Database>);

impl NonVolatileMemory for UnitMemory {
    fn recall(&self, unit: &[u8], what: &str) -> io::Result<Option<String>> {
        self.0.unit_text(&key(unit, what)).map_err(io::Error::other)
    }

    fn keep(&self, unit: &[u8], what: &'static str, text: String) -> Keeping {
        let (database, key) = (Arc::clone(&self.0), key(unit, what));
        // Syncing blocks; a data thread has others to serve meanwhile.
        let kept = tokio::task::spawn_blocking(move || database.keep_unit_text(&key, &text));
        Box::pin(async move { kept.await?.map_err(io::Error::other) })
    }
}

fn key(unit: &[u8], what: &str) -> String {
    let mut key = String::new();
    for byte in unit {
        write!(key, "{byte:02x}").expect("a string takes everything");
    }
    format!("{key}/{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_unit_finds_its_own_again() {
        let directory = tempfile::tempdir().unwrap();
        let open = || UnitMemory(Arc::new(Database::open(directory.path()).unwrap()));
        {
            let memory = open();
            assert_eq!(memory.recall(&[0x30, 1], "mode").unwrap(), None);
            memory.keep(&[0x30, 1], "mode", "one".into()).await.unwrap();
            memory.keep(&[0x30, 2], "mode", "two".into()).await.unwrap();
            memory.keep(&[0x30, 1], "mode", "three".into()).await.unwrap();
        }
        let memory = open();
        assert_eq!(
            memory.recall(&[0x30, 1], "mode").unwrap().as_deref(),
            Some("three")
        );
        assert_eq!(memory.recall(&[0x30, 2], "mode").unwrap().as_deref(), Some("two"));
        assert_eq!(memory.recall(&[0x30, 2], "name").unwrap(), None);
    }
}
