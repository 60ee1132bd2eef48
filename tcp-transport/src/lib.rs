//! The TCP data mover: framing, segmentation, digests and R2T bookkeeping between a socket and `target-core`.
//!
//! [`TcpMover`] owns the socket; the rest is pure: [`framer`](self) cuts the byte stream into PDUs, `send_queue` turns
//! responses and buffers into slices for one `writev`. What belongs to which R2T is kept in a book of `target-core`.
#![forbid(unsafe_code)]

mod framer;
mod listener;
mod mover;
mod send_queue;

pub use listener::{BindError, bind};
pub use mover::TcpMover;
