//! A running command's only handle on its connection: `get` for Data-Out, `put` for Data-In, residuals, aborts.
//! It knows no transport. Everything a task says, its end included, travels on one queue, so that a piece of
//! data can never be overtaken by its own status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backstores::{BufPool, IoBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::scsi::{Failure, Outcome, Sense};

/// A connection's own name for one of its tasks, never used twice: an initiator task tag is free again after an
/// abort, while the abandoned command may still be running.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskId(pub u64);

/// What a running command says to its connection.
#[derive(Debug)]
pub enum TaskEvent {
    /// It wants Data-Out.
    Get {
        /// Who.
        task: TaskId,
        /// Place of `buf[0]` in the whole Data-Out.
        offset: u32,
        /// Where the bytes go.
        buf: IoBuf,
        /// Bytes already there.
        filled: usize,
        /// Where the filled buffer goes.
        reply: oneshot::Sender<Result<IoBuf, Sense>>,
    },
    /// It offers Data-In.
    Put {
        /// Who.
        task: TaskId,
        /// Place of `buf[0]` in the whole Data-In.
        offset: u32,
        /// The bytes.
        buf: IoBuf,
        /// Share of the connection's bytes in flight.
        budget: Option<OwnedSemaphorePermit>,
    },
    /// It has ended. Nothing follows.
    Done {
        /// Who.
        task: TaskId,
        /// How.
        outcome: Outcome,
    },
}

/// Tells a task that it was aborted. Firing never waits; the task finds out at its next step.
#[derive(Clone, Debug, Default)]
pub struct AbortSignal(Arc<AbortState>);

#[derive(Debug, Default)]
struct AbortState {
    fired: AtomicBool,
    wake: Notify,
}

impl AbortSignal {
    /// Aborts. Idempotent, callable from any thread.
    pub fn fire(&self) {
        self.0.fired.store(true, Ordering::Release);
        self.0.wake.notify_waiters();
    }

    /// Whether it was aborted.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Waits until it is aborted.
    pub async fn fired(&self) {
        loop {
            let woken = self.0.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.is_fired() {
                return;
            }
            woken.await;
        }
    }
}

/// What a connection gives a task when it starts.
#[derive(Debug)]
pub struct TransferSetup {
    /// Who.
    pub task: TaskId,
    /// Bytes of Data-In the initiator has room for.
    pub expected_in: u32,
    /// Bytes of Data-Out the initiator is ready to send.
    pub expected_out: u32,
    /// Immediate data.
    pub immediate: Option<IoBuf>,
    /// Where events go.
    pub events: mpsc::UnboundedSender<TaskEvent>,
    /// Bytes of Data-In the connection may have in flight.
    pub budget: Arc<Semaphore>,
    /// Where buffers come from.
    pub pool: Arc<BufPool>,
    /// Fires when the task is aborted.
    pub abort: AbortSignal,
}

/// The handle. Data move in order, without gaps.
#[derive(Debug)]
pub struct Transfer {
    setup: TransferSetup,
}

impl Transfer {
    /// A handle with nothing moved yet.
    #[must_use]
    pub fn new(setup: TransferSetup) -> Self {
        Self { setup }
    }

    /// The command's CDB calls for `len` bytes of Data-Out. Returns how many of them the initiator really sends; the
    /// residual of the command follows from both. Called once, before any [`get`](Self::get).
    pub fn want_out(&mut self, len: u64) -> u64 {
        let _ = len;
        todo!()
    }

    /// The command has `len` bytes of Data-In to give. Returns how many of them the initiator has room for; the
    /// residual follows from both. Called once, before any [`put`](Self::put).
    pub fn want_in(&mut self, len: u64) -> u64 {
        let _ = len;
        todo!()
    }

    /// Bytes of Data-Out that the initiator is ready to send, whatever the CDB calls for. For commands that cannot do
    /// with more or less than the CDB says.
    #[must_use]
    pub fn offered_out(&self) -> u64 {
        u64::from(self.setup.expected_out)
    }

    /// The next `len` bytes of Data-Out (at most a chunk, at most what [`want_out`](Self::want_out) left), in a buffer
    /// of its own. Served at once when immediate data cover it.
    pub async fn get(&mut self, len: usize) -> Result<IoBuf, Failure> {
        let _ = len;
        todo!()
    }

    /// Appends to Data-In; what exceeds [`want_in`](Self::want_in) is cut. Waits only when this connection already has
    /// its share of bytes in flight.
    pub async fn put(&mut self, buf: IoBuf) -> Result<(), Failure> {
        let _ = buf;
        todo!()
    }

    /// Parameter data (INQUIRY, MODE SENSE…), the whole of it: states its length, copies it into pool blocks, puts
    /// them. `allocation_len` is the CDB's; the shorter of both is moved.
    pub async fn put_parameters(&mut self, data: &[u8], allocation_len: usize) -> Result<(), Failure> {
        let _ = (data, allocation_len);
        todo!()
    }

    /// A parameter list of `len` bytes (UNMAP, MODE SELECT…), at most 64 KiB, as one piece. May be shorter than `len`
    /// when the initiator sends less.
    pub async fn get_parameters(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        let _ = len;
        todo!()
    }

    /// A buffer for a store operation, at most a chunk. Waits for the pool.
    pub async fn buffer(&self, len: usize) -> IoBuf {
        self.setup.pool.acquire(len).await
    }

    /// `Err(Failure::Aborted)` once the task was aborted. To be asked between entering the task set and starting a
    /// store operation.
    pub fn check(&self) -> Result<(), Failure> {
        todo!()
    }

    /// The task's abort signal.
    #[must_use]
    pub fn abort_signal(&self) -> &AbortSignal {
        &self.setup.abort
    }

    /// Ends the task: the residual is computed, the last event goes out. Called by the engine alone.
    pub fn finish(self, result: Result<(), Failure>) {
        let _ = result;
        todo!()
    }
}
