//! The one loop: joins data movers, the session that they carry and the session's commands. All transports and the
//! simulation run through it.
//!
//! What a connection can cost in memory, at most: for each command of the window (128) the immediate data that it really
//! sent, in a buffer of at most twice their length (256 KiB); 4 MiB of Data-In that the initiator has not taken; 8 MiB of
//! buffers for Data-Out that it still owes; 64 KiB of text; and what its transport keeps for framing. A command takes its
//! share of the two budgets before it takes a buffer, so that an initiator that is slow or silent keeps nothing from the
//! others of its data core. Beyond that a command holds two chunks of 256 KiB at most, while its store works; the second
//! is from the heap when the pool is dry, so that no command waits for memory while it holds some. Commands that were
//! aborted while their store works count on: as many as the window again, then new ones get BUSY.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstores::BufPool;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::coop::cooperative;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tracing::field::display;
use tracing::{Instrument, Level, Span, debug, enabled, info, trace_span, warn};

use crate::control::Target;
use crate::datamover::{DataMover, TaskRemains, TransportClosed};
use crate::iscsi::{
    Action, Admission, Admitted, CloseReason, Connection, Entrance, Event, Joining, LinkId, LinkInfo,
    Membership, Node, Order, SessionPlace, SessionType, Start,
};
use crate::metrics::{Ended, SessionMeter, TurnClock};
use crate::nexus::NexusId;
use crate::scsi::{ScsiTask, UnitAttention};
use crate::transfer::{TaskEvent, Transfer, TransferSetup};

use commands::{Command, Commands};
use seldom::{Happening, Seldom};
use wires::{Wire, Wires};

mod commands;
mod seldom;
mod wires;

/// Serves one accepted connection to its end: with it the session that it begins, all further connections of that, and
/// their commands, which are seen to theirs (a store operation under way is never dropped). The session itself has
/// ended, and its nexus is free again, as soon as its last connection closes. A connection that joins another session
/// is handed over to that one's loop, on whichever thread it runs, and this one returns.
pub async fn serve(
    mut mover: impl DataMover,
    link: LinkInfo,
    node: Arc<Node>,
    pool: Arc<BufPool>,
) -> CloseReason {
    let (membership, orders) = node.join(link.clone());
    mover.listen_in(Arc::clone(membership.tap()));
    let seldom = Seldom::new(orders);
    let mut server = Server::new(mover, pool, Arc::clone(&node), membership, seldom, link.transport);
    let connection = Connection::new(link, node, now());
    let reason = server.run(connection).await;
    log_end(&reason);
    server.tell_end(&reason);
    server.close(&reason).await;
    reason
}

/// The last words of a connection.
type Goodbye = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Server<M> {
    node: Arc<Node>,
    wires: Wires<M>,
    pool: Arc<BufPool>,
    /// Taken when the session ends.
    place: Option<SessionPlace>,
    session: Option<(Arc<NexusId>, Arc<Target>)>,
    commands: Commands,
    seldom: Seldom,
    transport: &'static str,
    clock: TurnClock,
    /// There with the session.
    meter: Option<SessionMeter>,
    /// What movers kept for tasks whose connection is gone, by tag: as many as there are such tasks.
    remains: BTreeMap<u32, TaskRemains>,
    /// Connections that left the session and say their last words.
    goodbyes: FuturesUnordered<Goodbye>,
    /// Unbounded in type; a command has at most one `Get` outstanding, its `Put`s are limited by the budget, and the
    /// number of commands by the window.
    to_connection: mpsc::UnboundedSender<TaskEvent>,
    from_commands: mpsc::UnboundedReceiver<TaskEvent>,
}

impl<M: DataMover> Server<M> {
    fn new(
        mover: M,
        pool: Arc<BufPool>,
        node: Arc<Node>,
        membership: Membership,
        seldom: Seldom,
        transport: &'static str,
    ) -> Self {
        let (to_connection, from_commands) = mpsc::unbounded_channel();
        let mut wires = Wires::new();
        wires.add(mover, membership);
        Self {
            commands: Commands::new(Arc::clone(&node)),
            seldom,
            transport,
            clock: TurnClock::new(now()),
            meter: None,
            node,
            wires,
            pool,
            place: None,
            session: None,
            remains: BTreeMap::new(),
            goodbyes: FuturesUnordered::new(),
            to_connection,
            from_commands,
        }
    }

