//! In place of portals over RDMA, where they are not built in: the line that says so.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use target_core::iscsi::Node;
use tracing::warn;

use crate::cores::Cores;

/// Says why nothing is served, and leaves TCP alone.
pub(crate) async fn accept_all(
    portals: Vec<SocketAddr>,
    _: Arc<Cores>,
    _: Arc<Node>,
    _: usize,
) -> Infallible {
    if !portals.is_empty() {
        warn!(
            "iSER is unavailable, TCP is not affected: it is not built in; use a release, or build with \
             `--features iser`"
        );
    }
    std::future::pending().await
}
