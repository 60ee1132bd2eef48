//! What to open and how, and the one function that opens it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{BlockStore, OpenError};

/// Where the bytes are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoreSource {
    /// Sparse pages in memory, gone when the process ends.
    Memory {
        /// Bytes.
        size: u64,
    },
    /// A regular file.
    File {
        /// Its path.
        path: PathBuf,
        /// Creates a sparse file of this many bytes when there is none; an existing file must have this size.
        size: Option<u64>,
    },
    /// A block device, opened exclusively.
    Block {
        /// Its path.
        path: PathBuf,
    },
    /// Reads zeroes, forgets writes. For measuring everything above.
    Null {
        /// Bytes.
        size: u64,
    },
}

/// How to open it. [`Default`] is 512-byte blocks, write-back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Logical block size, 512 or 4096; `None` takes the device's own, 512 elsewhere.
    pub block_size: Option<u32>,
    /// Physical block size to report; `None` takes the device's or file system's.
    pub physical_block_size: Option<u32>,
    /// When a write is acknowledged.
    pub cache: CacheMode,
    /// Bypass the page cache (O_DIRECT).
    pub direct: bool,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CacheMode {
    /// When it is in a cache that a flush empties.
    #[default]
    WriteBack,
    /// When it is on the medium.
    WriteThrough,
}

/// Opens a store. Blocking (file system calls, locks): call it away from data threads. A file or device that is
/// already served, here or by another process, is refused by name. Nothing is created when it fails.
pub fn open(source: &StoreSource, options: StoreOptions) -> Result<Arc<dyn BlockStore>, OpenError> {
    let _ = (source, options);
    todo!()
}
