//! What waits for a place in the send queue of the queue pair, what is under way, and what its end means. Pure.
//!
//! Sends and writes keep their order: a response never overtakes its data. Reads have a queue of their own, so that one
//! more than the peer serves at once (RFC 7145 §8.2) does not hold up everything behind it.

use std::collections::VecDeque;

use backstores::IoBuf;
use iscsi_proto::Itt;
use tokio::sync::OwnedSemaphorePermit;

use crate::fabric::{Capabilities, Completion, QueuePair, Remote, Work, WorkId};
use crate::slots::Slots;

/// The queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Bounded by the bytes in flight that `serve` allows, and by one response for each command of the window.
    waiting: VecDeque<(Work, Flight)>,
    /// At most one a task.
    reads: VecDeque<(Work, Flight)>,
    flights: Slots<Flight>,
    /// Places for sends and writes; the rest of the queue is for reads.
    places: usize,
    reads_max: usize,
    out_in_flight: usize,
    reads_in_flight: usize,
    queued_bytes: usize,
    unsent_memory: usize,
    /// How many have been queued, for their numbers.
    queued: u64,
    /// How many have ended.
    ended: u64,
    reads_released: usize,
}

/// What a work request is for.
#[derive(Debug)]
struct Flight {
    kind: Kind,
    /// In the order in which they are queued.
    number: u64,
    /// Bytes that it moves.
    len: usize,
    /// Bytes that its buffer takes up, if they leave with it: of a short message far more than it has.
    memory: usize,
    /// Somebody waits for the end of it.
    released: bool,
}

#[derive(Debug)]
enum Kind {
    Send,
    Write {
        itt: Itt,
        /// Share of the bytes in flight; given back with the buffer.
        _budget: Option<OwnedSemaphorePermit>,
    },
    Read {
        itt: Itt,
    },
}

/// What the end of a work request means.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Data-Out are here.
    Filled(Itt, IoBuf),
    /// It failed, and with it the connection.
    Failed(String),
    /// Nothing moves for this task any more.
    Released(Itt),
    /// Nothing to tell.
    Sent,
}

