//! What all actors of a world share: the target, the stores, the models of what they hold, and the clock of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use backstores::{BufPool, FaultStore};
use iscsi_proto::{IscsiName, Tsih};
use iser_transport::CmHeader;
use iser_transport::sim::SimQueuePair;
use target_core::iscsi::{Node, Order};
use tokio::sync::mpsc;

use super::ledger::Ledger;
use super::model::{ChangeId, Model};
use super::pipe::{Receiver, Sender};
use super::spoiled_session::Strays;
use super::tally::{Event, Mishap, Tally};

/// A connection that an initiator opened: the target's end.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Two pipes.
    Plain(Sender, Receiver),
    /// An RDMA link, and what the initiator said when it was made.
    Rdma(SimQueuePair, CmHeader),
}

/// The stage.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) ledger: Ledger,
    pub(crate) node: Arc<Node>,
    pub(crate) pool: Arc<BufPool>,
    /// Memory of messages.
    pub(crate) messages: Arc<BufPool>,
    pub(crate) target: IscsiName,
    /// Of every logical unit.
    pub(crate) stores: Vec<Arc<FaultStore>>,
    pub(crate) models: Vec<Mutex<Model>>,
    pub(crate) accept: mpsc::UnboundedSender<Accepted>,
    pub(crate) command_window: u16,
    /// ErrorRecoveryLevel.
    pub(crate) level: u8,
    /// PDUs of a thousand that the wire loses, as many that it damages, and as many that it lets be overtaken.
    pub(crate) mischief: u64,
    tally: Mutex<Tally>,
    pub(crate) strays: Strays,
    /// Sessions that the target was told to end.
    ordered: Mutex<BTreeSet<u16>>,
    /// Initiators that are not done.
    pub(crate) busy: AtomicUsize,
    resets: Mutex<Vec<Reset>>,
    lost: Mutex<BTreeMap<u8, Vec<(usize, ChangeId)>>>,
    ticks: AtomicU64,
    stamps: AtomicU64,
}

/// A task management function that ends commands of other initiators.
#[derive(Clone, Copy, Debug)]
struct Reset {
    by: u8,
    unit: usize,
    end: u64,
}

impl Scene {
    #[expect(clippy::too_many_arguments, reason = "it is the stage, built in one place")]
    pub(crate) fn new(
        ledger: Ledger,
        node: Arc<Node>,
        pool: Arc<BufPool>,
        target: IscsiName,
        stores: Vec<Arc<FaultStore>>,
        accept: mpsc::UnboundedSender<Accepted>,
        command_window: u16,
        (level, mischief): (u8, u64),
        initiators: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            node,
            pool,
            messages: BufPool::new(64 << 20),
            target,
            models: stores.iter().map(|_| Mutex::default()).collect(),
            stores,
            accept,
            command_window,
            level,
            mischief,
            tally: Mutex::default(),
            strays: Strays::default(),
            ordered: Mutex::default(),
            busy: AtomicUsize::new(initiators),
            resets: Mutex::default(),
            lost: Mutex::default(),
            ticks: AtomicU64::new(1),
            stamps: AtomicU64::new(1),
        })
    }

    /// The next moment: no two events share one.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that marks what one command writes.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn model(&self, unit: usize) -> MutexGuard<'_, Model> {
        self.models[unit].lock().expect("nothing panics while it is held")
    }

    /// The wire did something to a PDU.
    pub(crate) fn count(&self, name: &'static str, mishap: Mishap) {
        self.tally.lock().expect("plain data").count(name, mishap);
    }

    /// Something came about that has to, sooner or later.
    pub(crate) fn count_event(&self, event: Event) {
        self.tally.lock().expect("plain data").count_event(event);
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.lock().expect("plain data").clone()
    }

    /// The target's owner wants a session to end.
    pub(crate) fn order(&self, tsih: Tsih, within: Duration) {
        self.ledger
            .note(format_args!("session {} is to end within {within:?}", tsih.0));
        self.ordered.lock().expect("plain data").insert(tsih.0);
        self.node.order_session(tsih, Order::Logout { within });
    }

    pub(crate) fn is_ordered(&self, tsih: Tsih) -> bool {
        self.ordered.lock().expect("plain data").contains(&tsih.0)
    }

    /// Whether any store holds operations back.
    pub(crate) fn is_held(&self) -> bool {
        self.stores.iter().any(|store| !store.held().is_empty())
    }

    /// An initiator asks for a reset; returns a handle for [`Self::reset_ended`].
    pub(crate) fn reset_begins(&self, by: u8, unit: usize) -> usize {
        let mut resets = self.resets.lock().expect("plain data");
        resets.push(Reset {
            by,
            unit,
            end: u64::MAX,
        });
        resets.len() - 1
    }

    pub(crate) fn reset_ended(&self, handle: usize) {
        self.resets.lock().expect("plain data")[handle].end = self.tick();
    }

    /// Whether somebody else's reset may have ended a command that was sent at `start`.
    pub(crate) fn may_be_reset(&self, of: u8, unit: usize, start: u64) -> bool {
        let resets = self.resets.lock().expect("plain data");
        resets
            .iter()
            .any(|reset| reset.by != of && reset.unit == unit && reset.end > start)
    }

    /// An initiator lost its connection: what becomes of a change is open until its next login.
    pub(crate) fn lost(&self, initiator: u8, unit: usize, change: ChangeId) {
        let mut lost = self.lost.lock().expect("plain data");
        lost.entry(initiator).or_default().push((unit, change));
    }

    /// An initiator is logged in again: nothing of its older sessions can land any more.
    pub(crate) fn settle_lost(&self, initiator: u8) {
        let lost = self.lost.lock().expect("plain data").remove(&initiator);
        for (unit, change) in lost.unwrap_or_default() {
            let now = self.tick();
            self.model(unit).uncertain(change, now);
        }
    }
}
