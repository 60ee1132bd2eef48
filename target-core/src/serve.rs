//! The one loop: joins a data mover, a connection and the connection's commands. Both transports and the simulation
//! run through it.
//!
//! What a connection can cost in memory, at most: for each command of the window (128) the immediate data that it really
//! sent, in a buffer of at most twice their length (256 KiB); 4 MiB of Data-In that the initiator has not taken; 8 MiB of
//! buffers for Data-Out that it still owes; 64 KiB of text; and what its transport keeps for framing. A command takes its
//! share of the two budgets before it takes a buffer, so that an initiator that is slow or silent keeps nothing from the
//! others of its data core. Beyond that a command holds two chunks of 256 KiB at most, while its store works; the second
//! is from the heap when the pool is dry, so that no command waits for memory while it holds some. Commands that were
//! aborted while their store works count on: as many as the window again, then new ones get BUSY.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use backstores::BufPool;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::control::Target;
use crate::datamover::DataMover;
use crate::iscsi::{
    Action, Admitted, CloseReason, Connection, Event, LinkInfo, Membership, Node, Order, SessionType, Start,
};
use crate::nexus::NexusId;
use crate::scsi::ScsiTask;
use crate::transfer::{TaskEvent, Transfer, TransferSetup};

/// Serves one accepted connection to its end, and its commands to theirs: a store operation under way is never
/// dropped. The session itself has ended, and its nexus is free again, as soon as the connection closes.
pub async fn serve(
    mover: impl DataMover,
    link: LinkInfo,
    node: Arc<Node>,
    pool: Arc<BufPool>,
) -> CloseReason {
    let (membership, orders) = node.join(link.clone());
    let mut server = Server::new(mover, pool, membership);
    let connection = Connection::new(link, node, now());
    let reason = server.run(connection, orders).await;
    log_end(&reason);
    if let Some(membership) = &server.membership {
        membership.tell_end(&reason);
    }
    server.close(&reason).await;
    reason
}

type Command = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Server<M> {
    mover: M,
    pool: Arc<BufPool>,
    /// Taken when the session ends.
    membership: Option<Membership>,
    session: Option<(Arc<NexusId>, Arc<Target>)>,
    commands: Commands,
    budget: Arc<Semaphore>,
    out_budget: Arc<Semaphore>,
    /// Unbounded in type; a command has at most one `Get` outstanding, its `Put`s are limited by the budget, and the
    /// number of commands by the window.
    to_connection: mpsc::UnboundedSender<TaskEvent>,
    from_commands: mpsc::UnboundedReceiver<TaskEvent>,
}

impl<M: DataMover> Server<M> {
    fn new(mover: M, pool: Arc<BufPool>, membership: Membership) -> Self {
        let (to_connection, from_commands) = mpsc::unbounded_channel();
        Self {
            commands: Commands::new(Arc::clone(membership.node())),
            mover,
            pool,
            membership: Some(membership),
            session: None,
            budget: Arc::new(Semaphore::new(DATA_IN_MAX)),
            out_budget: Arc::new(Semaphore::new(DATA_OUT_MAX)),
            to_connection,
            from_commands,
        }
    }

    async fn run(
        &mut self,
        mut connection: Connection,
        mut orders: watch::Receiver<Option<Order>>,
    ) -> CloseReason {
        // Read once a turn, after its wait: reading the clock was a twentieth of a small read.
        let mut time = Instant::now();
        let mut timer = pin!(sleep_until(time));
        let mut stuck = StuckWatch::default();
        loop {
            while let Some(action) = connection.poll_action() {
                if let Some(reason) = self.act(action, &mut connection) {
                    return reason;
                }
            }
            // Looked at before every wait: a peer that floods would otherwise never meet a deadline.
            if let Some(timeout) = stuck.look(&self.mover, time, self.response_timeout()) {
                return CloseReason::ResponsesStuck(timeout);
            }
            let due = connection.poll_timeout();
            if due.is_some_and(|due| due <= time.into_std()) {
                connection.handle(time.into_std(), Event::Timeout);
                continue;
            }
            set_timer(timer.as_mut(), time, due, stuck.due(self.response_timeout()));
            let mover = &mut self.mover;
            // Commands first: their responses then share one write.
            let event = tokio::select! { biased;
                Some(event) = self.from_commands.recv() => Some(Event::Task(event)),
                Some(()) = self.commands.next() => None,
                Ok(()) = orders.changed() => orders.borrow_and_update().map(Event::Order),
                notify = poll_fn(|cx| mover.poll_notify(cx)) => Some(Event::Notify(notify)),
                () = timer.as_mut() => None,
            };
            time = Instant::now();
            if let Some(event) = event {
                connection.handle(time.into_std(), event);
            }
        }
    }

