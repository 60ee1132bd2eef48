//! A whole target in this process, on a port of its own: everything that a data core of the program runs, over disks
//! that tests can hold, fail and look into.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use backstores::{BlockStore, BufPool, FaultStore, StoreOptions, StoreSource};
use futures_util::FutureExt;
use iscsi_proto::{IscsiName, Tpgt};
use target_core::control::{Access, Advertised, ChapPolicy, Directory, Parameters, Portal};
use target_core::iscsi::{CloseReason, LinkInfo, Node, TransportKeys};
use target_core::scsi::{DeviceType, LogicalUnit, TargetDevice, UnitConfig};
use target_core::serve::serve;
use tcp_transport::TcpMover;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;
use super::cores::Cores;

/// The target's name.
pub const TARGET: &str = "iqn.2026-11.org.example:disks";

/// A disk, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Its size.
    pub size: u64,
    /// How it is opened.
    pub options: StoreOptions,
    /// Its medium can be ejected.
    pub removable: bool,
}

/// What a target is made of.
#[derive(Debug)]
pub struct TargetBuilder {
    disks: Vec<Disk>,
    parameters: Parameters,
    chap: ChapPolicy,
    access: Access,
    pool_bytes: usize,
    cores: usize,
    others: Vec<(&'static str, Access)>,
    portal_groups: u16,
    more: Vec<Arc<dyn BlockStore>>,
    advertised: Vec<Advertised>,
}

/// A running target. Dropping it ends it; a panic in one of its connections fails the test.
#[derive(Debug)]
pub struct Target {
    /// One for each portal group.
    addresses: Vec<SocketAddr>,
    node: Arc<Node>,
    stores: Vec<Arc<FaultStore>>,
    /// Of its data cores.
    pools: Vec<Arc<BufPool>>,
    ends: watch::Receiver<Vec<CloseReason>>,
    panicked: Arc<AtomicBool>,
    accepting: Vec<JoinHandle<()>>,
    device: Arc<TargetDevice>,
}

impl Target {
    /// One disk of 1 MiB, open to everyone, with the default parameters.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// For a target of another kind.
    #[must_use]
    pub fn builder() -> TargetBuilder {
        TargetBuilder {
            disks: Vec::new(),
            parameters: Parameters::default(),
            chap: ChapPolicy::Open,
            access: Access::Everyone,
            pool_bytes: 16 << 20,
            cores: 0,
            others: Vec::new(),
            portal_groups: 1,
            more: Vec::new(),
            advertised: Vec::new(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The SCSI side of it.
    #[must_use]
    pub fn device(&self) -> &Arc<TargetDevice> {
        &self.device
    }

    /// Its sessions and connections.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The handle on a disk's misfortunes.
    #[must_use]
    pub fn store(&self, lun: usize) -> &Arc<FaultStore> {
        &self.stores[lun]
    }

    /// The buffers of its data core.
    #[must_use]
    pub fn pool(&self) -> &Arc<BufPool> {
        &self.pools[0]
    }

    /// Bytes of the buffers of each data core that are in use.
    #[must_use]
    pub fn in_use(&self) -> Vec<usize> {
        self.pools.iter().map(|pool| pool.stats().in_use).collect()
    }

    /// Waits until so many connections have ended; why each of them did, in order.
    ///
    /// # Panics
    /// When that takes longer than a test has patience.
    pub async fn ended(&self, count: usize) -> Vec<CloseReason> {
        let mut ends = self.ends.clone();
        let reached = timeout(PATIENCE, ends.wait_for(|ends| ends.len() >= count)).await;
        match reached {
            Ok(Ok(ends)) => ends.clone(),
            _ => panic!(
                "{count} connections should have ended, but only {:?} have",
                self.ends.borrow()
            ),
        }
    }

    /// Opens a connection to the portal of a group: 1, 2, …
    pub(super) async fn connect(&self, group: u16) -> TcpStream {
        let socket = TcpStream::connect(self.addresses[usize::from(group) - 1])
            .await
            .expect("the target listens");
        socket.set_nodelay(true).expect("a TCP socket");
        socket
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.iter().for_each(JoinHandle::abort);
        let panicked = self.panicked.load(Ordering::SeqCst);
        assert!(
            !panicked || std::thread::panicking(),
            "a connection of the target panicked"
        );
    }
}

impl TargetBuilder {
    /// Another disk: the next LUN.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disks.push(disk);
        self
    }

    /// With this parameter, as `--set` takes it.
    ///
    /// # Panics
    /// When there is no such parameter.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.parameters
            .set(key, value)
            .expect("a parameter that there is");
        self
    }

    /// With CHAP.
    #[must_use]
    pub fn chap(self, chap: ChapPolicy) -> Self {
        Self { chap, ..self }
    }

    /// Only for these.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// With a pool of this size, bytes.
    #[must_use]
    pub fn pool(self, pool_bytes: usize) -> Self {
        Self { pool_bytes, ..self }
    }

    /// Served by so many data cores, each a thread of its own, and not by the runtime of the test. Connections go round.
    #[must_use]
    pub fn cores(self, cores: usize) -> Self {
        Self { cores, ..self }
    }

    /// With another target beside it, which has no disk.
    #[must_use]
    pub fn beside(mut self, name: &'static str, access: Access) -> Self {
        self.others.push((name, access));
        self
    }

    /// With a disk over a store of the test's own: the LUN behind those of [`disk`](Self::disk), of which there is at
    /// least one.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn BlockStore>) -> Self {
        self.more.push(store);
        self
    }

