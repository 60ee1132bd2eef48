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
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::copy::{self, Place};
use crate::engine::{Direction, Disk};
use crate::error::check_range;
use crate::{
    BlockStore, CHUNK, CacheMode, CopySource, Durability, Extent, Geometry, IoBuf, StoreError, StoreOp,
};

/// A file or block device that is open, locked and measured.
#[derive(Debug)]
pub(crate) struct DiskStore {
    disk: Arc<Disk>,
    geometry: Geometry,
    cache: CacheMode,
    space: Arc<Space>,
}

/// Which space operations the medium has. Found out by trying.
#[derive(Debug)]
struct Space {
    punch_hole: AtomicBool,
    zero_range: AtomicBool,
}

impl DiskStore {
    pub(crate) fn new(disk: Arc<Disk>, geometry: Geometry, cache: CacheMode) -> Self {
        let space = Space {
            punch_hole: AtomicBool::new(geometry.unmap_granularity > 0),
            zero_range: AtomicBool::new(true),
        };
        Self {
            disk,
            geometry,
            cache,
            space: Arc::new(space),
        }
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
        check_range(&self.geometry, op, at, len)?;
        if len == 0 {
            return Ok(());
        }
        let space = Arc::clone(&self.space);
        let job = move |disk: &Disk| {
            if !space.apply(disk, method, at, len)? {
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

impl Space {
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
        self.geometry
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Read, at, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(buf);
        }
        let read = self.disk.transfer(Direction::Read, at, buf).await;
        read.map_err(|error| StoreError::from_io(StoreOp::Read, at, error))
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        check_range(&self.geometry, StoreOp::Write, at, buf.len() as u64)?;
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
        if self.geometry.read_only {
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

    fn copy_source(&self) -> Option<CopySource> {
        // The kernel copies through the page cache, which direct I/O stays away from.
        (!self.disk.is_direct()).then(|| CopySource(Place::Disk(Arc::clone(&self.disk))))
    }

    async fn copy_from(&self, source: &CopySource, from: u64, at: u64, len: u64) -> bool {
        let Place::Disk(source) = &source.0 else {
            return false;
        };
        if self.disk.is_direct() || check_range(&self.geometry, StoreOp::Write, at, len).is_err() {
            return false;
        }
        let (source, space) = (Arc::clone(source), Arc::clone(&self.space));
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
        check_range(&self.geometry, StoreOp::Extent, at, len)?;
        let block = u64::from(self.geometry.block_size);
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
