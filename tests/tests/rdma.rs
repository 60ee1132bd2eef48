//! A session over RDMA, on a link in memory, in the eyes of those who watch the target: what `/metrics` tells of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http;
use backstores::BufPool;
use iscsi_proto::pdu::{Request, Response, ScsiCommand, TaskAttribute};
use iscsi_proto::{BHS_LEN, Itt, Lun, Sn, Tsih};
use iser_transport::sim::{Weather, link};
use iser_transport::{CmHeader, Initiator, IserMover, IserSetup, Message, Opened, QueuePair, transport_keys};
use management::access::{Actor, Gate};
use management::control::{Change, Control, Edit};
use management::exposition::Cores;
use management::live::{Accept, Defaults};
use management::model::{AnyObject, Kind};
use management::state::State;
use serde_json::json;
use target_core::control::Directory;
use target_core::iscsi::{LinkInfo, Node};
use target_core::serve::serve;
use tests::first_request;
use tower::ServiceExt;
use webui::{Peer, Web, router};

const TARGET: &str = "iqn.2026-11.org.example:a";
const NAME: &str = "iqn.2026-11.org.example:host";
const BLOCK: usize = 512;
const README: &str = include_str!("../../README.md");

/// A node with one disk at LUN 0, as a running program has it.
async fn control(directory: &Path) -> Arc<Control> {
    let entropy: fn(&mut [u8]) = |bytes| bytes.fill(1);
    let (state, model) = State::open(directory, entropy).unwrap();
    let node = Node::new(Directory::default(), entropy, Vec::new);
    let defaults = Defaults {
        base: directory.to_owned(),
        ..Defaults::default()
    };
    let accept = Accept::new(|_| tokio::spawn(async {}).abort_handle());
    let control = Control::start(state, model, node, defaults, accept, entropy).unwrap();
    let edits = [
        (Kind::Target, json!({"name": TARGET})),
        (
            Kind::Store,
            json!({"id": "a", "place": {"kind": "memory", "size": 1 << 20}}),
        ),
        (Kind::Unit, json!({"id": "a", "store": "a"})),
        (Kind::Lun, json!({"target": TARGET, "lun": 0, "unit": "a"})),
        (Kind::Access, json!({"id": "any", "target": TARGET, "any": true})),
    ];
    let edits = edits.map(|(kind, object)| Edit::Put(AnyObject::parse(kind, object).unwrap()));
    let change = Change::of(edits.into());
    control.change(&Actor::program(), change).await.unwrap();
    control
}

/// `GET /metrics` as a user of this host.
async fn metrics(control: Arc<Control>) -> String {
    let router = router(Web::new(Gate::new(control), "0", Cores::new(Vec::new)));
    let mut request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Peer::User(0));
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

/// A session's initiator, and its numbers.
struct Host {
    initiator: Initiator,
    number: u32,
    stat_sn: Sn,
}

impl Host {
    async fn log_in(mut initiator: Initiator) -> Self {
        let request = first_request(1, (Tsih::NEW, 0), (Sn(1), Sn(1)));
        let text =
            format!("InitiatorName={NAME}\0TargetName={TARGET}\0SessionType=Normal\0RDMAExtensions=Yes\0");
        initiator.send(request.encode(), text.as_bytes());
        let mut host = Self {
            initiator,
            number: 0,
            stat_sn: Sn(1),
        };
        let (bhs, _) = host.hear().await;
        let Ok(Response::Login(response)) = Response::decode(&bhs) else {
            panic!("{bhs:?}")
        };
        assert!(response.transit, "{response:?}");
        host
    }

    async fn hear(&mut self) -> ([u8; BHS_LEN], Option<Vec<u8>>) {
        let Some(Message::Pdu { bhs, data_in, .. }) = self.initiator.message().await else {
            panic!("no answer")
        };
        self.stat_sn = self.stat_sn.next();
        (bhs, data_in)
    }

    /// A command on LUN 0: its status, and what came into the room that it had.
    async fn command(&mut self, cdb: &[u8], opened: Opened) -> (u8, Vec<u8>) {
        self.number += 1;
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        let request = Request::ScsiCommand(ScsiCommand {
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
        });
        self.initiator.command(request.encode(), &[], opened);
        let (bhs, data_in) = self.hear().await;
        match Response::decode(&bhs) {
            Ok(Response::ScsiResponse(response)) => (response.status, data_in.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_goes_over_rdma_is_counted_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(directory.path()).await;
    let node = Arc::clone(control.node());
    let (pool, messages) = (BufPool::new(8 << 20), BufPool::new(8 << 20));
    let (at_target, at_initiator) = link(1, Weather::default());
    let setup = IserSetup {
        pool: Arc::clone(&pool),
        messages,
        peer: Some(CmHeader::default()),
    };
    let info = LinkInfo {
        local: "192.0.2.1:3260".parse().unwrap(),
        peer: "192.0.2.9:40000".parse().unwrap(),
        transport: "iser",
        keys: transport_keys(),
    };
    let mover = IserMover::new(at_target, setup).unwrap();
    let serving = tokio::spawn(serve(mover, info, Arc::clone(&node), pool));

    let mut host = Host::log_in(Initiator::new(at_initiator, 64)).await;
    let nothing = Opened::default;
    assert_eq!(host.command(&[0; 6], nothing()).await.0, 2, "a unit attention");
    let data = [0x5a; 4 * BLOCK];
    for at in [0, 4] {
        let opened = Opened {
            data_out: data.to_vec(),
            ..Opened::default()
        };
        let cdb = [0x2a, 0, 0, 0, 0, at, 0, 0, 4, 0];
        assert_eq!(host.command(&cdb, opened).await.0, 0);
    }
    for _ in 0..3 {
        let opened = Opened {
            room: 8 * BLOCK,
            ..Opened::default()
        };
        let (status, came) = host.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], opened).await;
        assert_eq!((status, came), (0, vec![0x5a; 8 * BLOCK]));
    }

    let text = metrics(control).await;
    for line in [
        r#"lunaport_transport_commands_total{transport="iser",op="read"} 3"#,
        r#"lunaport_transport_commands_total{transport="iser",op="write"} 2"#,
        r#"lunaport_transport_commands_total{transport="iser",op="other"} 1"#,
        r#"lunaport_transport_bytes_total{transport="iser",op="read"} 12288"#,
        r#"lunaport_transport_bytes_total{transport="iser",op="write"} 4096"#,
        r#"lunaport_logins_total{transport="iser",result="success"} 1"#,
        r#"lunaport_sessions{target="iqn.2026-11.org.example:a",transport="iser"} 1"#,
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
        let name = line.split('{').next().unwrap();
        assert!(README.contains(name), "the README does not name {name}");
    }
    assert!(README.contains(r#"transport="iser""#));
    assert!(!text.contains(r#"transport="tcp""#), "{text}");
    host.initiator.queue_pair().disconnect();
    serving.await.unwrap();
}
