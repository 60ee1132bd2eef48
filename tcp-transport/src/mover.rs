//! [`TcpMover`]: the socket, joined with framing, Data-Out bookkeeping and the send queue.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstores::{BufPool, CHUNK, IoBuf};
use bytes::Bytes;
use iscsi_proto::pdu::{Request, Response, ScsiCommand, Snack, SnackType};
use iscsi_proto::{Ahs, BHS_LEN, Frame, Itt};
use target_core::data_out::{self, DataOutBook, Effect, OutRules};
use target_core::datamover::{
    DataMover, GetData, Notify, Numbering, PutData, TaskRemains, TransportClosed, Unsent,
};
use target_core::iscsi::SessionParams;
use target_core::replay::{Replay, ReplayRules, Segment};
use target_core::trace::Tap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::framer::{FrameError, Framer, FramingRules, Place, Step};
use crate::send_queue::{SendQueue, SendRules};

/// Moves iSCSI PDUs over one TCP connection.
#[derive(Debug)]
pub struct TcpMover {
    socket: TcpStream,
    pool: Arc<BufPool>,
    framer: Framer,
    queue: SendQueue,
    sent: u64,
    data_out: DataOutBook,
    /// Data-In PDUs sent for tasks that needed more than one piece.
    data_in_sn: BTreeMap<u32, u32>,
    /// Data-In that may be asked for again; none at level 0.
    replay: Option<Replay>,
    arriving: Option<Arriving>,
    /// Where what comes is told; the send queue has it too.
    tap: Option<Arc<Tap>>,
    notices: VecDeque<Notify>,
    /// What the socket failed with, told after the notices before it.
    closed: Option<TransportClosed>,
}

/// A PDU whose header is here and whose data segment is on its way.
#[derive(Debug)]
enum Arriving {
    Command {
        bhs: [u8; BHS_LEN],
        pdu: ScsiCommand,
        ahs: Ahs,
    },
    Control {
        bhs: [u8; BHS_LEN],
        pdu: Request,
    },
    DataOut {
        bhs: [u8; BHS_LEN],
    },
    Malformed {
        bhs: [u8; BHS_LEN],
        error: iscsi_proto::DecodeError,
    },
}

impl Arriving {
    fn bhs(&self) -> &[u8; BHS_LEN] {
        match self {
            Self::Command { bhs, .. }
            | Self::Control { bhs, .. }
            | Self::DataOut { bhs }
            | Self::Malformed { bhs, .. } => bhs,
        }
    }

    /// Its additional header segments, if they were understood.
    fn ahs(&self) -> Vec<u8> {
        match self {
            Self::Command { ahs, .. } => ahs.encode(),
            Self::Control { .. } | Self::DataOut { .. } | Self::Malformed { .. } => Vec::new(),
        }
    }
}

impl TcpMover {
    /// A mover over a connected socket, under the rules that hold before negotiation.
    #[must_use]
    pub fn new(socket: TcpStream, pool: Arc<BufPool>) -> Self {
        let before = SessionParams::default();
        Self {
            socket,
            pool,
            framer: Framer::new(framing_rules(&before)),
            queue: SendQueue::new(send_rules(&before)),
            sent: 0,
            data_out: DataOutBook::new(out_rules(&before)),
            data_in_sn: BTreeMap::new(),
            replay: None,
            arriving: None,
            tap: None,
            notices: VecDeque::new(),
            closed: None,
        }
    }

    /// What is to be told or sent because of Data-Out.
    fn apply_effects(&mut self) {
        while let Some(effect) = self.data_out.next_effect() {
            match effect {
                Effect::Send(r2t) => self.queue.push_control(&Response::R2t(r2t), Bytes::new()),
                Effect::Tell(notify) => self.notices.push_back(notify),
            }
        }
    }

    /// Data-In that are kept as well; the share of the bytes in flight is given back when all of them are sent.
    fn send_segments(&mut self, segments: Vec<Segment>, mut share: Option<OwnedSemaphorePermit>) {
        let last = segments.len().saturating_sub(1);
        for (place, Segment { header, data }) in segments.into_iter().enumerate() {
            let share = if place == last { share.take() } else { None };
            self.queue.push_kept(&Response::DataIn(header), data, share);
        }
    }

