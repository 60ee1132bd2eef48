//! Accepting: listening sockets in, connections handed to data cores out.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use target_core::iscsi::Node;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::cores::{Arrival, Cores};

/// Serves listeners until the future is dropped: then nothing is accepted any more.
pub(crate) async fn accept_all(
    listeners: Vec<TcpListener>,
    cores: Arc<Cores>,
    node: Arc<Node>,
    connections_max: usize,
) -> io::Result<()> {
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accepting.spawn(accept(
            listener,
            Arc::clone(&cores),
            Arc::clone(&node),
            connections_max,
        ));
    }
    while accepting.join_next().await.is_some() {}
    Ok(())
}

async fn accept(
    listener: tokio::net::TcpListener,
    cores: Arc<Cores>,
    node: Arc<Node>,
    connections_max: usize,
) {
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: the listener stays, the next try comes when some are free.
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if node.connections() >= connections_max {
            warn!(%peer, connections_max, "connection refused: as many as the limit of open files allows (ulimit -n)");
            continue;
        }
        match prepare(socket) {
            Ok((socket, local)) => cores.place(|_| Arrival::Tcp { socket, local, peer }),
            Err(error) => info!(%peer, %error, "a connection was lost before it began"),
        }
    }
}

fn prepare(socket: tokio::net::TcpStream) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    socket.set_nodelay(true)?;
    let local = socket.local_addr()?;
    Ok((socket.into_std()?, local))
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
