//! One trace: what was kept so far, within its bounds of memory and time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use iscsi_proto::{BHS_LEN, Frame};
use tokio::time::Instant;

use super::TraceSubject;
use crate::iscsi::LinkInfo;

/// A trace. Connections write into it, whoever began it reads; both at any time.
#[derive(Debug)]
pub struct Trace {
    number: u32,
    subject: TraceSubject,
    limits: TraceLimits,
    began: SystemTime,
    clock: Instant,
    /// Of the session that is traced, when it is one: goes `false` with it.
    session: Option<Arc<AtomicBool>>,
    inner: Mutex<Inner>,
}

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceLimits {
    /// After this time nothing is added.
    pub duration: Duration,
    /// Bytes of SCSI data, and of NOP data, that are kept of each PDU.
    pub payload: usize,
    /// Ends when there is no more room; otherwise the oldest entries give way.
    pub stops_when_full: bool,
}

/// Why nothing is added any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TraceEnd {
    /// There was no more room.
    Full,
    /// The session ended.
    SessionEnded,
    /// By hand.
    Stopped,
    /// Its time was over.
    TimeOver,
}

/// Something that was kept.
#[derive(Debug)]
pub struct TraceEntry {
    /// Counts up from 1, over entries that gave way as well.
    pub number: u64,
    /// When, since the trace began.
    pub at: Duration,
    /// On which connection.
    pub link: Arc<TracedLink>,
    /// What happened there.
    pub what: What,
}

/// A connection that is traced.
#[derive(Debug)]
pub struct TracedLink {
    /// Its number among all connections of the node.
    pub number: u64,
    /// Its ends.
    pub info: LinkInfo,
}

/// What happened on a connection.
#[derive(Debug)]
pub enum What {
    /// It ended, for this reason.
    Closed(String),
    /// It was accepted.
    Opened,
    /// A PDU came or went.
    Pdu(TracedPdu),
}

/// A PDU.
#[derive(Debug)]
pub struct TracedPdu {
    /// Who sent it.
    pub whose: Whose,
    /// The header.
    pub header: [u8; BHS_LEN],
    /// Its additional segments; nothing when they could not be understood.
    pub ahs: Box<[u8]>,
    /// What is kept of the data segment, from its beginning on.
    pub data: Box<[u8]>,
    /// Digests that it had.
    pub digests: Digests,
    /// Its data digest did not match.
    pub is_damaged: bool,
}

/// Who sent a PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whose {
    /// The initiator.
    Initiator,
    /// We.
    Target,
}

/// Digests of a PDU as it is on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Digests {
    /// Of the header.
    pub header: bool,
    /// Of the data, if there are some.
    pub data: bool,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Arc<TraceEntry>>,
    bytes: usize,
    added: u64,
    end: Option<TraceEnd>,
}

impl Trace {
    pub(super) fn new(
        number: u32,
        subject: TraceSubject,
        limits: TraceLimits,
        session: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self {
            number,
            subject,
            limits,
            began: SystemTime::now(),
            clock: Instant::now(),
            session,
            inner: Mutex::default(),
        }
    }

    /// Its number, by which it is asked for.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// What it follows.
    #[must_use]
    pub const fn subject(&self) -> &TraceSubject {
        &self.subject
    }

    /// What was asked for.
    #[must_use]
    pub const fn limits(&self) -> TraceLimits {
        self.limits
    }

    /// When it began.
    #[must_use]
    pub const fn began(&self) -> SystemTime {
        self.began
    }

    /// Why it has ended, when it has.
    #[must_use]
    pub fn end(&self) -> Option<TraceEnd> {
        self.end_of(&self.inner())
    }

    /// Ends it; what was kept stays.
    pub fn stop(&self) {
        self.finish(TraceEnd::Stopped);
    }

    /// Entries after a number, oldest first, at most so many.
    #[must_use]
    pub fn entries(&self, after: u64, limit: usize) -> Vec<Arc<TraceEntry>> {
        let inner = self.inner();
        let begin = inner.entries.partition_point(|entry| entry.number <= after);
        inner.entries.iter().skip(begin).take(limit).cloned().collect()
    }

    /// Entries that are kept now; bytes of memory that they take; entries that gave way.
    #[must_use]
    pub fn extent(&self) -> (usize, usize, u64) {
        let inner = self.inner();
        let kept = inner.entries.len();
        (kept, inner.bytes, inner.added - kept as u64)
    }

    /// Ends it and lets go of everything; a connection that is silent may know it for long.
    pub(super) fn discard(&self) {
        let mut inner = self.inner();
        inner.end.get_or_insert(TraceEnd::Stopped);
        inner.entries = VecDeque::new();
        inner.bytes = 0;
    }

