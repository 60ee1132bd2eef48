//! [`VerbsQueuePair`]: one accepted connection over a device.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstores::IoBuf;
use rdma_sys::{
    ibv_mr, ibv_post_recv, ibv_post_send, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_status, rdma_cm_event_type, rdma_conn_param,
};
use tracing::debug;

use super::cm::{CmId, ConnectRequest, EventChannel};
use super::completions::{Batch, Completions};
use super::device::{Access, Device, Devices};
use super::ffi::{check, check_code};
use super::request::{SIGNALLED, request_of};
use crate::fabric::{Capabilities, Completion, LinkEvent, LinkLost, QueuePair, Work, WorkId};
use crate::slots::Slots;

/// One end of a connection. Its memory is the device's until the queue pair is destroyed, which dropping does first.
#[derive(Debug)]
pub struct VerbsQueuePair {
    /// Work that is going to be handed to the device with one call.
    outbox: Vec<Outgoing>,
    /// What the device may still touch, in the order in which it was posted; read after the queue pair is destroyed, by
    /// dropping it.
    sends: VecDeque<Sent>,
    receives: Slots<Posted>,
    batch: Batch,
    events: VecDeque<LinkEvent>,
    lost: bool,
    capabilities: Capabilities,
    /// In the order in which they have to go. The identifier keeps the context open for those before it.
    completions: Completions,
    device: Arc<Device>,
    id: CmId,
    channel: EventChannel,
    devices: Arc<Devices>,
}

/// How much work a queue pair takes at once.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// Sends, writes and reads.
    pub send: usize,
    /// Receives.
    pub receive: usize,
}

/// A work request that was not handed over yet. Its pointers are set when it is.
struct Outgoing {
    request: ibv_send_wr,
    place: ibv_sge,
}

/// Work that was handed over.
#[derive(Debug)]
struct Sent {
    id: u64,
    /// It has a completion of its own. All other work is over when something behind it is.
    signalled: bool,
    memory: Posted,
}

/// Memory that the device has.
#[derive(Debug)]
struct Posted {
    buf: IoBuf,
    /// Its own registration, if it lies outside the regions.
    own: Option<*mut ibv_mr>,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "work {}", self.request.wr_id)
    }
}

// SAFETY: a queue pair of libibverbs may be used from any thread; this one is by one at a time.
unsafe impl Send for VerbsQueuePair {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for VerbsQueuePair {}

impl ConnectRequest {
    /// A queue pair for this connection, in the runtime of this thread. Receives may be posted; then
    /// [`VerbsQueuePair::accept`] answers the peer.
    pub fn queue_pair(self, depths: Depths) -> io::Result<VerbsQueuePair> {
        let device = self.device()?;
        let limits = device.limits();
        let send_depth = depths.send.min(limits.queue_depth);
        let receive_depth = depths.receive.min(limits.queue_depth);
        let completions = Completions::new(&device, (send_depth + receive_depth).min(limits.completions))?;
        let channel = EventChannel::new(self.devices.library())?;
        self.id().migrate(channel.channel())?;
        // Declared behind its channel: whatever fails from here on, it goes first. Destroyed unanswered, it is rejected.
        let (id, devices, reads_max) = self.into_parts();
        let mut attributes = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: completions.raw(),
            recv_cq: completions.raw(),
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: narrow(send_depth),
                max_recv_wr: narrow(receive_depth),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: identifier, domain and completion queue belong to one context and are open.
        check(unsafe { (devices.library().rdma_create_qp)(id.raw(), device.pd(), &raw mut attributes) })?;
        Ok(VerbsQueuePair {
            outbox: Vec::new(),
            sends: VecDeque::new(),
            receives: Slots::default(),
            batch: Batch::default(),
            events: VecDeque::new(),
            lost: false,
            capabilities: Capabilities {
                send_depth,
                receive_depth,
                reads_max: usize::from(reads_max.min(limits.reads_out)),
                can_invalidate: limits.can_invalidate,
            },
            id,
            completions,
            channel,
            device,
            devices,
        })
    }
}

impl VerbsQueuePair {
    /// Accepts the connection, with a few bytes for the peer. Messages may come from now on.
    pub fn accept(&mut self, private_data: &[u8]) -> io::Result<()> {
        // SAFETY: zeroes are a valid value of this plain structure.
        let mut param: rdma_conn_param = unsafe { std::mem::zeroed() };
        param.private_data = private_data.as_ptr().cast();
        param.private_data_len = u8::try_from(private_data.len()).expect("a few bytes");
        param.initiator_depth = u8::try_from(self.capabilities.reads_max).unwrap_or(u8::MAX);
        param.retry_count = RETRIES;
        param.rnr_retry_count = RETRIES;
        // SAFETY: the identifier has a queue pair; the parameters are copied.
        check(unsafe { (self.device.library().rdma_accept)(self.id.raw(), &raw mut param) })
    }

