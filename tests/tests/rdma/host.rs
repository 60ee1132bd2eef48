//! A target with one disk behind a link in memory, and the initiator at the other end.

use std::sync::Arc;
use std::time::Duration;

use backstores::{BufPool, StoreOptions, StoreSource};
use iscsi_proto::pdu::{
    Function, LoginResponse, NopOut, Request, Response, ScsiCommand, TaskAttribute, TaskManagementRequest,
};
use iscsi_proto::{BHS_LEN, IscsiName, Itt, Lun, Sn, Tpgt, Tsih, Ttt};
use iser_transport::sim::{SimQueuePair, Weather, link};
use iser_transport::{CmHeader, Initiator, IserMover, IserSetup, Message, Opened};
use target_core::control::{Access, ChapPolicy, Directory, Parameters, Portal, Target};
use target_core::iscsi::{CloseReason, LinkInfo, Node};
use target_core::scsi::{LogicalUnit, TargetDevice};
use target_core::serve::serve;
use tests::first_request;
use tests::script::unit_config;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const TARGET: &str = "iqn.2026-11.org.example:a";
const NAME: &str = "iqn.2026-11.org.example:host";
pub(crate) const BLOCK: usize = 512;

fn directory() -> Directory {
    let name = TARGET.parse::<IscsiName>().unwrap();
    let source = StoreSource::Memory { size: 1 << 20 };
    let store = backstores::open(&source, StoreOptions::default()).unwrap();
    let device = TargetDevice::new(name.clone(), &[Tpgt(1)]);
    assert!(device.map(0, LogicalUnit::new(unit_config(1, false), store)));
    let target = Target {
        name: name.clone(),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap: ChapPolicy::Open,
        parameters: Parameters::default(),
        device,
    };
    Directory {
        targets: [(name, Arc::new(target))].into(),
        portals: vec![Portal {
            address: "192.0.2.1:3260".parse().unwrap(),
            tpgt: Tpgt(1),
        }],
        ..Directory::default()
    }
}

/// A session's initiator, and its numbers.
pub(crate) struct Host {
    pub(crate) initiator: Initiator,
    number: u32,
    stat_sn: Sn,
}

impl Host {
    /// A session's first connection, in full feature phase.
    pub(crate) async fn log_in(initiator: Initiator) -> Self {
        let (host, response) = Self::try_log_in(initiator, "RDMAExtensions=Yes\0").await;
        assert!(response.transit, "{response:?}");
        host
    }

    /// One that has not logged in.
    pub(crate) fn strange(initiator: Initiator) -> Self {
        Self {
            initiator,
            number: 0,
            stat_sn: Sn(1),
        }
    }

    /// A login with these keys beside the names, and what is answered.
    pub(crate) async fn try_log_in(initiator: Initiator, keys: &str) -> (Self, LoginResponse) {
        let mut host = Self::strange(initiator);
        host.initiator.send(login_request(), login_text(keys).as_bytes());
        let (bhs, _) = host.hear().await;
        match Response::decode(&bhs) {
            Ok(Response::Login(response)) => (host, response),
            other => panic!("{other:?}"),
        }
    }

    /// The header of the next PDU, and what came into the room of the command that it answers.
    pub(crate) async fn hear(&mut self) -> ([u8; BHS_LEN], Option<Vec<u8>>) {
        let Some(Message::Pdu { bhs, data_in, .. }) = self.initiator.message().await else {
            panic!("no answer")
        };
        self.stat_sn = self.stat_sn.next();
        (bhs, data_in)
    }

