//! The bounded stock of buffers of one data core: one large mapping, handed out first come, first served.
//!
//! Who waits is served strictly in turn, over all classes: while a large request waits, no small one behind it takes
//! the memory that comes back. Holders never wait for more, so blocks do come back, runs grow together
//! (`slabs.rs`), and no request waits for ever. The lock is held for a few dozen instructions and never across an
//! `await`; other threads meet it only when they drop a buffer.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::slabs::{Class, Slabs};
use crate::{CHUNK, IoBuf};

/// A bounded stock of blocks in the classes 4, 16, 64 and 256 KiB. One pool per data core.
pub struct BufPool {
    region: Region,
    capacity: usize,
    stock: Mutex<Stock>,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolStats {
    /// Bytes the pool may hand out.
    pub capacity: usize,
    /// Bytes handed out and not yet returned, in whole blocks.
    pub in_use: usize,
    /// Times that somebody had to wait for a block.
    pub waits: u64,
}

impl BufPool {
    /// A pool that hands out at most `capacity` bytes at a time, rounded up to a multiple of [`CHUNK`]. Memory is
    /// mapped now and touched on first use.
    ///
    /// # Panics
    /// If the address space cannot be mapped: nothing works without the pool.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        let slabs = capacity.div_ceil(CHUNK).max(1);
        let capacity = slabs * CHUNK;
        Arc::new(Self {
            region: Region::map(capacity),
            capacity,
            stock: Mutex::new(Stock::new(slabs)),
        })
    }

    /// Waits its turn (first come, first served) for a block of the smallest fitting class. The visible length is
    /// `len`; the content is whatever an earlier user left, so a reader fills it before anyone sees it. Dropping the
    /// future gives up the turn and keeps nothing.
    ///
    /// # Panics
    /// If `len` exceeds [`CHUNK`]: a caller's bug.
    pub async fn acquire(self: &Arc<Self>, len: usize) -> IoBuf {
        let class = class_of(len);
        let at = Turn {
            pool: self,
            class,
            ticket: None,
        }
        .await;
        self.buffer(at, len, class)
    }

    /// For paths that must not wait: `None` when the pool is dry or others already wait.
    ///
    /// # Panics
    /// If `len` exceeds [`CHUNK`]: a caller's bug.
    pub fn try_acquire(self: &Arc<Self>, len: usize) -> Option<IoBuf> {
        let class = class_of(len);
        let at = self.stock().take(class)?;
        Some(self.buffer(at, len, class))
    }

    /// Where its memory lies: one mapping, which stays as long as the pool. For whoever has to name it to a device.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let start = self.region.base.as_ptr().expose_provenance();
        start..start + self.capacity
    }

    /// Occupancy now. Blocks set aside for somebody whose turn has come count as in use.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let stock = self.stock();
        PoolStats {
            capacity: self.capacity,
            in_use: stock.slabs.in_use(),
            // Each who waits draws a ticket.
            waits: stock.next_ticket,
        }
    }

    /// Takes a block back from its buffer and serves whoever waits for it.
    pub(crate) fn give_back(&self, start: NonNull<u8>, class: Class) {
        let at = start.as_ptr() as usize - self.region.base.as_ptr() as usize;
        let mut stock = self.stock();
        stock.slabs.give(at, class);
        let wakers = stock.serve();
        drop(stock);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn buffer(self: &Arc<Self>, at: usize, len: usize, class: Class) -> IoBuf {
        // SAFETY: `at` came from the stock, so it lies inside the region (mapped zeroed, alive as long as the pool)
        // with all its bytes, and is nobody else's until the buffer gives it back.
        unsafe { IoBuf::from_pool(self.region.base.add(at), len, class, Arc::clone(self)) }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        write!(f, "BufPool({} of {} bytes in use)", stats.in_use, stats.capacity)
    }
}

/// What the lock protects.
struct Stock {
    slabs: Slabs,
    /// Who waits, by ticket. One entry per waiting operation, which the command windows bound.
    waiting: BTreeMap<u64, (Class, Waker)>,
    /// Blocks set aside for waiters that have been woken and have not come yet.
    granted: BTreeMap<u64, (Class, usize)>,
    next_ticket: u64,
}

