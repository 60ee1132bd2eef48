//! The store over a descriptor: what regular files and block devices have in common, which is everything once they are
//! open (`file.rs`, `block.rs`).
//!
//! Durability. A cached write rests in the page cache or, with O_DIRECT, in the device's own cache; flush is fdatasync.
//! A stable write carries `RWF_DSYNC`, and with write-through every change is stable. When a write-back fails the
//! kernel tells once and may then call the lost pages clean; therefore the first such failure is remembered, and every
//! flush fails from then on until the store is opened anew.

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::copy::{self, Place};
use crate::engine::{Direction, Disk};
use crate::error::check_range;
use crate::{
    BlockStore, CHUNK, CacheMode, CopySource, Durability, Extent, Geometry, IoBuf, Measured, Space,
    StoreError, StoreOp,
};

/// A file or block device that is open, locked and measured.
#[derive(Debug)]
pub(crate) struct DiskStore {
    disk: Arc<Disk>,
    /// As it was opened, but for the size.
    opened: Geometry,
    reach: Reach,
    cache: CacheMode,
    operations: Arc<SpaceOperations>,
}

/// How the medium is asked about its size and space: files and devices differ in that. Blocking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Size of the medium, bytes.
    pub(crate) size: fn(&Disk) -> io::Result<u64>,
    /// Space taken and left, where that can be known.
    pub(crate) space: fn(&Disk) -> io::Result<Option<Space>>,
}

/// How far the store and its medium reach.
#[derive(Debug)]
struct Reach {
    probe: Probe,
    /// Size of the store, bytes. It only grows.
    size: AtomicU64,
    /// Where the medium ended when it was last measured, in whole blocks: the same, or less after it shrank.
    end: AtomicU64,
}

/// Which space operations the medium has. Found out by trying.
#[derive(Debug)]
struct SpaceOperations {
    punch_hole: AtomicBool,
    zero_range: AtomicBool,
}

impl DiskStore {
    pub(crate) fn new(disk: Arc<Disk>, geometry: Geometry, cache: CacheMode, probe: Probe) -> Self {
        let operations = SpaceOperations {
            punch_hole: AtomicBool::new(geometry.unmap_granularity > 0),
            zero_range: AtomicBool::new(true),
        };
        Self {
            disk,
            opened: geometry,
            reach: Reach {
                probe,
                size: AtomicU64::new(geometry.size),
                end: AtomicU64::new(geometry.size),
            },
            cache,
            operations: Arc::new(operations),
        }
    }

    /// Refuses what is not on the medium.
    fn check(&self, op: StoreOp, at: u64, len: u64) -> Result<(), StoreError> {
        let on_medium = Geometry {
            size: self.reach.end.load(Ordering::Acquire),
            ..self.opened
        };
        check_range(&on_medium, op, at, len)
    }

    fn is_stable(&self, durability: Durability) -> bool {
        durability == Durability::Stable || self.cache == CacheMode::WriteThrough
    }

    /// Zeroes a range with the first method that the medium has. One job, so that a dropped future leaves no half.
    async fn clear(
        &self,
        op: StoreOp,
        range: Range<u64>,
        method: Method,
        stable: bool,
    ) -> Result<(), StoreError> {
        let (at, len) = (range.start, range.end.saturating_sub(range.start));
        self.check(op, at, len)?;
        if len == 0 {
            return Ok(());
        }
        let operations = Arc::clone(&self.operations);
        let job = move |disk: &Disk| {
            if !operations.apply(disk, method, at, len)? {
                write_zeroes(disk, at..at + len)?;
            }
            if stable { disk.sync() } else { Ok(()) }
        };
        self.disk
            .blocking(job)
            .await
            .map_err(|error| StoreError::from_io(op, at, error))
    }
}

/// How a range becomes zeroes.
#[derive(Clone, Copy, Debug)]
enum Method {
    /// Space is given back.
    Punch,
    /// Space stays.
    Zero,
}

