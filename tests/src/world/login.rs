//! How an initiator gets in: one Login Request straight to full feature phase, with parameters drawn by chance.

use std::sync::Arc;
use std::time::Duration;

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus, Request, Response};
use iscsi_proto::text::{KeyValue, parse_pairs, push_pair};
use iscsi_proto::{Cid, Isid, Itt, Sn, Tsih};
use iser_transport::sim::link;
use tokio::time::{Instant, timeout_at};

use super::WITNESS;
use super::ledger::Check;
use super::pipe::{Pdu, Receiver, Sender, pipe};
use super::random::Random;
use super::rdma::{Make, under_session};
use super::scene::{Accepted, Scene};
use super::session::Session;

/// What was agreed, lengths in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) tsih: Tsih,
    pub(crate) max_recv: usize,
    pub(crate) max_send: usize,
    pub(crate) max_burst: usize,
    pub(crate) first_burst: usize,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    /// Data move by RDMA.
    pub(crate) rdma: bool,
    /// The link fails by itself, sooner or later.
    pub(crate) breaks: bool,
}

/// Opens a connection and logs in; `None` when that failed, which is in the ledger then.
pub(crate) async fn log_in(scene: &Arc<Scene>, id: u8, random: &mut Random) -> Option<Session> {
    let breaks = id != WITNESS && random.percent(10);
    let rdma = random.percent(40).then(|| Make::draw(random, breaks));
    let (mut sender, mut receiver) = connect(scene, rdma, random);
    let max_recv = random.pick(&[512, 4096, 8192, 65_536, 262_144]);
    let (cmd_sn, exp_stat_sn) = (Sn(random.next() as u32), Sn(random.next() as u32));
    let request = Request::Login(LoginRequest {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, id]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn,
        exp_stat_sn,
    });
    let mut data = offer(scene, id, max_recv, random);
    if let Some(make) = rdma {
        offer_rdma(&mut data, max_recv, make);
    }
    sender.send(Pdu::new(request.encode(), data));
    let deadline = Instant::now() + LOGIN_PATIENCE;
    let refuse = |check, detail: String| {
        scene.ledger.violated(check, format!("initiator {id}: {detail}"));
        None
    };
    let pdu = match timeout_at(deadline, receiver.recv()).await {
        Err(_) => return refuse(Check::LoginInTime, "the login is not answered".into()),
        Ok(None) => return refuse(Check::Protocol, "the connection was closed during login".into()),
        Ok(Some(pdu)) => pdu,
    };
    let response = match Response::decode(&pdu.bhs) {
        Ok(Response::Login(response)) if response.status == LoginStatus::Success => response,
        other => return refuse(Check::Protocol, format!("the login was answered by {other:?}")),
    };
    if !response.transit || response.stat_sn != exp_stat_sn {
        return refuse(Check::StatSn, format!("{response:?}"));
    }
    let pairs = parse_pairs(&pdu.data).unwrap_or_default();
    let terms = Terms {
        tsih: response.tsih,
        // RDMA knows neither segments nor bursts of Data-In.
        max_recv: if rdma.is_some() { usize::MAX } else { max_recv },
        max_send: match rdma {
            Some(_) => number(&pairs, "TargetRecvDataSegmentLength", 8192),
            None => number(&pairs, "MaxRecvDataSegmentLength", 8192),
        },
        max_burst: match rdma {
            Some(_) => usize::MAX,
            None => number(&pairs, "MaxBurstLength", 262_144),
        },
        first_burst: number(&pairs, "FirstBurstLength", 65_536),
        initial_r2t: value(&pairs, "InitialR2T") != Some("No"),
        immediate_data: value(&pairs, "ImmediateData") != Some("No"),
        rdma: rdma.is_some(),
        breaks: rdma.is_some() && breaks,
    };
    scene.settle_lost(id);
    scene.ledger.note(format_args!("i{id} logged in: {terms:?}"));
    let window = (response.exp_cmd_sn, response.max_cmd_sn);
    let (scene, random) = (Arc::clone(scene), random.fork());
    let ends = (sender, receiver);
    Some(Session::new(
        scene,
        id,
        random,
        ends,
        terms,
        cmd_sn,
        exp_stat_sn.next(),
        window,
    ))
}

/// Opens a connection over either transport. Returns the session's ends.
fn connect(scene: &Scene, rdma: Option<Make>, random: &mut Random) -> (Sender, Receiver) {
    let accept = |accepted| {
        let sent = scene.accept.send(accepted);
        sent.expect("the world accepts as long as initiators live");
    };
    let Some(make) = rdma else {
        let delay_ms = random.pick(&[0, 1, 5, 30]);
        let (to_target, at_target) = pipe(random.fork(), delay_ms);
        let (from_target, at_initiator) = pipe(random.fork(), delay_ms);
        accept(Accepted::Plain(from_target, at_target));
        return (to_target, at_initiator);
    };
    let (target, initiator) = link(random.next(), make.weather);
    accept(Accepted::Rdma(target, make.private_data));
    under_session(initiator, make, random)
}

fn offer_rdma(text: &mut Vec<u8>, max_recv: usize, make: Make) {
    push_pair(text, "RDMAExtensions", "Yes");
    push_pair(text, "InitiatorRecvDataSegmentLength", &max_recv.to_string());
    push_pair(text, "TargetRecvDataSegmentLength", "8192");
    if let Some(only) = make.solicited_only {
        let only = if only { "Yes" } else { "No" };
        push_pair(text, "TaggedBufferForSolicitedDataOnly", only);
    }
}

fn offer(scene: &Scene, id: u8, max_recv: usize, random: &mut Random) -> Vec<u8> {
    let max_burst = random.pick(&[4096, 16_384, 262_144, 1_048_576]);
    let first_burst = random.pick(&[512, 4096, 65_536]).min(max_burst);
    let yes_no = |random: &mut Random| random.pick(&["Yes", "No"]).to_owned();
    let pairs = [
        ("InitiatorName", format!("iqn.2024-01.org.example:initiator{id}")),
        ("TargetName", scene.target.to_string()),
        ("SessionType", "Normal".to_owned()),
        ("HeaderDigest", random.pick(&["None", "CRC32C,None"]).to_owned()),
        ("DataDigest", random.pick(&["None", "CRC32C,None"]).to_owned()),
        ("MaxRecvDataSegmentLength", max_recv.to_string()),
        ("MaxBurstLength", max_burst.to_string()),
        ("FirstBurstLength", first_burst.to_string()),
        ("InitialR2T", yes_no(random)),
        ("ImmediateData", yes_no(random)),
        ("MaxOutstandingR2T", random.between(1, 4).to_string()),
        ("MaxConnections", "1".to_owned()),
        ("ErrorRecoveryLevel", "0".to_owned()),
        ("DataPDUInOrder", "Yes".to_owned()),
        ("DataSequenceInOrder", "Yes".to_owned()),
    ];
    let mut text = Vec::new();
    for (key, value) in pairs {
        push_pair(&mut text, key, &value);
    }
    text
}

fn value<'a>(pairs: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    Some(&pair.value)
}

fn number(pairs: &[KeyValue], key: &str, default: usize) -> usize {
    value(pairs, key)
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// How long a login may take, whatever else goes on.
const LOGIN_PATIENCE: Duration = Duration::from_secs(3);
