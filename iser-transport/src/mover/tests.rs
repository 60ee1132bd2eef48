//! The mover against an initiator in memory: data, credits, aborts, and everything an initiator does wrong.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::FutureExt;
use iscsi_proto::pdu::{LoginResponse, LoginStage, LoginStatus, NopIn, NopOut, TaskAttribute};
use iscsi_proto::{Isid, Lun, Sn, Tsih, Ttt};
use target_core::datamover::{FinalStatus, Numbering};
use target_core::iscsi::{LinkInfo, TransportKeys};
use target_core::trace::{TraceLimits, What, Whose};
use tokio::time::timeout;

use super::*;
use crate::initiator::{Initiator, Message, Opened};
use crate::sim::{SimQueuePair, Weather, link};

mod hostile;
mod rules;

struct Pair {
    mover: IserMover<SimQueuePair>,
    initiator: Initiator,
    pool: Arc<BufPool>,
    messages: Arc<BufPool>,
}

const LINUX: CmHeader = CmHeader {
    no_zero_based_addresses: true,
    no_remote_invalidate: false,
};

fn pair(weather: Weather) -> Pair {
    pair_with(weather, Some(LINUX))
}

fn pair_with(weather: Weather, peer: Option<CmHeader>) -> Pair {
    let (target, initiator) = link(7, weather);
    let (pool, messages) = (BufPool::new(32 << 20), BufPool::new(8 << 20));
    let setup = IserSetup {
        pool: Arc::clone(&pool),
        messages: Arc::clone(&messages),
        peer,
    };
    Pair {
        mover: IserMover::new(target, setup).unwrap(),
        initiator: Initiator::new(initiator, 64),
        pool,
        messages,
    }
}

fn command(itt: u32, len: usize, read: bool) -> [u8; BHS_LEN] {
    Request::ScsiCommand(ScsiCommand {
        immediate: false,
        is_final: true,
        read,
        write: !read,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: Itt(itt),
        expected_len: u32::try_from(len).unwrap(),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(1),
        cdb: [0; 16],
    })
    .encode()
}

fn nop(itt: u32) -> [u8; BHS_LEN] {
    Request::NopOut(NopOut {
        immediate: true,
        lun: Lun::ZERO,
        itt: Itt(itt),
        ttt: Ttt::RESERVED,
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(1),
    })
    .encode()
}

fn put(itt: u32, offset: usize, bytes: &[u8], pool: &Arc<BufPool>, is_last: bool) -> PutData {
    let mut buf = pool.try_acquire(bytes.len()).unwrap();
    buf.copy_from_slice(bytes);
    PutData {
        itt: Itt(itt),
        lun: Lun::ZERO,
        offset: u32::try_from(offset).unwrap(),
        buf,
        last: is_last.then_some(FinalStatus {
            status: 0,
            residual: Residual::None,
        }),
        numbering: Numbering::default(),
        budget: None,
    }
}

fn get(itt: u32, offset: usize, len: usize, filled: usize, pool: &Arc<BufPool>) -> GetData {
    GetData {
        itt: Itt(itt),
        lun: Lun::ZERO,
        offset: u32::try_from(offset).unwrap(),
        buf: pool.try_acquire(len).unwrap(),
        filled,
        numbering: Numbering::default(),
    }
}

fn response(itt: u32) -> Response {
    Response::ScsiResponse(ScsiResponse {
        itt: Itt(itt),
        response: ScsiResponseCode::CompletedAtTarget,
        status: 0,
        residual: Residual::None,
        bidi_read_residual: Residual::None,
        snack_tag: 0,
        stat_sn: Sn(1),
        exp_cmd_sn: Sn(1),
        max_cmd_sn: Sn(9),
        exp_data_sn: 0,
    })
}

fn login_response(window: u32) -> Response {
    Response::Login(LoginResponse {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_active: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(1),
        itt: Itt(1),
        stat_sn: Sn(1),
        exp_cmd_sn: Sn(1),
        max_cmd_sn: Sn(window),
        status: LoginStatus::Success,
    })
}

