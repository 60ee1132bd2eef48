//! How an initiator gets in: one Login Request straight to full feature phase, with parameters drawn by chance.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use iscsi_proto::pdu::{LoginResponse, LoginStatus, Response};
use iscsi_proto::text::{KeyValue, parse_pairs, push_pair};
use iscsi_proto::{Sn, Tsih};
use tokio::time::{Instant, timeout_at};

use super::WITNESS;
use super::ledger::Check;
use super::leg::Leg;
use super::pipe::{Damage, Pdu, Receiver, Sender, pipe};
use super::random::Random;
use super::rdma::{Make, under_session};
use super::scene::{Accepted, Scene};
use super::session::Session;
use super::tally::Event;
use super::wire::Wire;
use crate::first_request;

/// What was agreed, lengths in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) tsih: Tsih,
    pub(crate) max_connections: usize,
    pub(crate) level: usize,
    /// Of the first connection.
    pub(crate) max_recv: usize,
    pub(crate) max_send: usize,
    pub(crate) max_burst: usize,
    pub(crate) first_burst: usize,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    /// Data move by RDMA, over every connection.
    pub(crate) rdma: Option<Make>,
    /// The link fails by itself, sooner or later.
    pub(crate) breaks: bool,
    /// PDUs are lost, damaged and overtaken on their way.
    pub(crate) is_lossy: bool,
}

/// Opens a connection and begins a session; `None` when that failed, which is in the ledger then.
pub(crate) async fn log_in(scene: &Arc<Scene>, id: u8, random: &mut Random) -> Option<Session> {
    let cmd_sn = Sn(random.next() as u32);
    // RDMA loses nothing, so there is nothing to recover.
    let rdma = (scene.level == 0 && random.percent(40)).then(|| Make::draw(random, id != WITNESS));
    let whose = (Tsih::NEW, 0);
    let mut answer = open(scene, id, random, whose, cmd_sn, None, rdma.as_ref()).await;
    while matches!(answer, Answer::Lost) {
        answer = open(scene, id, random, whose, cmd_sn, None, rdma.as_ref()).await;
    }
    let Answer::In(leg, response, pairs) = answer else {
        return None;
    };
    let breaks = rdma.as_ref().is_some_and(|make| make.fails_one_in > 0);
    let terms = Terms {
        tsih: response.tsih,
        max_connections: number(&pairs, "MaxConnections", 1),
        max_recv: leg.max_recv,
        level: number(&pairs, "ErrorRecoveryLevel", 0),
        max_send: match rdma {
            Some(_) => number(&pairs, "TargetRecvDataSegmentLength", 8192),
            None => number(&pairs, "MaxRecvDataSegmentLength", 8192),
        },
        // RDMA knows neither segments nor bursts of Data-In.
        max_burst: match rdma {
            Some(_) => usize::MAX,
            None => number(&pairs, "MaxBurstLength", 262_144),
        },
        first_burst: number(&pairs, "FirstBurstLength", 65_536),
        initial_r2t: value(&pairs, "InitialR2T") != Some("No"),
        immediate_data: value(&pairs, "ImmediateData") != Some("No"),
        is_lossy: is_lossy(scene, id, rdma.is_some()),
        rdma,
        breaks,
    };
    scene.settle_lost(id);
    scene.ledger.note(format_args!("i{id} logged in: {terms:?}"));
    let (scene, random) = (Arc::clone(scene), random.fork());
    Some(Session::new(scene, id, random, *leg, terms, cmd_sn))
}

/// What came of a login.
enum Answer {
    /// It led to full feature phase.
    In(Box<Leg>, LoginResponse, Vec<KeyValue>),
    /// The wire, or an order to the target, came between.
    Lost,
    /// It failed, which is in the ledger.
    Failed,
}

/// Opens another connection of a session; `false` when that failed.
pub(crate) async fn join(session: &mut Session, cid: u16, random: &mut Random) -> bool {
    let scene = Arc::clone(&session.scene);
    let (tsih, cmd_sn) = (session.terms.tsih, session.cmd_sn);
    let max_recv = session.reassigns().then_some(session.terms.max_recv);
    let rdma = session.terms.rdma.clone();
    let began = Instant::now();
    for _ in 0..TRIES {
        match open(
            &scene,
            session.id,
            random,
            (tsih, cid),
            cmd_sn,
            max_recv,
            rdma.as_ref(),
        )
        .await
        {
            Answer::In(leg, ..) => {
                session.note(format_args!("connection {cid} joined"));
                session.legs.push(*leg);
                if rdma.is_some() {
                    scene.count_event(Event::JoinedOverRdma);
                }
                if began.elapsed() > SAY_AGAIN {
                    // Nobody listened so long to what the others were asked.
                    session.legs.iter_mut().for_each(|leg| leg.is_spoiled = true);
                }
                return true;
            }
            Answer::Lost => {}
            Answer::Failed => return false,
        }
    }
    false
}

/// Whether the wire of a connection does harm. The witness's does not, nor does RDMA.
fn is_lossy(scene: &Scene, id: u8, rdma: bool) -> bool {
    scene.mischief > 0 && id != WITNESS && !rdma
}

