//! [`IserMover`]: messages, RDMA and receive credits between a queue pair and `target-core`.
//!
//! Data-In are written into the initiator's memory, the response follows as a message; Data-Out are read from it, by a
//! chunk at a time (RFC 7145 §9.5). So no Data-In PDU and no R2T ever exists here, the numbers that count them stay zero, and
//! status never travels with data (§7.3.2). Data that come with a command are copied once, out of the receive they came in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstores::{BufPool, CHUNK, IoBuf};
use bytes::Bytes;
use iscsi_proto::pdu::{
    LoginResponse, LoginStatus, Request, Residual, Response, ScsiCommand, ScsiResponse, ScsiResponseCode,
};
use iscsi_proto::{Ahs, BHS_LEN, DecodeError, Frame, Itt};
use target_core::datamover::{DataMover, GetData, Notify, PutData, TransportClosed};
use target_core::iscsi::{IMMEDIATE_MAX, SessionParams, TransportKeys};
use target_core::trace::{Digests, Tap};
use tokio::task::coop::poll_proceed;
use tracing::debug;

use crate::cm::CmHeader;
use crate::fabric::{LinkEvent, LinkLost, QueuePair, Remote};
use crate::header::{HEADER_LEN, Hello, HelloReply, IserHeader};
use crate::keys::{Agreed, HelloRule, RECEIVE_LEN, UNEXPECTED_MAX, transport_keys};
use crate::send_queue::{Ended, SendQueue};
use crate::tasks::{Effect, Rules, Tasks};
use crate::unexpected::Unexpected;

/// Moves iSCSI PDUs and SCSI data over one queue pair.
#[derive(Debug)]
pub struct IserMover<Q> {
    qp: Q,
    pool: Arc<BufPool>,
    messages: Arc<BufPool>,
    peer: Option<CmHeader>,
    remote_invalidate: bool,
    tasks: Tasks,
    queue: SendQueue,
    notices: VecDeque<Notify>,
    /// Why the connection is gone, told after the notices before it.
    closed: Option<TransportClosed>,
    /// Receives that the peer may use, or that are kept back.
    receives: usize,
    /// Receives that a peer which takes no answers does not get again.
    withheld: Vec<IoBuf>,
    /// Full feature phase has begun.
    is_enabled: bool,
    hello: HelloRule,
    unexpected: Unexpected,
    tap: Option<Arc<Tap>>,
}

/// What a mover needs beside its queue pair.
#[derive(Debug)]
pub struct IserSetup {
    /// Where the buffers for data come from.
    pub pool: Arc<BufPool>,
    /// Where the memory for messages comes from. A pool of its own, so that idle connections keep nothing from data.
    pub messages: Arc<BufPool>,
    /// What the initiator's connection request said.
    pub peer: Option<CmHeader>,
}

/// There is no memory for the receives of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no memory for {0} messages: too many iSER connections")]
pub struct NoMessageMemory(usize);

impl<Q: QueuePair> IserMover<Q> {
    /// A mover over a queue pair that is about to be connected; its receives for the login are posted.
    pub fn new(qp: Q, setup: IserSetup) -> Result<Self, NoMessageMemory> {
        let capabilities = qp.capabilities();
        let invalidates = setup.peer.is_some_and(|peer| !peer.no_remote_invalidate);
        let mut mover = Self {
            qp,
            pool: setup.pool,
            messages: setup.messages,
            peer: setup.peer,
            remote_invalidate: invalidates && capabilities.can_invalidate,
            tasks: Tasks::default(),
            queue: SendQueue::new(capabilities),
            notices: VecDeque::new(),
            closed: None,
            receives: 0,
            withheld: Vec::new(),
            is_enabled: false,
            hello: HelloRule::Forbidden,
            unexpected: Unexpected::default(),
            tap: None,
        };
        mover.offer_receives(LOGIN_RECEIVES)?;
        Ok(mover)
    }

    /// What we say of ourselves when the connection is accepted.
    #[must_use]
    pub fn private_data(&self) -> CmHeader {
        CmHeader {
            no_zero_based_addresses: true,
            no_remote_invalidate: !self.remote_invalidate,
        }
    }

