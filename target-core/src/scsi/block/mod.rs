//! Commands of block devices (SBC-4), one file each.

pub(crate) mod chunks;
pub(crate) mod prevent_allow;
pub(crate) mod read;
pub(crate) mod read_capacity;
pub(crate) mod start_stop;
pub(crate) mod sync_cache;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write;
pub(crate) mod write_same;
