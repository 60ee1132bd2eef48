//! The saved configuration as a plain value. Its JSON form is what `state.json` and later export and import hold.

use std::path::PathBuf;

use backstores::{CacheMode, StoreOptions, StoreSource};
use serde::{Deserialize, Serialize};

/// Everything that is configured.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedConfig {
    /// Targets by any order; their names are unique.
    pub(crate) targets: Vec<SavedTarget>,
}

/// A target. Open to every initiator that reaches its portals.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedTarget {
    pub(crate) name: String,
    pub(crate) units: Vec<SavedUnit>,
}

/// A logical unit with its identity, made once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedUnit {
    pub(crate) lun: u16,
    pub(crate) store: SavedStore,
    /// Sixteen hexadecimal digits.
    pub(crate) naa: String,
    pub(crate) serial: String,
    pub(crate) read_only: bool,
    pub(crate) thin: bool,
    pub(crate) removable: bool,
    pub(crate) block_size: Option<u32>,
    pub(crate) physical_block_size: Option<u32>,
    pub(crate) write_through: bool,
    pub(crate) direct: bool,
}

/// Where the bytes are. Paths are relative to the state directory unless absolute.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub(crate) enum SavedStore {
    Memory { size: u64 },
    File { path: PathBuf, size: u64 },
    Block { path: PathBuf },
    Null { size: u64 },
}

impl SavedUnit {
    /// The store's place, with `base` for relative paths.
    pub(crate) fn source(&self, base: &std::path::Path) -> StoreSource {
        match &self.store {
            SavedStore::Memory { size } => StoreSource::Memory { size: *size },
            SavedStore::File { path, size } => StoreSource::File {
                path: base.join(path),
                size: Some(*size),
            },
            SavedStore::Block { path } => StoreSource::Block {
                path: base.join(path),
            },
            SavedStore::Null { size } => StoreSource::Null { size: *size },
        }
    }

    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions {
            read_only: self.read_only,
            block_size: self.block_size,
            physical_block_size: self.physical_block_size,
            cache: if self.write_through {
                CacheMode::WriteThrough
            } else {
                CacheMode::WriteBack
            },
            direct: self.direct,
            protection: false,
        }
    }
}
