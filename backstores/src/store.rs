//! What a disk is to everything above: runs of blocks that can be read, written, flushed and unmapped.

use std::fmt;
use std::io;
use std::ops::Range;

use async_trait::async_trait;

use crate::{CopySource, IoBuf, StoreError, StoreErrorKind, StoreOp, TagChecks};

/// A run of blocks. Offsets are bytes, multiples of the logical block size, and inside the store: the caller has
/// checked them against [`Geometry`]. A buffer handed in is owned by the operation until it completes; an operation
/// whose future is dropped still runs to its end.
#[async_trait]
pub trait BlockStore: fmt::Debug + Send + Sync {
    /// Size, block sizes and abilities as they are now; the size may grow while the store is open.
    fn geometry(&self) -> Geometry;

    /// Fills `buf` from offset `at`. Ranges never written or unmapped read as zeroes.
    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError>;

    /// Writes all of `buf` at offset `at`; gives the buffer back.
    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError>;

    /// Everything written before is on the medium when this returns.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Gives the space of a range back where possible. It reads as zeroes afterwards.
    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError>;

    /// Makes a range read as zeroes, keeping its space allocated where the store can tell the difference.
    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError>;

    /// Fills `buf` from offset `at`, and `tags` with the protection information of its blocks, eight bytes each, after
    /// comparing both as `checks` says ([`StoreErrorKind::Guard`], [`StoreErrorKind::ReferenceTag`]). A block that was
    /// never written has tags of FFh, and nothing is compared with those. Only where [`Abilities::protection`] says so.
    async fn read_protected(
        &self,
        at: u64,
        _buf: IoBuf,
        _tags: IoBuf,
        _checks: TagChecks,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        Err(not_supported(StoreOp::Read, at))
    }

    /// Writes all of `buf` at offset `at` with the protection information in `tags`, unless they do not fit as `checks`
    /// says: then nothing is written. Only where [`Abilities::protection`] says so.
    async fn write_protected(
        &self,
        at: u64,
        _buf: IoBuf,
        _tags: IoBuf,
        _checks: TagChecks,
        _durability: Durability,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        Err(not_supported(StoreOp::Write, at))
    }

    /// Asks the medium how large it is by now. What it grew by can be used at once, and [`geometry`](Self::geometry)
    /// tells the new size. A medium that shrank changes no size, but what lies beyond its end is
    /// [`OutOfRange`](crate::StoreErrorKind::OutOfRange) from then on. A store over another one passes this on.
    async fn measure(&self) -> io::Result<Measured> {
        Ok(Measured::Unchanged)
    }

    /// How much space the contents take, and how much is left. `None` when the store cannot tell. A store over another
    /// one passes this on.
    async fn space(&self) -> io::Result<Option<Space>> {
        Ok(None)
    }

    /// What another store needs to copy from this one without help; `None` when nobody can.
    fn copy_source(&self) -> Option<CopySource> {
        None
    }

    /// Copies `len` bytes from byte `from` of `source`, which has them, to byte `at`, as cached writes. Within one store
    /// the two ranges do not overlap. `false` when this pair of stores cannot, or when it failed: the range then holds
    /// anything, and the caller reads and writes instead, which also tells what is wrong.
    async fn copy_from(&self, _source: &CopySource, _from: u64, _at: u64, _len: u64) -> bool {
        false
    }

    /// What it can do beyond what every store can.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// What kind of space the beginning of `range`, which is not empty, has, and how far that goes. The search goes a
    /// bounded way: what is told lies inside the range and is never empty, but more of the same kind may follow it.
    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        Ok(Extent {
            end: range.end,
            mapped: true,
        })
    }

    /// A hint that a range will be read soon. `true` when it can be read without touching a medium from now on.
    async fn prefetch(&self, _range: Range<u64>) -> bool {
        false
    }

    /// Makes everything unreadable by replacing the key that the contents are encrypted with; what is read afterwards is
    /// not told. Only where [`Abilities::key_erase`] says so, else [`StoreErrorKind::NotSupported`].
    async fn erase_key(&self) -> Result<(), StoreError> {
        Err(not_supported(StoreOp::EraseKey, 0))
    }
}

fn not_supported(op: StoreOp, at: u64) -> StoreError {
    StoreError {
        kind: StoreErrorKind::NotSupported,
        op,
        at,
        source: None,
    }
}

/// What became of a store's size since it was last asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Measured {
    /// Nothing.
    Unchanged,
    /// There is more of it.
    Grown {
        /// Size now, bytes.
        size: u64,
    },
    /// The medium ends before the store does.
    Shrunk {
        /// Where, bytes.
        end: u64,
    },
}

/// Space below a store, bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    /// Taken by its contents.
    pub used: u64,
    /// Left for it and everything else that shares the space; `None` when that is not known.
    pub available: Option<u64>,
}

/// What not every store can do. [`Default`] is nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Abilities {
    /// A write of at most so many bytes is done as a whole or not at all, whatever fails meanwhile, the power included;
    /// 0 when no write is.
    pub atomic_len: u32,
    /// [`BlockStore::erase_key`] works.
    pub key_erase: bool,
    /// Blocks have protection information: [`BlockStore::read_protected`] and [`BlockStore::write_protected`] work, a
    /// plain write generates it and a plain read compares it.
    pub protection: bool,
    /// What is written is gone when the process is.
    pub transient: bool,
}

/// A run of one kind of space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Where it ends, bytes. It began where it was asked for.
    pub end: u64,
    /// It takes space, or may do so; else it reads as zeroes and takes none.
    pub mapped: bool,
}

/// Whether a write may rest in a volatile cache (a later [`BlockStore::flush`] is its promise) or must be on the
/// medium before it is acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// As [`Geometry::volatile_cache`] says.
    Cached,
    /// On the medium.
    Stable,
}

/// What a store is and can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `block_size`.
    pub size: u64,
    /// Logical block size in bytes: 512, 2048 or 4096.
    pub block_size: u32,
    /// Physical block size in bytes, a power-of-two multiple of `block_size`.
    pub physical_block_size: u32,
    /// Preferred transfer granularity in bytes, 0 when unknown.
    pub optimal_len: u32,
    /// Granularity of [`BlockStore::unmap`] in bytes; 0 when space is never given back.
    pub unmap_granularity: u32,
    /// Where the first whole granule begins, bytes.
    pub unmap_alignment: u32,
    /// An acknowledged `Cached` write can be lost by a power cut.
    pub volatile_cache: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// The medium turns (seeks cost).
    pub rotational: bool,
}
