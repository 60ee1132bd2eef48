//! Data cores as the program has them: threads with a runtime, a disk engine and buffers of their own, which serve what
//! is handed to them. Connections go round: the first to the first core, the second to the second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstores::{BufPool, DataThread, EngineChoice};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::target::Serving;

/// All of a target. Dropping them ends their connections.
#[derive(Debug)]
pub(super) struct Cores {
    cores: Vec<Core>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Core {
    arrivals: mpsc::UnboundedSender<(std::net::TcpStream, SocketAddr)>,
    pool: Arc<BufPool>,
}

impl Cores {
    /// So many of them, each with buffers of so many bytes.
    pub(super) fn start(count: usize, pool_bytes: usize, serving: &Serving) -> Self {
        let cores = (0..count).map(|_| Core::start(BufPool::new(pool_bytes), serving.clone()));
        Self {
            cores: cores.collect(),
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn pools(&self) -> Vec<Arc<BufPool>> {
        self.cores.iter().map(|core| Arc::clone(&core.pool)).collect()
    }

    /// Hands a connection to the core whose turn it is.
    pub(super) fn place(&self, socket: TcpStream, peer: SocketAddr) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = socket.into_std().expect("a socket of this runtime");
        let core = &self.cores[turn % self.cores.len()];
        core.arrivals
            .send((socket, peer))
            .expect("a core lives as long as its target");
    }
}

impl Core {
    fn start(pool: Arc<BufPool>, serving: Serving) -> Self {
        let (arrivals, mut receiver) = mpsc::unbounded_channel();
        let its_pool = Arc::clone(&pool);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let _engine = DataThread::enter(EngineChoice::Auto).expect("some engine works everywhere");
                let mut connections = JoinSet::new();
                while let Some((socket, peer)) = receiver.recv().await {
                    let socket = TcpStream::from_std(socket).expect("a socket that does not block");
                    connections.spawn(serving.clone().serve(socket, peer, Arc::clone(&its_pool)));
                }
            });
        });
        Self { arrivals, pool }
    }
}
