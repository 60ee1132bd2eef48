//! What tests across crates share.
#![forbid(unsafe_code)]

pub mod entry;
pub mod script;
pub mod world;
