//! The deterministic simulation: the whole target over simulated connections and faulty stores, in virtual time, with
//! every choice drawn from one seed.
//!
//! A world has one target with two logical units, initiators that do whatever initiators do (`initiator.rs`, `plan.rs`),
//! and misfortune (`misfortune.rs`). Every answer is held against the rules of the protocol (`session.rs`, `task.rs`)
//! and against a model of what the disks may hold (`model.rs`). `defects.rs` plants defects, to prove that they are
//! found.
#![allow(
    clippy::cast_possible_truncation,
    reason = "a test's lengths and draws fit wherever they are put"
)]

mod defects;
mod hearing;
mod initiator;
mod leaving;
mod ledger;
mod leg;
mod login;
mod misfortune;
mod model;
mod mover;
mod patience;
mod pipe;
mod plan;
mod random;
mod rdma;
mod reassign;
mod recovery;
mod scene;
mod session;
mod spoiled_mover;
mod spoiled_session;
mod spoiled_store;
mod tally;
mod task;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstores::{BlockStore, BufPool, FaultStore, StoreOptions, StoreSource};
use iscsi_proto::{IscsiName, Tpgt};
use iser_transport::{IserMover, IserSetup};
use target_core::control::{Access, ChapPolicy, Directory, Parameters, Portal, Target};
use target_core::datamover::DataMover;
use target_core::iscsi::{CloseReason, LinkInfo, Node, TransportKeys};
use target_core::scsi::{DeviceType, LogicalUnit, TargetDevice, UnitConfig};
use target_core::serve::serve;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

pub use defects::Defect;
pub use ledger::{Check, Violation};
pub use tally::{Event, Mishap, Tally};

use ledger::Ledger;
use model::BLOCK;
use mover::SimMover;
use plan::CAPACITY;
use random::Random;
use scene::{Accepted, Scene};
use spoiled_mover::SpoiledMover;
use spoiled_store::SpoiledStore;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Rules that did not hold.
    pub violations: Vec<Violation>,
    /// Everything of note that happened, in order.
    pub trace: Vec<String>,
    /// What the wire did to PDUs.
    pub tally: Tally,
}

/// Runs the world of a seed to its end, with sessions of an ErrorRecoveryLevel.
#[must_use]
pub fn run(seed: u64, level: u8) -> Report {
    run_with(seed, level, None)
}

/// Runs the world of a seed with a defect planted in it, at the level where it shows.
#[must_use]
pub fn run_spoiled(seed: u64, defect: Defect) -> Report {
    run_with(seed, defect.level(), Some(defect))
}

fn run_with(seed: u64, level: u8, defect: Option<Defect>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing that could be missing");
    runtime.block_on(async { World::new(seed, level, defect).run().await })
}

/// A target and its surroundings before anything happens.
struct World {
    scene: Arc<Scene>,
    random: Random,
    initiators: u8,
    misfortune: bool,
    defect: Option<Defect>,
    accepted: mpsc::UnboundedReceiver<Accepted>,
}

impl World {
    fn new(seed: u64, level: u8, defect: Option<Defect>) -> Self {
        let mut random = Random::new(seed);
        let ledger = Ledger::new();
        let initiators = random.between(1, 3) as u8;
        // Some worlds are kind, so that what hides behind faults elsewhere shows there.
        let misfortune = random.percent(75);
        let parameters = parameters(&mut random, level);
        // In some the wire is kind as well.
        let mischief = random.pick(&[0, 5, 30]);
        let command_window = parameters.command_window;
        let pool = BufPool::new(random.pick(&[1 << 20, 4 << 20, 16 << 20]));
        let stores: Vec<_> = (0..UNITS).map(|_| store()).collect();
        let name: IscsiName = TARGET.parse().expect("a valid name");
        let device = TargetDevice::new(name.clone(), &[Tpgt(1)]);
        for (number, store) in stores.iter().enumerate() {
            let backing: Arc<dyn BlockStore> = match defect {
                None => Arc::clone(store) as _,
                Some(defect) => SpoiledStore::new(Arc::clone(store) as _, defect),
            };
            assert!(device.map(number as u16, LogicalUnit::new(unit_config(number), backing)));
        }
        let node = Node::new(directory(&name, parameters, device), entropy, Vec::new);
        let (accept, accepted) = mpsc::unbounded_channel();
        let scene = Scene::new(
            ledger,
            node,
            pool,
            name,
            stores,
            accept,
            command_window,
            (level, mischief),
            usize::from(initiators),
        );
        Self {
            scene,
            random,
            initiators,
            misfortune,
            defect,
            accepted,
        }
    }

