//! A running command's only handle on its connection: `get` for Data-Out, `put` for Data-In, residuals, aborts.
//! It knows no transport. Everything a task says, its end included, travels on one queue, so that a piece of
//! data can never be overtaken by its own status.

mod abort;
mod direction;

use std::sync::Arc;

use backstores::{BufPool, CHUNK, IoBuf};
use iscsi_proto::pdu::Residual;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

pub use abort::AbortSignal;
use direction::Direction;

use crate::metrics::{CommandKind, Ended, How, Slot, TurnClock};
use crate::scsi::{Failure, Outcome, Sense, SenseKey, Status};

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
        /// It completes what the command has to give: nothing but its end follows.
        is_last: bool,
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

impl TaskEvent {
    /// Who says it.
    #[must_use]
    pub fn task(&self) -> TaskId {
        match self {
            Self::Done { task, .. } | Self::Get { task, .. } | Self::Put { task, .. } => *task,
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
    /// Bytes of Data-Out the connection may be waiting for.
    pub out_budget: Arc<Semaphore>,
    /// Where buffers come from.
    pub pool: Arc<BufPool>,
    /// Fires when the task is aborted.
    pub abort: AbortSignal,
    /// The time of the loop that runs it.
    pub clock: TurnClock,
    /// Where the loop counts it.
    pub slot: Slot,
}

/// The handle. Data move in order, without gaps.
#[derive(Debug)]
pub struct Transfer {
    setup: TransferSetup,
    data_in: Direction,
    data_out: Direction,
    /// Data-Out that is here and was not asked for yet, from byte `arrived_at` on: immediate data, or a chunk that was
    /// solicited ahead.
    arrived: Option<IoBuf>,
    arrived_at: usize,
    /// Data-Out that was asked for ahead of the command, with its share of what may be waited for.
    ahead: Option<(oneshot::Receiver<Result<IoBuf, Sense>>, OwnedSemaphorePermit)>,
    /// Share of the next piece of Data-In, whose buffer was given out.
    in_share: Option<OwnedSemaphorePermit>,
    times: Times,
}

/// What is measured of a command, nanoseconds of its clock.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    arrived: u64,
    began: Option<u64>,
    room_wait: u64,
    data_wait: Option<u64>,
}

impl Transfer {
    /// A handle with nothing moved yet.
    #[must_use]
    pub fn new(mut setup: TransferSetup) -> Self {
        Self {
            data_in: Direction::expecting(setup.expected_in),
            data_out: Direction::expecting(setup.expected_out),
            arrived: setup.immediate.take(),
            arrived_at: 0,
            ahead: None,
            in_share: None,
            times: Times {
                arrived: setup.clock.now(),
                ..Times::default()
            },
            setup,
        }
    }

    /// The command's CDB calls for `len` bytes of Data-Out. Returns how many of them the initiator really sends; the
    /// residual of the command follows from both. Called once, before any [`get`](Self::get).
    pub fn want_out(&mut self, len: u64) -> u64 {
        self.data_out.want(len)
    }

    /// The command has `len` bytes of Data-In to give. Returns how many of them the initiator has room for; the
    /// residual follows from both. Called once, before any [`put`](Self::put).
    pub fn want_in(&mut self, len: u64) -> u64 {
        self.data_in.want(len)
    }

    /// Bytes of Data-Out that the initiator is ready to send, whatever the CDB calls for. For commands that cannot do
    /// with more or less than the CDB says.
    #[must_use]
    pub fn offered_out(&self) -> u64 {
        u64::from(self.data_out.expected)
    }

    /// The next `len` bytes of Data-Out (at most a chunk, at most what [`want_out`](Self::want_out) left), in a buffer
    /// of its own. Served at once when immediate data cover it. A whole chunk that is not the last makes the next one
    /// be solicited too, if the pool has a block to spare: it arrives while the store writes this one.
    pub async fn get(&mut self, len: usize) -> Result<IoBuf, Failure> {
        debug_assert!(len <= self.data_out.rest(), "more than want_out() granted");
        self.check()?;
        if let Some((reply, _share)) = self.ahead.take() {
            self.arrived = Some(self.awaited(reply).await?);
            self.arrived_at = 0;
        }
        let (buf, filled, _share) = self.take_arrived(len).await?;
        let buf = if filled == len {
            buf
        } else {
            let reply = self.solicit(self.data_out.moved, buf, filled);
            self.awaited(reply).await?
        };
        self.data_out.moved += wire_len(len);
        if len == CHUNK {
            self.look_ahead();
        }
        Ok(buf)
    }