    /// Does one thing; the reason when that was to close.
    fn act(&mut self, action: Action, connection: &mut Connection) -> Option<CloseReason> {
        match action {
            Action::Enable(params) => self.mover.enable(&params),
            Action::Send(pdu, data) => self.mover.send_control(pdu, data),
            Action::Put(put) => self.mover.put_data(put),
            Action::Get(get) => self.mover.get_data(get),
            Action::Release(itt) => self.mover.release_task(itt),
            Action::End(itt) => self.mover.end_task(itt),
            Action::Start(start) => self.start(start),
            Action::Manage { itt, function, lun } => {
                let (nexus, target) = self
                    .session
                    .as_ref()
                    .expect("only a normal session manages tasks");
                let outcome = target.device.manage(nexus, function, lun);
                connection.handle(now(), Event::Managed { itt, outcome });
            }
            Action::Admit(admission) => {
                let membership = self.membership.as_ref().expect("taken at the end alone");
                let result = membership.admit(&admission);
                if let Ok(Admitted { tsih, nexus }) = &result {
                    let what = match (&nexus, admission.params.session_type) {
                        (Some((nexus, _)), SessionType::Normal) => nexus.target.name.to_string(),
                        _ => "discovery".into(),
                    };
                    let digests = (admission.params.header_digest, admission.params.data_digest);
                    info!(initiator = %admission.initiator, tsih = tsih.0, ?digests, "logged in to {what}");
                    debug!(params = ?admission.params, "agreed");
                    self.session.clone_from(nexus);
                }
                connection.handle(now(), Event::Admission(result));
            }
            Action::DropSessions => {
                if let (Some(membership), Some((_, target))) = (&self.membership, &self.session) {
                    membership.node().order_target(&target.name, Order::TargetReset);
                }
            }
            Action::Close(reason) => return Some(reason),
        }
        None
    }

    fn start(&mut self, start: Start) {
        let Start {
            task,
            pdu,
            ahs,
            immediate,
            abort,
        } = start;
        let (nexus, target) = self.session.as_ref().expect("only a normal session has commands");
        let setup = TransferSetup {
            task,
            expected_in: if pdu.write {
                ahs.bidi_read_len.unwrap_or(0)
            } else {
                pdu.expected_len
            },
            expected_out: if pdu.write { pdu.expected_len } else { 0 },
            immediate,
            events: self.to_connection.clone(),
            budget: Arc::clone(&self.budget),
            out_budget: Arc::clone(&self.out_budget),
            pool: Arc::clone(&self.pool),
            abort,
        };
        let scsi = ScsiTask {
            lun: pdu.lun,
            cdb: join_cdb(&pdu.cdb, &ahs.extended_cdb),
            attribute: pdu.attribute,
            priority: pdu.priority,
            tag: pdu.itt.0,
        };
        let signal = setup.abort.clone();
        let command = target.device.execute(nexus, scsi, Transfer::new(setup));
        self.commands.push(Box::pin(command));
        // The session may have been taken over on another core a moment ago; what its old connection still had in hand
        // must not run under the new one.
        if !self.membership.as_ref().is_some_and(Membership::is_alive) {
            signal.fire();
        }
    }

    fn response_timeout(&self) -> Duration {
        self.session
            .as_ref()
            .map_or(RESPONSE_TIMEOUT, |(_, target)| target.parameters.response_timeout)
    }

    /// The session ends first (so that its nexus is free before the initiator can know), then the connection; beside
    /// it the commands whose store operations still run are seen to their end.
    async fn close(mut self, reason: &CloseReason) {
        drop(self.membership.take());
        drop(self.from_commands);
        let (mut mover, mut commands) = (self.mover, self.commands);
        let has_last_words = !matches!(
            reason,
            CloseReason::Transport(_) | CloseReason::Ordered(Order::Reinstated)
        );
        let goodbye = async move {
            if has_last_words {
                // A peer that takes nothing does not keep us.
                drop(timeout(CLOSE_PATIENCE, poll_fn(|cx| mover.poll_close(cx))).await);
            }
        };
        tokio::join!(goodbye, commands.see_to_their_end());
    }
}

