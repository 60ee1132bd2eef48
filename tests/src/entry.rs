//! Ways in for bytes that nobody would send. Each takes anything and must come back; what has to hold on the way is
//! asserted here. The fuzz targets (`fuzz/`) and the properties (`tests/properties.rs`) call the same functions.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use backstores::{BufPool, StoreOptions, StoreSource};
use bytes::Bytes;
use iscsi_proto::pdu::{LoginRequest, Request, Response, TaskAttribute};
use iscsi_proto::text::{
    parse_binary, parse_boolean, parse_list, parse_number, parse_pairs, parse_range, push_pair,
};
use iscsi_proto::{Ahs, BHS_LEN, Cid, IscsiName, Isid, Itt, Lun, Sn, Tpgt, Tsih};
use target_core::control::{Access, ChapCredential, ChapPolicy, Directory, Parameters, Secret, Target};
use target_core::iscsi::{LinkInfo, Login, LoginStep, TransportKeys};
use target_core::nexus::{InitiatorPort, NexusId, TargetPort};
use target_core::scsi::{LogicalUnit, ScsiTask, TargetDevice};
use target_core::transfer::{AbortSignal, TaskEvent, TaskId, Transfer, TransferSetup};
use tokio::sync::{Semaphore, mpsc};

use crate::script::{INITIATOR, TARGET, unit_config};

/// Headers, as requests and as responses, and what is behind them as additional header segments.
///
/// # Panics
/// When a header that was understood says something else after it was written and read again.
pub fn pdu(bytes: &[u8]) {
    let Some((bhs, rest)) = bytes.split_first_chunk::<BHS_LEN>() else {
        return;
    };
    if let Ok(request) = Request::decode(bhs) {
        assert_eq!(Request::decode(&request.encode()), Ok(request.clone()));
        // Whatever asks a PDU about itself.
        let _ = (
            request.name(),
            request.itt(),
            request.cmd_sn(),
            request.exp_stat_sn(),
            request.immediate(),
        );
    }
    if let Ok(response) = Response::decode(bhs) {
        assert_eq!(Response::decode(&response.encode()), Ok(response));
    }
    if let Ok(ahs) = Ahs::decode(rest) {
        assert_eq!(Ahs::decode(&ahs.encode()), Ok(ahs));
    }
}

/// Text of keys and values, and each value in every form that a value can have.
///
/// # Panics
/// When pairs that were understood are others after they were written and read again.
pub fn text(bytes: &[u8]) {
    let Ok(pairs) = parse_pairs(bytes) else {
        return;
    };
    let mut written = Vec::new();
    for pair in &pairs {
        push_pair(&mut written, &pair.key, &pair.value);
        let _ = parse_number(&pair.value);
        let _ = parse_boolean(&pair.value);
        let _ = parse_range(&pair.value);
        let _ = parse_list(&pair.value);
        if let Ok(binary) = parse_binary(&pair.value, 64) {
            assert!(binary.len() <= 64);
        }
        let _ = pair.value.parse::<IscsiName>();
    }
    assert_eq!(parse_pairs(&written), Ok(pairs));
}

