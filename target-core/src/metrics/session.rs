//! What one session counts: by logical unit, and for its connections.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_proto::pdu::{Function, NopIn, Request, Response};
use iscsi_proto::{Lun, Tsih, Ttt};

use super::clock::TurnClock;
use super::counter::Counter;
use super::histogram::{Histogram, HistogramCounts};
use crate::datamover::{Notify, TransportClosed};
use crate::iscsi::{Action, Event, Node};
use crate::nexus::NexusId;

/// What a command does with the medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommandKind {
    /// Reads it for the initiator.
    Read,
    /// Writes the initiator's data to it.
    Write,
    /// Anything else.
    Other,
}

/// A command that has ended, as it is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ended {
    /// Where it is counted.
    pub slot: Slot,
    /// What it did.
    pub kind: CommandKind,
    /// How it ended.
    pub how: How,
    /// Bytes that moved, both directions.
    pub bytes: u64,
    /// When it was handed over, nanoseconds of its [`TurnClock`].
    pub arrived: u64,
    /// When it was its turn; `None` when it was answered before that.
    pub began: Option<u64>,
    /// What it waited for buffers and for its share of them since, nanoseconds.
    pub room_wait: u64,
    /// What it waited for Data-Out that it had asked for, nanoseconds; `None` when it asked for none.
    pub data_wait: Option<u64>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// Nobody was told.
    Aborted,
    /// BUSY or TASK SET FULL.
    Busy,
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION, for another reason than a unit attention.
    Failed,
    /// GOOD or CONDITION MET.
    Good,
    /// CHECK CONDITION with a unit attention.
    UnitAttention,
}

/// What the commands of one kind came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KindCounts {
    /// Bytes moved.
    pub bytes: u64,
    /// From hand-over to end; its count is that of the commands that were answered.
    pub latency: HistogramCounts,
    /// What of it passed before a command's turn, and waiting for buffers.
    pub queue_wait: HistogramCounts,
    /// What of it the store and the command's own work took.
    pub store: HistogramCounts,
}

/// What the commands on one logical unit came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LunCounts {
    /// READ.
    pub read: KindCounts,
    /// WRITE.
    pub write: KindCounts,
    /// Everything else.
    pub other: KindCounts,
    /// What commands waited for the Data-Out that they had asked for.
    pub r2t_wait: HistogramCounts,
    /// Commands under way.
    pub in_flight: u64,
    /// Commands aborted.
    pub aborted: u64,
    /// Commands answered with BUSY or TASK SET FULL.
    pub busy: u64,
    /// Commands answered with RESERVATION CONFLICT.
    pub conflicts: u64,
    /// Commands that ended with CHECK CONDITION, unit attentions apart.
    pub failed: u64,
    /// Unit attentions told.
    pub unit_attentions: u64,
    /// Resets of the logical unit, and of its target.
    pub resets: u64,
}

/// What the connections of a session came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LinkCounts {
    /// Header digests that did not match.
    pub header_digest_errors: u64,
    /// Data digests that did not match.
    pub data_digest_errors: u64,
    /// From a NOP-In of ours to its answer.
    pub nop_round_trip: HistogramCounts,
    /// Task management requests, in the order of [`function_name`]'s numbers.
    pub task_management: [u64; FUNCTIONS],
}

/// The counters of a session: written by its loop, read by everybody.
#[derive(Debug)]
pub(super) struct SessionCounters {
    pub(super) tsih: Tsih,
    pub(super) nexus: Arc<NexusId>,
    pub(super) transport: &'static str,
    /// By number; `None` for LUNs that name no unit. Locked to add one, and by readers.
    luns: Mutex<BTreeMap<Option<u16>, Arc<LunCounters>>>,
    link: LinkCounters,
}

/// On cache lines of its own: other cores' counters are next to it on none.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LunCounters {
    kinds: [KindCounters; 3],
    r2t_wait: Histogram,
    begun: Counter,
    ended: Counter,
    aborted: Counter,
    busy: Counter,
    conflicts: Counter,
    failed: Counter,
    unit_attentions: Counter,
    resets: Counter,
}

