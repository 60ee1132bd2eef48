//! Initiators that break rules, fall silent or go, at every point: the connection ends, within its deadlines, and nothing of
//! it is left.

use std::time::Duration;

use futures_util::FutureExt;
use iscsi_proto::pdu::{DataOut, LoginStatus, Request, Response};
use iscsi_proto::{BHS_LEN, Itt, Lun, Sn, Ttt};
use iser_transport::sim::{SimQueuePair, Weather};
use iser_transport::{Hello, Initiator, IserHeader, Message, Opened, QueuePair, Remote};
use proptest::prelude::*;
use target_core::iscsi::CloseReason;
use tokio::time::{Instant, sleep, timeout};

use crate::host::{BLOCK, Host, Served, login_request, login_text};

const WRITE_8: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];
const READ_8: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
/// Above every deadline of a connection.
const PATIENCE: Duration = Duration::from_secs(300);

fn written() -> Opened {
    Opened {
        data_out: vec![0x5a; 8 * BLOCK],
        ..Opened::default()
    }
}

fn read() -> Opened {
    Opened {
        room: 8 * BLOCK,
        ..Opened::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_initiator_that_wants_no_rdma_is_told_so_before_the_connection_ends() {
    for keys in ["", "RDMAExtensions=No\0"] {
        let weather = Weather {
            delay_ms: 10,
            ..Weather::default()
        };
        let (served, at_initiator) = Served::begin(1, weather);
        let (mut host, response) = Host::try_log_in(Initiator::new(at_initiator, 8), keys).await;
        assert_eq!(
            (response.status, response.transit),
            (LoginStatus::InitiatorError, false)
        );
        host.initiator.queue_pair().disconnect();
        served.ended_within(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_is_answered_although_its_read_never_is_and_its_memory_comes_back() {
    let (served, at_initiator) = Served::begin(1, Weather::default());
    let mut host = Host::log_in(Initiator::new(at_initiator, 64)).await;
    assert_eq!(host.command(&[0; 6], Opened::default()).await.0, 2);
    host.initiator.queue_pair().stop_serving_reads();
    let task = host.begin(&WRITE_8, written());
    assert!(timeout(Duration::from_millis(10), host.hear()).await.is_err());
    let (abort, since) = (host.abort(task), Instant::now());
    let (bhs, _) = host.hear().await;
    let Ok(Response::TaskManagement(response)) = Response::decode(&bhs) else {
        panic!("{bhs:?}")
    };
    assert_eq!(response.itt, Itt(abort));
    assert!(since.elapsed() <= Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(
        served.pool.stats().in_use,
        4096,
        "the device may still write into it"
    );
    // All else goes on, so that no deadline but that of the read is near.
    for itt in 0x100..0x100 + 30 {
        host.ping(itt);
        let answer = timeout(Duration::from_secs(3), host.initiator.message()).await;
        let Ok(Some(_)) = answer else { break };
        sleep(Duration::from_secs(3)).await;
    }
    let reason = served.ended_within(Duration::from_secs(1)).await;
    assert!(matches!(reason, CloseReason::ResponsesStuck(_)), "{reason}");
}

/// What a hostile initiator does.
#[derive(Clone, Debug)]
enum Deed {
    /// Any message.
    Message(Vec<u8>),
    /// A message that begins like one.
    Almost {
        kind: u8,
        bhs: Vec<u8>,
        rest: Vec<u8>,
    },
    /// A command whose places may be anywhere.
    Command {
        flags: u8,
        opcode: u8,
        expected: u32,
        place: Option<(u32, u64)>,
        immediate: usize,
    },
    Read,
    Write,
    DataOut {
        itt: u32,
        offset: u32,
        len: usize,
        is_final: bool,
    },
    Abort(u32),
    Ping(u32),
    Hello(u16),
    CloseMemory(u32),
    StopServingReads,
    Listen,
    Wait(u64),
    Disconnect,
    RemoveDevice,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let tag = 0..12_u32;
    let len = prop_oneof![Just(0_usize), 1..2000_usize, Just(16 * 1024 - 76)];
    let expected = prop_oneof![Just(0_u32), Just(4096), Just(u32::MAX), 1..0x8_0000_u32];
    let place = proptest::option::of((
        prop_oneof![Just(0_u32), 0x100..0x110_u32, any::<u32>()],
        prop_oneof![Just(0_u64), Just(u64::MAX - 100), any::<u64>()],
    ));
    let opcode = prop_oneof![Just(0x28_u8), Just(0x2a), Just(0x12), Just(0x53), any::<u8>()];
    let bytes = |max: usize| proptest::collection::vec(any::<u8>(), 0..max);
    let deed = prop_oneof![
        1 => bytes(120).prop_map(Deed::Message),
        2 => (prop_oneof![Just(0x10_u8), Just(0x1c), any::<u8>()], proptest::collection::vec(any::<u8>(), BHS_LEN), bytes(60))
            .prop_map(|(kind, bhs, rest)| Deed::Almost { kind, bhs, rest }),
        4 => (any::<u8>(), opcode, expected, place, len.clone()).prop_map(
            |(flags, opcode, expected, place, immediate)| Deed::Command { flags, opcode, expected, place, immediate }),
        6 => Just(Deed::Read),
        6 => Just(Deed::Write),
        2 => (tag.clone(), prop_oneof![Just(0_u32), any::<u32>()], len, any::<bool>())
            .prop_map(|(itt, offset, len, is_final)| Deed::DataOut { itt, offset, len, is_final }),
        4 => tag.clone().prop_map(Deed::Abort),
        2 => any::<u32>().prop_map(Deed::Ping),
        1 => any::<u16>().prop_map(Deed::Hello),
        1 => tag.prop_map(Deed::CloseMemory),
        1 => Just(Deed::StopServingReads),
        8 => Just(Deed::Listen),
        4 => (0..1500_u64).prop_map(Deed::Wait),
        1 => Just(Deed::Disconnect),
        1 => Just(Deed::RemoveDevice),
    ];
    proptest::collection::vec(deed, 0..40)
}

impl Deed {
    async fn done_by(self, host: &mut Host) {
        match self {
            Self::Message(message) => host.initiator.send_raw(&message),
            Self::Almost { kind, bhs, rest } => {
                let header = [&[kind][..], &[0; 27]].concat();
                host.initiator.send_raw(&[header, bhs, rest].concat());
            }
            Self::Command {
                flags,
                opcode,
                expected,
                place,
                immediate,
            } => {
                let mut bhs = host.next_command(&[opcode, 0, 0, 0, 0, 0, 0, 1, 0, 0], &Opened::default());
                bhs[1] = flags;
                bhs[5..8].copy_from_slice(&u32::try_from(immediate).unwrap().to_be_bytes()[1..]);
                bhs[20..24].copy_from_slice(&expected.to_be_bytes());
                let place = place.map(|(stag, at)| Remote { stag, at });
                let header = IserHeader::Control {
                    read: place,
                    write: place,
                };
                let message = [&header.encode()[..], &bhs, &vec![7; immediate]].concat();
                host.initiator.send_raw(&message);
            }
            Self::Read => drop(host.begin(&READ_8, read())),
            Self::Write => drop(host.begin(&WRITE_8, written())),
            Self::DataOut {
                itt,
                offset,
                len,
                is_final,
            } => {
                let pdu = Request::DataOut(DataOut {
                    is_final,
                    lun: Lun::ZERO,
                    itt: Itt(itt),
                    ttt: Ttt::RESERVED,
                    exp_stat_sn: Sn(1),
                    data_sn: 0,
                    offset,
                });
                host.initiator.send(pdu.encode(), &vec![9; len]);
            }
            Self::Abort(itt) => drop(host.abort(itt)),
            Self::Ping(itt) => host.ping(itt),
            Self::Hello(inbound_reads) => host.initiator.hello(Hello {
                max_version: 10,
                min_version: 10,
                inbound_reads,
            }),
            Self::CloseMemory(itt) => drop(host.initiator.forget(itt)),
            Self::StopServingReads => host.initiator.queue_pair().stop_serving_reads(),
            Self::Listen => {
                while let Some(Some(Message::Pdu { .. })) = host.initiator.message().now_or_never() {}
            }
            Self::Wait(ms) => {
                let _ = timeout(Duration::from_millis(ms), host.initiator.message()).await;
            }
            Self::Disconnect => host.initiator.queue_pair().disconnect(),
            Self::RemoveDevice => host.initiator.queue_pair().remove_device(),
        }
    }
}

/// A link as it may be.
fn weather() -> impl Strategy<Value = Weather> {
    let delay = prop_oneof![Just(0), Just(3), Just(400), Just(5000)];
    let failures = prop_oneof![4 => Just(0), 1 => 5..60_u64];
    (delay, failures, 1..5_usize).prop_map(|(delay_ms, fails_one_in, reads_max)| Weather {
        delay_ms,
        fails_one_in,
        reads_max,
    })
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Logs in, unless it says not to, does all that, and then goes or falls silent.
async fn attack(served: Served, at_initiator: SimQueuePair, receives: usize, how: How, deeds: Vec<Deed>) {
    let mut host = Host::strange(Initiator::new(at_initiator, receives));
    if how.logs_in {
        let text = login_text("RDMAExtensions=Yes\0");
        host.initiator.send(login_request(), text.as_bytes());
        let _ = timeout(Duration::from_secs(10), host.initiator.message()).await;
    }
    for deed in deeds {
        deed.done_by(&mut host).await;
    }
    if how.goes {
        drop(host);
        served.ended_within(Duration::from_secs(20)).await;
    } else {
        served.ended_within(PATIENCE).await;
    }
}

#[derive(Clone, Copy, Debug)]
struct How {
    logs_in: bool,
    goes: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_an_initiator_does_its_connection_ends_and_leaves_nothing(
        seed in any::<u64>(),
        weather in weather(),
        receives in prop_oneof![Just(1_usize), Just(3), Just(64)],
        how in (prop::bool::weighted(0.85), any::<bool>()).prop_map(|(logs_in, goes)| How { logs_in, goes }),
        deeds in deeds(),
    ) {
        runtime().block_on(async {
            let (served, at_initiator) = Served::begin(seed, weather);
            attack(served, at_initiator, receives, how, deeds).await;
        });
    }
}