    /// Takes PDUs out of the bytes at hand until something is to be told or more bytes are needed.
    fn cut(&mut self) -> Result<(), TransportClosed> {
        while self.notices.is_empty() {
            match self.framer.step().map_err(|error| closed_by(&error))? {
                Step::NeedBytes => return Ok(()),
                Step::Header { bhs, ahs, frame } => {
                    let place = self.arrive(bhs, &ahs, frame)?;
                    self.framer.place(place);
                }
                Step::Payload { place, digest_ok } => self.arrived(place, digest_ok),
            }
        }
        Ok(())
    }

    /// Understands a header and names the place for its data.
    fn arrive(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], frame: Frame) -> Result<Place, TransportClosed> {
        let (arriving, place) = match decode(&bhs, ahs) {
            Ok((Request::ScsiCommand(pdu), ahs)) => {
                let place = if frame.data_len == 0 {
                    Place::Discard
                } else {
                    self.command_place(&pdu, frame)
                };
                (Arriving::Command { bhs, pdu, ahs }, place)
            }
            Ok((Request::DataOut(pdu), _)) => {
                let place = self
                    .data_out
                    .header(&bhs, &pdu, frame.data_len)
                    .map_err(|error| TransportClosed::Framing(error.to_string()))?;
                self.notices.push_back(Notify::ExpStatSn(pdu.exp_stat_sn));
                let place = match place {
                    Some(data_out::Place { buf, at }) => Place::Buffer { buf, at },
                    None => Place::Discard,
                };
                (Arriving::DataOut { bhs }, place)
            }
            Ok((pdu, _)) => (Arriving::Control { bhs, pdu }, Place::Control(Vec::new())),
            Err(error) => (Arriving::Malformed { bhs, error }, Place::Discard),
        };
        self.arriving = Some(arriving);
        Ok(place)
    }

    /// A block with room for the command's first chunk, so that what is asked for later joins the immediate data; unless
    /// these are but a small part of it: a few bytes must not hold a chunk. The receive side never waits for memory: a
    /// dry pool means the heap, bounded by the command window.
    fn command_place(&self, pdu: &ScsiCommand, frame: Frame) -> Place {
        let expected = usize::try_from(pdu.expected_len).unwrap_or(CHUNK);
        let chunk = expected.max(frame.data_len).min(CHUNK);
        let wanted = if frame.data_len >= chunk / 2 {
            chunk
        } else {
            frame.data_len
        };
        let mut buf = (frame.data_len <= CHUNK)
            .then(|| self.pool.try_acquire(wanted))
            .flatten()
            .unwrap_or_else(|| IoBuf::from_heap(frame.data_len));
        buf.set_len(frame.data_len);
        Place::Buffer { buf, at: 0 }
    }

    fn arrived(&mut self, place: Place, digest_ok: bool) {
        let arriving = self.arriving.take().expect("a payload follows its header");
        if let Some(tap) = self.tap.as_ref().filter(|tap| tap.is_on()) {
            let data = place.bytes(Frame::of(arriving.bhs()).data_len);
            let digests = self.framer.digests();
            tap.received(arriving.bhs(), &arriving.ahs(), data, digests, !digest_ok);
        }
        match arriving {
            Arriving::DataOut { .. } => {
                self.data_out.landed(place.into_buffer(), digest_ok);
                self.apply_effects();
            }
            Arriving::Command { bhs, .. } | Arriving::Control { bhs, .. } if !digest_ok => {
                self.notices.push_back(Notify::DataDigestError { bhs });
            }
            Arriving::Command { pdu, ahs, .. } => {
                let immediate = place.into_buffer();
                self.data_out
                    .begin_command(&pdu, immediate.as_ref().map_or(0, |buf| buf.len()));
                self.notices.push_back(Notify::Command { pdu, ahs, immediate });
            }
            Arriving::Control { pdu, .. } => {
                let data = match place {
                    Place::Control(data) => Bytes::from(data),
                    Place::Buffer { .. } | Place::Discard => Bytes::new(),
                };
                self.notices.push_back(Notify::Control { pdu, data });
            }
            Arriving::Malformed { bhs, error } => self.notices.push_back(Notify::Malformed { bhs, error }),
        }
    }

    /// Writes until the queue is empty or the socket is full.
    fn poll_flush_queue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(SLICES_MAX);
            self.queue.slices(&mut slices, SLICES_MAX, WRITE_MAX);
            let n = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, &slices))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.queue.consume(n);
            self.sent += n as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once. `Ready(Ok(0))` is the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut spare = ReadBuf::new(self.framer.spare());
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut spare))?;
        let n = spare.filled().len();
        self.framer.filled(n);
        Poll::Ready(Ok(n))
    }

    /// One turn of both directions: everything that can be told, sent or read without waiting.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportClosed>> {
        loop {
            self.cut()?;
            let told = !self.notices.is_empty();
            // Commands already read come first: their responses then share one write.
            if told && self.queue.queued_bytes() < WRITE_MAX {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(Err(error)) = self.poll_flush_queue(cx) {
                return Poll::Ready(Err(TransportClosed::Io(error.to_string())));
            }
            if told {
                return Poll::Ready(Ok(()));
            }
            // A peer that asks without taking answers is not read any more: its questions stay in its own socket.
            if self.queue.queued_bytes() > UNSENT_MAX {
                return Poll::Pending;
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) if self.framer.is_at_boundary() => return Poll::Ready(Err(TransportClosed::Eof)),
                Ok(0) => return Poll::Ready(Err(TransportClosed::MidPdu)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(TransportClosed::Io(error.to_string()))),
            }
        }
    }
}

