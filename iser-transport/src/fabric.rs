//! What RDMA is to a transport: a queue pair that takes work, owns its memory meanwhile, and gives it back with the
//! completion. Nothing here knows iSCSI.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstores::{BufPool, IoBuf};

/// One end of a reliable connection.
///
/// Work is done in the order it was posted; completions may come in another. Memory that was handed in is the queue
/// pair's until its completion, or until the queue pair is dropped: after that no device touches it any more.
pub trait QueuePair: Send + fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes a send, write or read. The caller keeps within [`Capabilities::send_depth`] and
    /// [`Capabilities::reads_max`]; a queue pair that has failed completes the work with an error.
    fn post(&mut self, id: WorkId, work: Work);

    /// Offers memory for one message of the peer, of at most the buffer's length. The caller keeps within
    /// [`Capabilities::receive_depth`].
    fn post_receive(&mut self, buf: IoBuf);

    /// Ready with the next thing that happened. After [`LinkEvent::Lost`] nothing begins any more: what follows are the ends
    /// of work, and messages that came before.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<LinkEvent>;

    /// Another thread polls it from now on: whatever is tied to this one's runtime is tied to that one's.
    fn move_here(&mut self) -> std::io::Result<()>;

    /// Ends the connection: the peer learns of it, what is outstanding completes with errors.
    fn disconnect(&mut self);
}

/// Memory that devices register once: all that buffers of a pool are made of.
#[derive(Clone, Debug)]
pub struct Region(Arc<BufPool>);

impl Region {
    /// The memory of a pool, which it keeps mapped.
    #[must_use]
    pub fn of(pool: &Arc<BufPool>) -> Self {
        Self(Arc::clone(pool))
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.0.addresses()
    }
}

/// Limits of a queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Sends, writes and reads that may be outstanding.
    pub send_depth: usize,
    /// Receives that may be outstanding.
    pub receive_depth: usize,
    /// Reads that may be outstanding: what both ends agreed on (ORD here, IRD there).
    pub reads_max: usize,
    /// SEND with invalidate is there.
    pub can_invalidate: bool,
}

/// Chosen by whoever posts; comes back with the completion.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WorkId(pub u64);

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Remote {
    /// Steering tag (rkey).
    pub stag: u32,
    /// Base offset or virtual address.
    pub at: u64,
}

impl Remote {
    /// The place `bytes` further on. Wraps like the address that it is: the peer's device checks it.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self {
            at: self.at.wrapping_add(bytes),
            ..self
        }
    }
}

/// A work request.
#[derive(Debug)]
pub enum Work {
    /// A message for a receive of the peer.
    Send {
        /// The message.
        buf: IoBuf,
        /// A tag of the peer's that becomes invalid when the message arrives.
        invalidate: Option<u32>,
    },
    /// Puts `buf` into the peer's memory.
    Write {
        /// The bytes.
        buf: IoBuf,
        /// Where the first one goes.
        to: Remote,
    },
    /// Fetches `buf[at..]` from the peer's memory.
    Read {
        /// Where the bytes go.
        buf: IoBuf,
        /// First byte that is fetched.
        at: usize,
        /// Where it is.
        from: Remote,
    },
}

impl Work {
    /// The memory of it.
    #[must_use]
    pub fn buf(&self) -> &IoBuf {
        match self {
            Self::Send { buf, .. } | Self::Write { buf, .. } | Self::Read { buf, .. } => buf,
        }
    }

    /// Gives the memory of it back.
    #[must_use]
    pub fn into_buf(self) -> IoBuf {
        match self {
            Self::Send { buf, .. } | Self::Write { buf, .. } | Self::Read { buf, .. } => buf,
        }
    }

    /// Bytes that it moves.
    #[must_use]
    pub fn moves(&self) -> usize {
        match self {
            Self::Send { buf, .. } | Self::Write { buf, .. } => buf.len(),
            Self::Read { buf, at, .. } => buf.len() - at,
        }
    }
}

/// The end of a work request.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub id: WorkId,
    /// Its memory.
    pub buf: IoBuf,
    /// Why it failed. A queue pair with failed work is lost.
    pub result: Result<(), String>,
}

/// Something that happened to a queue pair.
#[derive(Debug)]
pub enum LinkEvent {
    /// A message arrived; the visible length is what came.
    Received(IoBuf),
    /// A work request has ended.
    Done(Completion),
    /// The connection is gone.
    Lost(LinkLost),
}

/// Why a connection is gone.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LinkLost {
    /// The peer ended it.
    #[error("the initiator closed the connection")]
    Disconnected,
    /// The device was taken away.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    /// A receive failed, or something else broke.
    #[error("{0}")]
    Failed(String),
}