    /// A buffer for the next piece of Data-In, at most a chunk. Its share of the bytes that the connection may have in
    /// flight comes first: a command that waits for a slow initiator holds no memory of others meanwhile.
    pub async fn in_buffer(&mut self, len: usize) -> Result<IoBuf, Failure> {
        // Nobody waits for a share while holding one of the same budget.
        self.in_share = None;
        let since = self.setup.clock.now();
        self.in_share = Some(self.share(&self.setup.budget, len).await?);
        let buf = self.pool_buffer(len).await?;
        self.waited_for_room(since);
        Ok(buf)
    }

    /// Appends to Data-In; what exceeds [`want_in`](Self::want_in) is cut. Waits only for a buffer that did not come
    /// from [`in_buffer`](Self::in_buffer), until the connection has room for it.
    pub async fn put(&mut self, mut buf: IoBuf) -> Result<(), Failure> {
        self.check()?;
        let len = buf.len().min(self.data_in.rest());
        if len == 0 {
            return Ok(());
        }
        buf.set_len(len);
        let budget = match self.in_share.take() {
            Some(share) => share,
            None => {
                let since = self.setup.clock.now();
                let share = self.share(&self.setup.budget, len).await?;
                self.waited_for_room(since);
                share
            }
        };
        let put = TaskEvent::Put {
            task: self.setup.task,
            offset: self.data_in.moved,
            buf,
            is_last: len == self.data_in.rest(),
            budget: Some(budget),
        };
        self.setup.events.send(put).map_err(|_| Failure::Aborted)?;
        self.data_in.moved += wire_len(len);
        Ok(())
    }

    /// Parameter data (INQUIRY, MODE SENSE…), the whole of it: states its length, copies it into pool blocks, puts
    /// them. `allocation_len` is the CDB's; the shorter of both is moved.
    pub async fn put_parameters(&mut self, data: &[u8], allocation_len: usize) -> Result<(), Failure> {
        let data = &data[..data.len().min(allocation_len)];
        let room = usize::try_from(self.want_in(data.len() as u64)).expect("not longer than the data");
        for piece in data[..room].chunks(CHUNK) {
            let mut buf = self.in_buffer(piece.len()).await?;
            buf.copy_from_slice(piece);
            self.put(buf).await?;
        }
        Ok(())
    }

    /// A parameter list of `len` bytes (UNMAP, MODE SELECT…), at most 64 KiB, as one piece. May be shorter than `len`
    /// when the initiator sends less. PARAMETER LIST LENGTH ERROR above 64 KiB.
    pub async fn get_parameters(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        let sent = usize::try_from(self.want_out(len as u64)).unwrap_or(usize::MAX);
        if len > MAX_PARAMETER_LIST {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        if sent == 0 {
            return Ok(Vec::new());
        }
        Ok(self.get(sent).await?.to_vec())
    }

    /// A buffer for a store operation, at most a chunk. Waits for the pool: only for a command that holds no other.
    pub async fn buffer(&self, len: usize) -> IoBuf {
        self.setup.pool.acquire(len).await
    }

    /// The pool, for work that goes on after the command. The same rule holds for its buffers.
    #[must_use]
    pub fn pool(&self) -> &Arc<BufPool> {
        &self.setup.pool
    }

    /// A buffer beside one that the command holds already, at most a chunk. From the heap when the pool is dry: were it
    /// waited for, commands with one buffer each could own the pool and wait for one another without end.
    #[must_use]
    pub fn second_buffer(&self, len: usize) -> IoBuf {
        let buf = self.setup.pool.try_acquire(len);
        buf.unwrap_or_else(|| IoBuf::from_heap(len))
    }

    /// `Err(Failure::Aborted)` once the task was aborted. To be asked between entering the task set and starting a
    /// store operation.
    pub fn check(&self) -> Result<(), Failure> {
        if self.setup.abort.is_fired() {
            return Err(Failure::Aborted);
        }
        Ok(())
    }

    /// The task's abort signal.
    #[must_use]
    pub fn abort_signal(&self) -> &AbortSignal {
        &self.setup.abort
    }

    /// Waits for Data-Out that was solicited ahead and that nobody wants any more. So no task that was not aborted ever
    /// ends while the initiator still owes it data.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        match self.ahead.take() {
            Some((reply, _share)) => self.received(reply).await.map(drop),
            None => Ok(()),
        }
    }

