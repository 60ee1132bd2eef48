//! Buffers of the data path: contiguous, aligned, each with exactly one owner.
//!
//! A buffer is a block of a [`BufPool`] or memory from the heap; whoever holds it cannot tell and need not. Content is
//! whatever an earlier holder left (the heap gives zeroes): a store fills what it reads, a receiver fills what it
//! writes, and both before anyone else sees the bytes. Nobody here clears memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::BufPool;
use crate::slabs::Class;

/// The longest contiguous buffer anyone may hold, bytes. Transfers are cut into chunks of this size, so that a chunk
/// is one store operation and a few PDUs. A multiple of every block size we offer.
pub const CHUNK: usize = 256 * 1024;

/// Contiguous memory, aligned to 4 KiB, with one owner. Dropping it, on any thread, gives the block back to its pool.
pub struct IoBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    home: Home,
    /// A buffer that goes wherever this one goes.
    cargo: Option<Box<Self>>,
}

/// Where the memory returns to.
enum Home {
    Heap,
    Pool(Arc<BufPool>, Class),
}

// SAFETY: an `IoBuf` is the only owner of its bytes, as a `Vec<u8>` is, and its pool may be used from any thread.
unsafe impl Send for IoBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Memory from the heap, zeroed, outside any pool (aligned as well). For paths that must not wait and found the
    /// pool dry.
    #[must_use]
    pub fn from_heap(len: usize) -> Self {
        let layout = heap_layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            len,
            capacity: layout.size(),
            home: Home::Heap,
            cargo: None,
        }
    }

    /// A block of a pool.
    ///
    /// # Safety
    /// `start` is the first of `class.bytes()` initialised bytes that live as long as `pool`, and nobody else uses
    /// them until [`BufPool::give_back`] has been called with the same `start` and `class`.
    pub(crate) unsafe fn from_pool(start: NonNull<u8>, len: usize, class: Class, pool: Arc<BufPool>) -> Self {
        debug_assert!(len <= class.bytes());
        Self {
            start,
            len,
            capacity: class.bytes(),
            home: Home::Pool(pool, class),
            cargo: None,
        }
    }

    /// Shortens or regrows the visible part, within [`Self::capacity`]. Regrown bytes hold whatever was there.
    ///
    /// # Panics
    /// If `len` exceeds the capacity: a caller's bug.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity,
            "{len} bytes do not fit into {}",
            self.capacity
        );
        self.len = len;
    }

    /// Another buffer of `len` bytes, of the same pool if that has one to spare, else from the heap: who holds a buffer
    /// never waits for a second.
    pub(crate) fn sibling(&self, len: usize) -> Self {
        let pooled = match &self.home {
            Home::Heap => None,
            Home::Pool(pool, _) => pool.try_acquire(len),
        };
        pooled.unwrap_or_else(|| Self::from_heap(len))
    }

    /// Takes another buffer along. An operation that owns this one thereby owns both until it ends, whatever becomes of
    /// the future that waits for it.
    pub(crate) fn carrying(mut self, cargo: Self) -> Self {
        self.cargo = Some(Box::new(cargo));
        self
    }

    /// Gives back what it carries.
    pub(crate) fn unload(&mut self) -> Option<Self> {
        self.cargo.take().map(|cargo| *cargo)
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        match &self.home {
            // SAFETY: allocated in `from_heap` with the layout that follows from the capacity.
            Home::Heap => unsafe { dealloc(self.start.as_ptr(), heap_layout(self.capacity)) },
            Home::Pool(pool, class) => pool.give_back(self.start, *class),
        }
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes (zeroed memory, or written since) that only this value owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

fn heap_layout(len: usize) -> Layout {
    let size = len
        .max(1)
        .checked_next_multiple_of(ALIGNMENT)
        .expect("a buffer fits into the address space");
    Layout::from_size_align(size, ALIGNMENT).expect("a buffer fits into the address space")
}

/// Enough for O_DIRECT on every device we know.
const ALIGNMENT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_memory_is_aligned_and_zeroed() {
        for len in [0, 1, 512, 4096, 4097, 262_144] {
            let buf = IoBuf::from_heap(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % 4096, 0);
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_visible_part_shrinks_and_regrows_within_the_capacity() {
        let mut buf = IoBuf::from_heap(5000);
        assert_eq!(buf.capacity(), 8192);
        buf[4999] = 7;
        buf.set_len(10);
        assert_eq!(buf.len(), 10);
        buf.set_len(8192);
        assert_eq!(buf[4999], 7);
    }

    #[test]
    #[should_panic(expected = "4097 bytes do not fit into 4096")]
    fn growing_beyond_the_capacity_panics() {
        IoBuf::from_heap(1).set_len(4097);
    }
}
