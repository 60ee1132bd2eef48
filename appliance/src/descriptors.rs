//! Descriptors for connections, of which the system gives a process so many. What is left is for stores, listeners and the
//! state.

use std::sync::Arc;

use management::live::ISER;
use rustix::process::{Resource, getrlimit};
use target_core::iscsi::Node;

/// What connections may use.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    node: Arc<Node>,
    max: usize,
}

impl Descriptors {
    /// Of this process, as its limit is now.
    pub(crate) fn of_process(node: &Arc<Node>) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(usize::MAX);
        Self {
            node: Arc::clone(node),
            max: limit.saturating_sub(KEPT).clamp(1, MAX),
        }
    }

    /// Whether a connection that needs so many finds them.
    pub(crate) fn has_room_for(&self, needed: usize) -> bool {
        used(self.node.connections(), self.node.connections_over(ISER)) + needed <= self.max
    }

    /// How many there are for connections.
    pub(crate) fn max(&self) -> usize {
        self.max
    }
}

fn used(connections: usize, over_rdma: usize) -> usize {
    connections * OF_TCP + over_rdma * (OF_RDMA - OF_TCP)
}

/// Of a connection over TCP: its socket.
pub(crate) const OF_TCP: usize = 1;
/// Of a connection over RDMA: its events, and its completions.
pub(crate) const OF_RDMA: usize = 2;
const KEPT: usize = 128;
const MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_over_rdma_counts_for_two() {
        // Three connections, two of them over RDMA.
        assert_eq!(used(3, 2), 5);
    }
}
