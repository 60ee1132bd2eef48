//! What tests across crates share.
#![forbid(unsafe_code)]

pub mod script;
pub mod world;
