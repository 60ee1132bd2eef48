//! A session's place among all sessions, and how further connections find to it (RFC 7143 §6.3.1).
//!
//! All connections of a session are served by one loop, on the data core of the connection that it began with: so
//! everything that is ordered across them stays in one value, without a lock. A connection that names the TSIH of a
//! session finds in the registry the door to that loop, and goes through it with its socket and all.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iscsi_proto::Tsih;
use tokio::sync::mpsc;

use super::registry::{Admitted, Membership, Node};
use super::{CloseReason, JoiningLogin};

/// What the registry opens for a login that it lets in.
#[derive(Debug)]
pub(crate) enum Entrance {
    /// A new session.
    Session {
        /// What it is told.
        admitted: Admitted,
        /// Its place.
        place: SessionPlace,
        /// Connections that join it.
        arrivals: mpsc::UnboundedReceiver<Joining>,
    },
    /// The way to a session that is there.
    Door(mpsc::UnboundedSender<Joining>),
}

/// A connection on its way to the session that it joins.
#[derive(Debug)]
pub(crate) struct Joining {
    /// Its data mover, of the same kind as all of the session's.
    pub(crate) mover: Box<dyn Any + Send>,
    /// Its place in the registry.
    pub(crate) membership: Membership,
    /// Its login, complete but for the last response.
    pub(crate) login: JoiningLogin,
}

/// A session's place in the registry. Dropping it, for whatever cause, ends the session: it is not found any more, and
/// the device is told.
#[derive(Debug)]
pub(crate) struct SessionPlace {
    node: Arc<Node>,
    tsih: Tsih,
    alive: Arc<AtomicBool>,
}

impl SessionPlace {
    pub(super) fn new(node: Arc<Node>, tsih: Tsih, alive: Arc<AtomicBool>) -> Self {
        Self { node, tsih, alive }
    }

    /// Whether this session still is the one of its nexus. A command that entered its task set before this was asked,
    /// and got `true`, is found by the device when the session ends.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The session comes to its end, for this reason.
    pub(crate) fn tell_end(&self, reason: &CloseReason) {
        self.node.tell_end(self.tsih, &self.alive, reason);
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        self.node.leave(self.tsih, &self.alive);
    }
}
