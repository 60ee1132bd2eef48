//! Errors of stores: a small stable kind that callers decide on, and the context that people read.

use std::io;
use std::path::PathBuf;

use crate::Geometry;

/// What happened, to which operation, where.
#[derive(Debug, thiserror::Error)]
#[error("{op} at byte {at}: {kind}{}", .source.as_ref().map(|e| format!(" ({e})")).unwrap_or_default())]
pub struct StoreError {
    /// What callers decide on.
    pub kind: StoreErrorKind,
    /// Operation that failed.
    pub op: StoreOp,
    /// First byte of the operation.
    pub at: u64,
    /// Cause, if the operating system gave one.
    #[source]
    pub source: Option<io::Error>,
}

/// What callers decide on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// The guard of a block is not the CRC of its content.
    Guard,
    /// The medium failed (EIO and anything unexpected).
    Medium,
    /// No space left below the store.
    NoSpace,
    /// The store cannot be reached (device gone, cluster away).
    Offline,
    /// The store is read-only.
    ReadOnly,
    /// The range is outside the store (it shrank).
    OutOfRange,
    /// The store does not have this operation.
    NotSupported,
    /// The reference tag of a block is not its address.
    ReferenceTag,
}

/// Operations of [`BlockStore`](crate::BlockStore).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum StoreOp {
    EraseKey,
    Extent,
    Flush,
    Read,
    Unmap,
    Write,
    WriteZeroes,
}

impl std::fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Guard => "the content does not fit its guard",
            Self::ReferenceTag => "the content belongs to another address",
            Self::Medium => "the medium failed",
            Self::NoSpace => "no space left",
            Self::NotSupported => "not supported",
            Self::Offline => "the store cannot be reached",
            Self::ReadOnly => "the store is read-only",
            Self::OutOfRange => "outside the store",
        })
    }
}

impl std::fmt::Display for StoreOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::EraseKey => "erase key",
            Self::Extent => "extent",
            Self::Flush => "flush",
            Self::Read => "read",
            Self::Unmap => "unmap",
            Self::Write => "write",
            Self::WriteZeroes => "write zeroes",
        })
    }
}

impl StoreError {
    /// What the operating system said, sorted into what callers decide on.
    pub(crate) fn from_io(op: StoreOp, at: u64, source: io::Error) -> Self {
        let kind = match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => StoreErrorKind::NoSpace,
            Some(libc::EROFS) => StoreErrorKind::ReadOnly,
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN | libc::ESTALE) => {
                StoreErrorKind::Offline
            }
            _ if source.kind() == io::ErrorKind::UnexpectedEof => StoreErrorKind::OutOfRange,
            _ => StoreErrorKind::Medium,
        };
        Self {
            kind,
            op,
            at,
            source: Some(source),
        }
    }
}

/// Refuses a range outside the store, and any change of a read-only one.
pub(crate) fn check_range(geometry: &Geometry, op: StoreOp, at: u64, len: u64) -> Result<(), StoreError> {
    let refuse = |kind| {
        Err(StoreError {
            kind,
            op,
            at,
            source: None,
        })
    };
    match op {
        StoreOp::Extent | StoreOp::Flush | StoreOp::Read => {}
        StoreOp::EraseKey | StoreOp::Unmap | StoreOp::Write | StoreOp::WriteZeroes => {
            if geometry.read_only {
                return refuse(StoreErrorKind::ReadOnly);
            }
        }
    }
    match at.checked_add(len) {
        Some(end) if end <= geometry.size => Ok(()),
        _ => refuse(StoreErrorKind::OutOfRange),
    }
}

/// Why a store cannot be opened: one line that names the culprit and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}; {fix}", path = .path.display())]
pub struct OpenError {
    /// File or device.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub fix: String,
}
