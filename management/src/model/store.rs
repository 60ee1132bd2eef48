//! Backing stores: where the bytes of a logical unit are, and how they are kept.

use std::path::{Path, PathBuf};

use backstores::{CacheMode, StoreOptions, StoreSource};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Id;
use super::object::object;

/// A backing store.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// What it is called here.
    pub id: Id,
    /// Where the bytes are.
    pub place: Place,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// Logical block size, 512 or 4096, of CDs and DVDs 2048; left out it is the device's own, 512 elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 512)]
    pub block_size: Option<u32>,
    /// Physical block size to report; left out it is the device's or file system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 4096)]
    pub physical_block_size: Option<u32>,
    /// When a write is acknowledged.
    #[serde(default)]
    pub cache: Cache,
    /// Bypass the page cache.
    #[serde(default)]
    pub direct: bool,
    /// Keep protection information of type 1 with every block; for files and memory.
    #[serde(default)]
    pub protection: bool,
    /// A file with the key that everything on the store is encrypted with, below a store root as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub encrypt: Option<PathBuf>,
}

/// Where the bytes are. Paths are relative to the state directory unless absolute, and below a store root.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum Place {
    /// A block device, used exclusively.
    Block {
        /// Its path.
        #[schema(value_type = String)]
        path: PathBuf,
    },
    /// A regular file.
    File {
        /// Its path.
        #[schema(value_type = String)]
        path: PathBuf,
        /// Makes a sparse file of this many bytes when there is none; left out, an existing file is taken as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// Memory, gone when the process ends.
    Memory {
        /// Bytes.
        size: u64,
    },
    /// Reads zeroes, forgets writes.
    Null {
        /// Bytes.
        size: u64,
    },
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// When it is in a cache that a flush empties.
    #[default]
    WriteBack,
    /// When it is on the medium.
    WriteThrough,
}

object!(Store, Store, stores, |store| store.id.to_string());

impl Store {
    /// What the store crate opens; `base` is for relative paths.
    #[must_use]
    pub fn source(&self, base: &Path) -> StoreSource {
        match &self.place {
            Place::Block { path } => StoreSource::Block {
                path: base.join(path),
            },
            Place::File { path, size } => StoreSource::File {
                path: base.join(path),
                size: *size,
            },
            Place::Memory { size } => StoreSource::Memory { size: *size },
            Place::Null { size } => StoreSource::Null { size: *size },
        }
    }

    /// How it is opened.
    #[must_use]
    pub const fn options(&self) -> StoreOptions {
        StoreOptions {
            read_only: self.read_only,
            block_size: self.block_size,
            physical_block_size: self.physical_block_size,
            cache: match self.cache {
                Cache::WriteBack => CacheMode::WriteBack,
                Cache::WriteThrough => CacheMode::WriteThrough,
            },
            direct: self.direct,
            protection: self.protection,
        }
    }

    /// Its path, for stores that have one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Block { path } | Place::File { path, .. } => Some(path),
            Place::Memory { .. } | Place::Null { .. } => None,
        }
    }
}
