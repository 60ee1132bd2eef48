//! Sparse pages in memory. A page is 64 KiB, comes with the first write that touches it and goes with the unmap that
//! covers it. All of it is lost with the process.
//!
//! Pages lie in shards by their number, each behind its own lock, so that cores seldom meet. A lock is held while one
//! page is copied: two operations at once are atomic to each other within each page they touch, no further. Against
//! failures a write is atomic as a whole: the only one there is, missing memory, comes before anything is copied, and a
//! power cut leaves nothing of which a part could be seen.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;

use crate::copy::Place;
use crate::error::check_range;
use crate::{
    Abilities, BlockStore, CHUNK, CopySource, Durability, Extent, Geometry, IoBuf, Space, StoreError,
    StoreErrorKind, StoreOp,
};

/// A disk in memory. It has no medium, so [`Durability::Stable`] and flush promise nothing here, and
/// [`Geometry::volatile_cache`] is always set, as every acknowledged write is lost by a power cut.
pub(crate) struct MemoryStore {
    geometry: Geometry,
    shards: Arc<Shards>,
}

/// All pages; which shard has a page, its number says.
pub(crate) type Shards = Vec<RwLock<Pages>>;

/// Pages of a shard by page number; each is [`PAGE`] bytes.
type Pages = HashMap<u64, Vec<u8>>;

impl MemoryStore {
    /// An empty disk.
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            shards: Arc::new((0..SHARDS).map(|_| RwLock::default()).collect()),
        }
    }

    fn shard(&self, page: u64) -> &RwLock<Pages> {
        shard(&self.shards, page)
    }

    /// Zeroes a part of a page, if it exists.
    fn clear_part(&self, part: &Part) {
        if let Some(page) = write(self.shard(part.page)).get_mut(&part.page) {
            page[part.within()].fill(0);
        }
    }

    /// Drops whole pages, going by the pages there are once the range, which may be huge, is longer than that.
    fn drop_pages(&self, pages: Range<u64>) {
        if pages.end.saturating_sub(pages.start) <= SHARDS {
            pages.for_each(|page| drop(write(self.shard(page)).remove(&page)));
            return;
        }
        for shard in self.shards.iter() {
            write(shard).retain(|page, _| !pages.contains(page));
        }
    }

    /// Copies from other pages, or other places of the same ones. Pages that are not there take no space here either.
    /// `None` when there is no memory.
    fn copy_pages(&self, source: &Shards, from: u64, to: Range<u64>) -> Option<()> {
        let mut piece = Vec::new();
        piece.try_reserve_exact(small(PAGE)).ok()?;
        let mut next = to.start;
        for part in parts(from..from + (to.end - to.start)) {
            let target = next..next + part.len as u64;
            next = target.end;
            piece.clear();
            // One lock at a time: two copies that run in opposite directions do not wait for each other.
            if let Some(page) = read(shard(source, part.page)).get(&part.page) {
                piece.extend_from_slice(&page[part.within()]);
            }
            if piece.is_empty() {
                self.clear(target);
                continue;
            }
            let mut rest = &piece[..];
            for part in parts(target) {
                let (bytes, later) = rest.split_at(part.len);
                put(&mut write(self.shard(part.page)), &part, bytes)?;
                rest = later;
            }
        }
        Some(())
    }

    /// Makes the pages of a range that are missing, as zeroes, so that nothing can fail once bytes are copied. An error
    /// names where the first is that there is no memory for.
    fn reserve(&self, range: Range<u64>) -> Result<(), u64> {
        for part in parts(range) {
            let mut pages = write(self.shard(part.page));
            if !pages.contains_key(&part.page) {
                let page = zero_page(&mut pages).ok_or(part.page * PAGE + part.at as u64)?;
                pages.insert(part.page, page);
            }
        }
        Ok(())
    }

    /// Makes a range read as zeroes.
    fn clear(&self, range: Range<u64>) {
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        if whole.start >= whole.end {
            parts(range).for_each(|part| self.clear_part(&part));
            return;
        }
        parts(range.start..whole.start * PAGE).for_each(|part| self.clear_part(&part));
        parts(whole.end * PAGE..range.end).for_each(|part| self.clear_part(&part));
        self.drop_pages(whole);
    }
}

