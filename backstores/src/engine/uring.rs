//! One io_uring per data thread, driven inside that thread's `current_thread` runtime.
//!
//! Operations queue up while tasks run. The first of a batch wakes the ring's own task, which thus runs after all tasks
//! that were ready, submits the batch with one system call and takes the completions that are there already, without an
//! epoll. For the rest the task waits on the ring's descriptor. A batch of 32 is submitted at once.
//! The ring owns buffer and descriptor of every operation until its completion, whatever becomes of the future.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker};

use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Transfer;
use super::transfer::Step;
use crate::IoBuf;

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Hands a transfer to this thread's ring; gives it back where there is none or the ring is full.
pub(super) fn submit(transfer: Transfer) -> Result<oneshot::Receiver<io::Result<IoBuf>>, Transfer> {
    let mut transfer = Some(transfer);
    // Neither a thread at its end nor a waker that polls in place gets the ring; both have the other engine.
    let receiver = RING.try_with(|ring| {
        let mut ring = ring.try_borrow_mut().ok()?;
        ring.as_mut()?.push(&mut transfer)
    });
    match (receiver, transfer) {
        (Ok(Some(receiver)), _) => Ok(receiver),
        (_, Some(transfer)) => Err(transfer),
        (_, None) => unreachable!("a transfer is taken only with a receiver given"),
    }
}

/// Whether a ring can be had and works here.
pub(super) fn check() -> io::Result<()> {
    Ring::new().map(drop)
}

/// This thread has a ring while this lives.
#[derive(Debug)]
pub(super) struct Membership {
    task: JoinHandle<()>,
}

