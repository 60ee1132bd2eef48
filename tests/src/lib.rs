//! What tests across crates share.

pub mod conversation;
pub mod world;
