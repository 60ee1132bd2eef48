//! Data cores: threads with a `current_thread` runtime, an I/O engine and a buffer pool each. A connection lives on one
//! of them from accept to close.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use backstores::{BufPool, DataThread, EngineChoice};
use management::exposition::CoreView;
use rustix::process::Pid;
use rustix::thread::gettid;
use target_core::iscsi::{CloseReason, LinkInfo, Node, TransportKeys};
use target_core::serve::serve;
use tcp_transport::TcpMover;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tracing::field::Empty;
use tracing::{Instrument, error, info, info_span};

/// All data cores.
#[derive(Debug)]
pub(crate) struct Cores {
    cores: Vec<Core>,
}

#[derive(Debug)]
struct Core {
    pool: Arc<BufPool>,
    /// The kernel's name for its thread.
    thread: Pid,
    /// Unbounded in type; the acceptor bounds the connections there are.
    arrivals: mpsc::UnboundedSender<Arrival>,
    connections: Arc<AtomicUsize>,
}

/// A connection on its way to its core.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Over RDMA.
    #[cfg(feature = "iser")]
    Iser(crate::iser::IserArrival),
    /// Over TCP.
    Tcp {
        socket: TcpStream,
        local: SocketAddr,
        peer: SocketAddr,
    },
}

impl Cores {
    /// Starts `count` data cores; returns when all of them have entered their engine.
    pub(crate) fn start(
        count: usize,
        engine: EngineChoice,
        pool_bytes: usize,
        node: &Arc<Node>,
    ) -> io::Result<Self> {
        let mut cores = Vec::with_capacity(count);
        for index in 0..count {
            cores.push(Core::start(index, engine, pool_bytes, Arc::clone(node))?);
        }
        Ok(Self { cores })
    }

    /// Hands a connection to the core that has the fewest; `make` is told which one.
    pub(crate) fn place(&self, make: impl FnOnce(usize) -> Arrival) {
        let (index, core) = self
            .cores
            .iter()
            .enumerate()
            .min_by_key(|(_, core)| core.connections.load(Ordering::Relaxed))
            .expect("at least one core was started");
        core.connections.fetch_add(1, Ordering::Relaxed);
        if core.arrivals.send(make(index)).is_err() {
            error!("a connection is closed: its data core has ended");
        }
    }

    /// How every core is.
    pub(crate) fn view(&self) -> Vec<CoreView> {
        let view = |core: &Core| {
            let stats = core.pool.stats();
            CoreView {
                busy: busy(core.thread),
                connections: core.connections.load(Ordering::Relaxed) as u64,
                buffer_bytes: stats.capacity as u64,
                buffer_bytes_used: stats.in_use as u64,
                buffer_waits: stats.waits,
            }
        };
        self.cores.iter().map(view).collect()
    }

    /// The buffers of all cores.
    #[cfg(feature = "iser")]
    pub(crate) fn pools(&self) -> Vec<Arc<BufPool>> {
        self.cores.iter().map(|core| Arc::clone(&core.pool)).collect()
    }
}

impl Core {
    fn start(index: usize, engine: EngineChoice, pool_bytes: usize, node: Arc<Node>) -> io::Result<Self> {
        let (arrivals, receiver) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (ready, started) = std::sync::mpsc::channel();
        let count = Arc::clone(&connections);
        let pool = BufPool::new(pool_bytes);
        let its_pool = Arc::clone(&pool);
        // The thread lives as long as the process: at a stop its connections have been closed before.
        thread::Builder::new()
            .name(format!("data-{index}"))
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                runtime.block_on(run(receiver, count, engine, pool, node, ready));
            })?;
        let thread = started
            .recv()
            .map_err(|_| io::Error::other("a data core ended while it started"))??;
        Ok(Self {
            pool: its_pool,
            thread,
            arrivals,
            connections,
        })
    }
}

/// One core's life: until nobody can send it connections any more and the last one has ended.
async fn run(
    mut arrivals: mpsc::UnboundedReceiver<Arrival>,
    connections: Arc<AtomicUsize>,
    engine: EngineChoice,
    pool: Arc<BufPool>,
    node: Arc<Node>,
    ready: std::sync::mpsc::Sender<io::Result<Pid>>,
) {
    let data_thread = DataThread::enter(engine);
    let entered = match data_thread {
        Ok(entered) => {
            drop(ready.send(Ok(gettid())));
            entered
        }
        Err(error) => return drop(ready.send(Err(error))),
    };
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            Some(ended) = serving.join_next() => {
                connections.fetch_sub(1, Ordering::Relaxed);
                report(ended);
            }
            arrival = arrivals.recv() => match arrival {
                Some(arrival) => drop(serving.spawn(connection(arrival, Arc::clone(&node), Arc::clone(&pool)))),
                None => break,
            },
        }
    }
    while let Some(ended) = serving.join_next().await {
        report(ended);
    }
    drop(entered);
}

async fn connection(arrival: Arrival, node: Arc<Node>, pool: Arc<BufPool>) -> io::Result<CloseReason> {
    let (socket, local, peer) = match arrival {
        #[cfg(feature = "iser")]
        Arrival::Iser(arrival) => return crate::iser::connection(arrival, node, pool).await,
        Arrival::Tcp { socket, local, peer } => (socket, local, peer),
    };
    let span = info_span!("connection", %peer, initiator = Empty, target = Empty, tsih = Empty);
    async {
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let link = LinkInfo {
            local,
            peer,
            transport: "tcp",
            keys: TransportKeys::default(),
        };
        Ok(serve(TcpMover::new(socket, Arc::clone(&pool)), link, node, pool).await)
    }
    .instrument(span)
    .await
}

/// Processor time that a thread has used; zero where the kernel does not tell.
fn busy(thread: Pid) -> Duration {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// A bug in one connection ends that connection and is told; the process and all others go on.
fn report(ended: Result<io::Result<CloseReason>, JoinError>) {
    match ended {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => info!(%error, "a connection was lost before it began"),
        Err(error) => error!(%error, "a connection ended by a bug in the target; please report it"),
    }
}