    /// With so many portal groups of one portal each: 1, 2, …
    #[must_use]
    pub fn portal_groups(self, portal_groups: u16) -> Self {
        Self {
            portal_groups,
            ..self
        }
    }

    /// Tells initiators of a network another address.
    #[must_use]
    pub fn advertise(mut self, network: &str, address: &str) -> Self {
        self.advertised.push(Advertised {
            from: network.parse().expect("a network"),
            tpgt: TPGT,
            address: address.parse().expect("an address"),
        });
        self
    }

    /// Lets it run.
    ///
    /// # Panics
    /// When loopback has no free port.
    pub async fn start(mut self) -> Target {
        if self.disks.is_empty() {
            self.disks.push(Disk::default());
        }
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..self.portal_groups {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .await
                .expect("loopback has a free port");
            addresses.push(listener.local_addr().expect("a bound socket"));
            listeners.push(listener);
        }
        let stores: Vec<_> = self.disks.iter().map(Disk::open).collect();
        let groups: Vec<Tpgt> = (1..=self.portal_groups).map(Tpgt).collect();
        let device = TargetDevice::new(name(TARGET), &groups);
        let node = Node::new(self.directory(&device, &addresses, &stores), entropy, interfaces);
        let (tell, ends) = watch::channel(Vec::new());
        let panicked = Arc::new(AtomicBool::new(false));
        let serving = Serving {
            node: Arc::clone(&node),
            tell: Arc::new(tell),
            panicked: Arc::clone(&panicked),
        };
        let cores = Arc::new(Cores::start(self.cores, self.pool_bytes, &serving));
        let mut pools = cores.pools();
        if pools.is_empty() {
            pools.push(BufPool::new(self.pool_bytes));
        }
        let accept = |listener| {
            let (serving, pool) = (serving.clone(), Arc::clone(&pools[0]));
            if self.cores == 0 {
                tokio::spawn(accept(listener, serving, pool))
            } else {
                tokio::spawn(accept_for(listener, Arc::clone(&cores)))
            }
        };
        let accepting = listeners.into_iter().map(accept).collect();
        Target {
            addresses,
            node,
            stores,
            pools,
            ends,
            panicked,
            accepting,
            device,
        }
    }

