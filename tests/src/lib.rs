//! What tests across crates share.
#![forbid(unsafe_code)]

mod checked_disk;
pub mod entry;
mod first_request;
pub mod script;
pub mod world;

pub use first_request::first_request;