#[derive(Debug, Default)]
struct KindCounters {
    bytes: Counter,
    latency: Histogram,
    queue_wait: Histogram,
    store: Histogram,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct LinkCounters {
    header_digest_errors: Counter,
    data_digest_errors: Counter,
    nop_round_trip: Histogram,
    task_management: [Counter; FUNCTIONS],
}

/// A session's counters in the hand of its loop. Dropped, it adds them to the totals.
#[derive(Debug)]
pub(crate) struct SessionMeter {
    node: Arc<Node>,
    counters: Arc<SessionCounters>,
    clock: TurnClock,
    slots: Vec<Arc<LunCounters>>,
    by_number: BTreeMap<Option<u16>, usize>,
    /// The last NOP-In that wants an answer, and when it was sent.
    asked: Option<(Ttt, u64)>,
}

/// A logical unit's place among those that a session counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot(usize);

impl SessionMeter {
    pub(crate) fn new(
        node: Arc<Node>,
        tsih: Tsih,
        nexus: Arc<NexusId>,
        transport: &'static str,
        clock: TurnClock,
    ) -> Self {
        let counters = Arc::new(SessionCounters {
            tsih,
            nexus,
            transport,
            luns: Mutex::default(),
            link: LinkCounters::default(),
        });
        node.metrics().open(&counters);
        Self {
            node,
            counters,
            clock,
            slots: Vec::new(),
            by_number: BTreeMap::new(),
            asked: None,
        }
    }

    /// A command begins. `exists` is asked once for each number, and for those that name no unit.
    pub(crate) fn begin(&mut self, lun: Lun, exists: impl FnOnce(u16) -> bool) -> Slot {
        let slot = self.slot(lun, exists);
        self.slots[slot.0].begun.add(1);
        slot
    }

    /// A command has ended, now.
    pub(crate) fn end(&self, ended: &Ended) {
        let (counters, now) = (&self.slots[ended.slot.0], self.clock.now());
        counters.ended.add(1);
        match ended.how {
            How::Aborted => return counters.aborted.add(1),
            How::Busy => counters.busy.add(1),
            How::Conflict => counters.conflicts.add(1),
            How::Failed => counters.failed.add(1),
            How::Good => {}
            How::UnitAttention => counters.unit_attentions.add(1),
        }
        let kind = &counters.kinds[ended.kind as usize];
        kind.bytes.add(ended.bytes);
        kind.latency.record(now.saturating_sub(ended.arrived));
        if let Some(wait) = ended.data_wait {
            counters.r2t_wait.record(wait);
        }
        if let Some(began) = ended.began {
            kind.queue_wait
                .record(began.saturating_sub(ended.arrived) + ended.room_wait);
            let waits = ended.room_wait + ended.data_wait.unwrap_or(0);
            kind.store.record(now.saturating_sub(began).saturating_sub(waits));
        }
    }

    /// Something came. Most of what does is not counted here.
    pub(crate) fn hear(&mut self, event: &Event, exists: impl FnOnce(u16) -> bool) {
        let Event::Notify(_, notify) = event else { return };
        let link = &self.counters.link;
        match notify {
            Notify::DataDigestError { .. } => link.data_digest_errors.add(1),
            Notify::Closed(TransportClosed::HeaderDigest(_)) => link.header_digest_errors.add(1),
            Notify::Control {
                pdu: Request::NopOut(pdu),
                ..
            } => {
                if let Some((_, since)) = self.asked.take_if(|(ttt, _)| *ttt == pdu.ttt) {
                    link.nop_round_trip.record(self.clock.now().saturating_sub(since));
                }
            }
            Notify::Control {
                pdu: Request::TaskManagement(pdu),
                ..
            } => {
                link.task_management[function_number(pdu.function)].add(1);
                self.count_reset(pdu.function, pdu.lun, exists);
            }
            _ => {}
        }
    }

    /// Something is done.
    pub(crate) fn tell(&mut self, action: &Action) {
        if let Action::Send(_, Response::NopIn(NopIn { ttt, .. }), _) = action
            && *ttt != Ttt::RESERVED
        {
            self.asked = Some((*ttt, self.clock.now()));
        }
    }

    /// A reset of the whole target is counted for the units that the session has used.
    fn count_reset(&mut self, function: Function, lun: Lun, exists: impl FnOnce(u16) -> bool) {
        match function {
            Function::LogicalUnitReset => {
                let Slot(slot) = self.slot(lun, exists);
                self.slots[slot].resets.add(1);
            }
            Function::TargetWarmReset | Function::TargetColdReset => {
                self.slots.iter().for_each(|slot| slot.resets.add(1));
            }
            Function::AbortTask
            | Function::AbortTaskSet
            | Function::ClearAca
            | Function::ClearTaskSet
            | Function::ITNexusReset
            | Function::QueryAsyncEvent
            | Function::QueryTask
            | Function::QueryTaskSet
            | Function::TaskReassign
            | Function::Unknown(_) => {}
        }
    }

