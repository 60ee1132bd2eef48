//! Block stores: bytes at offsets, in memory, in files, on block devices.
//!
//! Invariants: no word of SCSI, NVMe or iSCSI; the only crate (besides the RDMA verbs) with `unsafe`.

mod buf;
mod error;
mod spec;
mod store;

pub use buf::{BufPool, CHUNK, IoBuf, PoolStats};
pub use error::{OpenError, StoreError, StoreErrorKind, StoreOp};
pub use spec::{CacheMode, StoreOptions, StoreSource, open};
pub use store::{BlockStore, Durability, Geometry};