    /// What such a connection negotiates.
    #[must_use]
    pub fn transport_keys(&self) -> TransportKeys {
        let receives = self.qp.capabilities().receive_depth;
        let room = receives.saturating_sub(BESIDE_COMMANDS);
        transport_keys(u16::try_from(room).unwrap_or(u16::MAX))
    }

    /// The queue pair, to accept the connection.
    pub fn queue_pair_mut(&mut self) -> &mut Q {
        &mut self.qp
    }

    /// Posts receives until the peer has `wanted`.
    fn offer_receives(&mut self, wanted: usize) -> Result<(), NoMessageMemory> {
        while self.receives < wanted {
            let buf = self.messages.try_acquire(MESSAGE_MAX);
            self.qp.post_receive(buf.ok_or(NoMessageMemory(wanted))?);
            self.receives += 1;
        }
        Ok(())
    }

    /// A message was understood, its memory takes the next one; unless the peer takes no answers.
    fn recycle(&mut self, mut buf: IoBuf) {
        buf.set_len(MESSAGE_MAX);
        if self.queue.unsent_memory() > UNSENT_MAX {
            self.withheld.push(buf);
        } else {
            self.qp.post_receive(buf);
        }
    }

    /// The next thing that happens, once what is queued is handed over. It takes part in the turns of the runtime as sockets
    /// do by themselves: a peer that sends without pause must not keep the core from all others.
    fn poll_link(&mut self, cx: &mut Context<'_>) -> Poll<LinkEvent> {
        self.queue.post(&mut self.qp);
        let turn = ready!(poll_proceed(cx));
        let event = ready!(self.qp.poll_event(cx));
        turn.made_progress();
        Poll::Ready(event)
    }

    fn happened(&mut self, event: LinkEvent) -> Result<(), TransportClosed> {
        match event {
            LinkEvent::Received(buf) => {
                self.received(&buf)?;
                self.recycle(buf);
            }
            LinkEvent::Done(completion) => {
                match self.queue.ended(completion) {
                    Ended::Filled(itt, buf) => {
                        let result = Ok(buf);
                        self.notices.push_back(Notify::DataOut { itt, result });
                    }
                    Ended::Failed(error) => return Err(TransportClosed::Io(error)),
                    Ended::Released(itt) => self.notices.push_back(Notify::Released(itt)),
                    Ended::Sent => {}
                }
                if self.queue.unsent_memory() <= UNSENT_MAX {
                    self.withheld.drain(..).for_each(|buf| self.qp.post_receive(buf));
                }
            }
            LinkEvent::Lost(LinkLost::Disconnected) => return Err(TransportClosed::Eof),
            LinkEvent::Lost(lost) => return Err(TransportClosed::Io(lost.to_string())),
        }
        Ok(())
    }

    fn received(&mut self, message: &[u8]) -> Result<(), TransportClosed> {
        let header = IserHeader::decode(message).map_err(|error| framing(&error))?;
        match header {
            IserHeader::Control { read, write } => self.pdu(&message[HEADER_LEN..], read, write),
            IserHeader::Hello(hello) if self.hello != HelloRule::Forbidden => self.answer_hello(hello),
            IserHeader::Hello(_) => Err(framing("an iSER Hello that was not agreed on")),
            IserHeader::HelloReply(_) => Err(framing("an iSER HelloReply from an initiator")),
        }
    }

