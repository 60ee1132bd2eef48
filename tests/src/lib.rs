//! What tests across crates share.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod world;