    async fn run(&mut self, mut connection: Connection) -> CloseReason {
        // Read once a turn, after its wait: reading the clock was a twentieth of a small read.
        let mut time = Instant::now();
        self.clock.set(time.into_std());
        let mut timer = pin!(sleep_until(time));
        loop {
            while let Some(action) = connection.poll_action() {
                match action {
                    Action::Close(reason) => return reason,
                    Action::Admit(admission) => match self.admit(&admission) {
                        Ok(result) => connection.handle(now(), Event::Admission(result)),
                        Err(door) => return self.hand_over(connection, &door, &admission),
                    },
                    action => self.act(action, &mut connection),
                }
            }
            // What commands said first: their responses then share one write. It was said just now, and there is no more of
            // it than the window has commands.
            if let Ok(event) = self.from_commands.try_recv() {
                connection.handle(time.into_std(), Event::Task(event));
                continue;
            }
            // Looked at before every wait: a peer that floods would otherwise never meet a deadline.
            let patience = self.response_timeout();
            if let Some(link) = self.wires.find_stuck(time, patience) {
                if self.session.is_none() {
                    return CloseReason::ResponsesStuck(patience);
                }
                connection.handle(time.into_std(), Event::Stuck(link, patience));
                continue;
            }
            let due = connection.poll_timeout();
            if due.is_some_and(|due| due <= time.into_std()) {
                connection.handle(time.into_std(), Event::Timeout);
                continue;
            }
            set_timer(timer.as_mut(), time, due, self.wires.look_for_stuck(patience));
            let (wires, seldom) = (&mut self.wires, &mut self.seldom);
            let (commands, said, mut ended) = (&mut self.commands, &self.from_commands, None);
            let event = tokio::select! { biased;
                command = cooperative(poll_fn(|cx| poll_commands(commands, said, cx))) => {
                    ended = command;
                    None
                }
                happening = poll_fn(|cx| seldom.poll_next(cx)) => match happening {
                    Happening::Order(order) => Some(Event::Order(order)),
                    Happening::Arrival(joining) => self.welcome(joining),
                },
                Some(()) = self.goodbyes.next(), if !self.goodbyes.is_empty() => None,
                (link, notify) = poll_fn(|cx| wires.poll_notify(cx)) => Some(Event::Notify(link, notify)),
                () = timer.as_mut() => None,
            };
            time = Instant::now();
            self.clock.set(time.into_std());
            if let (Some(ended), Some(meter)) = (ended, &self.meter) {
                meter.end(&ended);
            }
            if let Some(event) = event {
                self.hear(&event);
                connection.handle(time.into_std(), event);
            }
        }
    }

    /// Counts what comes.
    fn hear(&mut self, event: &Event) {
        if let (Some(meter), Some((_, target))) = (&mut self.meter, &self.session) {
            meter.hear(event, |lun| target.device.unit(lun).is_some());
        }
    }

    /// Does one thing.
    fn act(&mut self, action: Action, connection: &mut Connection) {
        if let Some(meter) = &mut self.meter {
            meter.tell(&action);
        }
        match action {
            Action::Enable(link, params) => self.with_mover(link, |mover| mover.enable(&params)),
            Action::Send(link, pdu, data) => self.with_mover(link, |mover| mover.send_control(pdu, data)),
            Action::Put(link, put) => self.with_mover(link, |mover| mover.put_data(put)),
            Action::Get(link, get) => self.with_mover(link, |mover| mover.get_data(get)),
            Action::Release(link, itt) => self.with_mover(link, |mover| mover.release_task(itt)),
            Action::End(link, itt) => self.with_mover(link, |mover| mover.end_task(itt)),
            Action::Forget(link, itt) => self.with_mover(link, |mover| mover.forget_task(itt)),
            Action::LookAfter(link, itt) => self.with_mover(link, |mover| mover.look_after(itt)),
            Action::Snack(link, snack, numbering) => {
                if let Some(wire) = self.wires.get(link) {
                    let result = wire.mover.snack(&snack, numbering);
                    connection.handle(now(), Event::Snacked(link, snack, result));
                }
            }
            Action::Surrender(link, itts) => {
                if let Some(wire) = self.wires.get(link) {
                    let remains = itts.into_iter().map(|itt| (itt.0, wire.mover.surrender(itt)));
                    self.remains.extend(remains);
                }
            }
            Action::Adopt {
                link,
                itt,
                next_data_sn,
                numbering,
            } => {
                let remains = self.remains.remove(&itt.0).unwrap_or_default();
                if let Some(wire) = self.wires.get(link) {
                    let result = wire.mover.adopt(itt, remains, next_data_sn, numbering);
                    connection.handle(now(), Event::Adopted(link, itt, result));
                }
            }
            Action::Discard(itt) => drop(self.remains.remove(&itt.0)),
            Action::Start(start) => self.start(start),
            Action::Manage { itt, function, lun } => {
                let (nexus, target) = self.session();
                let outcome = target.device.manage(nexus, function, lun);
                connection.handle(now(), Event::Managed { itt, outcome });
            }
            Action::TellCleared(luns) => {
                let (nexus, target) = self.session();
                for lun in luns {
                    let attention = UnitAttention::CommandsClearedByProtocol;
                    target.device.raise_for(nexus, lun, attention);
                }
            }
            Action::DropSessions => {
                if let Some((_, target)) = &self.session {
                    self.node.order_target(&target.name, Order::TargetReset);
                }
            }
            Action::Disconnect(link, reason) => {
                if let Some(wire) = self.wires.remove(link) {
                    if matches!(reason, CloseReason::LoginFailed(_)) {
                        wire.membership.tell_end(&reason);
                    }
                    info!(link = link.0, "a connection of the session is closed: {reason}");
                    self.goodbyes.push(say_goodbye(wire, &reason));
                }
            }
            Action::Admit(_) | Action::Close(_) => unreachable!("done by the loop itself"),
        }
    }

