//! Block stores: bytes at offsets, in memory, in files, on block devices.
//!
//! Invariants: no word of SCSI, NVMe or iSCSI; the only crate (besides the RDMA verbs) with `unsafe`.

mod block;
mod buf;
mod copy;
mod disk_store;
mod encrypt;
mod engine;
mod error;
mod fault;
mod file;
mod holder;
mod memory;
mod null;
mod pool;
mod protect;
mod slabs;
mod spec;
mod store;
mod sysfs;

pub use buf::{CHUNK, IoBuf};
pub use copy::CopySource;
pub use engine::{DataThread, Engine, EngineChoice, EngineKind, probe};
pub use error::{OpenError, StoreError, StoreErrorKind, StoreOp};
pub use fault::{Fault, FaultStore, HeldOp, Matching};
pub use pool::{BufPool, PoolStats};
pub use protect::{TAGS_LEN, TagChecks, check_tags, guard};
pub use spec::{CacheMode, StoreOptions, StoreSource, open, open_encrypted};
pub use store::{Abilities, BlockStore, Durability, Extent, Geometry, Measured, Space};
