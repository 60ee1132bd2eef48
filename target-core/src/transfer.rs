//! A running command's only handle on its connection: `get` for Data-Out, `put` for Data-In, residuals, aborts.
//! It knows no transport. Everything a task says, its end included, travels on one queue, so that a piece of
//! data can never be overtaken by its own status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backstores::{BufPool, CHUNK, IoBuf};
use iscsi_proto::pdu::Residual;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::scsi::{Failure, Outcome, Sense, Status};

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
    /// Bytes of Data-Out the connection may be waiting for.
    pub out_budget: Arc<Semaphore>,
    /// Where buffers come from.
    pub pool: Arc<BufPool>,
    /// Fires when the task is aborted.
    pub abort: AbortSignal,
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
}

/// One direction of a task's data, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// What the initiator announced.
    expected: u32,
    /// What the CDB calls for, once that is known.
    wanted: Option<u64>,
    /// What was moved.
    moved: u32,
}

impl Direction {
    const fn expecting(expected: u32) -> Self {
        Self {
            expected,
            wanted: None,
            moved: 0,
        }
    }

    fn want(&mut self, len: u64) -> u64 {
        debug_assert!(self.wanted.is_none(), "a command states its length once");
        self.wanted = Some(len);
        self.room()
    }

    /// Bytes that will move if all goes well.
    fn room(&self) -> u64 {
        u64::from(self.expected).min(self.wanted.unwrap_or(0))
    }

    /// Bytes of them that have not moved yet.
    fn rest(&self) -> usize {
        usize::try_from(self.room().saturating_sub(u64::from(self.moved))).unwrap_or(usize::MAX)
    }