    /// The device that carries it.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The key of a buffer; memory outside the regions is registered for this once, as is what the peer may write into:
    /// with the key of a region it could write into everybody's buffers.
    fn key(&self, buf: &IoBuf, access: Access) -> io::Result<(u32, Option<*mut ibv_mr>)> {
        // The whole block: registration needs no exact length.
        let (start, len) = (buf.as_ptr().expose_provenance(), buf.capacity());
        if let (Access::Ours, Some(key)) = (access, self.device.key(start, len)) {
            return Ok((key, None));
        }
        let mr = self.device.register(start, len, access)?;
        // SAFETY: registration succeeded.
        Ok((unsafe { (*mr).lkey }, Some(mr)))
    }

    fn enqueue(&mut self, id: WorkId, work: Work) -> Result<(), (IoBuf, io::Error)> {
        let limits = self.device.limits();
        let (request, at) = request_of(id, &work, limits.signals_each);
        let access = match work {
            Work::Read { .. } if limits.reads_let_write => Access::Peers,
            Work::Read { .. } | Work::Send { .. } | Work::Write { .. } => Access::Ours,
        };
        let buf = work.into_buf();
        let (lkey, own) = match self.key(&buf, access) {
            Ok(key) => key,
            Err(error) => return Err((buf, error)),
        };
        let place = ibv_sge {
            addr: (buf.as_ptr().expose_provenance() + at) as u64,
            length: narrow(buf.len() - at),
            lkey,
        };
        self.sends.push_back(Sent {
            id: id.0,
            signalled: request.send_flags & SIGNALLED != 0,
            memory: Posted { buf, own },
        });
        self.outbox.push(Outgoing { request, place });
        Ok(())
    }

    /// Hands the outbox over: one call, and one completion for all that nobody waits for.
    fn flush(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let Some(last) = self.sends.back_mut().filter(|_| !outbox.is_empty()) else {
            return;
        };
        last.signalled = true;
        let first_sent = self.sends.len() - outbox.len();
        let mut next = std::ptr::null_mut();
        for (outgoing, sent) in outbox.iter_mut().zip(self.sends.range(first_sent..)).rev() {
            outgoing.request.sg_list = &raw mut outgoing.place;
            outgoing.request.next = next;
            if sent.signalled {
                outgoing.request.send_flags = SIGNALLED;
            }
            next = &raw mut outgoing.request;
        }
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair is open; the chain is read before the call returns; the memory is kept in `sends` until it
        // is over, or until the queue pair is destroyed.
        let result = unsafe { ibv_post_send((*self.id.raw()).qp, next, &raw mut refused) };
        if let Err(error) = check_code(result) {
            let refused = outbox
                .iter()
                .position(|outgoing| std::ptr::eq(&raw const outgoing.request, refused));
            match refused {
                Some(refused) => self.take_back_from(first_sent + refused, &error),
                // Soft-RoCE: all is in the queue, and the kernel could not be told. It may find the work nevertheless, so
                // the memory stays where it is until the queue pair is destroyed.
                None => self.lose(LinkLost::Failed(format!("work cannot be handed over: {error}"))),
            }
        }
        outbox.clear();
        self.outbox = outbox;
    }

    /// Work from this one on was refused.
    fn take_back_from(&mut self, first: usize, error: &io::Error) {
        for sent in self.sends.split_off(first) {
            let done = Completion {
                id: WorkId(sent.id),
                buf: self.take_back(sent.memory),
                result: Err(error.to_string()),
            };
            self.events.push_back(LinkEvent::Done(done));
        }
    }

    /// The device is done with a work request, and with all before it that have no completion of their own.
    fn sent(&mut self, id: u64, result: &Result<(), String>) {
        if !self.sends.iter().any(|sent| sent.id == id) {
            return;
        }
        let mut under_way = Vec::new();
        while let Some(sent) = self.sends.pop_front() {
            let this = sent.id == id;
            if sent.signalled && !this {
                under_way.push(sent);
                continue;
            }
            let done = Completion {
                id: WorkId(sent.id),
                buf: self.take_back(sent.memory),
                result: if this { result.clone() } else { Ok(()) },
            };
            self.events.push_back(LinkEvent::Done(done));
            if this {
                break;
            }
        }
        // Reads, on devices whose sends overtake them.
        while let Some(sent) = under_way.pop() {
            self.sends.push_front(sent);
        }
    }