/// What a login over RDMA agrees on, with these keys of its own.
fn agreed(keys: &[(&'static str, &str)]) -> SessionParams {
    let rdma = [("RDMAExtensions", "Yes")];
    let transport = rdma
        .iter()
        .chain(keys)
        .map(|(key, value)| (*key, (*value).to_owned()));
    SessionParams {
        transport: transport.collect(),
        ..SessionParams::default()
    }
}

/// The same in a session with this command window.
fn with_window(command_window: u16, params: &SessionParams) -> SessionParams {
    SessionParams {
        command_window,
        ..params.clone()
    }
}

impl Pair {
    /// As after a login with this window.
    async fn full_feature(&mut self, window: u16, params: &SessionParams) {
        self.mover
            .send_control(login_response(window.into()), Bytes::new());
        self.mover.enable(&with_window(window, params));
        assert!(matches!(self.answer().await, Message::Pdu { .. }));
    }

    async fn notify(&mut self) -> Notify {
        let (mover, initiator) = (&mut self.mover, &mut self.initiator);
        tokio::select! { biased;
            notify = poll_fn(|cx| mover.poll_notify(cx)) => notify,
            _ = drive(initiator) => unreachable!("drives for ever"),
        }
    }

    async fn begin(&mut self) {
        loop {
            match self.notify().await {
                Notify::Command { .. } => return,
                other => assert!(matches!(other, Notify::ExpStatSn(_)), "{other:?}"),
            }
        }
    }

    async fn answer(&mut self) -> Message {
        let (mover, initiator) = (&mut self.mover, &mut self.initiator);
        tokio::select! { biased;
            message = initiator.message() => message.expect("the link is there"),
            notify = poll_fn(|cx| mover.poll_notify(cx)) => panic!("{notify:?}"),
        }
    }

    async fn closed(&mut self) -> String {
        loop {
            if let Notify::Closed(closed) = self.notify().await {
                return closed.to_string();
            }
        }
    }
}

/// Completes what the initiator has under way.
async fn drive(initiator: &mut Initiator) {
    poll_fn(|cx| {
        // None comes while this runs, but for the end of the connection.
        if let Poll::Ready(Some(message)) = initiator.poll_message(cx) {
            panic!("{message:?}");
        }
        Poll::<()>::Pending
    })
    .await;
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 * 7 + at).to_le_bytes()[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_of_16_mib_lands_where_it_belongs_and_its_tag_is_invalidated() {
    let mut pair = pair(Weather::default());
    let len = 16 << 20;
    let opened = Opened {
        room: len,
        ..Opened::default()
    };
    pair.initiator.command(command(5, len, true), &[], opened);
    pair.begin().await;
    let data = pattern(len);
    for (piece, bytes) in data.chunks(CHUNK).enumerate() {
        let is_last = piece == len / CHUNK - 1;
        let put = put(5, piece * CHUNK, bytes, &pair.pool, is_last);
        pair.mover.put_data(put);
    }
    pair.mover.end_task(Itt(5));
    let Message::Pdu { data_in, .. } = pair.answer().await else {
        panic!()
    };
    assert!(data_in.unwrap() == data);
}

#[tokio::test(start_paused = true)]
async fn a_trace_has_the_pdus_of_both_directions_and_no_rdma() {
    let mut pair = pair(Weather::default());
    let info = LinkInfo {
        local: "192.0.2.2:3260".parse().unwrap(),
        peer: "192.0.2.1:4000".parse().unwrap(),
        transport: "iser",
        keys: TransportKeys::default(),
    };
    let limits = TraceLimits {
        duration: Duration::from_secs(60),
        payload: 3,
        stops_when_full: false,
    };
    let (tap, trace) = Tap::alone(info, limits);
    pair.mover.listen_in(tap);
    let opened = Opened {
        room: 4096,
        ..Opened::default()
    };
    pair.initiator.command(command(5, 4096, true), &[], opened);
    pair.begin().await;
    let put = put(5, 0, &pattern(4096), &pair.pool, true);
    pair.mover.put_data(put);
    pair.mover.end_task(Itt(5));
    pair.answer().await;
    pair.initiator.send(nop(6), b"ping");
    assert!(matches!(pair.notify().await, Notify::Control { .. }));
    let entries = trace.entries(0, usize::MAX);
    let pdus: Vec<_> = entries
        .iter()
        .map(|entry| match &entry.what {
            What::Pdu(pdu) => (pdu.whose, pdu.header[0], pdu.data.to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        pdus,
        [
            (Whose::Initiator, 0x01, vec![]),
            (Whose::Target, 0x21, vec![]),
            (Whose::Initiator, 0x40, b"pin".to_vec()),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_invalidates_only_for_who_wants_it() {
    for (no_remote_invalidate, expected) in [(false, true), (true, false)] {
        let peer = CmHeader {
            no_zero_based_addresses: true,
            no_remote_invalidate,
        };
        let mut pair = pair_with(Weather::default(), Some(peer));
        let place = pair.initiator.queue_pair().register(vec![0; 8]);
        let header = IserHeader::Control {
            read: Some(place),
            write: None,
        };
        pair.initiator
            .send_raw(&[&header.encode()[..], &command(5, 8, true)].concat());
        pair.begin().await;
        pair.mover.send_control(response(5), Bytes::new());
        pair.answer().await;
        assert_eq!(pair.initiator.queue_pair().is_invalid(place.stag), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn data_out_are_read_behind_what_came_with_the_command() {
    for solicited_only in [true, false] {
        let mut pair = pair_with(Weather::default(), solicited_only.then_some(LINUX));
        pair.full_feature(8, &agreed(&[])).await;
        pair.initiator.solicited_only = solicited_only;
        let data = pattern(10_000);
        let opened = Opened {
            room: 0,
            data_out: data.clone(),
            unasked: 4096,
        };
        pair.initiator
            .command(command(5, data.len(), false), &data[..4096], opened);
        let Notify::Command {
            immediate: Some(mut buf),
            ..
        } = pair.notify().await
        else {
            panic!()
        };
        assert_eq!(buf.len(), 4096);
        buf.set_len(10_000.min(buf.capacity()));
        let mut wish = get(5, 0, 10_000, 4096, &pair.pool);
        wish.buf[..4096].copy_from_slice(&buf[..4096]);
        pair.mover.get_data(wish);
        let Notify::DataOut { result: Ok(buf), .. } = pair.notify().await else {
            panic!()
        };
        assert!(buf[..] == data[..], "solicited only: {solicited_only}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_reads_are_under_way_than_were_agreed_on() {
    // The link in memory panics on one too many.
    let weather = Weather {
        delay_ms: 5,
        reads_max: 2,
        ..Weather::default()
    };
    let mut pair = pair(weather);
    pair.full_feature(16, &agreed(&[])).await;
    for itt in 1..=10 {
        let opened = Opened {
            data_out: vec![u8::try_from(itt).unwrap(); 512],
            ..Opened::default()
        };
        pair.initiator.command(command(itt, 512, false), &[], opened);
        pair.begin().await;
    }
    (1..=10).for_each(|itt| {
        let get = get(itt, 0, 512, 0, &pair.pool);
        pair.mover.get_data(get);
    });
    let mut filled = Vec::new();
    while filled.len() < 10 {
        if let Notify::DataOut { itt, result: Ok(buf) } = pair.notify().await {
            assert_eq!(u32::from(buf[511]), itt.0);
            filled.push(itt.0);
        }
    }
    filled.sort_unstable();
    assert_eq!(filled, (1..=10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_until_the_hardware_lets_go() {
    let weather = Weather {
        delay_ms: 50,
        ..Weather::default()
    };
    let mut pair = pair(weather);
    let opened = Opened {
        room: 4096,
        ..Opened::default()
    };
    pair.initiator.command(command(5, 4096, true), &[], opened);
    pair.begin().await;
    let piece = put(5, 0, &[1; 4096], &pair.pool, false);
    pair.mover.put_data(piece);
    // Posts the write, whose end takes its time.
    assert!(timeout(Duration::ZERO, pair.notify()).await.is_err());
    pair.mover.release_task(Itt(5));
    assert!(pair.notify().now_or_never().is_none());
    assert!(matches!(pair.notify().await, Notify::Released(Itt(5))));
    assert_eq!(pair.pool.stats().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_drops_what_was_not_posted_yet_at_once() {
    let mut pair = pair(Weather::default());
    let opened = Opened {
        room: 4096,
        ..Opened::default()
    };
    pair.initiator.command(command(5, 4096, true), &[], opened);
    pair.begin().await;
    let piece = put(5, 0, &[1; 4096], &pair.pool, false);
    pair.mover.put_data(piece);
    assert_eq!(pair.mover.queued_bytes(), 4096);
    pair.mover.release_task(Itt(5));
    assert!(matches!(pair.notify().await, Notify::Released(Itt(5))));
    assert_eq!((pair.mover.queued_bytes(), pair.pool.stats().in_use), (0, 0));
    assert_eq!(pair.initiator.forget(5), Some(vec![0xa5; 4096]), "untouched");
}

/// The largest window that the login may agree on, with unsolicited data and without.
#[tokio::test(start_paused = true)]
async fn the_largest_window_has_receives_for_all_its_messages() {
    for initial_r2t in [true, false] {
        let pair = pair(Weather::default());
        let room = pair.mover.transport_keys().room.unwrap();
        let params = SessionParams {
            initial_r2t,
            ..agreed(&[])
        };
        let each = params.pdus_per_command();
        assert_eq!(each, if initial_r2t { 1 } else { 9 });
        let wanted = pair.mover.receives_for(&with_window(room / each, &params));
        assert_eq!(
            wanted,
            usize::from(room / each * each) + IMMEDIATE_MAX + UNEXPECTED_MAX
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_window_of_messages_finds_receives() {
    let mut pair = pair(Weather::default());
    pair.full_feature(128, &agreed(&[])).await;
    for itt in 0..128 {
        pair.initiator.command(
            command(itt, 512, false),
            &[0; 512],
            Opened {
                data_out: vec![0; 512],
                unasked: 512,
                room: 0,
            },
        );
    }
    for itt in 200..200 + 32 {
        pair.initiator.send(nop(itt), &[]);
    }
    let mut heard = 0;
    while heard < 160 {
        match pair.notify().await {
            Notify::Command { .. } | Notify::Control { .. } => heard += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pair.mover.qp.waits_for_receives(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_of_iser_ends_the_connection_with_a_reason() {
    let control = IserHeader::Control {
        read: None,
        write: None,
    }
    .encode();
    let mut long = nop(1);
    long[7] = 4;
    let mut ahs = nop(1);
    ahs[4] = 1;
    for (message, reason) in [
        (vec![], "a message of 0 bytes has no room for an iSER header"),
        (vec![0xff; 80], "iSER header with unknown type 0xf"),
        (control.to_vec(), "a message ends within the header of its PDU"),
        (
            [&control[..], &long].concat(),
            "a message ends within its data segment",
        ),
        (
            [&control[..], &ahs].concat(),
            "a message ends within its additional header segments",
        ),
    ] {
        let mut pair = pair(Weather::default());
        pair.initiator.send_raw(&message);
        assert_eq!(pair.closed().await, reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_the_initiator_has_revoked_ends_the_connection() {
    let mut pair = pair(Weather::default());
    let opened = Opened {
        room: 512,
        ..Opened::default()
    };
    pair.initiator.command(command(5, 512, true), &[], opened);
    pair.begin().await;
    pair.initiator.forget(5);
    let piece = put(5, 0, &[1; 512], &pair.pool, true);
    pair.mover.put_data(piece);
    assert!(matches!(
        pair.notify().await,
        Notify::Closed(TransportClosed::Io(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_read_without_a_place_ends_the_connection() {
    let mut pair = pair(Weather::default());
    pair.initiator.send(command(5, 512, true), &[]);
    pair.begin().await;
    let piece = put(5, 0, &[1; 512], &pair.pool, true);
    pair.mover.put_data(piece);
    assert_eq!(
        pair.closed().await,
        "task 0x00000005 named no place for its Data-In"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_leaves_no_buffer_behind() {
    let weather = Weather {
        delay_ms: 20,
        ..Weather::default()
    };
    let mut pair = pair(weather);
    let opened = Opened {
        room: 4096,
        ..Opened::default()
    };
    pair.initiator.command(command(5, 4096, true), &[], opened);
    pair.begin().await;
    let piece = put(5, 0, &[1; 4096], &pair.pool, true);
    pair.mover.put_data(piece);
    assert!(timeout(Duration::ZERO, pair.notify()).await.is_err());
    pair.initiator.queue_pair().disconnect();
    assert!(matches!(
        pair.notify().await,
        Notify::Closed(TransportClosed::Eof)
    ));
    drop(pair.mover);
    assert_eq!((pair.pool.stats().in_use, pair.messages.stats().in_use), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_removed_is_named() {
    let mut pair = pair(Weather::default());
    pair.mover.qp.remove_device();
    assert_eq!(pair.closed().await, "the RDMA device was removed");
}

#[tokio::test(start_paused = true)]
async fn the_last_words_are_sent_before_the_connection_ends() {
    let weather = Weather {
        delay_ms: 10,
        ..Weather::default()
    };
    let mut pair = pair(weather);
    let nop = Response::NopIn(NopIn {
        lun: Lun::ZERO,
        itt: Itt(3),
        ttt: Ttt::RESERVED,
        stat_sn: Sn(1),
        exp_cmd_sn: Sn(1),
        max_cmd_sn: Sn(1),
    });
    pair.mover.send_control(nop, Bytes::from_static(b"bye"));
    let (mover, initiator) = (&mut pair.mover, &mut pair.initiator);
    let hear = async {
        let Some(Message::Pdu { data, .. }) = initiator.message().await else {
            panic!()
        };
        initiator.queue_pair().disconnect();
        data
    };
    let (data, ()) = tokio::join!(hear, poll_fn(|cx| mover.poll_close(cx)));
    assert_eq!(data, b"bye");
}

#[tokio::test(start_paused = true)]
async fn without_memory_for_messages_no_connection_begins() {
    let (target, _initiator) = link(7, Weather::default());
    let messages = BufPool::new(CHUNK);
    let _all = messages.try_acquire(CHUNK).unwrap();
    let setup = IserSetup {
        pool: BufPool::new(CHUNK),
        messages,
        peer: None,
    };
    assert_eq!(IserMover::new(target, setup).unwrap_err(), NoMessageMemory(2));
}
