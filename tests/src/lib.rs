//! What tests across crates share.
#![forbid(unsafe_code)]

mod checked_disk;
pub mod entry;
pub mod script;
pub mod world;
