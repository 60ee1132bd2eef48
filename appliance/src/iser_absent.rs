//! In place of portals over RDMA, where they are not built in: the line that says so.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use iser_transport::Unavailable;
use target_core::iscsi::Node;

use crate::cores::Cores;
use crate::iser_status::{IserStatus, IserStatusCell, tell};

/// Says why nothing is served, and leaves TCP alone.
pub(crate) async fn accept_all(
    portals: Vec<SocketAddr>,
    _: Arc<Cores>,
    _: Arc<Node>,
    _: usize,
    status: IserStatusCell,
) -> Infallible {
    if !portals.is_empty() {
        tell(&status, IserStatus::Unavailable(Unavailable::NotBuiltIn));
    }
    std::future::pending().await
}
