//! The connections of a session as its loop sees them: a data mover each, and what it may have in flight.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::datamover::{DataMover, Notify};
use crate::iscsi::{LinkId, Membership};

/// All of them: usually one.
#[derive(Debug)]
pub(super) struct Wires<M> {
    wires: Vec<Wire<M>>,
    /// Whose turn it is to be heard first: one that says much keeps none from being heard.
    turn: usize,
    next_id: u32,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Wire<M> {
    pub(super) id: LinkId,
    pub(super) mover: M,
    pub(super) membership: Membership,
    /// Bytes of Data-In that it may have between store and socket.
    pub(super) budget: Arc<Semaphore>,
    /// Bytes of buffers that may wait for its Data-Out.
    pub(super) out_budget: Arc<Semaphore>,
    stuck: StuckWatch,
}

impl<M: DataMover> Wires<M> {
    pub(super) fn new() -> Self {
        Self {
            wires: Vec::new(),
            turn: 0,
            next_id: LinkId::LEADING.0,
        }
    }

    /// Adds a connection, and names it.
    pub(super) fn add(&mut self, mover: M, membership: Membership) -> LinkId {
        let id = LinkId(self.next_id);
        self.next_id += 1;
        self.wires.push(Wire {
            id,
            mover,
            membership,
            budget: Arc::new(Semaphore::new(DATA_IN_MAX)),
            out_budget: Arc::new(Semaphore::new(DATA_OUT_MAX)),
            stuck: StuckWatch::default(),
        });
        id
    }

    /// A connection, unless it is gone.
    pub(super) fn get(&mut self, id: LinkId) -> Option<&mut Wire<M>> {
        self.wires.iter_mut().find(|wire| wire.id == id)
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Wire<M>> {
        let place = self.wires.iter().position(|wire| wire.id == id)?;
        Some(self.wires.remove(place))
    }

    pub(super) fn take_all(&mut self) -> Vec<Wire<M>> {
        std::mem::take(&mut self.wires)
    }

    /// The next thing that happens on any of them.
    pub(super) fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<(LinkId, Notify)> {
        let count = self.wires.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let wire = &mut self.wires[place];
            if let Poll::Ready(notify) = wire.mover.poll_notify(cx) {
                self.turn = place + 1;
                return Poll::Ready((wire.id, notify));
            }
        }
        Poll::Pending
    }

    /// A connection whose peer has taken nothing for as long as it may.
    pub(super) fn find_stuck(&mut self, time: Instant, patience: Duration) -> Option<LinkId> {
        self.wires
            .iter_mut()
            .find_map(|wire| wire.stuck.look(&wire.mover, time, patience).then_some(wire.id))
    }

    /// When to look for one.
    pub(super) fn look_for_stuck(&self, patience: Duration) -> Option<Instant> {
        let due = self.wires.iter().filter_map(|wire| wire.stuck.due(patience));
        due.min()
    }
}

/// Notices a peer that takes nothing of what is queued for it.
#[derive(Debug, Default)]
struct StuckWatch {
    since: Option<(Instant, u64)>,
}

impl StuckWatch {
    /// Whether its time is over.
    fn look(&mut self, mover: &impl DataMover, time: Instant, patience: Duration) -> bool {
        if mover.queued_bytes() == 0 {
            self.since = None;
            return false;
        }
        let progress = mover.progress();
        match self.since {
            Some((since, before)) if before == progress => time - since >= patience,
            _ => {
                self.since = Some((time, progress));
                false
            }
        }
    }

    fn due(&self, patience: Duration) -> Option<Instant> {
        self.since.map(|(since, _)| since + patience)
    }
}

/// Data-In a connection may have between store and socket, bytes: a slow reader cannot own the pool.
const DATA_IN_MAX: usize = 4 << 20;
/// Buffers a connection may keep waiting for Data-Out, bytes: a silent writer cannot own it either.
const DATA_OUT_MAX: usize = 8 << 20;