    fn slot(&mut self, lun: Lun, exists: impl FnOnce(u16) -> bool) -> Slot {
        let number = lun.number();
        if let Some(slot) = self.by_number.get(&number) {
            return Slot(*slot);
        }
        let number = number.filter(|number| exists(*number));
        if let Some(slot) = self.by_number.get(&number) {
            return Slot(*slot);
        }
        let counters = Arc::<LunCounters>::default();
        self.counters.luns().insert(number, Arc::clone(&counters));
        self.slots.push(counters);
        self.by_number.insert(number, self.slots.len() - 1);
        Slot(self.slots.len() - 1)
    }
}

impl Drop for SessionMeter {
    fn drop(&mut self) {
        self.node.metrics().close(&self.counters);
    }
}

impl SessionCounters {
    /// By number; `None` for LUNs that name no unit.
    pub(super) fn lun_counts(&self) -> Vec<(Option<u16>, LunCounts)> {
        let luns = self.luns();
        luns.iter()
            .map(|(number, counters)| (*number, counters.counts()))
            .collect()
    }

    pub(super) fn link_counts(&self) -> LinkCounts {
        LinkCounts {
            header_digest_errors: self.link.header_digest_errors.value(),
            data_digest_errors: self.link.data_digest_errors.value(),
            nop_round_trip: self.link.nop_round_trip.counts(),
            task_management: std::array::from_fn(|place| self.link.task_management[place].value()),
        }
    }

    fn luns(&self) -> MutexGuard<'_, BTreeMap<Option<u16>, Arc<LunCounters>>> {
        self.luns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LunCounters {
    fn counts(&self) -> LunCounts {
        let kind = |kind: CommandKind| {
            let counters = &self.kinds[kind as usize];
            KindCounts {
                bytes: counters.bytes.value(),
                latency: counters.latency.counts(),
                queue_wait: counters.queue_wait.counts(),
                store: counters.store.counts(),
            }
        };
        // In this order, so that what ends in between is under way no less than zero times.
        let ended = self.ended.value();
        LunCounts {
            read: kind(CommandKind::Read),
            write: kind(CommandKind::Write),
            other: kind(CommandKind::Other),
            r2t_wait: self.r2t_wait.counts(),
            in_flight: self.begun.value().saturating_sub(ended),
            aborted: self.aborted.value(),
            busy: self.busy.value(),
            conflicts: self.conflicts.value(),
            failed: self.failed.value(),
            unit_attentions: self.unit_attentions.value(),
            resets: self.resets.value(),
        }
    }
}

impl LunCounts {
    /// The three kinds with their names.
    #[must_use]
    pub fn kinds(&self) -> [(&'static str, &KindCounts); 3] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("other", &self.other),
        ]
    }
}

impl AddAssign<&Self> for KindCounts {
    fn add_assign(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.latency += &other.latency;
        self.queue_wait += &other.queue_wait;
        self.store += &other.store;
    }
}

impl AddAssign<&Self> for LunCounts {
    fn add_assign(&mut self, other: &Self) {
        self.read += &other.read;
        self.write += &other.write;
        self.other += &other.other;
        self.r2t_wait += &other.r2t_wait;
        self.in_flight += other.in_flight;
        self.aborted += other.aborted;
        self.busy += other.busy;
        self.conflicts += other.conflicts;
        self.failed += other.failed;
        self.unit_attentions += other.unit_attentions;
        self.resets += other.resets;
    }
}

impl AddAssign<&Self> for LinkCounts {
    fn add_assign(&mut self, other: &Self) {
        self.header_digest_errors += other.header_digest_errors;
        self.data_digest_errors += other.data_digest_errors;
        self.nop_round_trip += &other.nop_round_trip;
        for (count, more) in self.task_management.iter_mut().zip(other.task_management) {
            *count += more;
        }
    }
}

/// The name of a place in [`LinkCounts::task_management`] (RFC 7143 §11.5.1, RFC 7144), as a label.
#[must_use]
pub fn function_name(place: usize) -> &'static str {
    FUNCTION_NAMES.get(place).copied().unwrap_or("unknown")
}

const fn function_number(function: Function) -> usize {
    match function {
        Function::AbortTask => 0,
        Function::AbortTaskSet => 1,
        Function::ClearAca => 2,
        Function::ClearTaskSet => 3,
        Function::LogicalUnitReset => 4,
        Function::TargetWarmReset => 5,
        Function::TargetColdReset => 6,
        Function::TaskReassign => 7,
        Function::QueryTask => 8,
        Function::QueryTaskSet => 9,
        Function::ITNexusReset => 10,
        Function::QueryAsyncEvent => 11,
        Function::Unknown(_) => 12,
    }
}

const FUNCTION_NAMES: [&str; FUNCTIONS] = [
    "abort_task",
    "abort_task_set",
    "clear_aca",
    "clear_task_set",
    "logical_unit_reset",
    "target_warm_reset",
    "target_cold_reset",
    "task_reassign",
    "query_task",
    "query_task_set",
    "i_t_nexus_reset",
    "query_asynchronous_event",
    "unknown",
];
const FUNCTIONS: usize = 13;