    /// Adds an entry. `false` when the trace has ended.
    pub(super) fn add(&self, link: &Arc<TracedLink>, what: What) -> bool {
        let cost = what.cost();
        let mut inner = self.inner();
        if self
            .end_of(&inner)
            .is_some_and(|end| end != TraceEnd::SessionEnded)
        {
            return false;
        }
        if inner.is_full(cost) && self.limits.stops_when_full {
            inner.end = Some(TraceEnd::Full);
            return false;
        }
        while inner.is_full(cost) {
            let Some(oldest) = inner.entries.pop_front() else {
                break;
            };
            inner.bytes -= oldest.what.cost();
        }
        inner.added += 1;
        inner.bytes += cost;
        let entry = TraceEntry {
            number: inner.added,
            at: self.clock.elapsed(),
            link: Arc::clone(link),
            what,
        };
        inner.entries.push_back(Arc::new(entry));
        true
    }

    fn finish(&self, end: TraceEnd) {
        let mut inner = self.inner();
        if self.end_of(&inner).is_none() {
            inner.end = Some(end);
        }
    }

    fn end_of(&self, inner: &Inner) -> Option<TraceEnd> {
        let time_over = || (self.clock.elapsed() >= self.limits.duration).then_some(TraceEnd::TimeOver);
        let session_ended = || {
            let session = self.session.as_ref()?;
            (!session.load(Ordering::Acquire)).then_some(TraceEnd::SessionEnded)
        };
        inner.end.or_else(time_over).or_else(session_ended)
    }

    /// A panic under the lock would leave a count that is off by an entry, nothing worse.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_full(&self, cost: usize) -> bool {
        self.entries.len() >= PDUS_MAX || self.bytes + cost > BYTES_MAX
    }
}

impl What {
    /// Bytes of memory of an entry.
    fn cost(&self) -> usize {
        let rest = match self {
            Self::Closed(reason) => reason.len(),
            Self::Opened => 0,
            Self::Pdu(pdu) => pdu.ahs.len() + pdu.data.len(),
        };
        ENTRY_COST + rest
    }
}

impl TracedPdu {
    /// The lengths that its header names.
    #[must_use]
    pub fn frame(&self) -> Frame {
        Frame::of(&self.header)
    }
}

/// Entries of a trace.
pub const PDUS_MAX: usize = 10_000;
/// Bytes of memory of a trace.
const BYTES_MAX: usize = 8 << 20;
/// An entry with its place in the list, about.
const ENTRY_COST: usize = size_of::<TraceEntry>() + 48;

#[cfg(test)]
mod tests {
    use super::super::testing::link;
    use super::*;

    fn trace(stops_when_full: bool) -> Trace {
        let limits = TraceLimits {
            duration: Duration::from_secs(60),
            payload: 0,
            stops_when_full,
        };
        let subject = TraceSubject::Logins {
            initiator: None,
            network: None,
        };
        Trace::new(1, subject, limits, None)
    }

    fn pdu(len: usize) -> What {
        What::Pdu(TracedPdu {
            whose: Whose::Initiator,
            header: [0; BHS_LEN],
            ahs: Box::default(),
            data: vec![0; len].into(),
            digests: Digests::default(),
            is_damaged: false,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_million_pdus_take_no_more_room_than_ten_thousand() {
        let (trace, link) = (trace(false), link());
        for _ in 0..1_000_000 {
            assert!(trace.add(&link, pdu(0)));
        }
        let (kept, bytes, lost) = trace.extent();
        assert_eq!((kept, lost), (10_000, 990_000));
        assert!(bytes < 4 << 20, "{bytes}");
        assert_eq!(trace.entries(0, usize::MAX).first().unwrap().number, 990_001);
        assert_eq!(trace.entries(999_998, 10).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn large_pdus_are_bounded_by_their_bytes() {
        let (trace, link) = (trace(false), link());
        for _ in 0..1000 {
            assert!(trace.add(&link, pdu(256 * 1024)));
        }
        let (kept, bytes, _) = trace.extent();
        assert_eq!(kept, 31);
        assert!(bytes <= 8 << 20, "{bytes}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trace_that_is_to_stop_when_full_keeps_its_beginning() {
        let (trace, link) = (trace(true), link());
        let added = (0..20_000).filter(|_| trace.add(&link, pdu(0))).count();
        assert_eq!(added, 10_000);
        assert_eq!(trace.end(), Some(TraceEnd::Full));
        assert_eq!(trace.entries(0, 1)[0].number, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trace_ends_when_its_time_is_over() {
        let (trace, link) = (trace(false), link());
        assert!(trace.add(&link, pdu(0)));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!trace.add(&link, pdu(0)));
        assert_eq!(trace.end(), Some(TraceEnd::TimeOver));
        assert_eq!(trace.extent().0, 1);
    }
}
