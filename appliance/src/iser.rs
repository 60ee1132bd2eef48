//! Portals over RDMA: listened on whenever there is a device with their address, connections handed to data cores.
//!
//! A device that goes away takes its connections and the listening with it; both come back by themselves, and TCP goes
//! on meanwhile.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use backstores::BufPool;
use iser_transport::verbs::{ConnectRequest, Depths, Devices, Library, Listener};
use iser_transport::{CmHeader, IserMover, IserSetup, Region, Unavailable, transport_keys};
use target_core::iscsi::{CloseReason, LinkInfo, Node};
use target_core::serve::serve;
use tokio::task::JoinSet;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::cores::{Arrival, Cores};
use crate::iser_status::{IserStatus, IserStatusCell, tell};
use crate::plan::ISER;

/// A connection on its way to its core.
#[derive(Debug)]
pub(crate) struct IserArrival {
    request: ConnectRequest,
    messages: Arc<BufPool>,
}

/// What all portals have in common.
#[derive(Debug)]
struct Shared {
    devices: Arc<Devices>,
    /// Memory for messages, of each core.
    messages: Vec<Arc<BufPool>>,
    cores: Arc<Cores>,
    node: Arc<Node>,
    connections_max: usize,
    status: IserStatusCell,
}

/// Serves the portals until the future is dropped; `status` always tells whether it can.
pub(crate) async fn accept_all(
    portals: Vec<SocketAddr>,
    cores: Arc<Cores>,
    node: Arc<Node>,
    connections_max: usize,
    status: IserStatusCell,
) -> Infallible {
    if !portals.is_empty() {
        match devices(&cores) {
            Ok((devices, messages)) => {
                let shared = Arc::new(Shared {
                    devices,
                    messages,
                    cores,
                    node,
                    connections_max,
                    status,
                });
                look(&shared, false);
                let mut running = JoinSet::new();
                for portal in portals {
                    running.spawn(listen(portal, Arc::clone(&shared)));
                }
                let Err(error) = shared.devices.watch().await;
                warn!("removals of RDMA devices are not noticed any more: {error}");
                while running.join_next().await.is_some() {}
            }
            Err(unavailable) => tell(&status, IserStatus::Unavailable(unavailable)),
        }
    }
    std::future::pending().await
}

/// The devices there may be, and the memory for messages, of each core.
fn devices(cores: &Cores) -> Result<(Arc<Devices>, Vec<Arc<BufPool>>), Unavailable> {
    let library = Library::load()?;
    let pools = cores.pools();
    let messages: Vec<_> = pools
        .iter()
        .map(|pool| BufPool::new(pool.stats().capacity / MESSAGES_OF_POOL))
        .collect();
    let regions = pools.iter().chain(&messages).map(Region::of).collect();
    let devices = Devices::new(library, regions).map_err(|error| Unavailable::System(error.to_string()))?;
    match devices.check() {
        // One may come.
        Ok(()) | Err(Unavailable::NoDevice) => Ok((devices, messages)),
        Err(other) => Err(other),
    }
}

/// Says whether something can be served now.
fn look(shared: &Shared, listening: bool) {
    match shared.devices.check() {
        Ok(()) if listening => tell(&shared.status, IserStatus::Open),
        Ok(()) => {}
        Err(unavailable) => tell(&shared.status, IserStatus::Unavailable(unavailable)),
    }
}

async fn listen(portal: SocketAddr, shared: Arc<Shared>) {
    let mut said = String::new();
    loop {
        match Listener::bind(&shared.devices, portal) {
            Ok(listener) => {
                look(&shared, true);
                info!("iSER portal {portal} is open");
                said.clear();
                accept(portal, listener, &shared).await;
                look(&shared, false);
            }
            Err(error) => {
                // Once for each cause, however long it lasts.
                let problem = error.to_string();
                if said != problem {
                    warn!("iSER portal {problem}");
                    said = problem;
                }
            }
        }
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

async fn accept(portal: SocketAddr, mut listener: Listener, shared: &Shared) {
    loop {
        let request = match listener.accept().await {
            Ok(request) => request,
            Err(lost) => return warn!("iSER portal {portal} is closed: {lost}"),
        };
        let peer = request.peer();
        // On every address it is listened before there is a device.
        look(shared, true);
        if shared.node.connections() >= shared.connections_max {
            let connections_max = shared.connections_max;
            warn!(%peer, connections_max, "connection refused: as many as the limit of open files allows (ulimit -n)");
            continue;
        }
        if request.reads_max() == 0 {
            warn!(%peer, "connection refused: the initiator serves no RDMA READ, without which nothing can be written");
            continue;
        }
        shared.cores.place(|core| {
            let messages = Arc::clone(&shared.messages[core]);
            Arrival::Iser(IserArrival { request, messages })
        });
    }
}

/// Serves one connection to its end.
pub(crate) async fn connection(
    arrival: IserArrival,
    node: Arc<Node>,
    pool: Arc<BufPool>,
) -> io::Result<CloseReason> {
    let IserArrival { request, messages } = arrival;
    let (local, peer) = (request.local(), request.peer());
    let span = info_span!("connection", %peer, transport = ISER);
    async {
        let private_data = CmHeader::decode(request.private_data());
        let queue_pair = request.queue_pair(DEPTHS)?;
        debug!(?private_data, device = queue_pair.device().name(), "connecting");
        let setup = IserSetup {
            pool: Arc::clone(&pool),
            messages,
            peer: private_data,
        };
        let mut mover = IserMover::new(queue_pair, setup).map_err(io::Error::other)?;
        let reply = mover.private_data().encode();
        mover.queue_pair_mut().accept(&reply)?;
        let link = LinkInfo {
            local,
            peer,
            transport: ISER,
            keys: transport_keys(),
        };
        Ok(serve(mover, link, node, pool).await)
    }
    .instrument(span)
    .await
}

/// Of the memory for data, this part again is for messages.
const MESSAGES_OF_POOL: usize = 4;
/// Responses and data of a whole command window, and every message an initiator may send at once.
const DEPTHS: Depths = Depths {
    send: 256,
    receive: 1024,
};
/// A device that comes back is used within a second.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