    fn try_post_receive(&mut self, buf: IoBuf) -> io::Result<()> {
        let (lkey, own) = self.key(&buf, Access::Ours)?;
        let mut place = ibv_sge {
            addr: buf.as_ptr().expose_provenance() as u64,
            length: narrow(buf.len()),
            lkey,
        };
        let number = self.receives.put(Posted { buf, own });
        let mut request = ibv_recv_wr {
            wr_id: RECEIVE | number,
            next: std::ptr::null_mut(),
            sg_list: &raw mut place,
            num_sge: 1,
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: as for sends; the memory is kept in `receives`.
        let result = unsafe { ibv_post_recv((*self.id.raw()).qp, &raw mut request, &raw mut refused) };
        check_code(result).inspect_err(|_| {
            if let Some(posted) = self.receives.take(number) {
                self.take_back(posted);
            }
        })
    }

    fn take_back(&self, posted: Posted) -> IoBuf {
        if let Some(mr) = posted.own {
            self.device.deregister(mr);
        }
        posted.buf
    }

    fn completed(&mut self, completion: &ibv_wc) {
        let status = completion.status;
        let result = if status == ibv_wc_status::IBV_WC_SUCCESS {
            Ok(())
        } else {
            Err(self.device.library().status_name(status))
        };
        if status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            // Nobody's fault here: the connection ended, which may be told later than its effects.
            self.lose(LinkLost::Disconnected);
        }
        if completion.wr_id & RECEIVE == 0 {
            return self.sent(completion.wr_id, &result);
        }
        let Some(posted) = self.receives.take(completion.wr_id & !RECEIVE) else {
            return;
        };
        let mut buf = self.take_back(posted);
        match result {
            Ok(()) => {
                buf.set_len(
                    usize::try_from(completion.byte_len)
                        .expect("32 bits fit")
                        .min(buf.capacity()),
                );
                self.events.push_back(LinkEvent::Received(buf));
            }
            Err(error) => self.lose(LinkLost::Failed(format!("a receive failed: {error}"))),
        }
    }

    fn lose(&mut self, why: LinkLost) {
        if !std::mem::replace(&mut self.lost, true) {
            self.events.push_back(LinkEvent::Lost(why));
        }
    }

    /// What the connection manager says; ready when there is something to tell.
    fn poll_manager(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Poll::Ready(event) = self.channel.poll_event(cx) else {
                return Poll::Pending;
            };
            let why = match event {
                Err(error) => LinkLost::Failed(error.to_string()),
                Ok(event) => match event.kind {
                    rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED
                    | rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => LinkLost::Disconnected,
                    rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                        self.devices.forget(self.device.context());
                        LinkLost::DeviceRemoved
                    }
                    rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => {
                        LinkLost::Failed("the address moved to another device".into())
                    }
                    rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR
                    | rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE
                    | rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => {
                        let name = self.device.library().event_name(event.kind);
                        LinkLost::Failed(format!("{name}, status {}", event.status))
                    }
                    kind => {
                        debug!(event = self.device.library().event_name(kind), "connection");
                        continue;
                    }
                },
            };
            // What arrived before comes before.
            while self.take_completions() {}
            self.lose(why);
            return Poll::Ready(());
        }
    }

    /// Turns a batch of completions into events; whether there was one.
    fn take_completions(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let polled = self.completions.poll_now(&mut batch);
        for completion in &batch.0 {
            self.completed(completion);
        }
        let some = polled.is_ok() && !batch.0.is_empty();
        self.batch = batch;
        some
    }
}

impl QueuePair for VerbsQueuePair {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn post(&mut self, id: WorkId, work: Work) {
        if let Err((buf, error)) = self.enqueue(id, work) {
            let result = Err(error.to_string());
            self.events
                .push_back(LinkEvent::Done(Completion { id, buf, result }));
        }
    }

    fn post_receive(&mut self, buf: IoBuf) {
        if let Err(error) = self.try_post_receive(buf) {
            self.lose(LinkLost::Failed(format!("a receive cannot be posted: {error}")));
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<LinkEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            // All that came of the last batch of completions goes out together.
            if !self.outbox.is_empty() {
                self.flush();
                continue;
            }
            let mut batch = std::mem::take(&mut self.batch);
            let polled = self.completions.poll(cx, &mut batch);
            if matches!(polled, Poll::Ready(Ok(()))) {
                for completion in &batch.0 {
                    self.completed(completion);
                }
            }
            self.batch = batch;
            match polled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if !self.lost => self.lose(LinkLost::Failed(error.to_string())),
                Poll::Ready(Err(_)) => return Poll::Pending,
                Poll::Pending => {
                    if self.poll_manager(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn move_here(&mut self) -> io::Result<()> {
        self.completions.watch()?;
        self.channel.watch()
    }

    fn disconnect(&mut self) {
        self.flush();
        // SAFETY: the identifier is open. The error of one that is not connected says nothing new.
        unsafe { (self.device.library().rdma_disconnect)(self.id.raw()) };
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.disconnect();
        // SAFETY: the identifier has a queue pair. After this the device touches none of the memory in `sends` and
        // `receives`, which is dropped next.
        unsafe { (self.device.library().rdma_destroy_qp)(self.id.raw()) };
        let sends = self.sends.drain(..).map(|sent| sent.memory);
        for posted in sends.chain(self.receives.drain()) {
            if let Some(mr) = posted.own {
                self.device.deregister(mr);
            }
        }
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("counts and lengths of a queue pair are small")
}

/// Marks the numbers of receives.
const RECEIVE: u64 = 1 << 63;
/// As often as the protocol allows; of "receiver not ready" this means without end.
const RETRIES: u8 = 7;

#[cfg(test)]
mod tests;