impl DataMover for TcpMover {
    fn listen_in(&mut self, tap: Arc<Tap>) {
        self.queue.listen_in(Arc::clone(&tap));
        self.tap = Some(tap);
    }

    /// The socket is known to the old thread's reactor: a second descriptor of it is made known to this one's, and the
    /// first closed.
    fn move_to(&mut self, pool: &Arc<BufPool>) -> Result<(), TransportClosed> {
        let failed = |error: io::Error| TransportClosed::Io(error.to_string());
        let socket = self.socket.as_fd().try_clone_to_owned().map_err(failed)?;
        self.socket = TcpStream::from_std(socket.into()).map_err(failed)?;
        self.pool = Arc::clone(pool);
        Ok(())
    }

    fn enable(&mut self, params: &SessionParams) {
        self.framer.set_rules(framing_rules(params));
        self.queue.set_rules(send_rules(params));
        self.data_out.set_rules(out_rules(params));
        if params.error_recovery_level > 0 {
            let rules = replay_rules(params);
            let replay = self.replay.get_or_insert_with(|| Replay::new(rules));
            replay.set_rules(rules);
        }
    }

    fn send_control(&mut self, mut pdu: Response, data: Bytes) {
        if let Response::ScsiResponse(response) = &mut pdu {
            let data_ins = self.data_in_sn.get(&response.itt.0).copied().unwrap_or(0);
            response.exp_data_sn = data_ins + self.data_out.r2ts_sent(response.itt);
            if let Some(replay) = &self.replay {
                replay.complete(response, self.data_out.r2ts_sent(response.itt));
            }
        }
        self.queue.push_control(&pdu, data);
    }

    fn put_data(&mut self, put: PutData) {
        if let Some(replay) = &mut self.replay {
            let segments = replay.send(&put);
            return self.send_segments(segments, put.budget);
        }
        let (itt, is_last) = (put.itt, put.last.is_some());
        let data_sn = if put.offset == 0 {
            0
        } else {
            self.data_in_sn.get(&itt.0).copied().unwrap_or(0)
        };
        let count = self.queue.push_data_in(put, data_sn);
        if !is_last {
            self.data_in_sn.insert(itt.0, data_sn + count);
        }
    }

    fn get_data(&mut self, get: GetData) {
        self.data_out.get(get);
        self.apply_effects();
    }

    fn release_task(&mut self, itt: Itt) {
        self.forget_task(itt);
        self.data_in_sn.remove(&itt.0);
        self.data_out.release(itt);
        self.apply_effects();
    }

    fn end_task(&mut self, itt: Itt) {
        if let Some(replay) = &mut self.replay {
            replay.end(itt, self.data_out.r2ts_sent(itt));
        }
        self.data_in_sn.remove(&itt.0);
        self.data_out.end(itt);
    }

    fn snack(&mut self, snack: &Snack, numbering: Numbering) -> Result<(), Unsent> {
        let Some(replay) = &mut self.replay else {
            return Err(Unsent::Unknown);
        };
        let again = match snack.kind {
            SnackType::DataAck if replay.acknowledge(snack.ttt, snack.begin_run) => Vec::new(),
            SnackType::DataAck | SnackType::Status => return Err(Unsent::Unknown),
            SnackType::RData => replay.cut_anew(snack.itt, snack.ttt.0, numbering)?,
            SnackType::DataOrR2t if replay.sent(snack.itt) > 0 => {
                replay.again(snack.itt, snack.begin_run, snack.run_length, numbering)?
            }
            SnackType::DataOrR2t => {
                let (begin, count) = (snack.begin_run, snack.run_length);
                self.data_out.repeat_r2ts(snack.itt, begin, count, numbering)?;
                Vec::new()
            }
        };
        self.send_segments(again, None);
        self.apply_effects();
        Ok(())
    }

