//! The loop with a mover that is a pair of channels, in virtual time: what outlives a connection, and what does not.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use backstores::{FaultStore, IoBuf, Matching, StoreOp};
use iscsi_proto::pdu::{
    Function, LoginRequest, LoginStage, LoginStatus, Request, Response, ScsiCommand, TaskAttribute,
    TaskManagementRequest,
};
use iscsi_proto::text::push_pair;
use iscsi_proto::{Ahs, Cid, IscsiName, Isid, Itt, Lun, Sn, Tpgt, Tsih};
use tokio::task::JoinHandle;

use super::*;
use crate::control::{Access, ChapPolicy, Directory, Parameters};
use crate::datamover::{GetData, Notify, PutData, TransportClosed};
use crate::iscsi::{SessionParams, TransportKeys};
use crate::scsi::LogicalUnit;
use crate::scsi::testing::{config, device, memory};

const TARGET: &str = "iqn.2024-01.org.example:disk";

/// What the loop made the mover do.
#[derive(Debug)]
enum Sent {
    Pdu(Response),
    Data { status: Option<u8> },
}

/// What the peer does.
enum Script {
    Notify(Notify),
    Panic,
}

struct ScriptedMover {
    script: mpsc::UnboundedReceiver<Script>,
    sent: mpsc::UnboundedSender<Sent>,
    released: VecDeque<Itt>,
    queued: Arc<AtomicUsize>,
}

impl DataMover for ScriptedMover {
    fn move_to(&mut self, _: &Arc<BufPool>) -> Result<(), TransportClosed> {
        Ok(())
    }

    fn enable(&mut self, _: &SessionParams) {}

    fn send_control(&mut self, pdu: Response, _: Bytes) {
        let _ = self.sent.send(Sent::Pdu(pdu));
    }

    fn put_data(&mut self, put: PutData) {
        let status = put.last.map(|last| last.status);
        let _ = self.sent.send(Sent::Data { status });
    }

    fn get_data(&mut self, _: GetData) {}

    fn release_task(&mut self, itt: Itt) {
        self.released.push_back(itt);
    }

    fn end_task(&mut self, _: Itt) {}

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<Notify> {
        if let Some(itt) = self.released.pop_front() {
            return Poll::Ready(Notify::Released(itt));
        }
        self.script.poll_recv(cx).map(|next| match next {
            Some(Script::Notify(notify)) => notify,
            Some(Script::Panic) => panic!("a bug of the mover"),
            None => Notify::Closed(TransportClosed::Eof),
        })
    }

    fn queued_bytes(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn progress(&self) -> u64 {
        0
    }
}

/// A target with one disk whose store can be held.
struct World {
    node: Arc<Node>,
    disk: Arc<FaultStore>,
    pool: Arc<BufPool>,
}

impl World {
    fn new() -> Self {
        let disk = FaultStore::new(memory(2048));
        let unit = LogicalUnit::new(config(), Arc::<FaultStore>::clone(&disk));
        let name: IscsiName = TARGET.parse().unwrap();
        let target = Target {
            name: name.clone(),
            alias: None,
            tpgt: Tpgt(1),
            access: Access::Everyone,
            chap: ChapPolicy::Open,
            parameters: Parameters {
                nop_interval: Duration::ZERO,
                ..Parameters::default()
            },
            device: device(&[unit]),
        };
        let directory = Directory {
            targets: [(name, Arc::new(target))].into(),
            ..Directory::default()
        };
        Self {
            node: Node::new(directory, |bytes| bytes.fill(7), Vec::new),
            disk,
            pool: BufPool::new(16 << 20),
        }
    }

    fn connect(&self) -> Peer {
        let (script, commands) = mpsc::unbounded_channel();
        let (to_peer, sent) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let mover = ScriptedMover {
            script: commands,
            sent: to_peer,
            released: VecDeque::new(),
            queued: Arc::clone(&queued),
        };
        let link = LinkInfo {
            local: "192.0.2.1:3260".parse().unwrap(),
            peer: "192.0.2.9:40000".parse().unwrap(),
            transport: "tcp",
            keys: TransportKeys::default(),
        };
        let served = tokio::spawn(serve(mover, link, Arc::clone(&self.node), Arc::clone(&self.pool)));
        Peer {
            script,
            sent,
            queued,
            served,
            cmd_sn: 0,
        }
    }