    /// A command on LUN 0: its status, and what came into the room that it had.
    pub(crate) async fn command(&mut self, cdb: &[u8], opened: Opened) -> (u8, Vec<u8>) {
        self.begin(cdb, opened);
        let (bhs, data_in) = self.hear().await;
        match Response::decode(&bhs) {
            Ok(Response::ScsiResponse(response)) => (response.status, data_in.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a command on LUN 0. Returns its tag.
    pub(crate) fn begin(&mut self, cdb: &[u8], opened: Opened) -> u32 {
        let bhs = self.next_command(cdb, &opened);
        self.initiator.command(bhs, &[], opened);
        self.number
    }

    /// The header of the next command on LUN 0.
    pub(crate) fn next_command(&mut self, cdb: &[u8], opened: &Opened) -> [u8; BHS_LEN] {
        self.number += 1;
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        Request::ScsiCommand(ScsiCommand {
            immediate: false,
            is_final: true,
            read: opened.room > 0,
            write: !opened.data_out.is_empty(),
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt(self.number),
            expected_len: u32::try_from(opened.room + opened.data_out.len()).unwrap(),
            cmd_sn: Sn(self.number),
            exp_stat_sn: self.stat_sn,
            cdb: whole,
        })
        .encode()
    }

    /// Asks for the end of a task. Returns the tag of the request.
    pub(crate) fn abort(&mut self, itt: u32) -> u32 {
        let request = Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function: Function::AbortTask,
            lun: Lun::ZERO,
            itt: Itt(ABORTS | itt),
            referenced_itt: Itt(itt),
            cmd_sn: Sn(self.number + 1),
            exp_stat_sn: self.stat_sn,
            ref_cmd_sn: Sn(itt),
            exp_data_sn: 0,
        });
        self.initiator.send(request.encode(), &[]);
        ABORTS | itt
    }

    /// Answers and pings at once.
    pub(crate) fn ping(&mut self, itt: u32) {
        let request = Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt(itt),
            ttt: Ttt::RESERVED,
            cmd_sn: Sn(self.number + 1),
            exp_stat_sn: self.stat_sn,
        });
        self.initiator.send(request.encode(), &[]);
    }
}

/// The target's end of a connection.
pub(crate) struct Served {
    pub(crate) node: Arc<Node>,
    pub(crate) pool: Arc<BufPool>,
    pub(crate) messages: Arc<BufPool>,
    serving: JoinHandle<CloseReason>,
}

impl Served {
    /// A target, and the other end of a connection to it.
    pub(crate) fn begin(seed: u64, weather: Weather) -> (Self, SimQueuePair) {
        let node = Node::new(directory(), |bytes| bytes.fill(1), Vec::new);
        Self::of(node, seed, weather)
    }

    /// The same of a node that is there.
    pub(crate) fn of(node: Arc<Node>, seed: u64, weather: Weather) -> (Self, SimQueuePair) {
        let (pool, messages) = (BufPool::new(8 << 20), BufPool::new(8 << 20));
        let (at_target, at_initiator) = link(seed, weather);
        let setup = IserSetup {
            pool: Arc::clone(&pool),
            messages: Arc::clone(&messages),
            peer: Some(CmHeader::default()),
        };
        let mover = IserMover::new(at_target, setup).unwrap();
        let info = LinkInfo {
            local: "192.0.2.1:3260".parse().unwrap(),
            peer: "192.0.2.9:40000".parse().unwrap(),
            transport: "iser",
            keys: mover.transport_keys(),
        };
        let serving = tokio::spawn(serve(mover, info, Arc::clone(&node), Arc::clone(&pool)));
        let served = Self {
            node,
            pool,
            messages,
            serving,
        };
        (served, at_initiator)
    }

    /// Waits for the end of the connection, which leaves nothing behind.
    pub(crate) async fn ended_within(self, patience: Duration) -> CloseReason {
        let ended = timeout(patience, self.serving).await;
        let reason = ended.expect("the connection ends").expect("nothing panics");
        assert_eq!((self.pool.stats().in_use, self.messages.stats().in_use), (0, 0));
        assert_eq!(self.node.connections(), 0);
        reason
    }
}

/// A login that asks for full feature phase at once.
pub(crate) fn login_request() -> [u8; BHS_LEN] {
    first_request(1, (Tsih::NEW, 0), (Sn(1), Sn(1))).encode()
}

/// The text of a login.
pub(crate) fn login_text(keys: &str) -> String {
    format!("InitiatorName={NAME}\0TargetName={TARGET}\0SessionType=Normal\0{keys}")
}

/// Marks the tags of requests that end tasks.
const ABORTS: u32 = 0x8000_0000;