#[async_trait]
impl BlockStore for MemoryStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, at: u64, mut buf: IoBuf) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Read, at, buf.len() as u64)?;
        let mut rest = &mut buf[..];
        for part in parts(at..at + rest.len() as u64) {
            let (into, later) = rest.split_at_mut(part.len);
            match read(self.shard(part.page)).get(&part.page) {
                Some(page) => into.copy_from_slice(&page[part.within()]),
                None => into.fill(0),
            }
            rest = later;
        }
        Ok(buf)
    }

    async fn write(&self, at: u64, buf: IoBuf, _durability: Durability) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Write, at, buf.len() as u64)?;
        let no_memory = |at| StoreError {
            kind: StoreErrorKind::NoSpace,
            op: StoreOp::Write,
            at,
            source: None,
        };
        let range = at..at + buf.len() as u64;
        if range.start / PAGE + 1 < range.end.div_ceil(PAGE) {
            self.reserve(range.clone()).map_err(no_memory)?;
        }
        let mut rest = &buf[..];
        for part in parts(range) {
            let (from, later) = rest.split_at(part.len);
            put(&mut write(self.shard(part.page)), &part, from)
                .ok_or_else(|| no_memory(part.page * PAGE + part.at as u64))?;
            rest = later;
        }
        Ok(buf)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        check_range(
            &self.geometry,
            StoreOp::Unmap,
            range.start,
            range.end.saturating_sub(range.start),
        )?;
        self.clear(range);
        Ok(())
    }

    async fn write_zeroes(&self, range: Range<u64>, _durability: Durability) -> Result<(), StoreError> {
        check_range(
            &self.geometry,
            StoreOp::WriteZeroes,
            range.start,
            range.end.saturating_sub(range.start),
        )?;
        self.clear(range);
        Ok(())
    }

    async fn space(&self) -> io::Result<Option<Space>> {
        let pages: usize = self.shards.iter().map(|shard| read(shard).len()).sum();
        Ok(Some(Space {
            used: pages as u64 * PAGE,
            available: None,
        }))
    }

    fn copy_source(&self) -> Option<CopySource> {
        Some(CopySource(Place::Memory(Arc::clone(&self.shards))))
    }

    async fn copy_from(&self, source: &CopySource, from: u64, at: u64, len: u64) -> bool {
        let Place::Memory(pages) = &source.0 else {
            return false;
        };
        if check_range(&self.geometry, StoreOp::Write, at, len).is_err() {
            return false;
        }
        for done in (0..len).step_by(CHUNK) {
            let piece = (len - done).min(CHUNK as u64);
            if self
                .copy_pages(pages, from + done, at + done..at + done + piece)
                .is_none()
            {
                return false;
            }
            // Nothing here ever waits, so that others would not get their turn.
            tokio::task::yield_now().await;
        }
        true
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            atomic_len: u32::try_from(CHUNK).expect("a buffer is short"),
            transient: true,
            ..Abilities::default()
        }
    }

    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        let len = range.end.saturating_sub(range.start);
        check_range(&self.geometry, StoreOp::Extent, range.start, len)?;
        let is_mapped = |page: u64| read(self.shard(page)).contains_key(&page);
        let first = range.start / PAGE;
        let mapped = is_mapped(first);
        let limit = range.end.div_ceil(PAGE).min(first + PAGES_SEARCHED);
        let end = (first + 1..limit)
            .find(|page| is_mapped(*page) != mapped)
            .unwrap_or(limit);
        Ok(Extent {
            end: range.end.min(end * PAGE),
            mapped,
        })
    }

    async fn prefetch(&self, _range: Range<u64>) -> bool {
        true
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pages: usize = self.shards.iter().map(|shard| read(shard).len()).sum();
        write!(
            f,
            "MemoryStore({} bytes, {pages} pages of {PAGE})",
            self.geometry.size
        )
    }
}

fn shard(shards: &Shards, page: u64) -> &RwLock<Pages> {
    &shards[usize::try_from(page % SHARDS).expect("there are few shards")]
}

/// The piece of a range that lies in one page.
struct Part {
    page: u64,
    at: usize,
    len: usize,
}

impl Part {
    fn within(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

fn parts(range: Range<u64>) -> impl Iterator<Item = Part> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(next).filter(|left| *left > 0)?;
        let at = next % PAGE;
        let len = left.min(PAGE - at);
        let part = Part {
            page: next / PAGE,
            at: small(at),
            len: small(len),
        };
        next += len;
        Some(part)
    })
}

fn small(within_page: u64) -> usize {
    usize::try_from(within_page).expect("at most a page")
}

/// Copies into a page, which it makes when it is missing; `None` when there is no memory.
fn put(pages: &mut Pages, part: &Part, from: &[u8]) -> Option<()> {
    if let Some(page) = pages.get_mut(&part.page) {
        page[part.within()].copy_from_slice(from);
        return Some(());
    }
    let mut page = empty_page(pages)?;
    page.resize(part.at, 0);
    page.extend_from_slice(from);
    page.resize(small(PAGE), 0);
    pages.insert(part.page, page);
    Some(())
}

/// A page of zeroes, and room for it in its shard.
fn zero_page(pages: &mut Pages) -> Option<Vec<u8>> {
    let mut page = empty_page(pages)?;
    page.resize(small(PAGE), 0);
    Some(page)
}

fn empty_page(pages: &mut Pages) -> Option<Vec<u8>> {
    let mut page = Vec::new();
    page.try_reserve_exact(small(PAGE)).ok()?;
    pages.try_reserve(1).ok()?;
    Some(page)
}

fn read(shard: &RwLock<Pages>) -> RwLockReadGuard<'_, Pages> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(shard: &RwLock<Pages>) -> RwLockWriteGuard<'_, Pages> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a page.
pub(crate) const PAGE_SIZE: u32 = 64 * 1024;
const PAGE: u64 = PAGE_SIZE as u64;
const SHARDS: u64 = 64;
/// How far one look for an extent goes, pages: 1 GiB, some hundred microseconds.
const PAGES_SEARCHED: u64 = 16 * 1024;