    fn forget_task(&mut self, itt: Itt) {
        if let Some(replay) = &mut self.replay {
            replay.forget(itt);
        }
    }

    fn look_after(&mut self, itt: Itt) {
        self.data_out.look_after(itt);
        self.apply_effects();
    }

    fn surrender(&mut self, itt: Itt) -> TaskRemains {
        if let Some(buf) = self.framer.take_place().and_then(Place::into_buffer) {
            self.data_out.take_back(buf);
        }
        TaskRemains {
            sent: self.replay.as_mut().map(|replay| replay.surrender(itt)),
            out: self.data_out.surrender(itt),
        }
    }

    fn adopt(
        &mut self,
        itt: Itt,
        remains: TaskRemains,
        next_data_sn: u32,
        numbering: Numbering,
    ) -> Result<(), Unsent> {
        let (Some(replay), Some(sent)) = (&mut self.replay, remains.sent) else {
            return Err(Unsent::Unknown);
        };
        let again = replay.adopt(itt, sent, next_data_sn, numbering)?;
        self.data_out.adopt(itt, remains.out, numbering);
        self.send_segments(again, None);
        self.apply_effects();
        Ok(())
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closed.is_some() || ready!(self.poll_flush_queue(cx)).is_err() {
            return Poll::Ready(());
        }
        if ready!(Pin::new(&mut self.socket).poll_shutdown(cx)).is_err() {
            return Poll::Ready(());
        }
        // Unread bytes at close would make the kernel reset the connection and take our last response with it.
        let mut sink = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut sink);
            match ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<Notify> {
        loop {
            if let Some(notify) = self.notices.pop_front() {
                return Poll::Ready(notify);
            }
            if let Some(closed) = &self.closed {
                return Poll::Ready(Notify::Closed(closed.clone()));
            }
            if let Err(closed) = ready!(self.poll_turn(cx)) {
                self.closed = Some(closed);
            }
        }
    }

    fn queued_bytes(&self) -> usize {
        self.queue.queued_bytes()
    }

    fn progress(&self) -> u64 {
        self.sent
    }
}

fn decode(bhs: &[u8; BHS_LEN], ahs: &[u8]) -> Result<(Request, Ahs), iscsi_proto::DecodeError> {
    let request = Request::decode(bhs)?;
    let ahs = if ahs.is_empty() {
        Ahs::default()
    } else {
        Ahs::decode(ahs)?
    };
    Ok((request, ahs))
}

fn closed_by(error: &FrameError) -> TransportClosed {
    match error {
        FrameError::HeaderDigest { .. } => TransportClosed::HeaderDigest(error.to_string()),
        FrameError::Oversize { .. } => TransportClosed::Framing(error.to_string()),
    }
}

fn framing_rules(params: &SessionParams) -> FramingRules {
    FramingRules {
        header_digest: params.header_digest,
        data_digest: params.data_digest,
        max_data_len: bytes(params.max_recv_data_segment_len),
    }
}

fn send_rules(params: &SessionParams) -> SendRules {
    SendRules {
        header_digest: params.header_digest,
        data_digest: params.data_digest,
        max_data_len: bytes(params.max_send_data_segment_len),
        max_burst_len: bytes(params.max_burst_len),
    }
}

fn out_rules(params: &SessionParams) -> OutRules {
    OutRules {
        max_burst_len: bytes(params.max_burst_len),
        first_burst_len: bytes(params.first_burst_len),
        max_outstanding_r2t: usize::from(params.max_outstanding_r2t).max(1),
        recovers: params.error_recovery_level > 0,
    }
}

fn replay_rules(params: &SessionParams) -> ReplayRules {
    ReplayRules {
        max_data_len: bytes(params.max_send_data_segment_len),
        max_burst_len: bytes(params.max_burst_len),
    }
}

fn bytes(len: u32) -> usize {
    usize::try_from(len).expect("32 bits fit")
}

/// Slices of one `writev`: 3 a PDU, so 21 small reads at once.
const SLICES_MAX: usize = 64;
/// Bytes of one `writev`, about; more queued than this is sent before more is read.
const WRITE_MAX: usize = 256 * 1024;
/// Unsent bytes at which reading stops: above the Data-In that a connection may have in flight.
const UNSENT_MAX: usize = 8 * 1024 * 1024;