    /// The command's turn has come: nothing of the task set keeps it any more.
    pub(crate) fn begins(&mut self) {
        self.times.began = Some(self.setup.clock.now());
    }

    /// Ends the task: the residual is computed, the last event goes out. Called by the engine alone. Returns what is counted
    /// of the command; of what kind it was, the engine knows.
    pub fn finish(self, result: Result<(), Failure>) -> Ended {
        let outcome = if self.setup.abort.is_fired() {
            Outcome::Aborted
        } else {
            self.outcome(result)
        };
        let how = how(&outcome);
        let done = TaskEvent::Done {
            task: self.setup.task,
            outcome,
        };
        let ended = Ended {
            slot: self.setup.slot,
            kind: CommandKind::Other,
            how,
            bytes: u64::from(self.data_in.moved) + u64::from(self.data_out.moved),
            arrived: self.times.arrived,
            began: self.times.began,
            room_wait: self.times.room_wait,
            data_wait: self.times.data_wait,
        };
        // Without a connection there is nobody to be told.
        let _ = self.setup.events.send(done);
        ended
    }

    fn outcome(&self, result: Result<(), Failure>) -> Outcome {
        let (status, sense) = match result {
            Ok(()) => (Status::Good, None),
            Err(Failure::Check(sense)) => (Status::CheckCondition, Some(sense)),
            Err(Failure::Store(error)) => (Status::CheckCondition, Some(Sense::from_store(&error))),
            Err(Failure::Busy) => (Status::Busy, None),
            Err(Failure::TaskSetFull) => (Status::TaskSetFull, None),
            Err(Failure::ReservationConflict) => (Status::ReservationConflict, None),
            Err(Failure::ConditionMet) => (Status::ConditionMet, None),
            Err(Failure::Aborted) => return Outcome::Aborted,
        };
        let failed = !matches!(status, Status::Good | Status::ConditionMet);
        // One of the directions is empty; were both used, Data-Out's comes first (§11.4.5.1).
        let residual = match self.data_out.residual(failed) {
            Residual::None => self.data_in.residual(failed),
            residual => residual,
        };
        Outcome::Status {
            status,
            sense,
            residual,
        }
    }

    /// A buffer of `len` bytes for the next piece of Data-Out, begun with what has arrived. A buffer that fits is
    /// passed on; only what shares a buffer with other pieces is copied. When the initiator still has to send some of
    /// it, the share of what may be waited for comes before a new buffer.
    async fn take_arrived(
        &mut self,
        len: usize,
    ) -> Result<(IoBuf, usize, Option<OwnedSemaphorePermit>), Failure> {
        let available = self.arrived.as_ref().map_or(0, |buf| buf.len() - self.arrived_at);
        if available == 0 {
            self.arrived = None;
        }
        if let Some(mut buf) = self
            .arrived
            .take_if(|buf| self.arrived_at == 0 && available <= len && len <= buf.capacity())
        {
            buf.set_len(len);
            return Ok((buf, available, None));
        }
        if available < len {
            // A block of the pool is not kept while waiting for a share: those who have one may wait for the pool.
            let begun = self.arrived.take().map(|buf| buf[self.arrived_at..].to_vec());
            let since = self.setup.clock.now();
            let share = self.share(&self.setup.out_budget, len).await?;
            let mut buf = self.pool_buffer(len).await?;
            self.waited_for_room(since);
            buf[..available].copy_from_slice(&begun.unwrap_or_default());
            return Ok((buf, available, Some(share)));
        }
        let mut buf = self.second_buffer(len);
        if let Some(arrived) = &self.arrived {
            buf.copy_from_slice(&arrived[self.arrived_at..self.arrived_at + len]);
            self.arrived_at += len;
        }
        Ok((buf, len, None))
    }