    /// Versions and the number of reads at once (§5.1.3).
    fn answer_hello(&mut self, hello: Hello) -> Result<(), TransportClosed> {
        self.hello = HelloRule::Forbidden;
        let reads = usize::from(hello.inbound_reads).min(self.qp.capabilities().reads_max);
        self.queue.limit_reads(reads);
        let refusal = if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            Some("the initiator does not speak version 10 of iSER, the only one of RFC 7145")
        } else if hello.inbound_reads > 0 && reads == 0 {
            Some("the initiator counts on RDMA READs, of which the device has none")
        } else {
            None
        };
        let reply = HelloReply {
            rejected: refusal.is_some(),
            max_version: VERSION,
            version: VERSION,
            outbound_reads: u16::try_from(reads).unwrap_or(u16::MAX),
        };
        let mut buf = self.message(HEADER_LEN);
        buf.copy_from_slice(&IserHeader::HelloReply(reply).encode());
        self.queue.push_send(buf, None);
        // §10.1.3.2: first it is told.
        refusal.map_or(Ok(()), |refusal| Err(framing(refusal)))
    }

    fn pdu(
        &mut self,
        message: &[u8],
        read: Option<Remote>,
        write: Option<Remote>,
    ) -> Result<(), TransportClosed> {
        let Some((bhs, rest)) = message.split_first_chunk::<BHS_LEN>() else {
            return Err(framing("a message ends within the header of its PDU"));
        };
        let frame = Frame::of(bhs);
        let Some((ahs, data)) = rest.split_at_checked(frame.ahs_len) else {
            return Err(framing("a message ends within its additional header segments"));
        };
        let Some(data) = data.get(..frame.data_len) else {
            return Err(framing("a message ends within its data segment"));
        };
        let bhs = *bhs;
        if self.hello == HelloRule::Due {
            return Err(framing(
                "the initiator began without the iSER Hello that it asked for",
            ));
        }
        self.hello = HelloRule::Forbidden;
        self.unexpected.received(&bhs);
        if let Some(tap) = self.tap.as_ref().filter(|tap| tap.is_on()) {
            tap.received(&bhs, ahs, data, Digests::default(), false);
        }
        match decode(&bhs, ahs) {
            Ok((Request::ScsiCommand(pdu), ahs)) => {
                self.tasks
                    .begin(&pdu, read, write, data.len())
                    .map_err(|error| framing(&error))?;
                let immediate = (!data.is_empty()).then(|| self.immediate(&pdu, data));
                self.notices.push_back(Notify::Command { pdu, ahs, immediate });
            }
            Ok((Request::DataOut(pdu), _)) => {
                self.notices.push_back(Notify::ExpStatSn(pdu.exp_stat_sn));
                self.tasks.data_out(&bhs, &pdu, data);
                self.apply_effects();
            }
            // Nothing is ever lost, so to ask for it again is a protocol error (§7.3.11), like a second login (§7.3.9).
            Ok((Request::Snack(_) | Request::Login(_), _)) if self.is_enabled => {
                self.notices.push_back(Notify::OutOfPlace { bhs });
            }
            Ok((pdu, _)) => {
                let data = Bytes::copy_from_slice(data);
                self.notices.push_back(Notify::Control { pdu, data });
            }
            Err(error) => self.notices.push_back(Notify::Malformed { bhs, error }),
        }
        Ok(())
    }

    /// A block with room for the command's first chunk, so that what is read later joins the immediate data; unless
    /// these are but a small part of it. A dry pool means the heap.
    fn immediate(&self, pdu: &ScsiCommand, data: &[u8]) -> IoBuf {
        let expected = usize::try_from(pdu.expected_len).unwrap_or(CHUNK);
        let chunk = expected.max(data.len()).min(CHUNK);
        let wanted = if data.len() >= chunk / 2 {
            chunk
        } else {
            data.len()
        };
        let buf = self.pool.try_acquire(wanted);
        let mut buf = buf.unwrap_or_else(|| IoBuf::from_heap(data.len()));
        buf.set_len(data.len());
        buf.copy_from_slice(data);
        buf
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.tasks.next_effect() {
            match effect {
                Effect::Tell(notify) => self.notices.push_back(notify),
                Effect::Fetch(..) if self.queue.reads_max() == 0 => {
                    // §7.3.6
                    self.fail(framing(
                        "a command needs data, and the initiator serves no RDMA READ",
                    ));
                }
                Effect::Fetch(get, from) => self.queue.push_read(get.itt, get.buf, get.filled, from),
            }
        }
    }

    /// Memory for a message that is sent.
    fn message(&self, len: usize) -> IoBuf {
        let buf = (len <= CHUNK).then(|| self.messages.try_acquire(len)).flatten();
        buf.unwrap_or_else(|| IoBuf::from_heap(len))
    }

    fn push(&mut self, pdu: &Response, data: &[u8], invalidate: Option<u32>) {
        if let Err(too_many) = self.unexpected.send(pdu) {
            return self.fail(framing(&too_many));
        }
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        let mut bhs = pdu.encode();
        frame.stamp(&mut bhs);
        if let Some(tap) = self.tap.as_ref().filter(|tap| tap.is_on()) {
            tap.sent(&bhs, data, Digests::default());
        }
        let end = HEADER_LEN + BHS_LEN + data.len();
        let mut buf = self.message(end + frame.padding());
        let header = IserHeader::Control {
            read: None,
            write: None,
        };
        buf[..HEADER_LEN].copy_from_slice(&header.encode());
        buf[HEADER_LEN..HEADER_LEN + BHS_LEN].copy_from_slice(&bhs);
        buf[HEADER_LEN + BHS_LEN..end].copy_from_slice(data);
        buf[end..].fill(0);
        self.queue.push_send(buf, invalidate);
    }

    fn push_scsi_response(&mut self, response: ScsiResponse, data: &[u8]) {
        let invalidate = self.tasks.tag(response.itt).filter(|_| self.remote_invalidate);
        self.push(&Response::ScsiResponse(response), data, invalidate);
    }

    /// Commands and what comes beside them, and the data that may come unasked. Whatever goes on in the session by now: later
    /// the whole window may come over this connection alone.
    fn receives_for(&self, params: &SessionParams) -> usize {
        let commands = usize::from(params.command_window) * usize::from(params.pdus_per_command());
        (commands + BESIDE_COMMANDS).min(self.qp.capabilities().receive_depth)
    }

    /// The login's last response, which is still here, says no instead of yes (§10.1.3.1), and nothing follows it.
    fn refuse_login(&mut self, status: LoginStatus, reason: TransportClosed) {
        let response = self.queue.last_send_mut().and_then(|message| {
            let bhs = message[HEADER_LEN..].first_chunk_mut()?;
            let Ok(Response::Login(response)) = Response::decode(bhs) else {
                return None;
            };
            Some((bhs, response))
        });
        if let Some((bhs, response)) = response {
            let data_len = Frame::of(bhs).data_len;
            let refusal = LoginResponse {
                transit: false,
                next_stage: response.current_stage,
                status,
                ..response
            };
            *bhs = Response::Login(refusal).encode();
            Frame { ahs_len: 0, data_len }.stamp(bhs);
        }
        self.fail(reason);
    }

    fn fail(&mut self, closed: TransportClosed) {
        self.closed.get_or_insert(closed);
    }
}

