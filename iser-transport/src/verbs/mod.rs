//! RDMA by libibverbs and librdmacm: reliable connections that are accepted, and nothing above them.
//!
//! The libraries are looked for at run time, so that one binary runs on hosts with and without them (`ffi.rs`). A
//! [`Device`] registers the memory it is told of, once; a [`Listener`] hands out [`ConnectRequest`]s; each becomes a
//! [`VerbsQueuePair`] on the thread that is going to use it. The only part of this crate with `unsafe`.

mod channel;
mod cm;
mod completions;
mod device;
#[cfg(test)]
mod fake;
mod ffi;
mod listener;
mod qp;
mod request;

pub use cm::ConnectRequest;
pub use device::{Device, Devices};
pub use ffi::Library;
pub use listener::{ListenError, Listener, ListenerLost};
pub use qp::{Depths, VerbsQueuePair};