    async fn pool_buffer(&self, len: usize) -> Result<IoBuf, Failure> {
        tokio::select! {
            biased;
            buf = self.setup.pool.acquire(len) => Ok(buf),
            () = self.setup.abort.fired() => Err(Failure::Aborted),
        }
    }

    /// Why nobody waits in a circle: a share comes before a buffer, and who waits for a share holds no block of the pool.
    /// Whoever holds a share waits for its own initiator (whose deadline ends that), for its own store, or for the pool.
    /// Whoever holds a block of the pool waits for the first two alone, never for a second block
    /// ([`second_buffer`](Self::second_buffer)): so blocks come back, and with them shares. Looking ahead waits for
    /// nothing; its share is freed by the next `get`, once the store has had the chunk before. A command that waits in
    /// the task set holds none: it asks for data only behind it, or has received its whole parameter list.
    async fn share(&self, budget: &Arc<Semaphore>, len: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let len = wire_len(len);
        if let Ok(share) = Arc::clone(budget).try_acquire_many_owned(len) {
            return Ok(share);
        }
        tokio::select! {
            biased;
            () = self.setup.abort.fired() => Err(Failure::Aborted),
            share = Arc::clone(budget).acquire_many_owned(len) => share.map_err(|_| Failure::Aborted),
        }
    }

    fn look_ahead(&mut self) {
        let len = self.data_out.rest().min(CHUNK);
        if len == 0 || self.arrived.is_some() {
            return;
        }
        let share = Arc::clone(&self.setup.out_budget).try_acquire_many_owned(wire_len(len));
        if let Ok(share) = share
            && let Some(buf) = self.setup.pool.try_acquire(len)
        {
            self.ahead = Some((self.solicit(self.data_out.moved, buf, 0), share));
        }
    }

    fn solicit(&self, offset: u32, buf: IoBuf, filled: usize) -> oneshot::Receiver<Result<IoBuf, Sense>> {
        let (reply, received) = oneshot::channel();
        // A connection that is gone drops the event, and the receiver finds out.
        let _ = self.setup.events.send(TaskEvent::Get {
            task: self.setup.task,
            offset,
            buf,
            filled,
            reply,
        });
        received
    }

    /// What the command asked for and has to wait for.
    async fn awaited(&mut self, reply: oneshot::Receiver<Result<IoBuf, Sense>>) -> Result<IoBuf, Failure> {
        let since = self.setup.clock.now();
        let buf = self.received(reply).await?;
        let waited = self.setup.clock.now().saturating_sub(since);
        self.times.data_wait = Some(self.times.data_wait.unwrap_or(0) + waited);
        Ok(buf)
    }

    fn waited_for_room(&mut self, since: u64) {
        self.times.room_wait += self.setup.clock.now().saturating_sub(since);
    }

    async fn received(&self, reply: oneshot::Receiver<Result<IoBuf, Sense>>) -> Result<IoBuf, Failure> {
        tokio::select! {
            biased;
            () = self.setup.abort.fired() => Err(Failure::Aborted),
            reply = reply => match reply {
                Ok(result) => Ok(result?),
                Err(_) => Err(Failure::Aborted),
            },
        }
    }
}

fn how(outcome: &Outcome) -> How {
    match outcome {
        Outcome::Aborted => How::Aborted,
        Outcome::Status { status, sense, .. } => match status {
            Status::Good | Status::ConditionMet => How::Good,
            Status::Busy | Status::TaskSetFull => How::Busy,
            Status::ReservationConflict => How::Conflict,
            Status::CheckCondition if sense.is_some_and(|sense| sense.key == SenseKey::UnitAttention) => {
                How::UnitAttention
            }
            Status::AcaActive | Status::CheckCondition | Status::TaskAborted => How::Failed,
        },
    }
}

/// A length that was cut to an Expected Data Transfer Length before, which has 32 bits.
fn wire_len(len: usize) -> u32 {
    u32::try_from(len).expect("cut to the expected length")
}

/// No parameter list we take is longer.
const MAX_PARAMETER_LIST: usize = 64 * 1024;

#[cfg(test)]
mod tests;
