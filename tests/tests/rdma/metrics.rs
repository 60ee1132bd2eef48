//! What whoever watches the target is told of a session over RDMA: what `/metrics` says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use iser_transport::sim::Weather;
use iser_transport::{Initiator, Opened, QueuePair};
use management::access::{Actor, Gate};
use management::control::{Change, Control, Edit};
use management::exposition::Cores;
use management::live::{Accept, Defaults};
use management::model::{AnyObject, Kind};
use management::state::State;
use serde_json::json;
use target_core::control::Directory;
use target_core::iscsi::Node;
use tower::ServiceExt;
use webui::{Peer, Web, router};

use crate::host::{BLOCK, Host, Served, TARGET};

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
    let mut request = Request::get("/metrics").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Peer::User(0));
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test]
async fn what_goes_over_rdma_is_counted_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(directory.path()).await;
    let node = Arc::clone(control.node());
    let (served, at_initiator) = Served::of(node, 1, Weather::default());
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

    let over = ["iser", "tcp"].map(|transport| served.node.connections_over(transport));
    assert_eq!(over, [1, 0]);
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
    served.ended_within(Duration::from_secs(20)).await;
}

const README: &str = include_str!("../../../README.md");
