//! Accepting: listening sockets in, connections handed to data cores out.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::cores::{Arrival, Cores};
use crate::descriptors::{Descriptors, OF_TCP};

/// Accepts on any number of listeners until it is stopped.
#[derive(Debug)]
pub(crate) struct Acceptor {
    cores: Arc<Cores>,
    descriptors: Descriptors,
    runtime: Handle,
    stopped: watch::Sender<bool>,
}

impl Acceptor {
    /// Tasks run on the current runtime.
    pub(crate) fn new(cores: Arc<Cores>, descriptors: Descriptors) -> Arc<Self> {
        Arc::new(Self {
            cores,
            descriptors,
            runtime: Handle::current(),
            stopped: watch::Sender::new(false),
        })
    }

    /// Accepts on one more listener, until the task is aborted or everything is stopped.
    pub(crate) fn accept(self: &Arc<Self>, listener: TcpListener) -> AbortHandle {
        let this = Arc::clone(self);
        let mut stopped = self.stopped.subscribe();
        let accepting = self.runtime.spawn(async move {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = this.run(listener) => {}
            }
        });
        accepting.abort_handle()
    }

    /// From now on nothing is accepted any more.
    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    async fn run(&self, listener: TcpListener) {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return warn!(%error, "a portal cannot be served"),
        };
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
            if !self.descriptors.has_room_for(OF_TCP) {
                let descriptors = self.descriptors.max();
                warn!(%peer, descriptors, "connection refused: as many as the limit of open files allows (ulimit -n)");
                continue;
            }
            match prepare(socket) {
                Ok((socket, local)) => self.cores.place(|_| Arrival::Tcp { socket, local, peer }),
                Err(error) => info!(%peer, %error, "a connection was lost before it began"),
            }
        }
    }
}

fn prepare(socket: tokio::net::TcpStream) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    socket.set_nodelay(true)?;
    let local = socket.local_addr()?;
    Ok((socket.into_std()?, local))
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
