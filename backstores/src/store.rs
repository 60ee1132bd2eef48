//! What a disk is to everything above: runs of blocks that can be read, written, flushed and unmapped.

use std::fmt;
use std::io;
use std::ops::Range;

use async_trait::async_trait;

use crate::{IoBuf, StoreError};

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
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Physical block size in bytes, a power-of-two multiple of `block_size`.
    pub physical_block_size: u32,
    /// Preferred transfer granularity in bytes, 0 when unknown.
    pub optimal_len: u32,
    /// Granularity of [`BlockStore::unmap`] in bytes; 0 when space is never given back.
    pub unmap_granularity: u32,
    /// An acknowledged `Cached` write can be lost by a power cut.
    pub volatile_cache: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// The medium turns (seeks cost).
    pub rotational: bool,
}
