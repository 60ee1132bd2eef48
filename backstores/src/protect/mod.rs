//! Protection information (T10 type 1) beside the data of a store: generated with what is written without it, stored with
//! what is written with it, compared with what is read.
//!
//! **Layout.** The tags lie in a store of their own, behind [`HEADER_LEN`] bytes that say whose they are (`sidecar.rs`):
//! eight bytes for each block in the order of the blocks. What is stored is their complement, so that a hole, which reads
//! as zeroes, stands for eight bytes of FFh: the tags of a block that was never written or that was unmapped, which
//! nothing is compared with.
//!
//! **Atomicity.** Others that use this store see a block and its tags change together: areas of blocks are locked. On the
//! medium they are two writes. A power cut, or the end of the process between the two, can leave a block that was being
//! written, or that was acknowledged and not yet flushed, with tags that do not fit: reading it fails until it is written
//! again. What was flushed is whole. Wrong data are never returned as right.
//!
//! An operation is one job on a thread of the store, or, where the stores below answer at once, one call: so a dropped
//! future leaves no half.

mod sidecar;
mod tags;

use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use async_trait::async_trait;
pub(crate) use sidecar::{HEADER_LEN, path_of, prepare};
use tags::Mismatch;
pub use tags::{TAGS_LEN, TagChecks, guard};

use crate::engine::Workers;
use crate::error::check_range;
use crate::{
    Abilities, BlockStore, Durability, Extent, Geometry, IoBuf, Measured, Space, StoreError, StoreErrorKind,
    StoreOp,
};

/// A store whose blocks have tags.
#[derive(Debug)]
pub(crate) struct ProtectedStore {
    shared: Arc<Shared>,
    /// `None` when the stores below answer at once.
    workers: Option<Workers>,
}

#[derive(Debug)]
struct Shared {
    data: Arc<dyn BlockStore>,
    tags: Arc<dyn BlockStore>,
    /// The file of the tags, which grows with the data.
    sidecar: Option<PathBuf>,
    /// Blocks by the number of their area, which goes round. Taken in ascending order.
    areas: Vec<RwLock<()>>,
}

impl ProtectedStore {
    /// Over stores in memory.
    pub(crate) fn at_once(data: Arc<dyn BlockStore>, tags: Arc<dyn BlockStore>) -> Self {
        Self {
            shared: Shared::new(data, tags, None),
            workers: None,
        }
    }