/// A whole login: pieces of a byte for stages and flags, a byte for the length, and text. The target requires CHAP.
///
/// # Panics
/// When the login lets somebody in who proved nothing, or does not end.
pub fn login(mut bytes: &[u8]) {
    let link = LinkInfo {
        local: loopback(3260),
        peer: loopback(50_000),
        transport: "tcp",
        keys: TransportKeys::default(),
    };
    let mut login = Login::new(link, locked_directory(), |bytes| bytes.fill(0x5a));
    let mut requests = 0;
    while let Some(([flags, len], rest)) = bytes.split_first_chunk::<2>() {
        let (text, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let mut bhs = template().encode();
        bhs[1] = *flags;
        let Ok(Request::Login(request)) = Request::decode(&bhs) else {
            continue;
        };
        requests += 1;
        assert!(requests <= 100, "the login goes on for ever");
        match login.handle(&request, text) {
            LoginStep::Continue(next, answer) => {
                assert!(answer.text.len() <= 8192);
                login = next;
            }
            LoginStep::Admit(pending) => {
                let admission = &pending.admission;
                assert!(
                    admission.target.is_none() || admission.authenticated_as.is_some(),
                    "let in without proof"
                );
                return;
            }
            LoginStep::Refuse(failure, _) => {
                assert!(!failure.to_string().is_empty());
                return;
            }
        }
    }
}

/// A command: sixteen bytes of CDB, a byte for direction and lengths, and Data-Out. It runs to its end on a small disk.
///
/// # Panics
/// When the command does not end, ends twice, or gives more data than there is room for.
pub fn cdb(bytes: &[u8]) {
    let Some((cdb, rest)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    let Some((shape, out)) = rest.split_first() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs nothing but memory");
    runtime.block_on(run(cdb, *shape, out));
}

async fn run(cdb: &[u8; 16], shape: u8, out: &[u8]) {
    let (events, mut received) = mpsc::unbounded_channel();
    let expected_in = if shape & 1 == 0 {
        0
    } else {
        1_u32 << ((shape >> 3) % 18)
    };
    let expected_out = if shape & 2 == 0 {
        0
    } else {
        u32::try_from(out.len()).expect("short data")
    };
    let pool = BufPool::new(1 << 20);
    let setup = TransferSetup {
        task: TaskId(1),
        expected_in,
        expected_out,
        immediate: None,
        events,
        budget: Arc::new(Semaphore::new(4 << 20)),
        out_budget: Arc::new(Semaphore::new(4 << 20)),
        pool: Arc::clone(&pool),
        abort: AbortSignal::default(),
    };
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: Bytes::copy_from_slice(cdb),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 1,
    };
    let (device, nexus) = device();
    device.attach(&nexus);
    // The first command of a nexus only hears of power on; half of them come second.
    if shape & 4 != 0 {
        while device_has_news(&device, &nexus, &pool).await {}
    }
    let command = device.execute(&nexus, task, Transfer::new(setup));
    let mut given = 0;
    let answering = async {
        while let Some(event) = received.recv().await {
            match event {
                TaskEvent::Get {
                    offset,
                    mut buf,
                    filled,
                    reply,
                    ..
                } => {
                    let start = usize::try_from(offset).expect("32 bits fit") + filled;
                    let end = start + buf.len() - filled;
                    assert!(end <= out.len(), "more is asked for than there is");
                    buf[filled..].copy_from_slice(&out[start..end]);
                    let _ = reply.send(Ok(buf));
                }
                TaskEvent::Put { offset, buf, .. } => {
                    assert_eq!(usize::try_from(offset), Ok(given), "data come in order");
                    given += buf.len();
                }
                TaskEvent::Done { .. } => return true,
            }
        }
        false
    };
    let ((), done) = futures_util::future::join(command, answering).await;
    assert!(done, "the command ends");
    assert!(given <= usize::try_from(expected_in).expect("32 bits fit"));
    assert!(received.recv().await.is_none(), "nothing follows its end");
}

/// Runs TEST UNIT READY; whether it had anything to tell.
async fn device_has_news(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, pool: &Arc<BufPool>) -> bool {
    let (events, mut received) = mpsc::unbounded_channel();
    let setup = TransferSetup {
        task: TaskId(0),
        expected_in: 0,
        expected_out: 0,
        immediate: None,
        events,
        budget: Arc::new(Semaphore::new(0)),
        out_budget: Arc::new(Semaphore::new(0)),
        pool: Arc::clone(pool),
        abort: AbortSignal::default(),
    };
    let task = ScsiTask {
        lun: Lun::ZERO,
        cdb: Bytes::from_static(&[0; 16]),
        attribute: TaskAttribute::Simple,
        priority: 0,
        tag: 0,
    };
    device.execute(nexus, task, Transfer::new(setup)).await;
    let good = target_core::scsi::Status::Good;
    match received.recv().await {
        Some(TaskEvent::Done { outcome, .. }) => {
            !matches!(outcome, target_core::scsi::Outcome::Status { status, .. } if status == good)
        }
        other => panic!("{other:?}"),
    }
}

fn device() -> (Arc<TargetDevice>, Arc<NexusId>) {
    let source = StoreSource::Memory { size: 1 << 20 };
    let store = backstores::open(&source, StoreOptions::default()).expect("memory can be opened");
    let device = TargetDevice::new(name(TARGET), &[Tpgt(1)]);
    assert!(device.map(0, LogicalUnit::new(unit_config(0, false), store)));
    let nexus = NexusId {
        initiator: InitiatorPort {
            name: name(INITIATOR),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
        },
        target: TargetPort {
            name: name(TARGET),
            tpgt: Tpgt(1),
        },
    };
    (device, Arc::new(nexus))
}

fn locked_directory() -> Arc<Directory> {
    let chap = ChapPolicy::Required {
        accepted: vec![ChapCredential {
            name: "alice".into(),
            secret: Secret::new(b"alice's long secret".to_vec()),
        }],
        own: None,
    };
    let target = Target {
        name: name(TARGET),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap,
        parameters: Parameters::default(),
        device: TargetDevice::new(name(TARGET), &[Tpgt(1)]),
    };
    Arc::new(Directory {
        targets: BTreeMap::from([(target.name.clone(), Arc::new(target))]),
        advertised: Vec::new(),
        portals: Vec::new(),
        discovery_chap: ChapPolicy::Open,
        discovery_parameters: Parameters::default(),
    })
}

fn template() -> Request {
    Request::Login(LoginRequest {
        transit: false,
        continues: false,
        current_stage: iscsi_proto::pdu::LoginStage::Security,
        next_stage: iscsi_proto::pdu::LoginStage::Security,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn name(text: &str) -> IscsiName {
    text.parse().expect("a valid name")
}