impl<Q: QueuePair + 'static> DataMover for IserMover<Q> {
    fn listen_in(&mut self, tap: Arc<Tap>) {
        self.tap = Some(tap);
    }

    fn move_to(&mut self, pool: &Arc<BufPool>) -> Result<(), TransportClosed> {
        self.pool = Arc::clone(pool);
        let moved = self.qp.move_here();
        moved.map_err(|error| TransportClosed::Io(error.to_string()))
    }

    fn enable(&mut self, params: &SessionParams) {
        let agreed = Agreed::of(params);
        if !agreed.rdma {
            let reason = "the initiator did not agree to RDMAExtensions=Yes, without which there is no iSER";
            return self.refuse_login(LoginStatus::InitiatorError, framing(reason));
        }
        self.is_enabled = true;
        self.hello = agreed.hello;
        self.unexpected.limit(agreed.unexpected_max);
        // Linux and what descends from it never speak of the key, and name the place behind the unasked data; they are
        // known by the private data of their connection request. For all others the default of §6.9 holds.
        let linux = self.peer.is_some_and(|peer| peer.no_zero_based_addresses);
        self.tasks.set_rules(Rules {
            first_burst_len: length(params.first_burst_len),
            solicited_only: agreed.solicited_only.unwrap_or(linux),
        });
        let receives = self.receives_for(params);
        debug!(
            receives,
            ?agreed,
            invalidate = self.remote_invalidate,
            "iSER is agreed"
        );
        // Before the login's last response, after which the initiator uses them (§5.1.2).
        if let Err(error) = self.offer_receives(receives) {
            self.refuse_login(LoginStatus::OutOfResources, framing(&error));
        }
    }

    fn send_control(&mut self, pdu: Response, data: Bytes) {
        match pdu {
            Response::ScsiResponse(response) => self.push_scsi_response(response, &data),
            pdu => self.push(&pdu, &data, None),
        }
    }

    fn put_data(&mut self, put: PutData) {
        let Some(place) = self.tasks.read_place(put.itt) else {
            return self.fail(framing(&format!(
                "task {:#010x} named no place for its Data-In",
                put.itt.0
            )));
        };
        self.queue
            .push_write(put.itt, put.buf, place.plus(put.offset.into()), put.budget);
        if let Some(last) = put.last {
            let response = ScsiResponse {
                itt: put.itt,
                response: ScsiResponseCode::CompletedAtTarget,
                status: last.status,
                residual: last.residual,
                bidi_read_residual: Residual::None,
                snack_tag: 0,
                stat_sn: put.numbering.stat_sn,
                exp_cmd_sn: put.numbering.exp_cmd_sn,
                max_cmd_sn: put.numbering.max_cmd_sn,
                exp_data_sn: 0,
            };
            self.push_scsi_response(response, &[]);
        }
    }

    fn get_data(&mut self, get: GetData) {
        self.tasks.get(get);
        self.apply_effects();
    }

    fn release_task(&mut self, itt: Itt) {
        self.tasks.forget(itt);
        if self.queue.release(itt) {
            self.notices.push_back(Notify::Released(itt));
        }
    }

    fn end_task(&mut self, itt: Itt) {
        self.tasks.forget(itt);
    }

    /// The initiator has everything when its device has acknowledged it; then the initiator may disconnect first, as it
    /// does after a logout.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.poll_link(cx)) {
                LinkEvent::Lost(_) => return Poll::Ready(()),
                LinkEvent::Done(completion) => {
                    if let Ended::Failed(_) = self.queue.ended(completion) {
                        return Poll::Ready(());
                    }
                }
                // What is said after the last word is not heard.
                LinkEvent::Received(_) => {}
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
            let event = ready!(self.poll_link(cx));
            if let Err(closed) = self.happened(event) {
                self.fail(closed);
            }
        }
    }

    fn queued_bytes(&self) -> usize {
        self.queue.queued_bytes()
    }

    fn progress(&self) -> u64 {
        self.queue.progress()
    }
}

