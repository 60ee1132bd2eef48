//! The iSER data mover (RFC 7145): SCSI data by RDMA, everything else in messages, between a queue pair and
//! `target-core`.
//!
//! [`IserMover`] is written against one trait, [`QueuePair`]. [`sim`] is a queue pair in memory, with every misfortune
//! that hardware has; [`Initiator`] is the other end of a connection, for tests.
#![deny(unsafe_code)]

mod cm;
mod fabric;
mod header;
mod initiator;
mod keys;
mod mover;
mod send_queue;
pub mod sim;
mod slots;
mod tasks;
mod unavailable;
mod unexpected;
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "the way to C")]
pub mod verbs;

pub use cm::CmHeader;
pub use fabric::{Capabilities, Completion, LinkEvent, LinkLost, QueuePair, Region, Remote, Work, WorkId};
pub use header::{HEADER_LEN, Hello, HelloReply, IserHeader, StrangeHeader};
pub use initiator::{Initiator, Message, Opened};
pub use mover::{IserMover, IserSetup, NoMessageMemory};
pub use unavailable::Unavailable;
