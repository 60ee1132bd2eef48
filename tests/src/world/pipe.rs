//! One direction of a simulated connection: PDUs in order, each after a delay, at most so many bytes on the way. Both
//! ends are polled; either may be dropped at any moment.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use iscsi_proto::BHS_LEN;
use iser_transport::Opened;
use tokio::time::{Instant, Sleep, sleep_until};

use super::random::Random;

/// A PDU on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    /// Its header.
    pub(crate) bhs: [u8; BHS_LEN],
    /// Its data segment.
    pub(crate) data: Vec<u8>,
    /// What digests say of it when it arrives.
    pub(crate) damage: Damage,
    /// Beside the wire: the memory that an RDMA initiator opens for a command.
    pub(crate) opened: Option<Opened>,
}

/// What was damaged on the way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Damage {
    None,
    /// The data digest does not match.
    Data,
    /// The header digest does not: nobody knows where the next PDU begins.
    Header,
}

impl Pdu {
    /// A sound one. Its header says how long its data are.
    pub(crate) fn new(mut bhs: [u8; BHS_LEN], data: Vec<u8>) -> Self {
        bhs[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        Self {
            bhs,
            data,
            damage: Damage::None,
            opened: None,
        }
    }
}

/// The end that sends. Dropping it ends the stream behind what is on its way.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Mutex<Shared>>,
    random: Random,
    delay_ms: u64,
}

/// The end that receives. Dropping it makes whatever is sent vanish.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Arc<Mutex<Shared>>,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, Default)]
struct Shared {
    items: VecDeque<(Instant, Pdu)>,
    bytes: usize,
    taken: u64,
    sender_gone: bool,
    receiver_gone: bool,
    wake_receiver: Option<Waker>,
    wake_sender: Option<Waker>,
}

/// A direction whose PDUs need up to `delay_ms` milliseconds each.
#[must_use]
pub(crate) fn pipe(random: Random, delay_ms: u64) -> (Sender, Receiver) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    let sender = Sender {
        shared: Arc::clone(&shared),
        random,
        delay_ms,
    };
    (sender, Receiver { shared, timer: None })
}

impl Sender {
    /// Ready when there is room, or when nobody takes anything any more.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = lock(&self.shared);
        if shared.receiver_gone || shared.bytes < CAPACITY {
            return Poll::Ready(());
        }
        shared.wake_sender = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Puts a PDU on its way, whether or not there is room.
    pub(crate) fn send(&mut self, pdu: Pdu) {
        let delay = self.random.millis(0, self.delay_ms);
        let mut shared = lock(&self.shared);
        if shared.receiver_gone {
            return;
        }
        let earliest = shared.items.back().map_or_else(Instant::now, |(due, _)| *due);
        let due = earliest.max(Instant::now() + delay);
        shared.bytes += BHS_LEN + pdu.data.len();
        shared.items.push_back((due, pdu));
        shared.wake_receiver.take().into_iter().for_each(Waker::wake);
    }

    /// Bytes on the way.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.shared).bytes
    }

    /// Bytes that have arrived since the beginning.
    #[must_use]
    pub(crate) fn taken(&self) -> u64 {
        lock(&self.shared).taken
    }
}

impl Receiver {
    /// The next PDU that has arrived; `None` at the end of the stream.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Pdu>> {
        loop {
            let mut shared = lock(&self.shared);
            let Some((due, _)) = shared.items.front() else {
                if shared.sender_gone {
                    return Poll::Ready(None);
                }
                shared.wake_receiver = Some(cx.waker().clone());
                return Poll::Pending;
            };
            if *due <= Instant::now() {
                let (_, pdu) = shared.items.pop_front().expect("looked at above");
                shared.bytes -= BHS_LEN + pdu.data.len();
                shared.taken += (BHS_LEN + pdu.data.len()) as u64;
                shared.wake_sender.take().into_iter().for_each(Waker::wake);
                self.timer = None;
                return Poll::Ready(Some(pdu));
            }
            let due = *due;
            drop(shared);
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

    /// The next PDU, when it has arrived.
    pub(crate) async fn recv(&mut self) -> Option<Pdu> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.sender_gone = true;
        shared.wake_receiver.take().into_iter().for_each(Waker::wake);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.receiver_gone = true;
        shared.items.clear();
        shared.bytes = 0;
        shared.wake_sender.take().into_iter().for_each(Waker::wake);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("nothing panics while it is held")
}

/// Bytes on the way at which a sender waits: small, so that waiting happens.
const CAPACITY: usize = 128 * 1024;