    async fn run(mut self) -> Report {
        let scene = Arc::clone(&self.scene);
        let serving = Arc::new(AtomicUsize::new(0));
        let acceptor = accept_all(
            Arc::clone(&scene),
            self.defect,
            self.accepted,
            Arc::clone(&serving),
        );
        let acceptor = tokio::spawn(acceptor);
        let mut actors: Vec<_> = (1..=self.initiators)
            .map(|id| {
                let steps = self.random.between(20, 150) as usize;
                let random = self.random.fork();
                tokio::spawn(initiator::act(Arc::clone(&scene), id, random, steps))
            })
            .collect();
        if self.misfortune {
            let random = self.random.fork();
            actors.push(tokio::spawn(misfortune::befall(Arc::clone(&scene), random)));
        }
        for (number, mut actor) in actors.into_iter().enumerate() {
            match timeout(PATIENCE, &mut actor).await {
                Ok(ended) => ended.expect("no actor panics"),
                Err(_) => {
                    scene.ledger.violated(Check::Liveness, "an actor does not end");
                    actor.abort();
                    if number < usize::from(self.initiators) {
                        // Or misfortune would go on for as long again, and strike the witness.
                        scene.busy.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        }
        at_rest(&scene, &serving).await;
        (1..=self.initiators).for_each(|id| scene.settle_lost(id));
        // What is there is there, and what was promised survives.
        initiator::read_all(&scene, WITNESS, &mut self.random).await;
        for unit in 0..scene.stores.len() {
            misfortune::power_cut(&scene, unit, &mut self.random).await;
        }
        initiator::read_all(&scene, WITNESS, &mut self.random).await;
        at_rest(&scene, &serving).await;
        acceptor.abort();
        Report {
            violations: scene.ledger.violations(),
            trace: scene.ledger.trace(),
            tally: scene.tally(),
        }
    }
}

async fn accept_all(
    scene: Arc<Scene>,
    defect: Option<Defect>,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    serving: Arc<AtomicUsize>,
) {
    while let Some(accepted) = accepted.recv().await {
        let (scene, serving) = (Arc::clone(&scene), Arc::clone(&serving));
        serving.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let reason = match accepted {
                Accepted::Plain(sender, receiver) => {
                    let mover = SimMover::new(sender, receiver, Arc::clone(&scene.pool));
                    connection(&scene, mover, defect, TransportKeys::default()).await
                }
                Accepted::Rdma(link, private_data) => {
                    let setup = IserSetup {
                        pool: Arc::clone(&scene.pool),
                        messages: Arc::clone(&scene.messages),
                        peer: Some(private_data),
                    };
                    let mover = IserMover::new(link, setup).expect("memory for a login is there");
                    let keys = mover.transport_keys();
                    connection(&scene, mover, defect, keys).await
                }
            };
            scene
                .ledger
                .note(format_args!("a connection was closed: {reason}"));
            serving.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn connection(
    scene: &Arc<Scene>,
    mover: impl DataMover,
    defect: Option<Defect>,
    keys: TransportKeys,
) -> CloseReason {
    let (node, pool) = (Arc::clone(&scene.node), Arc::clone(&scene.pool));
    match defect {
        None => serve(mover, link(keys), node, pool).await,
        Some(defect) => {
            let spoiled = SpoiledMover::new(mover, Arc::clone(scene), defect);
            serve(spoiled, link(keys), node, pool).await
        }
    }
}

/// When everyone has left, nothing may be left of them.
async fn at_rest(scene: &Scene, serving: &AtomicUsize) {
    for _ in 0..REST_SECONDS {
        if serving.load(Ordering::Relaxed) == 0 {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    let sessions = scene.node.sessions().len();
    let connections = scene.node.connections().max(serving.load(Ordering::Relaxed));
    let commands = scene.node.abandoned_commands();
    scene.ledger.check(
        Check::NoSessionLeft,
        (sessions, connections, commands) == (0, 0, 0),
        || format!("{sessions} sessions, {connections} connections, {commands} commands are left"),
    );
    let in_use = scene.pool.stats().in_use + scene.messages.stats().in_use;
    scene.ledger.check(Check::PoolFull, in_use == 0, || {
        format!("{in_use} bytes did not come back")
    });
}

fn parameters(random: &mut Random, level: u8) -> Parameters {
    Parameters {
        max_recv_data_segment_len: random.pick(&[4096, 65_536, 262_144]),
        max_burst_len: random.pick(&[16_384, 1 << 20]),
        initial_r2t: random.percent(50),
        immediate_data: random.percent(80),
        command_window: random.pick(&[4, 16, 128]),
        nop_interval: Duration::from_secs(random.pick(&[1, 5])),
        nop_timeout: Duration::from_secs(5),
        data_out_timeout: Duration::from_secs(10),
        response_timeout: Duration::from_secs(20),
        max_connections: random.pick(&[1, 2, 4]),
        error_recovery_level: level,
        ..Parameters::default()
    }
}

fn store() -> Arc<FaultStore> {
    let source = StoreSource::Memory {
        size: CAPACITY * BLOCK as u64,
    };
    FaultStore::new(backstores::open(&source, StoreOptions::default()).expect("memory opens"))
}

fn unit_config(number: usize) -> UnitConfig {
    UnitConfig {
        device_type: DeviceType::Disk,
        naa: vec![0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number as u8],
        serial: format!("{number:08}"),
        vendor: "LUNAPORT".into(),
        product: "SIMULATED".into(),
        revision: "1".into(),
        thin: true,
        removable: false,
        soft_threshold: None,
    }
}

fn directory(name: &IscsiName, parameters: Parameters, device: Arc<TargetDevice>) -> Directory {
    let target = Target {
        name: name.clone(),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap: ChapPolicy::Open,
        parameters,
        device,
    };
    Directory {
        targets: [(name.clone(), Arc::new(target))].into(),
        advertised: Vec::new(),
        portals: vec![Portal {
            address: "192.0.2.1:3260".parse().expect("an address"),
            tpgt: Tpgt(1),
        }],
        ..Directory::default()
    }
}

fn link(keys: TransportKeys) -> LinkInfo {
    LinkInfo {
        local: "192.0.2.1:3260".parse().expect("an address"),
        peer: "192.0.2.9:40000".parse().expect("an address"),
        transport: "simulated",
        keys,
    }
}

fn entropy(bytes: &mut [u8]) {
    bytes.fill(0x42);
}

const TARGET: &str = "iqn.2024-01.org.example:disk";
const UNITS: usize = 2;
/// The initiator that reads everything in the end.
const WITNESS: u8 = 99;
/// No actor needs longer, in virtual time.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// How long the last connections may take to be noticed as gone.
const REST_SECONDS: u32 = 60;