/// One login. `whose` are TSIH and CID. Where the request may be lost it is said twice: if it was not, the target takes
/// the second for what it is, and closes the connection.
async fn open(
    scene: &Arc<Scene>,
    id: u8,
    random: &mut Random,
    (tsih, cid): (Tsih, u16),
    cmd_sn: Sn,
    max_recv: Option<usize>,
    rdma: Option<&Make>,
) -> Answer {
    let (mut to_target, mut at_initiator) = connect(scene, rdma, random);
    // A session's tasks may move from one of its connections to another.
    let drawn = random.pick(&[512, 4096, 8192, 65_536, 262_144]);
    let max_recv = max_recv.unwrap_or(drawn);
    let exp_stat_sn = Sn(random.next() as u32);
    let request = first_request(id, (tsih, cid), (cmd_sn, exp_stat_sn));
    let mut data = offer(scene, id, tsih, max_recv, random);
    if let Some(make) = rdma {
        offer_rdma(&mut data, tsih, max_recv, make);
    }
    let is_lossy = is_lossy(scene, id, rdma.is_some());
    let mischief = if is_lossy { scene.mischief } else { 0 };
    let mut wire = Wire::new(Arc::clone(scene), random.fork(), mischief);
    let request = Pdu::new(request.encode(), data);
    wire.send(&mut to_target, request.clone());
    let began = Instant::now();
    let mut said_twice = false;
    let refuse = |check, detail: String| {
        scene.ledger.violated(check, format!("initiator {id}: {detail}"));
        Answer::Failed
    };
    let pdu = loop {
        let may_say = is_lossy && !said_twice;
        let patience = if may_say { SAY_AGAIN } else { LOGIN_PATIENCE };
        match timeout_at(
            began + patience,
            poll_fn(|cx| wire.poll_recv(&mut at_initiator, cx)),
        )
        .await
        {
            Err(_) if may_say => {
                said_twice = true;
                wire.send(&mut to_target, request.clone());
            }
            Err(_) | Ok(None) if is_lossy => return Answer::Lost,
            Err(_) => return refuse(Check::LoginInTime, "the login is not answered".into()),
            Ok(None) if scene.is_ordered(tsih) => return Answer::Lost,
            Ok(None) => return refuse(Check::Protocol, "the connection was closed during login".into()),
            Ok(Some(pdu)) => break pdu,
        }
    };
    let response = match Response::decode(&pdu.bhs) {
        _ if pdu.damage != Damage::None => return Answer::Lost,
        Ok(Response::Login(response)) if response.status == LoginStatus::Success => response,
        // Another attempt to join may have come further than its initiator knows.
        Ok(Response::Login(_)) if tsih != Tsih::NEW && (is_lossy || scene.is_ordered(tsih)) => {
            return Answer::Lost;
        }
        Ok(Response::Login(response)) => return refuse(Check::Protocol, format!("{response:?}")),
        // It has overtaken the answer, or that is lost.
        Ok(_) if is_lossy => {
            let _overtaken = wire.overtaken();
            return Answer::Lost;
        }
        other => return refuse(Check::Protocol, format!("the login was answered by {other:?}")),
    };
    if !response.transit || response.stat_sn != exp_stat_sn {
        return refuse(Check::StatSn, format!("{response:?}"));
    }
    let pairs = parse_pairs(&pdu.data).unwrap_or_default();
    let window = (response.exp_cmd_sn, response.max_cmd_sn);
    let ends = (to_target, at_initiator);
    let max_recv = if rdma.is_some() { usize::MAX } else { max_recv };
    let mut leg = Leg::new(cid, ends, wire, max_recv, exp_stat_sn.next(), window);
    leg.is_spoiled = said_twice;
    Answer::In(Box::new(leg), response, pairs)
}

/// Opens a connection over either transport. Returns the session's ends.
fn connect(scene: &Arc<Scene>, rdma: Option<&Make>, random: &mut Random) -> (Sender, Receiver) {
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
    let (target, initiator) = make.link(random);
    accept(Accepted::Rdma(target, make.private_data));
    under_session(scene, initiator, make, random)
}

/// Those of RFC 7145; what concerns the whole session is said where it begins.
fn offer_rdma(text: &mut Vec<u8>, tsih: Tsih, max_recv: usize, make: &Make) {
    push_pair(text, "InitiatorRecvDataSegmentLength", &max_recv.to_string());
    push_pair(text, "TargetRecvDataSegmentLength", "8192");
    if tsih != Tsih::NEW {
        return;
    }
    push_pair(text, "RDMAExtensions", "Yes");
    if let Some(only) = make.solicited_only {
        let only = if only { "Yes" } else { "No" };
        push_pair(text, "TaggedBufferForSolicitedDataOnly", only);
    }
}

/// The keys of a login; those that concern the whole session only where it begins.
fn offer(scene: &Scene, id: u8, tsih: Tsih, max_recv: usize, random: &mut Random) -> Vec<u8> {
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
    ];
    let of_session = [
        ("MaxBurstLength", max_burst.to_string()),
        ("FirstBurstLength", first_burst.to_string()),
        ("InitialR2T", yes_no(random)),
        ("ImmediateData", yes_no(random)),
        ("MaxOutstandingR2T", random.between(1, 4).to_string()),
        ("MaxConnections", random.between(1, 3).to_string()),
        ("ErrorRecoveryLevel", scene.level.to_string()),
        ("DataPDUInOrder", "Yes".to_owned()),
        ("DataSequenceInOrder", "Yes".to_owned()),
    ];
    let mut text = Vec::new();
    for (key, value) in pairs {
        push_pair(&mut text, key, &value);
    }
    if tsih == Tsih::NEW {
        for (key, value) in of_session {
            push_pair(&mut text, key, &value);
        }
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

/// After this time a login that may have been lost is said again.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// Times that an initiator tries to join a connection.
const TRIES: usize = 4;
/// How long a login may take, whatever else goes on.
const LOGIN_PATIENCE: Duration = Duration::from_secs(3);
