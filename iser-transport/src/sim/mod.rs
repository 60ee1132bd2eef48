//! A queue pair in memory, for tests and simulations: reliable and in order as the hardware is, late as the hardware is,
//! and failing on demand.
//!
//! Work is carried out at the other end in the order it was posted; when it completes is another matter. With a delay,
//! everything happens on tokio's clock. A message that finds no receive waits, and is counted: see
//! [`SimQueuePair::waits_for_receives`].

mod wire;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use backstores::IoBuf;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::fabric::{Capabilities, LinkEvent, LinkLost, QueuePair, Remote, Work, WorkId};
use wire::{Side, Wire};

/// How things go on a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Weather {
    /// Everything takes up to so many milliseconds; completions overtake each other then.
    pub delay_ms: u64,
    /// One in so many work requests fails, and with it the link; 0 for none.
    pub fails_one_in: u64,
    /// RDMA READs that each end serves at once.
    pub reads_max: usize,
}

/// One end of a link in memory.
#[derive(Debug)]
pub struct SimQueuePair {
    wire: Arc<Mutex<Wire>>,
    side: Side,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A connected pair. What chance decides follows from the seed.
#[must_use]
pub fn link(seed: u64, weather: Weather) -> (SimQueuePair, SimQueuePair) {
    let wire = Arc::new(Mutex::new(Wire::new(seed, weather)));
    let end = |side| SimQueuePair {
        wire: Arc::clone(&wire),
        side,
        timer: None,
    };
    (end(Side::Left), end(Side::Right))
}

impl SimQueuePair {
    /// Opens memory for the peer to read and write. Returns its place.
    pub fn register(&mut self, bytes: Vec<u8>) -> Remote {
        self.lock().register(self.side, bytes)
    }

    /// Closes memory, and gives it back. `None` for a tag that is not there.
    pub fn deregister(&mut self, stag: u32) -> Option<Vec<u8>> {
        self.lock().deregister(self.side, stag)
    }

    /// Whether the peer has invalidated the tag, or it was never there.
    #[must_use]
    pub fn is_invalid(&self, stag: u32) -> bool {
        self.lock().is_invalid(self.side, stag)
    }

    /// How often a message of the peer found no receive here.
    #[must_use]
    pub fn waits_for_receives(&self) -> u64 {
        self.lock().waits_for_receives(self.side)
    }

    /// How often work of the peer named memory here that was not open: closed again, invalidated, or never there.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.lock().refusals(self.side)
    }

    /// From now on one in so many work requests fails; 0 for none.
    pub fn worsen(&mut self, fails_one_in: u64) {
        self.lock().worsen(fails_one_in);
    }

    /// From now on this end answers no RDMA READ, though all else goes on: over iWARP a peer can do that for ever.
    pub fn stop_serving_reads(&mut self) {
        self.lock().stop_serving_reads(self.side);
    }

    /// Takes the device away from this end.
    pub fn remove_device(&mut self) {
        let wakers = self.lock().lose(self.side, LinkLost::DeviceRemoved);
        wake(wakers);
    }

    fn lock(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuePair for SimQueuePair {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_depth: SEND_DEPTH,
            receive_depth: RECEIVE_DEPTH,
            reads_max: self.lock().reads_max(),
            can_invalidate: true,
        }
    }

    fn post(&mut self, id: WorkId, work: Work) {
        let waker = self.lock().post(self.side, id, work);
        wake(waker);
    }

    fn post_receive(&mut self, buf: IoBuf) {
        let waker = self.lock().post_receive(self.side, buf);
        wake(waker);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<LinkEvent> {
        loop {
            let mut wire = self.lock();
            let now = Instant::now();
            let wakers = wire.advance(now);
            let event = wire.next_event(self.side, now);
            let due = wire.next_due(self.side);
            if event.is_none() {
                wire.wait(self.side, cx.waker());
            }
            drop(wire);
            wake(wakers);
            if let Some(event) = event {
                return Poll::Ready(event);
            }
            let Some(due) = due else {
                self.timer = None;
                return Poll::Pending;
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }

    fn move_here(&mut self) -> std::io::Result<()> {
        self.timer = None;
        Ok(())
    }

    fn disconnect(&mut self) {
        let wakers = self.lock().lose(self.side, LinkLost::Disconnected);
        wake(wakers);
    }
}

impl Drop for SimQueuePair {
    /// As hardware that is told to forget a queue pair: what was not done is never done, memory is free at once.
    fn drop(&mut self) {
        let (wakers, memory) = self.lock().leave(self.side);
        wake(wakers);
        drop(memory);
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// Sends, writes and reads outstanding: few, so that waiting happens.
const SEND_DEPTH: usize = 24;
const RECEIVE_DEPTH: usize = 2048;

#[cfg(test)]
mod tests;