impl SpaceOperations {
    /// `false` when the medium does not have this operation.
    fn apply(&self, disk: &Disk, method: Method, at: u64, len: u64) -> io::Result<bool> {
        let (known, mode) = match method {
            Method::Punch => (&self.punch_hole, FallocateFlags::PUNCH_HOLE),
            Method::Zero => (&self.zero_range, FallocateFlags::ZERO_RANGE),
        };
        if !known.load(Ordering::Relaxed) {
            return Ok(false);
        }
        loop {
            match rustix::fs::fallocate(disk.fd(), mode | FallocateFlags::KEEP_SIZE, at, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    known.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The slow way: writes zeroes.
fn write_zeroes(disk: &Disk, range: Range<u64>) -> io::Result<()> {
    let zeroes = IoBuf::from_heap(CHUNK);
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
        match rustix::io::pwrite(disk.fd(), &zeroes[..len], at) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[async_trait]
impl BlockStore for DiskStore {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.reach.size.load(Ordering::Acquire),
            ..self.opened
        }
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        self.check(StoreOp::Read, at, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(buf);
        }
        let read = self.disk.transfer(Direction::Read, at, buf).await;
        read.map_err(|error| StoreError::from_io(StoreOp::Read, at, error))
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        self.check(StoreOp::Write, at, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(buf);
        }
        let direction = Direction::Write {
            stable: self.is_stable(durability),
        };
        let written = self.disk.transfer(direction, at, buf).await;
        written.map_err(|error| StoreError::from_io(StoreOp::Write, at, error))
    }

    async fn flush(&self) -> Result<(), StoreError> {
        if self.opened.read_only {
            return Ok(());
        }
        let synced = self.disk.blocking(Disk::sync).await;
        synced.map_err(|error| StoreError::from_io(StoreOp::Flush, 0, error))
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        let stable = self.is_stable(Durability::Cached);
        self.clear(StoreOp::Unmap, range, Method::Punch, stable).await
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.clear(
            StoreOp::WriteZeroes,
            range,
            Method::Zero,
            self.is_stable(durability),
        )
        .await
    }

    async fn measure(&self) -> io::Result<Measured> {
        let found = self.disk.look(self.reach.probe.size).await?;
        let block = u64::from(self.opened.block_size);
        Ok(self.reach.take(found / block * block))
    }

    async fn space(&self) -> io::Result<Option<Space>> {
        self.disk.look(self.reach.probe.space).await
    }

    fn copy_source(&self) -> Option<CopySource> {
        // The kernel copies through the page cache, which direct I/O stays away from.
        (!self.disk.is_direct()).then(|| CopySource(Place::Disk(Arc::clone(&self.disk))))
    }

    async fn copy_from(&self, source: &CopySource, from: u64, at: u64, len: u64) -> bool {
        let Place::Disk(source) = &source.0 else {
            return false;
        };
        if self.disk.is_direct() || self.check(StoreOp::Write, at, len).is_err() {
            return false;
        }
        let (source, space) = (Arc::clone(source), Arc::clone(&self.operations));
        let stable = self.is_stable(Durability::Cached);
        let job = move |disk: &Disk| {
            let zero = |range: Range<u64>| {
                if space.apply(disk, Method::Zero, range.start, range.end - range.start)? {
                    return Ok(());
                }
                write_zeroes(disk, range)
            };
            copy::between_files(source.fd(), from, disk.fd(), at..at + len, zero)?;
            if stable { disk.sync() } else { Ok(()) }
        };
        self.disk.blocking(job).await.is_ok()
    }

    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        let (at, len) = (range.start, range.end.saturating_sub(range.start));
        self.check(StoreOp::Extent, at, len)?;
        let block = u64::from(self.opened.block_size);
        let found = self.disk.blocking(move |disk| extent(disk, &range, block)).await;
        found.map_err(|error| StoreError::from_io(StoreOp::Extent, at, error))
    }

    async fn prefetch(&self, range: Range<u64>) -> bool {
        if self.disk.is_direct() {
            return false;
        }
        let hint = move |disk: &Disk| {
            let len = NonZeroU64::new(range.end.saturating_sub(range.start));
            Ok(rustix::fs::fadvise(
                disk.fd(),
                range.start,
                len,
                rustix::fs::Advice::WillNeed,
            )?)
        };
        // It only begins to read, and the page cache may give up again what was read: so nothing is promised.
        let _ = self.disk.blocking(hint).await;
        false
    }
}

impl Reach {
    /// Takes the medium's size, in whole blocks, and says what that changes.
    fn take(&self, found: u64) -> Measured {
        // The end first, so that nobody who sees a new size finds its blocks refused.
        let before = self.end.swap(found, Ordering::AcqRel);
        if self.size.fetch_max(found, Ordering::AcqRel) < found {
            Measured::Grown { size: found }
        } else if found < before {
            Measured::Shrunk { end: found }
        } else {
            Measured::Unchanged
        }
    }
}

/// The kind of space at the beginning of a range. Only whole blocks can be a hole.
fn extent(disk: &Disk, range: &Range<u64>, block: u64) -> io::Result<Extent> {
    let seek = |whence, unknown| match rustix::fs::seek(disk.fd(), whence) {
        Ok(found) => Ok(found.min(range.end)),
        // Nothing of that kind up to the end of the file.
        Err(Errno::NXIO) => Ok(range.end),
        // Where holes cannot be told there are none.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(unknown),
        Err(error) => Err(io::Error::from(error)),
    };
    let data = seek(SeekFrom::Data(range.start), range.start)?;
    // A block that is a hole in part is mapped.
    let whole = if data == range.end {
        data
    } else {
        data / block * block
    };
    if whole > range.start {
        return Ok(Extent {
            end: whole,
            mapped: false,
        });
    }
    let hole = seek(SeekFrom::Hole(data), range.end)?;
    Ok(Extent {
        end: hole.max(range.start + 1).next_multiple_of(block).min(range.end),
        mapped: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_the_size_is_told_once() {
        let reach = Reach {
            probe: Probe {
                size: |_| Ok(0),
                space: |_| Ok(None),
            },
            size: AtomicU64::new(1000),
            end: AtomicU64::new(1000),
        };
        for (found, told) in [
            (1000, Measured::Unchanged),
            (1500, Measured::Grown { size: 1500 }),
            (1500, Measured::Unchanged),
            (900, Measured::Shrunk { end: 900 }),
            (900, Measured::Unchanged),
            (800, Measured::Shrunk { end: 800 }),
            // Back to where it was: the store had this size all the time.
            (1500, Measured::Unchanged),
            (1600, Measured::Grown { size: 1600 }),
        ] {
            assert_eq!(reach.take(found), told, "{found}");
        }
    }
}