    /// Over stores on media.
    pub(crate) fn with_threads(
        data: Arc<dyn BlockStore>,
        tags: Arc<dyn BlockStore>,
        sidecar: PathBuf,
    ) -> Self {
        Self {
            shared: Shared::new(data, tags, Some(sidecar)),
            workers: Some(Workers::default()),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        op: StoreOp,
        at: u64,
        job: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(workers) = &self.workers else {
            return job(&self.shared);
        };
        let shared = Arc::clone(&self.shared);
        workers.run(move || job(&shared)).await.unwrap_or_else(|_| {
            Err(StoreError {
                kind: StoreErrorKind::Medium,
                op,
                at,
                source: None,
            })
        })
    }
}

impl Shared {
    fn new(data: Arc<dyn BlockStore>, tags: Arc<dyn BlockStore>, sidecar: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            data,
            tags,
            sidecar,
            areas: (0..AREAS).map(|_| RwLock::default()).collect(),
        })
    }

    fn block_size(&self) -> u64 {
        u64::from(self.data.geometry().block_size)
    }

    /// Where the tags of a range of data lie.
    fn place(&self, range: &Range<u64>) -> Range<u64> {
        let of = |at: u64| HEADER_LEN + at / self.block_size() * TAGS_LEN as u64;
        of(range.start)..of(range.end)
    }

    fn read(
        &self,
        at: u64,
        buf: IoBuf,
        tags: IoBuf,
        checks: TagChecks,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        let range = at..at + buf.len() as u64;
        let tags_at = self.place(&range).start;
        let _locks = self.lock_shared(&range);
        let buf = wait(self.data.read(at, buf))?;
        let mut tags = wait(self.tags.read(tags_at, tags)).map_err(|error| StoreError { at, ..error })?;
        complement(&mut tags);
        self.check(StoreOp::Read, at, &buf, &tags, checks)?;
        Ok((buf, tags))
    }

    fn write(
        &self,
        at: u64,
        buf: IoBuf,
        mut tags: IoBuf,
        durability: Durability,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        let range = at..at + buf.len() as u64;
        let tags_at = self.place(&range).start;
        complement(&mut tags);
        let _locks = self.lock(&range);
        let buf = wait(self.data.write(at, buf, durability))?;
        let mut tags =
            wait(self.tags.write(tags_at, tags, durability)).map_err(|error| StoreError { at, ..error })?;
        complement(&mut tags);
        Ok((buf, tags))
    }

    /// The tags go first: zeroes with tags of what was there before would look damaged.
    fn clear(&self, op: StoreOp, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        let at = range.start;
        let _locks = self.lock(&range);
        let tags = self.place(&range);
        let cleared = match op {
            StoreOp::Unmap => wait(self.tags.unmap(tags)),
            _ => wait(self.tags.write_zeroes(tags, durability)),
        };
        cleared.map_err(|error| StoreError { at, ..error })?;
        match op {
            StoreOp::Unmap => wait(self.data.unmap(range)),
            _ => wait(self.data.write_zeroes(range, durability)),
        }
    }

    fn check(
        &self,
        op: StoreOp,
        at: u64,
        data: &[u8],
        tags: &[u8],
        checks: TagChecks,
    ) -> Result<(), StoreError> {
        check(op, self.block_size(), at, data, tags, checks)
    }

    fn lock(&self, range: &Range<u64>) -> Vec<RwLockWriteGuard<'_, ()>> {
        let lock = |area: usize| self.areas[area].write().unwrap_or_else(PoisonError::into_inner);
        areas(range).map(lock).collect()
    }

    fn lock_shared(&self, range: &Range<u64>) -> Vec<RwLockReadGuard<'_, ()>> {
        let lock = |area: usize| self.areas[area].read().unwrap_or_else(PoisonError::into_inner);
        areas(range).map(lock).collect()
    }
}

/// Whether blocks that come with protection information, to be written or compared from byte `at` on, fit it as `checks` says:
/// what [`BlockStore::write_protected`] asks before it writes.
///
/// # Errors
/// [`StoreErrorKind::Guard`], [`StoreErrorKind::ReferenceTag`].
pub fn check_tags(
    geometry: &Geometry,
    at: u64,
    data: &[u8],
    tags: &[u8],
    checks: TagChecks,
) -> Result<(), StoreError> {
    check(
        StoreOp::Write,
        u64::from(geometry.block_size),
        at,
        data,
        tags,
        checks,
    )
}

fn check(
    op: StoreOp,
    block: u64,
    at: u64,
    data: &[u8],
    tags: &[u8],
    checks: TagChecks,
) -> Result<(), StoreError> {
    let size = usize::try_from(block).expect("blocks are small");
    // What the medium says of a block without tags is no reason to write one with wrong tags.
    let escape = op == StoreOp::Read;
    let Some((index, mismatch)) = tags::check(at / block, size, data, tags, checks, escape) else {
        return Ok(());
    };
    Err(StoreError {
        kind: match mismatch {
            Mismatch::Guard => StoreErrorKind::Guard,
            Mismatch::Reference => StoreErrorKind::ReferenceTag,
        },
        op,
        at: at + index * block,
        source: None,
    })
}

/// The locks that a range needs, ascending, each once.
fn areas(range: &Range<u64>) -> impl Iterator<Item = usize> {
    let (first, end) = (range.start / AREA, range.end.div_ceil(AREA));
    let count = end.saturating_sub(first);
    (0..AREAS)
        .filter(move |area| (area + AREAS - first % AREAS) % AREAS < count)
        .map(|area| usize::try_from(area).expect("there are few areas"))
}

fn complement(tags: &mut [u8]) {
    for byte in tags {
        *byte = !*byte;
    }
}

/// Waits for a future on this thread, which has nothing else to do. The stores below need no runtime of it.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        std::thread::park();
    }
}