    /// Tells whoever watches the node.
    fn tell_end(&mut self, reason: &CloseReason) {
        match &self.place {
            Some(place) => place.tell_end(reason),
            None => {
                if let Some(wire) = self.wires.get(LinkId::LEADING) {
                    wire.membership.tell_end(reason);
                }
            }
        }
    }

    /// Does something with a connection's mover. What is meant for one that is gone comes too late.
    fn with_mover(&mut self, link: LinkId, action: impl FnOnce(&mut M)) {
        if let Some(wire) = self.wires.get(link) {
            action(&mut wire.mover);
        }
    }

    fn session(&self) -> &(Arc<NexusId>, Arc<Target>) {
        let session = self.session.as_ref();
        session.expect("only a normal session has commands and task management")
    }

    /// Asks the registry to let a session in; the error is the door to a session that is there.
    fn admit(
        &mut self,
        admission: &Admission,
    ) -> Result<Result<Admitted, crate::iscsi::Refusal>, mpsc::UnboundedSender<Joining>> {
        let wire = self.wires.get(LinkId::LEADING);
        let membership = &wire.expect("a login has its connection").membership;
        let (admitted, place, arrivals) = match membership.admit(admission) {
            Ok(Entrance::Session {
                admitted,
                place,
                arrivals,
            }) => (admitted, place, arrivals),
            Ok(Entrance::Door(door)) => return Err(door),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let what = match (&admitted.nexus, admission.params.session_type) {
            (Some((nexus, _)), SessionType::Normal) => nexus.target.name.to_string(),
            _ => "discovery".into(),
        };
        let digests = (admission.params.header_digest, admission.params.data_digest);
        name_span(&admitted);
        info!(initiator = %admission.initiator, tsih = admitted.tsih.0, ?digests, "logged in to {what}");
        debug!(params = ?admission.params, "agreed");
        if let Some((nexus, _)) = &admitted.nexus {
            self.meter = Some(SessionMeter::new(
                Arc::clone(&self.node),
                admitted.tsih,
                Arc::clone(nexus),
                self.transport,
                self.clock.clone(),
            ));
        }
        self.session.clone_from(&admitted.nexus);
        self.place = Some(place);
        self.seldom.await_arrivals(arrivals);
        Ok(Ok(admitted))
    }

    /// Sends the connection through the door of the session that it joins.
    fn hand_over(
        &mut self,
        connection: Connection,
        door: &mpsc::UnboundedSender<Joining>,
        admission: &Admission,
    ) -> CloseReason {
        let wire = self.wires.remove(LinkId::LEADING);
        if let (Some(wire), Some(login)) = (wire, connection.into_joining()) {
            wire.membership.belongs_to(admission.tsih);
            // A session that ended just now takes the connection with it; the initiator logs in again.
            let _ = door.send(Joining {
                mover: Box::new(wire.mover),
                membership: wire.membership,
                login,
            });
        }
        CloseReason::Joined(admission.tsih.0)
    }

    /// A connection comes through the door.
    fn welcome(&mut self, joining: Joining) -> Option<Event> {
        let Joining {
            mover,
            membership,
            login,
        } = joining;
        // The registry lets in only connections of the session's transport, which has one mover.
        let mut mover = *mover.downcast::<M>().ok()?;
        if let Err(closed) = mover.move_to(&self.pool) {
            info!("a connection that joins the session was lost: {closed}");
            return None;
        }
        Some(Event::Join(self.wires.add(mover, membership), login))
    }

    fn start(&mut self, start: Start) {
        let Start {
            link,
            task,
            pdu,
            ahs,
            immediate,
            abort,
        } = start;
        let (nexus, target) = self.session.as_ref().expect("only a normal session has commands");
        let wire = self.wires.get(link).expect("a command begins on its connection");
        let meter = self.meter.as_mut().expect("it is there with the session");
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
            budget: Arc::clone(&wire.budget),
            out_budget: Arc::clone(&wire.out_budget),
            pool: Arc::clone(&self.pool),
            abort,
            clock: self.clock.clone(),
            slot: meter.begin(pdu.lun, |lun| target.device.unit(lun).is_some()),
        };
        let scsi = ScsiTask {
            lun: pdu.lun,
            cdb: join_cdb(&pdu.cdb, &ahs.extended_cdb),
            attribute: pdu.attribute,
            priority: pdu.priority,
            tag: pdu.itt.0,
        };
        let signal = setup.abort.clone();
        let command: Command = Box::pin(target.device.execute(nexus, scsi, Transfer::new(setup)));
        // Asked first: a command without a span does not pay for one.
        self.commands.push(if enabled!(Level::TRACE) {
            let span = trace_span!("command", itt = pdu.itt.0, lun = %pdu.lun, opcode = pdu.cdb[0]);
            Box::pin(command.instrument(span))
        } else {
            command
        });
        // The session may have been taken over on another core a moment ago; what its old connection still had in hand
        // must not run under the new one.
        if !self.place.as_ref().is_some_and(SessionPlace::is_alive) {
            signal.fire();
        }
    }

