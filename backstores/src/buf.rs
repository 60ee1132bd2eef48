//! Buffers of the data path: contiguous, aligned, pooled, each with exactly one owner.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The longest contiguous buffer anyone may hold, bytes. Transfers are cut into chunks of this size, so that a chunk
/// is one store operation and a few PDUs. A multiple of every block size we offer.
pub const CHUNK: usize = 256 * 1024;

/// Contiguous memory, aligned to 4 KiB, with one owner. Dropping it gives the block back to its pool.
pub struct IoBuf {
    len: usize,
}

impl IoBuf {
    /// Memory from the heap, outside any pool (aligned as well). For paths that must not wait and found the pool dry.
    #[must_use]
    pub fn from_heap(len: usize) -> Self {
        Self { len }
    }

    /// Shortens or regrows the visible part, within [`Self::capacity`]. Regrown bytes hold whatever was there.
    ///
    /// # Panics
    /// If `len` exceeds the capacity: a caller's bug.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity());
        self.len = len;
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        todo!()
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        todo!()
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        todo!()
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

/// A bounded stock of blocks in the classes 4, 16, 64 and 256 KiB. One pool per data core.
#[derive(Debug)]
pub struct BufPool {}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolStats {
    /// Bytes the pool may hand out.
    pub capacity: usize,
    /// Bytes handed out and not yet returned.
    pub in_use: usize,
}

impl BufPool {
    /// A pool that hands out at most `capacity` bytes at a time. Memory is mapped now and touched on first use.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        let _ = capacity;
        todo!()
    }

    /// Waits its turn (first come, first served) for a block of the smallest fitting class. The visible length is
    /// `len`; the content is whatever an earlier user left, so a reader fills it before anyone sees it.
    ///
    /// # Panics
    /// If `len` exceeds [`CHUNK`]: a caller's bug.
    pub async fn acquire(self: &Arc<Self>, len: usize) -> IoBuf {
        let _ = len;
        todo!()
    }

    /// For paths that must not wait: `None` when the pool is dry or others already wait.
    pub fn try_acquire(self: &Arc<Self>, len: usize) -> Option<IoBuf> {
        let _ = len;
        todo!()
    }

    /// Occupancy now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
}