impl Stock {
    fn new(slabs: usize) -> Self {
        Self {
            slabs: Slabs::new(slabs),
            waiting: BTreeMap::new(),
            granted: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// A block for somebody who just came: only when nobody waits.
    fn take(&mut self, class: Class) -> Option<usize> {
        if self.waiting.is_empty() {
            self.slabs.take(class)
        } else {
            None
        }
    }

    fn enqueue(&mut self, class: Class, waker: Waker) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, (class, waker));
        ticket
    }

    /// Sets blocks aside for those at the head of the queue; gives those to wake once the lock is released.
    fn serve(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let class = first.get().0;
            let Some(at) = self.slabs.take(class) else { break };
            let (ticket, (_, waker)) = first.remove_entry();
            self.granted.insert(ticket, (class, at));
            wakers.push(waker);
        }
        wakers
    }

    /// Gives up a ticket, with the block that may have been set aside for it.
    fn leave(&mut self, ticket: u64) -> Vec<Waker> {
        match self.granted.remove(&ticket) {
            Some((class, at)) => self.slabs.give(at, class),
            None => drop(self.waiting.remove(&ticket)),
        }
        self.serve()
    }
}

/// One operation's wait; yields the offset of its block.
struct Turn<'a> {
    pool: &'a BufPool,
    class: Class,
    ticket: Option<u64>,
}

