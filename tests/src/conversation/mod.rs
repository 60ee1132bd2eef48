//! Scripted conversations over loopback TCP: a real target behind a socket, and an initiator that says exactly what a
//! test tells it to, right or wrong.

mod initiator;
mod target;

pub use initiator::{Initiator, Offer, read_10, write_10};
pub use target::Target;
