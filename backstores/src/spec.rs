//! What to open and how, and the one function that opens it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encrypt::ReadKey;
use crate::memory::{MemoryStore, PAGE_SIZE};
use crate::null::NullStore;
use crate::protect::{self, HEADER_LEN, ProtectedStore, TAGS_LEN};
use crate::{BlockStore, Geometry, OpenError, block, file};

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
        /// Creates a sparse file of this many bytes when there is none; an existing file must not be smaller.
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

impl StoreSource {
    /// The file that holds the protection information of this one, if it is a file.
    #[must_use]
    pub fn beside(&self) -> Option<PathBuf> {
        match self {
            Self::File { path, .. } => Some(protect::path_of(path)),
            Self::Block { .. } | Self::Memory { .. } | Self::Null { .. } => None,
        }
    }
}

/// How to open it. [`Default`] is 512-byte blocks, write-back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Logical block size, 512, 2048 (optical media) or 4096; `None` takes the device's own, 512 elsewhere.
    pub block_size: Option<u32>,
    /// Physical block size to report; `None` takes the device's or file system's.
    pub physical_block_size: Option<u32>,
    /// When a write is acknowledged.
    pub cache: CacheMode,
    /// Bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// Keep protection information with each block. Of a file it lies in a second one beside it,
    /// [`StoreSource::beside`]. Memory and files only.
    pub protection: bool,
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
///
/// [`CacheMode::WriteThrough`] changes nothing for `Memory` and `Null`, which have no medium to write through to.
///
/// # Errors
/// One line that names the culprit and the fix.
pub fn open(source: &StoreSource, options: StoreOptions) -> Result<Arc<dyn BlockStore>, OpenError> {
    match source {
        StoreSource::Memory { size } => {
            let geometry = without_medium(Path::new("memory"), *size, options)?;
            let memory = |size| -> Arc<dyn BlockStore> {
                Arc::new(MemoryStore::new(Geometry {
                    size,
                    unmap_granularity: PAGE_SIZE,
                    ..geometry
                }))
            };
            if !options.protection {
                return Ok(memory(geometry.size));
            }
            let blocks = geometry.size / u64::from(geometry.block_size);
            let tags = Arc::new(MemoryStore::new(Geometry {
                size: HEADER_LEN + blocks * TAGS_LEN as u64,
                read_only: false,
                ..geometry
            }));
            Ok(Arc::new(ProtectedStore::at_once(memory(geometry.size), tags)))
        }
        StoreSource::File { path, size } if options.protection => file::open_protected(path, *size, options),
        StoreSource::File { path, size } => file::open(path, *size, options),
        StoreSource::Block { path } if options.protection => Err(unprotected(path)),
        StoreSource::Block { path } => block::open(path, options),
        StoreSource::Null { .. } if options.protection => Err(unprotected(Path::new("null"))),
        StoreSource::Null { size } => Ok(Arc::new(NullStore::new(without_medium(
            Path::new("null"),
            *size,
            options,
        )?))),
    }
}

fn unprotected(path: &Path) -> OpenError {
    OpenError {
        path: path.into(),
        problem: "protection information is kept for memory and files only".into(),
        fix: "leave out pi=1".into(),
    }
}

/// Opens a store on which everything lies encrypted with AES-256-XTS. `key_file` holds 64 bytes, or 128 hexadecimal
/// digits, and belongs to this disk alone. [`BlockStore::erase_key`] replaces it, where it may be written. Blocking, as
/// [`open`]. A wrong key is not noticed.
///
/// # Errors
/// As [`open`], and whatever is wrong with the key.
pub fn open_encrypted(
    source: &StoreSource,
    options: StoreOptions,
    key_file: &Path,
) -> Result<Arc<dyn BlockStore>, OpenError> {
    if options.protection {
        return Err(OpenError {
            path: key_file.into(),
            problem: "protection information of an encrypted disk would tell of its content".into(),
            fix: "leave out pi=1 or encrypt=".into(),
        });
    }
    let key = ReadKey::from_file(key_file, options.read_only)?;
    Ok(Arc::new(key.over(open(source, options)?)))
}

/// Geometry of the stores that lose everything: whatever was acknowledged can be lost by a power cut.
fn without_medium(name: &Path, size: u64, options: StoreOptions) -> Result<Geometry, OpenError> {
    let block_size = options.block_size.unwrap_or(512);
    let mut blocks = Blocks::check(name, size, block_size, options)?;
    blocks.prefer_physical(4096);
    Ok(Geometry {
        size,
        block_size,
        physical_block_size: blocks.physical,
        optimal_len: 0,
        unmap_granularity: 4096,
        unmap_alignment: 0,
        volatile_cache: true,
        read_only: options.read_only,
        rotational: false,
    })
}

/// Sizes that fit each other.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) size: u64,
    pub(crate) physical: u32,
    asked_physical: bool,
}

impl Blocks {
    /// Checks size and block sizes; the error names which does not fit.
    pub(crate) fn check(
        path: &Path,
        size: u64,
        block_size: u32,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        let refuse = |problem: String, fix: String| {
            Err(OpenError {
                path: path.into(),
                problem,
                fix,
            })
        };
        let physical = options.physical_block_size.unwrap_or(block_size);
        if !matches!(block_size, 512 | 2048 | 4096) {
            return refuse(
                format!("block size {block_size} is not offered"),
                "use block-size=512 or 4096".into(),
            );
        }
        if !physical.is_power_of_two() || physical < block_size {
            return refuse(
                format!("physical block size {physical} does not fit blocks of {block_size} bytes"),
                format!("use a power of two from {block_size} on"),
            );
        }
        let block = u64::from(block_size);
        if size == 0 {
            return refuse("is empty".into(), "give it a size".into());
        }
        if !size.is_multiple_of(block) {
            let (down, up) = (size / block * block, size.div_ceil(block).saturating_mul(block));
            return refuse(
                format!("{size} bytes is no multiple of the block size {block_size}"),
                format!("make it {up} bytes (or {down})"),
            );
        }
        if i64::try_from(size).is_err() {
            return refuse(
                format!("{size} bytes is more than the system can address"),
                "make it smaller".into(),
            );
        }
        Ok(Self {
            size,
            physical,
            asked_physical: options.physical_block_size.is_some(),
        })
    }

    /// Takes what the medium says, unless the physical block size was asked for.
    pub(crate) fn prefer_physical(&mut self, of_medium: u32) {
        if !self.asked_physical && of_medium.is_power_of_two() {
            self.physical = self.physical.max(of_medium);
        }
    }
}