    /// A session that has been told of power on.
    async fn log_in(&self, isid: u8) -> Peer {
        let mut peer = self.connect();
        assert_eq!(peer.login(isid, Tsih::NEW).await, LoginStatus::Success);
        peer.command(&[0x00]);
        assert_eq!(peer.status().await, 0x02);
        peer
    }
}

struct Peer {
    script: mpsc::UnboundedSender<Script>,
    sent: mpsc::UnboundedReceiver<Sent>,
    queued: Arc<AtomicUsize>,
    served: JoinHandle<CloseReason>,
    cmd_sn: u32,
}

impl Peer {
    fn notify(&self, notify: Notify) {
        assert!(
            self.script.send(Script::Notify(notify)).is_ok(),
            "the loop goes on"
        );
    }

    async fn login(&mut self, isid: u8, tsih: Tsih) -> LoginStatus {
        self.login_as(isid, tsih, Cid(0)).await
    }

    async fn login_as(&mut self, isid: u8, tsih: Tsih, cid: Cid) -> LoginStatus {
        let mut text = Vec::new();
        push_pair(&mut text, "InitiatorName", "iqn.2024-01.org.example:host");
        push_pair(&mut text, "TargetName", TARGET);
        let pdu = Request::Login(LoginRequest {
            transit: true,
            continues: false,
            current_stage: LoginStage::Operational,
            next_stage: LoginStage::FullFeature,
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0, 0, 0, 0, isid]),
            tsih,
            itt: Itt(0),
            cid,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(1),
        });
        self.notify(Notify::Control {
            pdu,
            data: text.into(),
        });
        match self.sent.recv().await {
            Some(Sent::Pdu(Response::Login(response))) => response.status,
            other => panic!("a login led to {other:?}"),
        }
    }

    /// Sends a command that has room for 512 bytes; its tag is its CmdSN.
    fn command(&mut self, cdb: &[u8]) -> u32 {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let itt = self.cmd_sn;
        self.cmd_sn += 1;
        self.notify(Notify::Command {
            pdu: ScsiCommand {
                immediate: false,
                is_final: true,
                read: true,
                write: false,
                attribute: TaskAttribute::Simple,
                priority: 0,
                lun: Lun::ZERO,
                itt: Itt(itt),
                expected_len: 512,
                cmd_sn: Sn(itt),
                exp_stat_sn: Sn(1),
                cdb: padded,
            },
            ahs: Ahs::default(),
            immediate: None::<IoBuf>,
        });
        itt
    }

    fn read_a_block(&mut self) -> u32 {
        self.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1])
    }

    async fn status(&mut self) -> u8 {
        loop {
            match self.sent.recv().await {
                Some(Sent::Pdu(Response::ScsiResponse(response))) => return response.status,
                Some(Sent::Data { status: Some(status) }) => return status,
                Some(Sent::Data { status: None }) => {}
                other => panic!("instead of a status came {other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_ends_with_its_data() {
    let world = World::new();
    let mut peer = world.log_in(1).await;
    peer.read_a_block();
    let sent = peer.sent.recv().await;
    assert!(matches!(sent, Some(Sent::Data { status: Some(0) })), "{sent:?}");
    drop(peer.script);
    assert_eq!(
        peer.served.await.unwrap(),
        CloseReason::Transport(TransportClosed::Eof)
    );
    assert_eq!((world.node.connections(), world.node.sessions().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_new_login_takes_the_nexus_over_without_waiting_for_the_store() {
    let world = World::new();
    let mut old = world.log_in(1).await;
    world.disk.hold(Matching::op(StoreOp::Read));
    old.read_a_block();
    world.disk.until_held(1).await;

    let mut new = world.log_in(1).await;
    let sessions = world.node.sessions();
    assert_eq!((sessions.len(), sessions[0].tsih), (1, Tsih(2)));
    tokio::task::yield_now().await;
    assert_eq!(
        world.node.abandoned_commands(),
        1,
        "the old read is still in the store"
    );
    assert!(!old.served.is_finished());

    new.command(&[0x00]);
    assert_eq!(new.status().await, 0x00);
    world.disk.resume();
    assert_eq!(old.served.await.unwrap(), CloseReason::Ordered(Order::Reinstated));
    assert_eq!(world.node.abandoned_commands(), 0);
    assert_eq!(world.node.sessions().len(), 1, "the new session stays");
}

#[tokio::test(start_paused = true)]
async fn a_bug_leaves_no_ghost_and_drops_no_store_operation() {
    let world = World::new();
    let mut peer = world.log_in(1).await;
    world.disk.hold(Matching::op(StoreOp::Read));
    peer.read_a_block();
    world.disk.until_held(1).await;

    assert!(peer.script.send(Script::Panic).is_ok());
    assert!(peer.served.await.unwrap_err().is_panic());
    assert_eq!((world.node.connections(), world.node.sessions().len()), (0, 0));
    tokio::task::yield_now().await;
    assert_eq!(world.node.abandoned_commands(), 1);
    world.disk.resume();
    while world.node.abandoned_commands() > 0 {
        tokio::task::yield_now().await;
    }
    world.log_in(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_never_waits_for_the_store() {
    let world = World::new();
    let mut peer = world.log_in(1).await;
    world.disk.hold(Matching::op(StoreOp::Read));
    let itt = peer.read_a_block();
    world.disk.until_held(1).await;
    peer.notify(Notify::Control {
        pdu: Request::TaskManagement(TaskManagementRequest {
            immediate: true,
            function: Function::AbortTask,
            lun: Lun::ZERO,
            itt: Itt(0x900),
            referenced_itt: Itt(itt),
            cmd_sn: Sn(peer.cmd_sn),
            exp_stat_sn: Sn(1),
            ref_cmd_sn: Sn(itt),
            exp_data_sn: 0,
        }),
        data: Bytes::new(),
    });
    let sent = peer.sent.recv().await;
    assert!(
        matches!(sent, Some(Sent::Pdu(Response::TaskManagement(_)))),
        "{sent:?}"
    );
    world.disk.resume();
    peer.read_a_block();
    assert_eq!(peer.status().await, 0x00);
    assert!(
        peer.sent.try_recv().is_err(),
        "nothing of the aborted read is sent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_of_one_connection_cannot_be_joined() {
    let world = World::new();
    let _first = world.log_in(1).await;
    let mut second = world.connect();
    let status = second.login_as(1, Tsih(1), Cid(1)).await;
    assert_eq!(status, LoginStatus::TooManyConnections);
    let mut third = world.connect();
    assert_eq!(third.login(1, Tsih(9)).await, LoginStatus::SessionDoesNotExist);
    let mut fourth = world.connect();
    assert_eq!(fourth.login(2, Tsih(1)).await, LoginStatus::SessionDoesNotExist);
    assert_eq!(world.node.sessions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_the_place_of_the_one_with_its_cid() {
    let world = World::new();
    let mut first = world.log_in(1).await;
    let mut second = world.connect();
    assert_eq!(second.login(1, Tsih(1)).await, LoginStatus::Success);
    assert_eq!(second.served.await.unwrap(), CloseReason::Joined(1));
    assert!(first.sent.recv().await.is_none(), "the first mover is gone");
    assert!(!first.served.is_finished(), "its loop serves the session");
    assert_eq!((world.node.connections(), world.node.sessions().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up() {
    let world = World::new();
    let mut peer = world.log_in(1).await;
    peer.queued.store(100, Ordering::Relaxed);
    peer.command(&[0x00]);
    peer.status().await;
    assert_eq!(
        peer.served.await.unwrap(),
        CloseReason::ResponsesStuck(Duration::from_secs(60))
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_meets_the_login_deadline() {
    let world = World::new();
    let peer = world.connect();
    assert_eq!(
        peer.served.await.unwrap(),
        CloseReason::LoginTimeout(Duration::from_secs(15))
    );
    assert_eq!(world.node.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_flood_starves_neither_orders_nor_commands() {
    let world = World::new();
    let mut peer = world.log_in(1).await;
    let script = peer.script.clone();
    let flood = tokio::spawn(async move {
        let ignored = || Notify::Unsolicited { itt: Itt(0x5555) };
        while (0..64).all(|_| script.send(Script::Notify(ignored())).is_ok()) {
            tokio::task::yield_now().await;
        }
    });
    peer.read_a_block();
    assert_eq!(peer.status().await, 0x00);
    world.node.order_all(Order::Close);
    assert_eq!(peer.served.await.unwrap(), CloseReason::Ordered(Order::Close));
    flood.await.unwrap();
}