fn decode(bhs: &[u8; BHS_LEN], ahs: &[u8]) -> Result<(Request, Ahs), DecodeError> {
    let request = Request::decode(bhs)?;
    let ahs = if ahs.is_empty() {
        Ahs::default()
    } else {
        Ahs::decode(ahs)?
    };
    Ok((request, ahs))
}

fn framing(what: &(impl ToString + ?Sized)) -> TransportClosed {
    TransportClosed::Framing(what.to_string())
}

fn length(len: u32) -> usize {
    usize::try_from(len).expect("32 bits fit")
}

/// A message and its headers fill a block of the pool.
const MESSAGE_MAX: usize = 16 * 1024;
const _: () = assert!(HEADER_LEN + BHS_LEN + 512 + RECEIVE_LEN <= MESSAGE_MAX);
/// During login requests and responses alternate; a second is for a peer that breaks off and begins anew.
const LOGIN_RECEIVES: usize = 2;
/// Receives for what comes beside commands and their data.
const BESIDE_COMMANDS: usize = IMMEDIATE_MAX + UNEXPECTED_MAX;
/// Memory of what the peer has not taken at which receives are kept back: above the Data-In that a connection may have in
/// flight.
const UNSENT_MAX: usize = 8 * 1024 * 1024;
/// The version of iSER that RFC 7145 is (§9.3). The one of RFC 5046 has another header.
const VERSION: u8 = 10;

#[cfg(test)]
mod tests;