impl Future for Turn<'_> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let mut stock = self.pool.stock();
        let Some(ticket) = self.ticket else {
            if let Some(at) = stock.take(self.class) {
                return Poll::Ready(at);
            }
            let ticket = stock.enqueue(self.class, cx.waker().clone());
            drop(stock);
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        if let Some((_, at)) = stock.granted.remove(&ticket) {
            drop(stock);
            self.ticket = None;
            return Poll::Ready(at);
        }
        if let Some((_, waker)) = stock.waiting.get_mut(&ticket) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let wakers = self.pool.stock().leave(ticket);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// One anonymous mapping. Large and of one piece, so that a device can register it once.
struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory without ties to a thread; who may touch which part of it is the stock's matter.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn map(len: usize) -> Self {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert!(
            base != libc::MAP_FAILED,
            "cannot map {len} bytes: {}",
            std::io::Error::last_os_error()
        );
        Self {
            base: NonNull::new(base.cast()).expect("the kernel never maps page 0 unasked"),
            len,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; every buffer holds its pool, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn class_of(len: usize) -> Class {
    Class::fitting(len).unwrap_or_else(|| panic!("a buffer of {len} bytes exceeds a chunk"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// A future under test with its own waker.
    struct Waiter {
        future: Pin<Box<dyn Future<Output = IoBuf>>>,
        flag: Arc<Flag>,
    }

    impl Waiter {
        fn new(pool: &Arc<BufPool>, len: usize) -> Self {
            let pool = Arc::clone(pool);
            let mut waiter = Self {
                future: Box::pin(async move { pool.acquire(len).await }),
                flag: Arc::default(),
            };
            assert!(waiter.poll().is_none(), "the pool should have been dry");
            waiter
        }

        fn poll(&mut self) -> Option<IoBuf> {
            let waker = Waker::from(Arc::clone(&self.flag));
            match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => None,
                Poll::Ready(buf) => Some(buf),
            }
        }

        fn woken(&self) -> bool {
            self.flag.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn blocks_are_aligned_and_counted_in_whole_classes() {
        let pool = BufPool::new(1024 * 1024);
        let small = pool.try_acquire(512).unwrap();
        let middle = pool.try_acquire(5000).unwrap();
        assert_eq!((small.len(), small.capacity()), (512, 4096));
        assert_eq!((middle.len(), middle.capacity()), (5000, 16_384));
        assert_eq!(small.as_ptr() as usize % 4096, 0);
        assert_eq!(middle.as_ptr() as usize % 4096, 0);
        assert_eq!(
            pool.stats(),
            PoolStats {
                capacity: 1_048_576,
                in_use: 20_480,
                waits: 0,
            }
        );
        drop((small, middle));
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn a_dry_pool_gives_nothing_and_recovers() {
        let pool = BufPool::new(1);
        let all = pool.try_acquire(CHUNK).unwrap();
        assert!(pool.try_acquire(1).is_none());
        drop(all);
        assert!(pool.try_acquire(1).is_some());
    }

    #[test]
    fn waiters_are_served_in_the_order_they_came() {
        let pool = BufPool::new(CHUNK);
        let all = pool.try_acquire(CHUNK).unwrap();
        let (mut first, mut second) = (Waiter::new(&pool, CHUNK), Waiter::new(&pool, CHUNK));
        drop(all);
        assert!(first.woken() && !second.woken());
        assert!(second.poll().is_none());
        drop(first.poll().unwrap());
        assert!(second.woken());
        assert_eq!(second.poll().unwrap().len(), CHUNK);
    }

    #[test]
    fn a_small_request_does_not_overtake_a_waiting_large_one() {
        let pool = BufPool::new(CHUNK);
        let (half, rest) = (pool.try_acquire(65_536).unwrap(), pool.try_acquire(4096).unwrap());
        let mut large = Waiter::new(&pool, CHUNK);
        assert!(
            pool.try_acquire(4096).is_none(),
            "there is room, but somebody waits"
        );
        let mut small = Waiter::new(&pool, 4096);
        drop(half);
        assert!(!small.woken() && small.poll().is_none());
        drop(rest);
        let taken = large.poll().unwrap();
        assert!(small.poll().is_none());
        drop(taken);
        assert!(small.poll().is_some());
    }

    #[test]
    fn a_waiter_that_leaves_passes_its_turn_on() {
        let pool = BufPool::new(CHUNK);
        let _held = pool.try_acquire(4096).unwrap();
        let large = Waiter::new(&pool, CHUNK);
        let mut small = Waiter::new(&pool, 4096);
        drop(large);
        assert!(small.woken());
        assert!(small.poll().is_some());
    }

    #[test]
    fn a_waiter_that_leaves_after_its_grant_loses_no_block() {
        let pool = BufPool::new(CHUNK);
        let all = pool.try_acquire(CHUNK).unwrap();
        let (first, mut second) = (Waiter::new(&pool, CHUNK), Waiter::new(&pool, CHUNK));
        drop(all);
        assert!(first.woken());
        drop(first);
        assert!(second.woken());
        drop(second.poll().unwrap());
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn threads_that_take_and_drop_everywhere_leave_the_pool_whole() {
        const THREADS: u8 = 4;
        let rounds = if cfg!(miri) { 20 } else { 5000 };
        let pool = BufPool::new(2 * CHUNK);
        let (sender, receiver) = std::sync::mpsc::sync_channel::<IoBuf>(2);
        let stranger = std::thread::spawn(move || receiver.into_iter().for_each(drop));
        let workers: Vec<_> = (0..THREADS)
            .map(|id| {
                let (pool, sender) = (Arc::clone(&pool), sender.clone());
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for round in 0..rounds {
                        let len = [4096, 16_384, 65_536, CHUNK][(round + usize::from(id)) % 4];
                        if round % 7 == 0 {
                            // Polled once, then dropped: as granted, waiting or done.
                            let _ = futures_util::FutureExt::now_or_never(pool.acquire(len));
                            continue;
                        }
                        let mut buf = runtime.block_on(pool.acquire(len));
                        let edges = [0, len - 1];
                        edges.iter().for_each(|at| buf[*at] = id);
                        std::thread::yield_now();
                        assert!(edges.iter().all(|at| buf[*at] == id), "two owners of one block");
                        if round % 3 == 0 {
                            sender.send(buf).unwrap();
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stranger.join().unwrap();
        assert_eq!(pool.stats().in_use, 0);
        assert!(pool.try_acquire(CHUNK).is_some() && pool.stock().granted.is_empty());
    }
}
