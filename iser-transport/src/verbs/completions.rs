//! A completion queue with its channel: polled in batches, armed again without losing a wake-up.
//!
//! It is armed only when it was found empty and its owner is about to sleep. What completes while the owner works, its own
//! sends above all, is then found by polling: it rings for nobody, and costs neither an event nor a system call.
//!
//! Not every driver rings each time it has to: that of soft-RoCE looks whether it has been asked to without making sure that
//! others see its completion first, and those of hardware had their faults too. So a sleeping queue is looked into now and
//! then: what would have been a connection that hangs for good is a delay.

use std::fmt;
use std::io;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rdma_sys::{ibv_comp_channel, ibv_cq, ibv_poll_cq, ibv_req_notify_cq, ibv_wc};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::channel::Readable;
use super::device::Device;
use super::ffi::{check, check_code};

/// The queue.
#[derive(Debug)]
pub(super) struct Completions {
    device: Arc<Device>,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    /// Dropped before the channel is.
    readable: Option<Readable>,
    /// When a queue that does not ring is looked into nevertheless.
    doubt: Interval,
    /// The next completion rings: exactly one event follows.
    is_armed: bool,
    /// Events received and not acknowledged: that is done for many at once.
    unacknowledged: u32,
}

/// Completions that were taken at once.
#[derive(Default)]
pub(super) struct Batch(pub(super) Vec<ibv_wc>);

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} completions", self.0.len())
    }
}

// SAFETY: completion queues and channels of libibverbs may be used from any thread.
unsafe impl Send for Completions {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue with room for `capacity` completions.
    pub(super) fn new(device: &Arc<Device>, capacity: usize) -> io::Result<Self> {
        let library = device.library();
        // SAFETY: the context is open as long as the device is held.
        let channel = unsafe { (library.ibv_create_comp_channel)(device.context()) };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut completions = Self {
            device: Arc::clone(device),
            channel,
            cq: null_mut(),
            readable: None,
            doubt: doubt(),
            is_armed: false,
            unacknowledged: 0,
        };
        let capacity = i32::try_from(capacity).unwrap_or(i32::MAX);
        // SAFETY: as above; the channel was made for this context.
        completions.cq =
            unsafe { (library.ibv_create_cq)(device.context(), capacity, null_mut(), channel, 0) };
        if completions.cq.is_null() {
            return Err(io::Error::last_os_error());
        }
        completions.watch()?;
        Ok(completions)
    }

    /// Is rung for in the runtime of this thread.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        self.readable = None;
        // SAFETY: the channel is open, and is destroyed after `readable`.
        self.readable = Some(unsafe { Readable::new((*self.channel).fd) }?);
        self.doubt = doubt();
        Ok(())
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.cq
    }

    /// Completions that are there, at most a batch.
    pub(super) fn poll_now(&mut self, batch: &mut Batch) -> io::Result<()> {
        let batch = &mut batch.0;
        batch.clear();
        let room = i32::try_from(BATCH).expect("a small number");
        batch.reserve(BATCH);
        // SAFETY: the queue is open, and there is room for as many completions.
        let count = unsafe { ibv_poll_cq(self.cq, room, batch.as_mut_ptr()) };
        let count =
            usize::try_from(count).map_err(|_| io::Error::other("the completion queue cannot be polled"))?;
        // SAFETY: so many were written.
        unsafe { batch.set_len(count) };
        Ok(())
    }

    /// Completions, when there are some.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        loop {
            self.poll_now(batch)?;
            if !batch.0.is_empty() {
                return Poll::Ready(Ok(()));
            }
            // Armed first and polled then: what came in between is found, what comes later rings.
            if !self.is_armed {
                self.arm()?;
                continue;
            }
            match self.poll_event(cx) {
                Poll::Ready(rung) => rung?,
                Poll::Pending => {
                    ready!(self.doubt.poll_tick(cx));
                    // Perhaps it rang for nobody, and nobody knows whether it is armed still.
                    self.is_armed = false;
                }
            }
        }
    }

    /// Ready when the channel has rung.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (library, channel) = (self.device.library(), self.channel);
        let readable = self.readable.as_ref().expect("set when it was created");
        ready!(readable.poll_single(cx, || {
            let (mut cq, mut context) = (null_mut(), null_mut());
            // SAFETY: the channel is open; both places are ours.
            check(unsafe { (library.ibv_get_cq_event)(channel, &raw mut cq, &raw mut context) })
        }))?;
        self.is_armed = false;
        self.unacknowledged += 1;
        if self.unacknowledged == ACKNOWLEDGE_AT {
            self.acknowledge();
        }
        Poll::Ready(Ok(()))
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: the queue is open.
        check_code(unsafe { ibv_req_notify_cq(self.cq, 0) })?;
        self.is_armed = true;
        Ok(())
    }

    fn acknowledge(&mut self) {
        // SAFETY: so many events were received.
        unsafe { (self.device.library().ibv_ack_cq_events)(self.cq, self.unacknowledged) };
        self.unacknowledged = 0;
    }
}

impl Drop for Completions {
    /// After the queue pair: nothing completes into it any more.
    fn drop(&mut self) {
        self.readable = None;
        let library = self.device.library();
        if !self.cq.is_null() {
            // Destroying waits for events that were not acknowledged.
            self.acknowledge();
            // SAFETY: no queue pair uses it.
            unsafe { (library.ibv_destroy_cq)(self.cq) };
        }
        // SAFETY: no completion queue uses it.
        unsafe { (library.ibv_destroy_comp_channel)(self.channel) };
    }
}

fn doubt() -> Interval {
    let mut doubt = interval_at(Instant::now() + DOUBT, DOUBT);
    doubt.set_missed_tick_behavior(MissedTickBehavior::Delay);
    doubt
}

/// How long an event may be lost.
const DOUBT: Duration = Duration::from_secs(1);
/// Completions taken at once.
const BATCH: usize = 32;
/// Acknowledging takes a lock.
const ACKNOWLEDGE_AT: u32 = 64;