    fn directory(
        &self,
        device: &Arc<TargetDevice>,
        addresses: &[SocketAddr],
        stores: &[Arc<FaultStore>],
    ) -> Directory {
        let disks = self.disks.iter().zip(stores).map(|(disk, store)| {
            let store: Arc<dyn BlockStore> = Arc::<FaultStore>::clone(store);
            (disk.removable, store)
        });
        let more = self.more.iter().map(|store| (false, Arc::clone(store)));
        for (number, (removable, store)) in (0..).zip(disks.chain(more)) {
            let unit = LogicalUnit::new(unit_config(number, removable), store);
            assert!(device.map(number, unit), "numbers are distinct");
        }
        let mut targets = BTreeMap::new();
        let mut add = |target: target_core::control::Target| {
            targets.insert(target.name.clone(), Arc::new(target));
        };
        add(self.target(TARGET, self.access.clone(), Arc::clone(device)));
        for (other, access) in &self.others {
            add(self.target(other, access.clone(), TargetDevice::new(name(other), &[TPGT])));
        }
        Directory {
            targets,
            advertised: self.advertised.clone(),
            portals: (1..)
                .map(Tpgt)
                .zip(addresses)
                .map(|(tpgt, address)| Portal {
                    address: *address,
                    tpgt,
                })
                .collect(),
            discovery_chap: ChapPolicy::Open,
            discovery_parameters: self.parameters.clone(),
            ..Directory::default()
        }
    }

    fn target(
        &self,
        called: &str,
        access: Access,
        device: Arc<TargetDevice>,
    ) -> target_core::control::Target {
        target_core::control::Target {
            name: name(called),
            alias: None,
            tpgt: TPGT,
            access,
            chap: self.chap.clone(),
            parameters: self.parameters.clone(),
            device,
        }
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            size: 1 << 20,
            options: StoreOptions::default(),
            removable: false,
        }
    }
}

impl Disk {
    fn open(&self) -> Arc<FaultStore> {
        let source = StoreSource::Memory { size: self.size };
        FaultStore::new(backstores::open(&source, self.options).expect("memory can be opened"))
    }
}

/// The identity of a test's logical unit.
#[must_use]
pub fn unit_config(number: u16, removable: bool) -> UnitConfig {
    let [high, low] = number.to_be_bytes();
    UnitConfig {
        device_type: DeviceType::Disk,
        naa: vec![0x30, 0, 0, 0, 0, 0, high, low],
        serial: format!("serial{number}"),
        vendor: "LUNAPORT".into(),
        product: "Virtual disk".into(),
        revision: "0001".into(),
        thin: true,
        removable,
        soft_threshold: None,
    }
}

/// What every connection is served with.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    node: Arc<Node>,
    tell: Arc<watch::Sender<Vec<CloseReason>>>,
    panicked: Arc<AtomicBool>,
}

impl Serving {
    /// Serves a connection to its end.
    pub(super) async fn serve(self, socket: TcpStream, peer: SocketAddr, pool: Arc<BufPool>) {
        let link = LinkInfo {
            local: socket.local_addr().expect("a connected socket"),
            peer,
            transport: "tcp",
            keys: TransportKeys::default(),
        };
        socket.set_nodelay(true).expect("a TCP socket");
        let mover = TcpMover::new(socket, Arc::clone(&pool));
        let served = serve(mover, link, self.node, pool);
        match AssertUnwindSafe(served).catch_unwind().await {
            Ok(reason) => self.tell.send_modify(|ends| ends.push(reason)),
            Err(_) => self.panicked.store(true, Ordering::SeqCst),
        }
    }
}

/// Serves connections here.
async fn accept(listener: TcpListener, serving: Serving, pool: Arc<BufPool>) {
    // Owned here, so that dropping the target ends its connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        if let Ok((socket, peer)) = listener.accept().await {
            connections.spawn(serving.clone().serve(socket, peer, Arc::clone(&pool)));
        }
    }
}

/// Hands connections to data cores.
async fn accept_for(listener: TcpListener, cores: Arc<Cores>) {
    loop {
        if let Ok((socket, peer)) = listener.accept().await {
            cores.place(socket, peer);
        }
    }
}

fn name(text: &str) -> IscsiName {
    text.parse().expect("a valid name")
}

/// Bytes that differ from call to call and are the same in every run.
fn entropy(bytes: &mut [u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static LOCK: Mutex<()> = Mutex::new(());
    let _whole = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for piece in bytes.chunks_mut(8) {
        let number = NEXT
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        piece.copy_from_slice(&number.to_be_bytes()[..piece.len()]);
    }
}

fn interfaces() -> Vec<IpAddr> {
    vec![Ipv4Addr::LOCALHOST.into()]
}

const TPGT: Tpgt = Tpgt(1);
