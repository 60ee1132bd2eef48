//! A target in this process, served over loopback as the appliance serves it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstores::{BlockStore, BufPool, FaultStore, StoreOptions, StoreSource};
use iscsi_proto::{IscsiName, Tpgt};
use target_core::control::{Access, ChapPolicy, Directory, Parameters, Portal, Target as IscsiTarget};
use target_core::iscsi::{LinkInfo, Node, TransportKeys};
use target_core::scsi::{LogicalUnit, TargetDevice, UnitConfig};
use target_core::serve::serve;
use tcp_transport::TcpMover;

/// A target with one disk: LUN 0, 16 MiB, whose operations can be held.
#[derive(Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// What its connections share.
    pub node: Arc<Node>,
    /// The disk.
    pub disk: Arc<FaultStore>,
    /// Where its connections take buffers from.
    pub pool: Arc<BufPool>,
}

impl Target {
    /// The one target's name.
    pub const NAME: &'static str = "iqn.2026-11.org.example:conversation";

    /// Serves with default parameters, open to everyone.
    pub async fn start() -> Self {
        Self::with(Parameters::default(), ChapPolicy::Open).await
    }

    /// Serves under these rules.
    ///
    /// # Panics
    /// When loopback cannot be had.
    pub async fn with(parameters: Parameters, chap: ChapPolicy) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has free ports");
        let address = listener.local_addr().expect("a bound socket has an address");
        let memory = backstores::open(&StoreSource::Memory { size: 16 << 20 }, StoreOptions::default());
        let disk = FaultStore::new(memory.expect("memory opens"));
        let name: IscsiName = Self::NAME.parse().expect("well-formed");
        let device = TargetDevice::new(name.clone(), &[Tpgt(1)]);
        assert!(device.map(
            0,
            LogicalUnit::new(unit(), Arc::clone(&disk) as Arc<dyn BlockStore>)
        ));
        let target = IscsiTarget {
            name: name.clone(),
            alias: None,
            tpgt: Tpgt(1),
            access: Access::Everyone,
            chap,
            parameters: parameters.clone(),
            device,
        };
        let directory = Directory {
            targets: [(name, Arc::new(target))].into(),
            portals: vec![Portal {
                address,
                tpgt: Tpgt(1),
            }],
            discovery_chap: ChapPolicy::Open,
            discovery_parameters: parameters,
        };
        let node = Node::new(directory, entropy, interfaces);
        let pool = BufPool::new(64 << 20);
        tokio::spawn(accept(listener, Arc::clone(&node), Arc::clone(&pool)));
        Self {
            address,
            node,
            disk,
            pool,
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, node: Arc<Node>, pool: Arc<BufPool>) {
    while let Ok((socket, peer)) = listener.accept().await {
        socket.set_nodelay(true).expect("a TCP socket");
        let local = socket.local_addr().expect("a connected socket has an address");
        let link = LinkInfo {
            local,
            peer,
            transport: "tcp",
            keys: TransportKeys::default(),
        };
        let mover = TcpMover::new(socket, Arc::clone(&pool));
        tokio::spawn(serve(mover, link, Arc::clone(&node), Arc::clone(&pool)));
    }
}

fn unit() -> UnitConfig {
    UnitConfig {
        naa: 0x3011_2233_4455_6677_u64.to_be_bytes().to_vec(),
        serial: "conversation".into(),
        vendor: "LUNAPORT".into(),
        product: "Virtual disk".into(),
        revision: "0001".into(),
        thin: true,
        removable: false,
    }
}

/// Never the same bytes twice, and no randomness.
fn entropy(bytes: &mut [u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    for chunk in bytes.chunks_mut(8) {
        let count = COUNT
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .to_be_bytes();
        chunk.copy_from_slice(&count[..chunk.len()]);
    }
}

fn interfaces() -> Vec<IpAddr> {
    vec![IpAddr::from([127, 0, 0, 1])]
}
