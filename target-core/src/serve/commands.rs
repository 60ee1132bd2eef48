//! The commands of a session: futures that the session's loop polls, and that are seen to their end without it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use crate::iscsi::Node;
use crate::metrics::{Ended, SessionMeter};

/// A command's future; in the box first: it is long, and would be copied on each further way.
pub(super) type Command = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A session's commands. Dropped before they have ended (a bug ended their session, or its task was cancelled),
/// they go on in a task of their own: a store operation that nobody polls would leave its blocks fenced for ever.
#[derive(Debug)]
pub(super) struct Commands {
    running: FuturesUnordered<Command>,
    node: Arc<Node>,
    /// How many of them the node counts as abandoned.
    abandoned: usize,
}

impl Commands {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self {
            running: FuturesUnordered::new(),
            node,
            abandoned: 0,
        }
    }

    pub(super) fn push(&mut self, command: Command) {
        self.running.push(command);
    }

    /// Lets them go on; ready when one has ended, and with `None` when there is none.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ended>> {
        self.running.poll_next_unpin(cx)
    }

    pub(super) async fn see_to_their_end(&mut self, meter: Option<&SessionMeter>) {
        self.abandoned = self.running.len();
        self.node.abandon(self.abandoned);
        while let Some(ended) = self.running.next().await {
            if let Some(meter) = meter {
                meter.end(&ended);
            }
            self.abandoned -= 1;
            self.node.abandoned_ended(1);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.node.abandoned_ended(std::mem::take(&mut self.abandoned));
        if self.running.is_empty() {
            return;
        }
        // Outside a runtime, which is then at its end, nothing can be polled any more.
        if let Ok(runtime) = Handle::try_current() {
            // Not as `Self`: a runtime that is ending drops what it is given, and this would begin anew without end.
            let (mut running, node) = (std::mem::take(&mut self.running), Arc::clone(&self.node));
            drop(runtime.spawn(async move {
                node.abandon(running.len());
                while running.next().await.is_some() {
                    node.abandoned_ended(1);
                }
            }));
        }
    }
}