impl SendQueue {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        let reads_max = capabilities.reads_max.max(1);
        Self {
            waiting: VecDeque::new(),
            reads: VecDeque::new(),
            flights: Slots::default(),
            places: capabilities.send_depth.saturating_sub(reads_max).max(1),
            reads_max,
            out_in_flight: 0,
            reads_in_flight: 0,
            queued_bytes: 0,
            unsent_memory: 0,
            queued: 0,
            ended: 0,
            reads_released: 0,
        }
    }

    /// The peer serves fewer reads at once than its connection request said, perhaps none.
    pub(crate) fn limit_reads(&mut self, reads_max: usize) {
        self.reads_max = self.reads_max.min(reads_max);
    }

    /// Reads that may be under way at once.
    pub(crate) fn reads_max(&self) -> usize {
        self.reads_max
    }

    /// The message that was queued last, if nothing has gone out since.
    pub(crate) fn last_send_mut(&mut self) -> Option<&mut IoBuf> {
        match self.waiting.back_mut() {
            Some((Work::Send { buf, .. }, _)) => Some(buf),
            _ => None,
        }
    }

    pub(crate) fn push_send(&mut self, buf: IoBuf, invalidate: Option<u32>) {
        self.push_out(Work::Send { buf, invalidate }, Kind::Send);
    }

    pub(crate) fn push_write(
        &mut self,
        itt: Itt,
        buf: IoBuf,
        to: Remote,
        budget: Option<OwnedSemaphorePermit>,
    ) {
        let kind = Kind::Write { itt, _budget: budget };
        self.push_out(Work::Write { buf, to }, kind);
    }

    pub(crate) fn push_read(&mut self, itt: Itt, buf: IoBuf, at: usize, from: Remote) {
        let work = Work::Read { buf, at, from };
        let flight = Flight {
            kind: Kind::Read { itt },
            number: self.queued,
            len: work.moves(),
            memory: 0,
            released: false,
        };
        self.queued += 1;
        self.reads.push_back((work, flight));
    }

    fn push_out(&mut self, work: Work, kind: Kind) {
        let flight = Flight {
            kind,
            number: self.queued,
            len: work.moves(),
            memory: work.buf().capacity(),
            released: false,
        };
        self.queued += 1;
        self.queued_bytes += flight.len;
        self.unsent_memory += flight.memory;
        self.waiting.push_back((work, flight));
    }

    /// Hands over whatever there is room for.
    pub(crate) fn post(&mut self, qp: &mut impl QueuePair) {
        while self.out_in_flight < self.places
            && let Some((work, flight)) = self.waiting.pop_front()
        {
            self.out_in_flight += 1;
            self.fly(qp, work, flight);
        }
        while self.reads_in_flight < self.reads_max
            && let Some((work, flight)) = self.reads.pop_front()
        {
            self.reads_in_flight += 1;
            self.fly(qp, work, flight);
        }
    }

    fn fly(&mut self, qp: &mut impl QueuePair, work: Work, flight: Flight) {
        qp.post(WorkId(self.flights.put(flight)), work);
    }

    /// Work has ended, well or not.
    pub(crate) fn ended(&mut self, completion: Completion) -> Ended {
        let Completion { id, buf, result } = completion;
        let Some(flight) = self.flights.take(id.0) else {
            return Ended::Sent;
        };
        self.ended += 1;
        self.reads_released -= usize::from(flight.is_released_read());
        self.queued_bytes -= flight.owed();
        self.unsent_memory -= flight.memory;
        match flight.kind {
            Kind::Read { .. } => self.reads_in_flight -= 1,
            Kind::Send | Kind::Write { .. } => self.out_in_flight -= 1,
        }
        if let Err(error) = result {
            return Ended::Failed(error);
        }
        match (flight.itt(), flight.released) {
            (Some(itt), true) if !self.moves_for(itt) => Ended::Released(itt),
            (Some(itt), false) if matches!(flight.kind, Kind::Read { .. }) => Ended::Filled(itt, buf),
            _ => Ended::Sent,
        }
    }

    /// Drops what waits for a task. Returns whether nothing of it is under way either; otherwise the end of the last
    /// piece is [`Ended::Released`].
    pub(crate) fn release(&mut self, itt: Itt) -> bool {
        for queue in [&mut self.waiting, &mut self.reads] {
            queue.retain(|(_, flight)| {
                let goes = flight.itt() == Some(itt);
                if goes {
                    self.queued_bytes -= flight.owed();
                    self.unsent_memory -= flight.memory;
                }
                !goes
            });
        }
        let under_way = self.flights.iter_mut();
        for flight in under_way.filter(|flight| flight.itt() == Some(itt)) {
            if matches!(flight.kind, Kind::Read { .. }) && !flight.released {
                self.queued_bytes += flight.len;
                self.reads_released += 1;
            }
            flight.released = true;
        }
        !self.moves_for(itt)
    }

    fn moves_for(&self, itt: Itt) -> bool {
        self.flights
            .iter()
            .any(|flight| flight.released && flight.itt() == Some(itt))
    }

    /// Bytes that the peer has not taken, and those of reads that nobody else has an eye on.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes of all buffers that are kept for what the peer has not taken.
    pub(crate) fn unsent_memory(&self) -> usize {
        self.unsent_memory
    }

    /// Changes when some of these have gone; while there are reads that nobody else has an eye on, when the oldest of those
    /// has ended: sends may go on for ever beside one that is never answered.
    pub(crate) fn progress(&self) -> u64 {
        if self.reads_released == 0 {
            return self.ended;
        }
        let flights = self.flights.iter();
        let oldest = flights
            .filter(|flight| flight.is_released_read())
            .map(|flight| flight.number);
        oldest.min().unwrap_or(self.ended)
    }
}

impl Flight {
    fn is_released_read(&self) -> bool {
        self.released && matches!(self.kind, Kind::Read { .. })
    }

    /// Bytes that the peer owes us to deal with. For those of a read whose task still waits for them the loop has a
    /// deadline.
    fn owed(&self) -> usize {
        match self.kind {
            Kind::Read { .. } if !self.released => 0,
            Kind::Read { .. } | Kind::Send | Kind::Write { .. } => self.len,
        }
    }

    fn itt(&self) -> Option<Itt> {
        match self.kind {
            Kind::Send => None,
            Kind::Read { itt } | Kind::Write { itt, .. } => Some(itt),
        }
    }
}