    fn response_timeout(&self) -> Duration {
        self.session
            .as_ref()
            .map_or(RESPONSE_TIMEOUT, |(_, target)| target.parameters.response_timeout)
    }

    /// The session ends first (so that its nexus is free before the initiator can know), then its connections; beside
    /// them the commands whose store operations still run are seen to their end.
    async fn close(mut self, reason: &CloseReason) {
        drop(self.place.take());
        drop(self.seldom);
        drop(self.from_commands);
        for wire in self.wires.take_all() {
            self.goodbyes.push(say_goodbye(wire, reason));
        }
        let (goodbyes, mut commands, meter) = (self.goodbyes, self.commands, self.meter);
        tokio::join!(
            goodbyes.collect::<()>(),
            commands.see_to_their_end(meter.as_ref())
        );
    }
}

/// Sends what is queued and disconnects. From this call on the connection is none any more.
fn say_goodbye<M: DataMover>(wire: Wire<M>, reason: &CloseReason) -> Goodbye {
    let mut mover = wire.mover;
    wire.membership.tap().closed(reason);
    drop(wire.membership);
    // A mover that breaks off by itself may have queued why: then there is still somebody to hear it.
    let has_last_words = !matches!(
        reason,
        CloseReason::ConnectionReinstated
            | CloseReason::Ordered(Order::Reinstated)
            | CloseReason::Transport(
                TransportClosed::Eof
                    | TransportClosed::HeaderDigest(_)
                    | TransportClosed::Io(_)
                    | TransportClosed::MidPdu
            )
    );
    Box::pin(async move {
        if has_last_words {
            // A peer that takes nothing does not keep us.
            drop(timeout(CLOSE_PATIENCE, poll_fn(|cx| mover.poll_close(cx))).await);
        }
    })
}

/// Lets the commands go on; ready when one of them has ended, or has said something. They speak only while they are polled,
/// here: what they say is looked for, and wakes nobody. To wait for it would poll everything once more after every
/// command, for nothing.
fn poll_commands(
    commands: &mut Commands,
    said: &mpsc::UnboundedReceiver<TaskEvent>,
    cx: &mut Context<'_>,
) -> Poll<Option<Ended>> {
    match commands.poll_next(cx) {
        Poll::Ready(Some(ended)) => Poll::Ready(Some(ended)),
        Poll::Ready(None) | Poll::Pending if said.is_empty() => Poll::Pending,
        Poll::Ready(None) | Poll::Pending => Poll::Ready(None),
    }
}

/// Whoever made the span of the connection left fields for the session that it leads.
fn name_span(admitted: &Admitted) {
    let span = Span::current();
    span.record("tsih", admitted.tsih.0);
    if let Some((nexus, target)) = &admitted.nexus {
        span.record("initiator", display(&nexus.initiator.name));
        span.record("target", display(&target.name));
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
        CloseReason::ConnectionReinstated
        | CloseReason::Idle(_)
        | CloseReason::Joined(_)
        | CloseReason::LoggedOut
        | CloseReason::NotTakenUp { .. }
        | CloseReason::Ordered(_)
        | CloseReason::Transport(_) => info!("closed: {reason}"),
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

/// How long the last words may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const FAR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
