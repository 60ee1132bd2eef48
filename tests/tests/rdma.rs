//! A session over RDMA, on a link in memory, in the eyes of those who watch the target: what is counted, and told as metrics.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use backstores::{BufPool, StoreOptions, StoreSource};
use iscsi_proto::pdu::{LoginRequest, LoginStage, Request, Response, ScsiCommand, TaskAttribute};
use iscsi_proto::{BHS_LEN, Cid, IscsiName, Isid, Itt, Lun, Sn, Tpgt, Tsih};
use iser_transport::sim::{Weather, link};
use iser_transport::{CmHeader, Initiator, IserMover, IserSetup, Message, Opened, QueuePair, transport_keys};
use management::exposition::Exposition;
use target_core::control::{Access, ChapPolicy, Directory, Parameters, Portal, Target};
use target_core::iscsi::{LinkInfo, Node};
use target_core::scsi::{DeviceType, LogicalUnit, TargetDevice, UnitConfig};
use target_core::serve::serve;

const TARGET: &str = "iqn.2026-11.org.example:a";
const NAME: &str = "iqn.2026-11.org.example:host";
const BLOCK: usize = 512;

fn directory() -> Directory {
    let name = TARGET.parse::<IscsiName>().unwrap();
    let source = StoreSource::Memory { size: 1 << 20 };
    let store = backstores::open(&source, StoreOptions::default()).unwrap();
    let config = UnitConfig {
        device_type: DeviceType::Disk,
        naa: vec![0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        serial: "00000001".into(),
        vendor: "LUNAPORT".into(),
        product: "MEMORY".into(),
        revision: "1".into(),
        thin: true,
        removable: false,
        soft_threshold: None,
    };
    let device = TargetDevice::new(name.clone(), &[Tpgt(1)]);
    assert!(device.map(0, LogicalUnit::new(config, store)));
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
struct Host {
    initiator: Initiator,
    number: u32,
    stat_sn: Sn,
}

impl Host {
    async fn log_in(mut initiator: Initiator) -> Self {
        let request = Request::Login(LoginRequest {
            transit: true,
            continues: false,
            current_stage: LoginStage::Operational,
            next_stage: LoginStage::FullFeature,
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih::NEW,
            itt: Itt(0),
            cid: Cid(0),
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(1),
        });
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

#[tokio::test(start_paused = true)]
async fn what_goes_over_rdma_is_counted_as_that() {
    let node = Node::new(directory(), |bytes| bytes.fill(1), Vec::new);
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

    let mut exposition = Exposition::default();
    exposition.node(&node);
    let text = exposition.into_text();
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
    }
    assert!(!text.contains(r#"transport="tcp""#), "{text}");
    host.initiator.queue_pair().disconnect();
    serving.await.unwrap();
}
