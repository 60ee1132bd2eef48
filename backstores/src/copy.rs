//! Copies inside the machine: what one store shows another so that bytes need not pass through a buffer of ours, and
//! the copy between two files.
//!
//! Files are copied by copy_file_range(2): file systems that can share blocks do that, the others copy in the kernel.
//! Block devices do not know it. Holes of the source are looked for first, and what reads as zeroes is not copied.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::engine::Disk;
use crate::memory::Shards;

/// What a store needs to copy from another one. Keeps that one's contents alive.
pub struct CopySource(pub(crate) Place);

/// Where the bytes are.
pub(crate) enum Place {
    Disk(Arc<Disk>),
    Memory(Arc<Shards>),
}

impl fmt::Debug for CopySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Place::Disk(_) => "CopySource(disk)",
            Place::Memory(_) => "CopySource(memory)",
        })
    }
}

/// Copies to the range `to` what `source` has from byte `from` on; `zero` makes a part of the target read as zeroes. Of
/// the target, holes that have to read as zeroes stay holes.
pub(crate) fn between_files(
    source: &OwnedFd,
    from: u64,
    target: &OwnedFd,
    to: Range<u64>,
    zero: impl Fn(Range<u64>) -> io::Result<()>,
) -> io::Result<()> {
    let end = from + (to.end - to.start);
    // Both ranges are inside their files, so that neither addition wraps.
    let at = |byte: u64| byte - from + to.start;
    let mut next = from;
    while next < end {
        let data = next_data(source, next..end)?;
        let mut hole = at(next)..at(data.start);
        while !hole.is_empty() {
            let stale = next_data(target, hole.clone())?;
            if !stale.is_empty() {
                zero(stale.clone())?;
            }
            hole.start = stale.end;
        }
        copy_data(source, data.clone(), target, at(data.start))?;
        next = data.end;
    }
    Ok(())
}

fn copy_data(source: &OwnedFd, data: Range<u64>, target: &OwnedFd, at: u64) -> io::Result<()> {
    let (mut from, mut to) = (data.start, at);
    while from < data.end {
        let left = usize::try_from(data.end - from).unwrap_or(usize::MAX);
        // It moves both offsets by what was copied.
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), left) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The first run in `range` that is no hole; an empty one at its end when all of it is.
fn next_data(file: &OwnedFd, range: Range<u64>) -> io::Result<Range<u64>> {
    if range.is_empty() {
        return Ok(range.end..range.end);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(start) => start.min(range.end),
        Err(Errno::NXIO) => range.end,
        // A file system that cannot tell: all of it may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(range),
        Err(error) => return Err(error.into()),
    };
    if start == range.end {
        return Ok(start..start);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(start..end.min(range.end))
}
