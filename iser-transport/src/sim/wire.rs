//! What lies between two ends: their memory, their queues, and when which of it is due.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use backstores::IoBuf;
use tokio::time::Instant;

use super::Weather;
use crate::fabric::{Completion, LinkEvent, LinkLost, Remote, Work, WorkId};

/// An end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Both ends and what is between them.
#[derive(Debug)]
pub(super) struct Wire {
    weather: Weather,
    state: u64,
    sequence: u64,
    next_stag: u32,
    left: End,
    right: End,
}

#[derive(Debug, Default)]
struct End {
    receives: VecDeque<IoBuf>,
    posted: VecDeque<Posted>,
    /// What happens to this end, by its time.
    events: BTreeMap<(Instant, u64), LinkEvent>,
    memory: HashMap<u32, Region>,
    waker: Option<Waker>,
    reads: usize,
    /// Reads that the other end does not answer.
    unanswered: Vec<Posted>,
    serves_no_reads: bool,
    lost: bool,
    gone: bool,
    /// The first of `posted` waits for a receive of the other end.
    stalled: bool,
    waits_for_receives: u64,
    /// How often the other end wanted memory that is not open.
    refusals: u64,
    last_received: Option<Instant>,
    last_posted: Option<Instant>,
}

#[derive(Debug)]
struct Posted {
    id: WorkId,
    work: Work,
    due: Instant,
}

#[derive(Debug)]
struct Region {
    base: u64,
    bytes: Vec<u8>,
    valid: bool,
}

impl Region {
    /// The bytes of a piece, if all of it is inside.
    fn piece(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        if !self.valid {
            return None;
        }
        let start = usize::try_from(at.checked_sub(self.base)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(len)?)
    }
}