#[async_trait]
impl BlockStore for ProtectedStore {
    /// The data's, as far as there is room for tags.
    fn geometry(&self) -> Geometry {
        let geometry = self.shared.data.geometry();
        let tags = self.shared.tags.geometry().size.saturating_sub(HEADER_LEN) / TAGS_LEN as u64;
        Geometry {
            size: geometry
                .size
                .min(tags.saturating_mul(u64::from(geometry.block_size))),
            ..geometry
        }
    }

    async fn measure(&self) -> io::Result<Measured> {
        let measured = self.shared.data.measure().await?;
        if let (Measured::Grown { size }, Some(path), Some(workers)) =
            (measured, self.shared.sidecar.clone(), &self.workers)
        {
            let block_size = self.shared.data.geometry().block_size;
            let prepared = workers.run(move || prepare(&path, size, block_size, false));
            match prepared.await {
                Ok(Ok(_)) => self.shared.tags.measure().await?,
                Ok(Err(error)) => return Err(io::Error::other(error)),
                Err(_) => return Err(io::Error::other("the thread that grows the tags has panicked")),
            };
        }
        Ok(measured)
    }

    async fn space(&self) -> io::Result<Option<Space>> {
        self.shared.data.space().await
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            protection: true,
            ..self.shared.data.abilities()
        }
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        let tags = buf.sibling(self.tags_len(buf.len()));
        let (buf, _) = self.read_protected(at, buf, tags, TagChecks::ALL).await?;
        Ok(buf)
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry(), StoreOp::Write, at, buf.len() as u64)?;
        let mut tags = buf.sibling(self.tags_len(buf.len()));
        let block_size = self.geometry().block_size;
        tags::generate(at / u64::from(block_size), block_size as usize, &buf, &mut tags);
        let written = self.run(StoreOp::Write, at, move |shared| {
            shared.write(at, buf, tags, durability)
        });
        Ok(written.await?.0)
    }

    async fn read_protected(
        &self,
        at: u64,
        buf: IoBuf,
        tags: IoBuf,
        checks: TagChecks,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        check_range(&self.geometry(), StoreOp::Read, at, buf.len() as u64)?;
        self.run(StoreOp::Read, at, move |shared| {
            shared.read(at, buf, tags, checks)
        })
        .await
    }

    async fn write_protected(
        &self,
        at: u64,
        buf: IoBuf,
        tags: IoBuf,
        checks: TagChecks,
        durability: Durability,
    ) -> Result<(IoBuf, IoBuf), StoreError> {
        check_range(&self.geometry(), StoreOp::Write, at, buf.len() as u64)?;
        self.shared.check(StoreOp::Write, at, &buf, &tags, checks)?;
        self.run(StoreOp::Write, at, move |shared| {
            shared.write(at, buf, tags, durability)
        })
        .await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.data.flush().await?;
        self.shared.tags.flush().await
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.clear(StoreOp::Unmap, range, Durability::Cached).await
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.clear(StoreOp::WriteZeroes, range, durability).await
    }

    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        self.shared.data.extent(range).await
    }

    async fn prefetch(&self, range: Range<u64>) -> bool {
        self.shared.data.prefetch(range).await
    }
}

impl ProtectedStore {
    fn tags_len(&self, data_len: usize) -> usize {
        data_len / self.geometry().block_size as usize * TAGS_LEN
    }

    async fn clear(&self, op: StoreOp, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        let (at, len) = (range.start, range.end.saturating_sub(range.start));
        check_range(&self.geometry(), op, at, len)?;
        if len == 0 {
            return Ok(());
        }
        self.run(op, at, move |shared| shared.clear(op, range, durability))
            .await
    }
}

/// Bytes of data that share a lock.
const AREA: u64 = 1 << 20;
const AREAS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_locks_its_areas_in_order_and_each_once() {
        let of = |range| areas(&range).collect::<Vec<_>>();
        assert_eq!(of(0..1), [0]);
        assert_eq!(of((5 << 20) - 1..(5 << 20) + 1), [4, 5]);
        assert_eq!(of((63 << 20)..(66 << 20)), [0, 1, 63]);
        assert_eq!(of(0..1 << 40).len(), 64);
        assert_eq!(of(7..7), [0]);
    }
}
