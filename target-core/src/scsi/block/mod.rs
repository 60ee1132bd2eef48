//! Commands of block devices (SBC-4), one file each.

mod erase;
mod protect;
mod protect_update;
mod usage;

pub(crate) mod chunks;
pub(crate) mod compare_and_write;
pub(crate) mod format_unit;
pub(crate) mod get_lba_status;
pub(crate) mod or_write;
pub(crate) mod pre_fetch;
pub(crate) mod prevent_allow;
pub(crate) mod read;
pub(crate) mod read_capacity;
pub(crate) mod read_defect_data;
pub(crate) mod sanitize;
pub(crate) mod start_stop;
pub(crate) mod sync_cache;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write;
pub(crate) mod write_and_verify;
pub(crate) mod write_atomic;
pub(crate) mod write_same;

pub(crate) use erase::resume_sanitizing;