    /// RFC 7143 §11.4.5: what was announced against what the CDB calls for, or, when the command failed on the way,
    /// against what really moved.
    fn residual(&self, failed: bool) -> Residual {
        let wanted = self.wanted.unwrap_or(0);
        let expected = u64::from(self.expected);
        let moved = if failed { u64::from(self.moved) } else { wanted };
        let clip = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match (wanted > expected, moved < expected) {
            (_, true) => Residual::Underflow(clip(expected - moved)),
            (true, false) if !failed || expected != 0 => Residual::Overflow(clip(wanted - expected)),
            _ => Residual::None,
        }
    }
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
            self.arrived = Some(self.received(reply).await?);
            self.arrived_at = 0;
        }
        let (buf, filled, _share) = self.take_arrived(len).await?;
        let buf = if filled == len {
            buf
        } else {
            let reply = self.solicit(self.data_out.moved, buf, filled);
            self.received(reply).await?
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
        self.in_share = Some(self.share(&self.setup.budget, len).await?);
        self.pool_buffer(len).await
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
            None => self.share(&self.setup.budget, len).await?,
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

    /// Ends the task: the residual is computed, the last event goes out. Called by the engine alone.
    pub fn finish(self, result: Result<(), Failure>) {
        let outcome = if self.setup.abort.is_fired() {
            Outcome::Aborted
        } else {
            self.outcome(result)
        };
        let done = TaskEvent::Done {
            task: self.setup.task,
            outcome,
        };
        // Without a connection there is nobody to be told.
        let _ = self.setup.events.send(done);
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
            let share = self.share(&self.setup.out_budget, len).await?;
            let mut buf = self.pool_buffer(len).await?;
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

/// A length that was cut to an Expected Data Transfer Length before, which has 32 bits.
fn wire_len(len: usize) -> u32 {
    u32::try_from(len).expect("cut to the expected length")
}

/// No parameter list we take is longer.
const MAX_PARAMETER_LIST: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::testing::{Connection, connection};

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
    }

    /// A writing task over `data`, of which `immediate` bytes come with the command.
    fn writing(data: &[u8], immediate: usize) -> (Transfer, Connection) {
        let expected = u32::try_from(data.len()).unwrap();
        let (setup, connection) = connection(0, expected, data.to_vec(), immediate);
        (Transfer::new(setup), connection)
    }

    fn reading(expected: u32) -> (Transfer, Connection) {
        let (setup, connection) = connection(expected, 0, Vec::new(), 0);
        (Transfer::new(setup), connection)
    }

    fn ended(status: Status, residual: Residual) -> Outcome {
        Outcome::Status {
            status,
            sense: None,
            residual,
        }
    }

    #[tokio::test]
    async fn immediate_data_are_handed_on_without_a_copy_or_a_question() {
        let (mut data, connection) = writing(&pattern(512), 512);
        let place = data.arrived.as_ref().unwrap().as_ptr();
        assert_eq!(data.want_out(512), 512);
        let buf = data.get(512).await.unwrap();
        assert_eq!(buf.as_ptr(), place);
        assert_eq!(buf[..], pattern(512)[..]);
        data.finish(Ok(()));
        assert_eq!(connection.serve().await.0, ended(Status::Good, Residual::None));
    }

    #[tokio::test]
    async fn the_rest_of_a_chunk_is_solicited_behind_immediate_data() {
        let (mut data, mut connection) = writing(&pattern(8192), 1024);
        data.want_out(8192);
        let (buf, ()) = tokio::join!(data.get(8192), async {
            let Some(TaskEvent::Get {
                offset,
                mut buf,
                filled,
                reply,
                ..
            }) = connection.event().await
            else {
                panic!("no Get");
            };
            assert_eq!((offset, filled, buf.len()), (0, 1024, 8192));
            buf[1024..].copy_from_slice(&pattern(8192)[1024..]);
            reply.send(Ok(buf)).unwrap();
        });
        assert_eq!(buf.unwrap()[..], pattern(8192)[..]);
    }

    #[tokio::test]
    async fn immediate_data_can_be_longer_than_a_piece() {
        let (mut data, connection) = writing(&pattern(3000), 2000);
        data.want_out(3000);
        let (pieces, _) = tokio::join!(
            async {
                let mut pieces = Vec::new();
                for len in [500, 1000, 1000, 500] {
                    pieces.extend_from_slice(&data.get(len).await.unwrap());
                }
                data.finish(Ok(()));
                pieces
            },
            connection.serve()
        );
        assert_eq!(pieces, pattern(3000));
    }

    #[tokio::test]
    async fn one_chunk_is_solicited_ahead() {
        let whole = pattern(CHUNK + 512);
        let (mut data, mut connection) = writing(&whole, 0);
        data.want_out(whole.len() as u64);
        let answer = |event| {
            let Some(TaskEvent::Get {
                offset,
                mut buf,
                reply,
                ..
            }) = event
            else {
                panic!("no Get");
            };
            let from = offset as usize;
            let len = buf.len();
            buf.copy_from_slice(&whole[from..from + len]);
            reply.send(Ok(buf)).unwrap();
            (offset, len)
        };
        let (first, asked) = tokio::join!(data.get(CHUNK), async { answer(connection.event().await) });
        assert_eq!((first.unwrap().len(), asked), (CHUNK, (0, CHUNK)));
        // The second chunk was asked for before anybody wanted it.
        assert_eq!(answer(connection.event().await), (0x4_0000, 512));
        assert_eq!(data.get(512).await.unwrap()[..], whole[CHUNK..]);
    }

    #[tokio::test]
    async fn a_failed_command_waits_for_what_it_solicited() {
        let whole = pattern(2 * CHUNK);
        let (mut data, connection) = writing(&whole, 0);
        data.want_out(whole.len() as u64);
        let ((), (outcome, _)) = tokio::join!(
            async {
                data.get(CHUNK).await.unwrap();
                assert!(data.ahead.is_some());
                data.settle().await.unwrap();
                data.finish(Err(Sense::WRITE_ERROR.into()));
            },
            connection.serve()
        );
        let Outcome::Status { status, residual, .. } = outcome else {
            panic!("aborted");
        };
        assert_eq!(
            (status, residual),
            (Status::CheckCondition, Residual::Underflow(0x4_0000))
        );
    }

    #[tokio::test]
    async fn data_in_is_cut_to_the_room_and_the_rest_overflows() {
        let (mut data, connection) = reading(700);
        assert_eq!(data.want_in(1024), 700);
        data.put(data.buffer(512).await).await.unwrap();
        data.put(data.buffer(512).await).await.unwrap();
        data.finish(Ok(()));
        let (outcome, bytes) = connection.serve().await;
        assert_eq!(outcome, ended(Status::Good, Residual::Overflow(324)));
        assert_eq!(bytes.len(), 700);
    }

    #[tokio::test]
    async fn parameter_data_are_cut_to_the_allocation_length() {
        let (mut data, connection) = reading(255);
        data.put_parameters(&pattern(96), 36).await.unwrap();
        data.finish(Ok(()));
        let (outcome, bytes) = connection.serve().await;
        assert_eq!(outcome, ended(Status::Good, Residual::Underflow(219)));
        assert_eq!(bytes, pattern(36));
    }

    #[tokio::test]
    async fn a_parameter_list_may_be_shorter_than_announced() {
        let (mut data, connection) = writing(&pattern(20), 0);
        let (list, (outcome, _)) = tokio::join!(
            async {
                let list = data.get_parameters(24).await.unwrap();
                data.finish(Ok(()));
                list
            },
            connection.serve()
        );
        assert_eq!(list, pattern(20));
        assert_eq!(outcome, ended(Status::Good, Residual::Overflow(4)));
    }

    #[test]
    fn residuals_compare_what_was_announced_with_what_is_called_for() {
        use Residual::{None, Overflow, Underflow};
        // expected, wanted, moved, failed
        const CASES: [(u32, Option<u64>, u32, bool, Residual); 9] = [
            (512, Some(512), 512, false, None),
            (1024, Some(512), 512, false, Underflow(512)),
            (512, Some(1024), 512, false, Overflow(512)),
            (0, Some(512), 0, false, Overflow(512)),
            (512, Option::None, 0, false, Underflow(512)),
            (0, Option::None, 0, false, None),
            (512, Some(512), 0, true, Underflow(512)),
            (512, Option::None, 0, true, Underflow(512)),
            (0, Some(1 << 40), 0, false, Overflow(u32::MAX)),
        ];
        for case in CASES {
            let (expected, wanted, moved, failed, residual) = case;
            let direction = Direction {
                expected,
                wanted,
                moved,
            };
            assert_eq!(direction.residual(failed), residual, "{case:?}");
        }
    }

    #[tokio::test]
    async fn an_abort_wakes_a_task_that_waits_for_data() {
        let (mut data, mut connection) = writing(&pattern(512), 0);
        let abort = data.abort_signal().clone();
        data.want_out(512);
        let (buf, _get) = tokio::join!(data.get(512), async {
            let get = connection.event().await;
            abort.fire();
            get
        });
        assert!(matches!(buf, Err(Failure::Aborted)));
        assert!(matches!(data.check(), Err(Failure::Aborted)));
        data.finish(Ok(()));
        assert_eq!(connection.serve().await.0, Outcome::Aborted);
    }

    #[tokio::test]
    async fn an_abort_wakes_a_task_that_waits_for_its_share() {
        let (setup, connection) = connection(4096, 0, Vec::new(), 0);
        let mut data = Transfer::new(TransferSetup {
            budget: Arc::new(Semaphore::new(512)),
            out_budget: Arc::new(Semaphore::new(8 << 20)),
            ..setup
        });
        let abort = data.abort_signal().clone();
        data.want_in(4096);
        let buf = data.buffer(4096).await;
        let (put, ()) = tokio::join!(data.put(buf), async { abort.fire() });
        assert!(matches!(put, Err(Failure::Aborted)));
        data.finish(put);
        assert_eq!(connection.serve().await, (Outcome::Aborted, Vec::new()));
    }

    #[tokio::test]
    async fn a_task_that_waits_for_its_share_holds_no_buffer() {
        let (setup, _connection) = connection(4096, 4096, Vec::new(), 0);
        let (pool, none) = (Arc::clone(&setup.pool), Arc::new(Semaphore::new(0)));
        let before = pool.stats().in_use;
        let mut data = Transfer::new(TransferSetup {
            budget: Arc::clone(&none),
            out_budget: none,
            ..setup
        });
        data.want_in(4096);
        data.want_out(4096);
        let mut reading = Box::pin(data.in_buffer(4096));
        assert!(futures_util::poll!(&mut reading).is_pending());
        assert_eq!(pool.stats().in_use, before, "Data-In");
        drop(reading);
        let mut writing = Box::pin(data.get(4096));
        assert!(futures_util::poll!(&mut writing).is_pending());
        assert_eq!(pool.stats().in_use, before, "Data-Out");
    }

    #[tokio::test]
    async fn a_task_that_holds_a_buffer_does_not_wait_for_the_pool() {
        let (setup, _connection) = connection(0, 3000, pattern(3000), 2000);
        let pool = BufPool::new(CHUNK);
        let _all = pool.try_acquire(CHUNK).unwrap();
        let mut data = Transfer::new(TransferSetup { pool, ..setup });
        data.want_out(3000);
        let std::task::Poll::Ready(piece) = futures_util::poll!(Box::pin(data.get(500))) else {
            panic!("waits");
        };
        assert_eq!(piece.unwrap()[..], pattern(500)[..]);
        assert_eq!(data.second_buffer(CHUNK).len(), CHUNK);
    }

    #[tokio::test]
    async fn an_abort_gives_back_what_a_waiting_task_holds() {
        let (setup, mut connection) = connection(4096, 4096, pattern(4096), 0);
        let (budget, out_budget) = (Arc::clone(&setup.budget), Arc::clone(&setup.out_budget));
        let free = (budget.available_permits(), out_budget.available_permits());
        // The pool is dry: Data-In waits with a share, Data-Out with a share as well.
        let pool = BufPool::new(CHUNK);
        let all = pool.try_acquire(CHUNK).unwrap();
        let mut data = Transfer::new(TransferSetup { pool, ..setup });
        let abort = data.abort_signal().clone();
        data.want_in(4096);
        data.want_out(4096);
        let mut reading = Box::pin(data.in_buffer(4096));
        assert!(futures_util::poll!(&mut reading).is_pending());
        assert_eq!(budget.available_permits(), free.0 - 4096);
        drop((reading, all));
        let (buf, _get) = tokio::join!(data.get(4096), async {
            let get = connection.event().await;
            assert_eq!(out_budget.available_permits(), free.1 - 4096);
            abort.fire();
            get
        });
        assert!(matches!(buf, Err(Failure::Aborted)));
        data.finish(Err(Failure::Aborted));
        assert_eq!((budget.available_permits(), out_budget.available_permits()), free);
    }

    #[tokio::test]
    async fn what_breaks_the_rules_of_data_out_becomes_the_sense() {
        let (mut data, mut connection) = writing(&pattern(512), 0);
        data.want_out(512);
        let (buf, ()) = tokio::join!(data.get(512), async {
            let Some(TaskEvent::Get { reply, .. }) = connection.event().await else {
                panic!("no Get");
            };
            reply.send(Err(Sense::PROTOCOL_SERVICE_CRC_ERROR)).unwrap();
        });
        assert!(matches!(
            buf,
            Err(Failure::Check(Sense::PROTOCOL_SERVICE_CRC_ERROR))
        ));
    }

    #[tokio::test]
    async fn a_connection_that_is_gone_aborts() {
        let (mut data, connection) = reading(512);
        drop(connection);
        data.want_in(512);
        let buf = data.buffer(512).await;
        assert!(matches!(data.put(buf).await, Err(Failure::Aborted)));
    }
}