/// A connection's commands. Dropped before they have ended (a bug ended their connection, or its task was cancelled),
/// they go on in a task of their own: a store operation that nobody polls would leave its blocks fenced for ever.
#[derive(Debug)]
struct Commands {
    running: FuturesUnordered<Command>,
    node: Arc<Node>,
    /// How many of them the node counts as abandoned.
    abandoned: usize,
}

impl Commands {
    fn new(node: Arc<Node>) -> Self {
        Self {
            running: FuturesUnordered::new(),
            node,
            abandoned: 0,
        }
    }

    fn push(&mut self, command: Command) {
        self.running.push(command);
    }

    /// Waits until one has ended; `None` at once when there is none.
    async fn next(&mut self) -> Option<()> {
        self.running.next().await
    }

    async fn see_to_their_end(&mut self) {
        self.abandoned = self.running.len();
        self.node.abandon(self.abandoned);
        while self.running.next().await.is_some() {
            self.abandoned -= 1;
            self.node.abandoned_ended(1);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.node.abandoned_ended(std::mem::take(&mut self.abandoned));
        if self.running.is_empty() {
            return;
        }
        // Outside a runtime, which is then at its end, nothing can be polled any more.
        if let Ok(runtime) = Handle::try_current() {
            // Not as `Self`: a runtime that is ending drops what it is given, and this would begin anew without end.
            let (mut running, node) = (std::mem::take(&mut self.running), Arc::clone(&self.node));
            drop(runtime.spawn(async move {
                node.abandon(running.len());
                while running.next().await.is_some() {
                    node.abandoned_ended(1);
                }
            }));
        }
    }
}

/// Notices a peer that takes nothing of what is queued for it.
#[derive(Debug, Default)]
struct StuckWatch {
    since: Option<(Instant, u64)>,
}

impl StuckWatch {
    /// The time-out, when it is over.
    fn look(&mut self, mover: &impl DataMover, time: Instant, patience: Duration) -> Option<Duration> {
        if mover.queued_bytes() == 0 {
            self.since = None;
            return None;
        }
        let sent = mover.sent_bytes();
        match self.since {
            Some((since, before)) if before == sent => (time - since >= patience).then_some(patience),
            _ => {
                self.since = Some((time, sent));
                None
            }
        }
    }

    fn due(&self, patience: Duration) -> Option<Instant> {
        self.since.map(|(since, _)| since + patience)
    }
}

/// Moves the timer only when it is wrong: most turns of the loop leave it alone.
fn set_timer(
    timer: Pin<&mut Sleep>,
    time: Instant,
    connection: Option<std::time::Instant>,
    stuck: Option<Instant>,
) {
    let due = [connection.map(Instant::from_std), stuck]
        .into_iter()
        .flatten()
        .min();
    let due = due.unwrap_or(time + FAR);
    if timer.deadline() > due || timer.is_elapsed() || timer.deadline() <= time {
        timer.reset(due);
    }
}

fn join_cdb(cdb: &[u8; 16], extension: &Bytes) -> Bytes {
    if extension.is_empty() {
        return Bytes::copy_from_slice(cdb);
    }
    let mut joined = BytesMut::with_capacity(cdb.len() + extension.len());
    joined.put_slice(cdb);
    joined.put_slice(extension);
    joined.freeze()
}

fn log_end(reason: &CloseReason) {
    match reason {
        CloseReason::LoggedOut | CloseReason::Ordered(_) | CloseReason::Transport(_) => {
            info!("closed: {reason}");
        }
        CloseReason::LoginFailed(_)
        | CloseReason::LoginTimeout(_)
        | CloseReason::Misbehaved(_)
        | CloseReason::Silent(_)
        | CloseReason::DataOutStuck { .. }
        | CloseReason::ResponsesStuck(_) => warn!("closed: {reason}"),
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Data-In a connection may have between store and socket, bytes: a slow reader cannot own the pool.
const DATA_IN_MAX: usize = 4 << 20;
/// Buffers a connection may keep waiting for Data-Out, bytes: a silent writer cannot own it either.
const DATA_OUT_MAX: usize = 8 << 20;
/// How long the last words may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const FAR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