impl Wire {
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        let mut wire = Self {
            weather,
            state: seed,
            sequence: 0,
            next_stag: 0,
            left: End::default(),
            right: End::default(),
        };
        // No two links begin alike: a tag that is used on the wrong one is not there.
        wire.next_stag = u32::try_from(wire.draw(1 << 32)).expect("a number below the bound");
        wire
    }

    pub(super) fn worsen(&mut self, fails_one_in: u64) {
        self.weather.fails_one_in = fails_one_in;
    }

    pub(super) fn stop_serving_reads(&mut self, side: Side) {
        self.end(side).serves_no_reads = true;
    }

    pub(super) fn reads_max(&self) -> usize {
        self.weather.reads_max.max(1)
    }

    pub(super) fn register(&mut self, side: Side, bytes: Vec<u8>) -> Remote {
        self.next_stag = self.next_stag.wrapping_add(1);
        let (stag, base) = (self.next_stag, u64::from(self.next_stag) << 32 | 0x1000);
        let region = Region {
            base,
            bytes,
            valid: true,
        };
        self.end(side).memory.insert(stag, region);
        Remote { stag, at: base }
    }

    pub(super) fn deregister(&mut self, side: Side, stag: u32) -> Option<Vec<u8>> {
        Some(self.end(side).memory.remove(&stag)?.bytes)
    }

    pub(super) fn is_invalid(&self, side: Side, stag: u32) -> bool {
        let end = match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        };
        end.memory.get(&stag).is_none_or(|region| !region.valid)
    }

    pub(super) fn waits_for_receives(&self, side: Side) -> u64 {
        match side {
            Side::Left => self.left.waits_for_receives,
            Side::Right => self.right.waits_for_receives,
        }
    }

    pub(super) fn refusals(&self, side: Side) -> u64 {
        match side {
            Side::Left => self.left.refusals,
            Side::Right => self.right.refusals,
        }
    }

    /// Takes work. Returns the other end's waker: its timer may be too late now.
    pub(super) fn post(&mut self, side: Side, id: WorkId, work: Work) -> Option<Waker> {
        let now = Instant::now();
        let delay = self.delay();
        let reads_max = self.reads_max();
        let end = self.end(side);
        if end.lost {
            let at = now + delay;
            self.complete(
                side,
                at,
                id,
                work.into_buf(),
                Err("the queue pair is lost".into()),
            );
            return None;
        }
        if matches!(work, Work::Read { .. }) {
            end.reads += 1;
            assert!(end.reads <= reads_max, "more reads at once than were agreed on");
        }
        let due = end.last_posted.map_or(now, |last| last.max(now)) + delay;
        end.last_posted = Some(due);
        end.posted.push_back(Posted { id, work, due });
        self.end(other(side)).waker.take()
    }

    pub(super) fn post_receive(&mut self, side: Side, buf: IoBuf) -> Option<Waker> {
        let end = self.end(side);
        if end.lost {
            return None;
        }
        end.receives.push_back(buf);
        let peer = self.end(other(side));
        peer.stalled = false;
        peer.waker.take()
    }

    pub(super) fn wait(&mut self, side: Side, waker: &Waker) {
        self.end(side).waker = Some(waker.clone());
    }

    /// Does what is due. Returns who has to be woken.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for side in [Side::Left, Side::Right] {
            while self.carry_out_first(side, now) {
                wakers.extend(self.end(other(side)).waker.take());
                wakers.extend(self.end(side).waker.take());
            }
        }
        wakers
    }

    /// The next thing that happens to an end, if it is due.
    pub(super) fn next_event(&mut self, side: Side, now: Instant) -> Option<LinkEvent> {
        let first = self.end(side).events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When an end has to look again: something happens to it, or work is due, which either end carries out.
    pub(super) fn next_due(&mut self, side: Side) -> Option<Instant> {
        let of = |end: &End| {
            end.posted
                .front()
                .filter(|_| !end.stalled)
                .map(|posted| posted.due)
        };
        let work = [of(&self.left), of(&self.right)];
        let event = self.end(side).events.first_key_value().map(|((due, _), _)| *due);
        work.into_iter().flatten().chain(event).min()
    }

    /// The link is lost, as seen from one end. What is outstanding completes with errors, and later than that.
    pub(super) fn lose(&mut self, side: Side, why: LinkLost) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (end, why) in [(side, why), (other(side), LinkLost::Disconnected)] {
            if std::mem::replace(&mut self.end(end).lost, true) {
                continue;
            }
            // Behind what has arrived already.
            let at = self
                .end(end)
                .last_received
                .map_or_else(Instant::now, |last| last.max(Instant::now()));
            self.happen(end, at, LinkEvent::Lost(why));
            let mut outstanding = std::mem::take(&mut self.end(end).unanswered);
            outstanding.extend(std::mem::take(&mut self.end(end).posted));
            for posted in outstanding {
                let late = at + self.delay() + Duration::from_millis(1);
                let flushed = Err("flushed".into());
                self.complete(end, late, posted.id, posted.work.into_buf(), flushed);
            }
            wakers.extend(self.end(end).waker.take());
        }
        wakers
    }

    /// An end is dropped. Returns its memory, to be dropped outside of the lock.
    pub(super) fn leave(&mut self, side: Side) -> (Vec<Waker>, impl Sized + use<>) {
        // Never done: the peer must not see what its hardware has not carried out.
        let end = self.end(side);
        let posted = (
            std::mem::take(&mut end.posted),
            std::mem::take(&mut end.unanswered),
        );
        let wakers = self.lose(side, LinkLost::Disconnected);
        let end = self.end(side);
        end.gone = true;
        let receives = std::mem::take(&mut end.receives);
        let events = std::mem::take(&mut end.events);
        end.memory.clear();
        (wakers, (posted, receives, events))
    }

    fn carry_out_first(&mut self, side: Side, now: Instant) -> bool {
        let end = self.end(side);
        if end.lost || end.stalled || end.posted.front().is_none_or(|posted| posted.due > now) {
            return false;
        }
        let is_send = matches!(
            end.posted.front(),
            Some(Posted {
                work: Work::Send { .. },
                ..
            })
        );
        if is_send && self.end(other(side)).receives.is_empty() {
            self.end(other(side)).waits_for_receives += 1;
            self.end(side).stalled = true;
            return false;
        }
        let posted = self.end(side).posted.pop_front().expect("looked at above");
        if matches!(posted.work, Work::Read { .. }) {
            if self.end(other(side)).serves_no_reads {
                self.end(side).unanswered.push(posted);
                return true;
            }
            self.end(side).reads -= 1;
        }
        let unlucky = self.weather.fails_one_in;
        let result = if unlucky > 0 && self.draw(unlucky) == 0 {
            Err("transport retry counter exceeded")
        } else {
            Ok(())
        };
        let (buf, result) = match (result, posted.work) {
            (Ok(()), work) => self.carry_out(side, work, now),
            (failed, work) => (work.into_buf(), failed),
        };
        if result == Err(NOT_OPEN) {
            self.end(other(side)).refusals += 1;
        }
        let at = now + self.delay();
        let failed = result.is_err();
        self.complete(side, at, posted.id, buf, result.map_err(str::to_owned));
        if failed {
            // Told like a failed receive: who posted hears of it by the completion too, in either order.
            self.lose(side, LinkLost::Failed("work failed".into()));
        }
        true
    }

    fn carry_out(&mut self, side: Side, work: Work, now: Instant) -> (IoBuf, Result<(), &'static str>) {
        let delay = self.delay();
        let peer = self.end(other(side));
        match work {
            Work::Send { buf, invalidate } => {
                let mut into = peer.receives.pop_front().expect("looked at before");
                if into.len() < buf.len() {
                    return (buf, Err("remote invalid request"));
                }
                into.set_len(buf.len());
                into.copy_from_slice(&buf);
                if let Some(stag) = invalidate {
                    match peer.memory.get_mut(&stag).filter(|region| region.valid) {
                        Some(region) => region.valid = false,
                        None => return (buf, Err(NOT_OPEN)),
                    }
                }
                let at = peer.last_received.map_or(now, |last| last.max(now + delay));
                peer.last_received = Some(at);
                self.happen(other(side), at, LinkEvent::Received(into));
                (buf, Ok(()))
            }
            Work::Write { buf, to } => {
                let place = peer.memory.get_mut(&to.stag);
                match place.and_then(|region| region.piece(to.at, buf.len())) {
                    Some(place) => place.copy_from_slice(&buf),
                    None => return (buf, Err(NOT_OPEN)),
                }
                (buf, Ok(()))
            }
            Work::Read { mut buf, at, from } => {
                let len = buf.len() - at;
                let place = peer.memory.get_mut(&from.stag);
                match place.and_then(|region| region.piece(from.at, len)) {
                    Some(place) => buf[at..].copy_from_slice(place),
                    None => return (buf, Err(NOT_OPEN)),
                }
                (buf, Ok(()))
            }
        }
    }

    fn complete(&mut self, side: Side, at: Instant, id: WorkId, buf: IoBuf, result: Result<(), String>) {
        self.happen(side, at, LinkEvent::Done(Completion { id, buf, result }));
    }

    fn happen(&mut self, side: Side, at: Instant, event: LinkEvent) {
        self.sequence += 1;
        let sequence = self.sequence;
        let end = self.end(side);
        if !end.gone {
            end.events.insert((at, sequence), event);
        }
    }

    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    fn delay(&mut self) -> Duration {
        if self.weather.delay_ms == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(self.draw(self.weather.delay_ms + 1))
    }

    /// SplitMix64, cut to a number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Left => Side::Right,
        Side::Right => Side::Left,
    }
}

/// As verbs say it.
const NOT_OPEN: &str = "remote access error";