impl Membership {
    pub(super) fn enter() -> io::Result<Self> {
        let handle = Handle::try_current().map_err(io::Error::other)?;
        if handle.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return Err(io::Error::other("a data thread needs a current_thread runtime"));
        }
        if RING.with_borrow(Option::is_some) {
            return Err(io::Error::other("this data thread has its ring already"));
        }
        let ring = Ring::new()?;
        let fd = ring.as_fd().try_clone_to_owned()?;
        // SAFETY: the registration owns `fd`, whose `as_raw_fd` always names the same open descriptor.
        let completions = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        RING.set(Some(ring));
        Ok(Self {
            task: handle.spawn(drive(completions)),
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
        // Taken out first: what completes while the ring drains may already use the other engine.
        let ring = RING.try_with(RefCell::take).ok();
        drop(ring);
    }
}

/// The ring's own task.
async fn drive(completions: AsyncFd<OwnedFd>) {
    poll_fn(|cx| {
        loop {
            RING.with_borrow_mut(|ring| ring.as_mut().map(|ring| ring.turn(cx)));
            match completions.poll_read_ready(cx) {
                // Cleared before the next look at the queue: what comes after that look makes it ready again.
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// A ring and what it has under way.
struct Ring {
    uring: IoUring,
    /// Operations the kernel knows or will know, by `user_data`. Dropping a slot before its completion would let the
    /// kernel write into memory that has a new owner.
    slots: Vec<Option<Flight>>,
    vacant: Vec<usize>,
    /// Slots that wait for a place in the submission queue, at most all of them.
    queue: VecDeque<usize>,
    /// Of the ring's task.
    waker: Option<Waker>,
}

struct Flight {
    transfer: Transfer,
    sender: oneshot::Sender<io::Result<IoBuf>>,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let uring = build(true).or_else(|error| match error.raw_os_error() {
            // Kernels before 6.0 do not know the flags, which only save time.
            Some(libc::EINVAL) => build(false),
            _ => Err(error),
        })?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot read and write",
            ));
        }
        // What would block runs on kernel threads; allow more than the four per core of the default. Older kernels
        // have no such call, and then the default does.
        let _ = uring
            .submitter()
            .register_iowq_max_workers(&mut [KERNEL_THREADS, 0]);
        // Seccomp filters may allow the set-up and refuse the entry.
        uring.submit()?;
        Ok(Self {
            uring,
            slots: Vec::new(),
            vacant: Vec::new(),
            queue: VecDeque::new(),
            waker: None,
        })
    }

    /// Queues a transfer, unless the ring is full.
    fn push(&mut self, transfer: &mut Option<Transfer>) -> Option<oneshot::Receiver<io::Result<IoBuf>>> {
        if self.in_flight() >= MAX_IN_FLIGHT {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Flight {
            transfer: transfer.take()?,
            sender,
        });
        self.queue.push_back(slot);
        if self.queue.len() >= BATCH {
            self.submit();
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Some(receiver)
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// One turn of the ring's task: submit, and take what has completed until nothing new comes.
    fn turn(&mut self, cx: &mut Context<'_>) {
        let mut left = self.submit();
        while self.reap() > 0 {
            left = self.submit();
        }
        if left {
            // The kernel is short of something; try again after everybody else.
            cx.waker().wake_by_ref();
        }
        self.waker = Some(cx.waker().clone());
    }

    /// Tells the kernel of everything queued; `true` when something had to stay behind.
    fn submit(&mut self) -> bool {
        while self.fill() {
            match self.uring.submit() {
                Ok(1..) => {}
                Ok(0) => return true,
                Err(error) => {
                    tracing::debug!(%error, queued = self.queue.len(), "io_uring takes nothing for now");
                    return true;
                }
            }
        }
        false
    }

    /// Moves what fits into the submission queue; `true` when that holds anything.
    fn fill(&mut self) -> bool {
        while let Some(slot) = self.queue.front().copied() {
            let flight = self.slots[slot].as_mut().expect("only occupied slots are queued");
            let entry = flight.transfer.entry().user_data(slot as u64);
            // SAFETY: the slot keeps the buffer and the descriptor that the entry names, unmoved and untouched, until
            // `complete` is called for its completion; `Drop` waits for all of them.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                break;
            }
            self.queue.pop_front();
        }
        !self.uring.submission().is_empty()
    }

    /// Takes completions; gives their number.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        loop {
            let Some(completion) = self.uring.completion().next() else {
                return count;
            };
            count += 1;
            let slot = usize::try_from(completion.user_data()).expect("we made it from a usize");
            self.complete(slot, outcome(completion.result()));
        }
    }

    fn complete(&mut self, slot: usize, result: Result<usize, Errno>) {
        let flight = self.slots[slot].take().expect("an operation completes once");
        if result == Err(Errno::AGAIN) {
            // The kernel will not wait for this one; a thread can.
            self.vacant.push(slot);
            return flight.transfer.hand_over(flight.sender);
        }
        match flight.transfer.advance(result) {
            Step::Again(transfer) => {
                self.slots[slot] = Some(Flight { transfer, ..flight });
                self.queue.push_back(slot);
            }
            Step::Ended(result) => {
                self.vacant.push(slot);
                // A receiver that is gone is a dropped future: the buffer goes home here.
                drop(flight.sender.send(result));
            }
        }
    }
}

impl Drop for Ring {
    /// Waits for everything under way: the kernel writes into our buffers until then.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            self.fill();
            match self.uring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                    ) => {}
                Err(error) => {
                    tracing::error!(%error, "io_uring cannot be drained; its buffers stay set aside");
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
            }
            self.reap();
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and is borrowed as long.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

fn build(with_hints: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(COMPLETIONS).dontfork();
    if with_hints {
        builder.setup_single_issuer().setup_coop_taskrun();
    }
    builder.build(SUBMISSIONS)
}

fn outcome(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// Submitted at once when so many are queued.
const BATCH: usize = 32;
const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 2048;
/// More go to the other engine, so that the completion queue never overflows.
const MAX_IN_FLIGHT: usize = COMPLETIONS as usize;
const KERNEL_THREADS: u32 = 32;
