//! What a node tells whoever watches it: sessions that begin and end, logins that fail. Nobody has to watch, and nobody
//! who watches slowly holds anything up: what is not taken in time is lost to the watcher.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::{CloseReason, LinkInfo, LoginFailure, SessionView};
use crate::metrics::Logins;

/// Something that happened to sessions.
#[derive(Clone, Debug)]
pub enum NodeEvent {
    /// A session began.
    LoggedIn(Box<SessionView>),
    /// A login was refused, or came to nothing.
    LoginFailed {
        /// The initiator's address.
        peer: SocketAddr,
        /// Ours.
        local: SocketAddr,
        /// Transport name.
        transport: &'static str,
        /// What was said and why it failed; `None` when the connection ended before anything was refused.
        failure: Option<Box<LoginFailure>>,
        /// Why the connection ended, in one line.
        reason: String,
    },
    /// A session ended.
    SessionEnded {
        /// As it was.
        session: Box<SessionView>,
        /// Why, in one line.
        reason: String,
        /// It ended as sessions should: by a logout or by order.
        in_order: bool,
    },
}

/// Hands events out, and counts the logins among them.
#[derive(Debug)]
pub(super) struct Watchers {
    sender: broadcast::Sender<Arc<NodeEvent>>,
    logins: Logins,
}

impl Watchers {
    pub(super) fn tell(&self, event: NodeEvent) {
        self.logins.count(&event);
        // Nobody watches: nothing to do.
        drop(self.sender.send(Arc::new(event)));
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<NodeEvent>> {
        self.sender.subscribe()
    }

    pub(super) fn logins(&self) -> &Logins {
        &self.logins
    }
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(BACKLOG).0,
            logins: Logins::default(),
        }
    }
}

impl NodeEvent {
    /// A connection's end: of its session, or of its attempt at one. `None` when there was neither.
    pub(super) fn of_end(
        link: &LinkInfo,
        session: Option<SessionView>,
        reason: &CloseReason,
    ) -> Option<Self> {
        if let Some(session) = session {
            let in_order = matches!(reason, CloseReason::LoggedOut | CloseReason::Ordered(_));
            return Some(Self::SessionEnded {
                session: Box::new(session),
                reason: reason.to_string(),
                in_order,
            });
        }
        let failure = match reason {
            CloseReason::LoginFailed(failure) => Some(Box::new(failure.clone())),
            CloseReason::LoginTimeout(_) | CloseReason::Misbehaved(_) => None,
            // Somebody looked whether the port is open, or a session had been taken over.
            CloseReason::ConnectionReinstated
            | CloseReason::DataOutStuck { .. }
            | CloseReason::Idle(_)
            | CloseReason::Joined(_)
            | CloseReason::LoggedOut
            | CloseReason::NotTakenUp { .. }
            | CloseReason::Ordered(_)
            | CloseReason::ResponsesStuck(_)
            | CloseReason::Silent(_)
            | CloseReason::Transport(_) => return None,
        };
        Some(Self::LoginFailed {
            peer: link.peer,
            local: link.local,
            transport: link.transport,
            failure,
            reason: reason.to_string(),
        })
    }
}

/// Events a watcher may lag behind.
const BACKLOG: usize = 1024;
