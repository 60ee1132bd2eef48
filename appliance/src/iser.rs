//! Portals over RDMA: listened on whenever there is a device with their address, connections handed to data cores.
//!
//! A device that goes away takes its connections and the listening with it; both come back by themselves, and TCP goes
//! on meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use backstores::BufPool;
use iser_transport::verbs::{ConnectRequest, Depths, Devices, Library, Listener};
use iser_transport::{CmHeader, IserMover, IserSetup, Region, Unavailable};
use management::live::{ISER, IserView};
use target_core::iscsi::{CloseReason, LinkInfo, Node};
use target_core::serve::serve;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::field::Empty;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::cores::{Arrival, Cores};
use crate::descriptors::{Descriptors, OF_RDMA};

/// A connection on its way to its core.
#[derive(Debug)]
pub(crate) struct IserArrival {
    request: ConnectRequest,
    messages: Arc<BufPool>,
}

/// Portals over RDMA, each served by a task of its own.
#[derive(Debug)]
pub(crate) struct IserPortals {
    cores: Arc<Cores>,
    descriptors: Descriptors,
    runtime: Handle,
    stopped: watch::Sender<bool>,
    /// Made for the first that asks.
    shared: OnceLock<Arc<Shared>>,
    /// What each waits for; nothing while it listens.
    open: Mutex<BTreeMap<SocketAddr, Option<String>>>,
}

/// What all portals have in common.
#[derive(Debug)]
struct Shared {
    devices: Arc<Devices>,
    /// Memory for messages, of each core.
    messages: Vec<Arc<BufPool>>,
}

/// A portal in the list of those that are wanted, as long as its task runs.
struct Wanted {
    portals: Arc<IserPortals>,
    address: SocketAddr,
}

impl IserPortals {
    /// Tasks run on the current runtime.
    pub(crate) fn new(cores: Arc<Cores>, descriptors: Descriptors) -> Arc<Self> {
        Arc::new(Self {
            cores,
            descriptors,
            runtime: Handle::current(),
            stopped: watch::Sender::new(false),
            shared: OnceLock::new(),
            open: Mutex::default(),
        })
    }

    /// Listens whenever there is a device with this address, until the task is aborted or everything is stopped.
    pub(crate) fn listen(self: &Arc<Self>, address: SocketAddr) -> AbortHandle {
        let wanted = Wanted {
            portals: Arc::clone(self),
            address,
        };
        wanted.waits_for(Some("it is about to be opened".to_owned()));
        let mut stopped = self.stopped.subscribe();
        let listening = self.runtime.spawn(async move {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = listen(&wanted) => {}
            }
        });
        listening.abort_handle()
    }

    /// Whether this host can serve, and how each portal is.
    pub(crate) fn view(&self) -> IserView {
        let check = self.shared().and_then(|shared| shared.devices.check());
        IserView {
            problem: check.err().map(|unavailable| unavailable.to_string()),
            portals: self.open().clone(),
        }
    }

    /// From now on nothing is accepted any more.
    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    fn shared(&self) -> Result<&Arc<Shared>, Unavailable> {
        let library = Library::load()?;
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        let shared = self.share(library)?;
        Ok(self.shared.get_or_init(|| {
            let devices = Arc::clone(&shared.devices);
            self.runtime.spawn(async move {
                let Err(error) = devices.watch().await;
                warn!("removals of RDMA devices are not noticed any more: {error}");
            });
            shared
        }))
    }

    /// The devices there may be, and the memory for messages, of each core.
    fn share(&self, library: &'static Library) -> Result<Arc<Shared>, Unavailable> {
        let pools = self.cores.pools();
        let messages: Vec<_> = pools
            .iter()
            .map(|pool| BufPool::new(pool.stats().capacity / MESSAGES_OF_POOL))
            .collect();
        let regions = pools.iter().chain(&messages).map(Region::of).collect();
        // The connection manager cannot be opened before there is a device.
        let no_device = rustix::io::Errno::NODEV.raw_os_error();
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(code) if code == no_device => Unavailable::NoDevice,
            _ => Unavailable::System(error.to_string()),
        };
        let devices = Devices::new(library, regions).map_err(refused)?;
        Ok(Arc::new(Shared { devices, messages }))
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Option<String>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wanted {
    /// What it waits for, `None` while it listens. `true` when it was something else before.
    fn waits_for(&self, problem: Option<String>) -> bool {
        let mut open = self.portals.open();
        let is_new = open.get(&self.address) != Some(&problem);
        open.insert(self.address, problem);
        is_new
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.portals.open().remove(&self.address);
    }
}

async fn listen(wanted: &Wanted) {
    let portal = wanted.address;
    loop {
        let shared = wanted.portals.shared();
        match shared.and_then(|shared| shared.devices.check().map(|()| shared)) {
            Err(unavailable) => {
                // Once for each cause, however long it lasts. A device may come, and a limit be raised.
                if wanted.waits_for(Some(unavailable.to_string())) {
                    warn!("iSER is unavailable, TCP is not affected: {unavailable}");
                }
            }
            Ok(shared) => match Listener::bind(&shared.devices, portal) {
                Ok(listener) => {
                    info!("iSER portal {portal} is open");
                    wanted.waits_for(None);
                    accept(&wanted.portals, shared, portal, listener).await;
                    wanted.waits_for(Some("its device is gone".to_owned()));
                }
                Err(error) => {
                    if wanted.waits_for(Some(error.to_string())) {
                        warn!("iSER portal {error}");
                    }
                }
            },
        }
        tokio::time::sleep(LISTEN_PAUSE).await;
    }
}

async fn accept(portals: &IserPortals, shared: &Shared, portal: SocketAddr, mut listener: Listener) {
    loop {
        let request = match listener.accept().await {
            Ok(request) => request,
            Err(lost) => return warn!("iSER portal {portal} is closed: {lost}"),
        };
        let peer = request.peer();
        if !portals.descriptors.has_room_for(OF_RDMA) {
            let descriptors = portals.descriptors.max();
            warn!(%peer, descriptors, "connection refused: as many as the limit of open files allows (ulimit -n)");
            continue;
        }
        if request.reads_max() == 0 {
            warn!(%peer, "connection refused: the initiator serves no RDMA READ, without which nothing can be written");
            continue;
        }
        portals.cores.place(|core| {
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
    let span = info_span!(
        "connection",
        %peer,
        transport = ISER,
        initiator = Empty,
        target = Empty,
        tsih = Empty
    );
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
            keys: mover.transport_keys(),
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
