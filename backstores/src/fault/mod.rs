//! A store for tests that misbehaves on demand: it holds operations back, fails or tears them, and loses power.
//!
//! It wraps a store whose operations complete in one poll, as memory and null do, and adds a volatile write cache to it
//! (`cache.rs`). Everything is deterministic: no clock, no thread, randomness only from the seed of
//! [`FaultStore::power_cut`].

mod cache;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use cache::Cache;
use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};

use crate::error::check_range;
use crate::{BlockStore, Durability, Geometry, IoBuf, Measured, Space, StoreError, StoreErrorKind, StoreOp};

/// A store with a handle on its misfortunes. Share it by `Arc`: one clone as the store, one for the test.
///
/// The life of an operation: it is refused while the power is off; it is held while a [`hold`](Self::hold) matches; then
/// the first [`inject`](Self::inject)ed fault that is due decides; else it is done. A held operation runs when it is
/// released, even if its future is gone.
///
/// ```
/// # use backstores::{open, BlockStore, Durability, FaultStore, IoBuf, Matching, StoreOp, StoreOptions, StoreSource};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let memory = open(&StoreSource::Memory { size: 1 << 20 }, StoreOptions::default()).unwrap();
/// let store = FaultStore::new(memory);
/// store.hold(Matching::op(StoreOp::Write));
/// let write = store.write(0, IoBuf::from_heap(512), Durability::Cached);
/// let release = async {
///     store.until_held(1).await;
///     store.resume();
/// };
/// assert!(futures_util::future::join(write, release).await.0.is_ok());
/// # });
/// ```
pub struct FaultStore {
    inner: Arc<dyn BlockStore>,
    state: Mutex<State>,
    held_count: watch::Sender<usize>,
}

/// Which operations a hold or fault concerns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Matching {
    /// Of this kind; `None` matches all.
    pub op: Option<StoreOp>,
    /// Touching this byte range; `None` matches all. A flush touches none.
    pub touching: Option<Range<u64>>,
}

impl Matching {
    /// Every operation.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Operations of one kind.
    #[must_use]
    pub fn op(op: StoreOp) -> Self {
        Self {
            op: Some(op),
            touching: None,
        }
    }

    /// Of those, the ones that touch `range`.
    #[must_use]
    pub fn touching(self, range: Range<u64>) -> Self {
        Self {
            touching: Some(range),
            ..self
        }
    }

    fn matches(&self, op: StoreOp, range: Option<&Range<u64>>) -> bool {
        let touches =
            |ours: &Range<u64>| range.is_some_and(|its| its.start < ours.end && ours.start < its.end);
        self.op.is_none_or(|ours| ours == op) && self.touching.as_ref().is_none_or(touches)
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It fails and does nothing.
    Fail(StoreErrorKind),
    /// Only its first `bytes` (rounded down to whole blocks) take effect, then it fails. Reads and flushes just fail.
    Tear {
        /// Bytes that land.
        bytes: u64,
        /// The error.
        kind: StoreErrorKind,
    },
}

/// A held operation, as [`FaultStore::held`] shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldOp {
    /// For [`FaultStore::release`].
    pub id: u64,
    /// Its kind.
    pub op: StoreOp,
    /// Bytes it touches; `None` for a flush.
    pub range: Option<Range<u64>>,
}

impl FaultStore {
    /// Wraps a store that completes its operations in one poll.
    ///
    /// # Panics
    /// In later operations, if the wrapped store does not complete at once.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockStore>) -> Arc<Self> {
        let cache = Cache::new(inner.geometry().block_size);
        let state = State {
            cache,
            powered: true,
            holds: Vec::new(),
            held: Vec::new(),
            next_id: 0,
            rules: Vec::new(),
        };
        Arc::new(Self {
            inner,
            state: Mutex::new(state),
            held_count: watch::Sender::new(0),
        })
    }

    /// From now on matching operations wait for [`release`](Self::release) or [`resume`](Self::resume).
    pub fn hold(&self, matching: Matching) {
        self.state().holds.push(matching);
    }

    /// What waits, in the order it came.
    #[must_use]
    pub fn held(&self) -> Vec<HeldOp> {
        let describe = |held: &Held| HeldOp {
            id: held.id,
            op: held.work.op(),
            range: held.work.range(),
        };
        self.state().held.iter().map(describe).collect()
    }

    /// Waits until at least so many operations are held.
    pub async fn until_held(&self, count: usize) {
        let reached = self
            .held_count
            .subscribe()
            .wait_for(|held| *held >= count)
            .await
            .is_ok();
        debug_assert!(reached, "the sender lives as long as we do");
    }

    /// Does one held operation, in whatever order the test likes. `false` when there is no such.
    pub fn release(&self, id: u64) -> bool {
        let mut state = self.state();
        let Some(index) = state.held.iter().position(|held| held.id == id) else {
            return false;
        };
        let held = state.held.remove(index);
        self.finish(&mut state, vec![held]);
        true
    }

    /// Holds nothing any more and does everything held, in the order it came.
    pub fn resume(&self) {
        let mut state = self.state();
        state.holds.clear();
        let held = std::mem::take(&mut state.held);
        self.finish(&mut state, held);
    }

    /// The `fault` befalls matching operations: lets `skip` of them pass, then strikes `times` of them.
    pub fn inject(&self, matching: Matching, skip: u64, times: u64, fault: Fault) {
        self.state().rules.push(Rule {
            matching,
            skip,
            times,
            fault,
        });
    }

    /// Forgets injected faults.
    pub fn heal(&self) {
        self.state().rules.clear();
    }

    /// Cuts the power. Of each block, the medium keeps what was stable or flushed last, or any version acknowledged
    /// since: which one follows from `seed`. Of each held change a prefix of blocks may have landed. Single blocks are
    /// never torn. Held operations, and all that come, end as [`StoreErrorKind::Offline`] until
    /// [`power_on`](Self::power_on).
    pub fn power_cut(&self, seed: u64) {
        let mut random = Random(seed);
        let mut state = self.state();
        state.powered = false;
        let held = std::mem::take(&mut state.held);
        for Held { work, sender, .. } in held {
            let error = work.error(StoreErrorKind::Offline);
            let blocks = work
                .range()
                .map_or(0, |range| (range.end - range.start) / state.cache.block_len());
            let landed = random.up_to(blocks) * state.cache.block_len();
            state.cache.change_prefix(&work, landed);
            drop(sender.send(Err(error)));
        }
        self.held_count.send_replace(0);
        state.cache.lose(&*self.inner, |versions| random.up_to(versions));
    }

    /// The power is back; the medium holds what the cut left.
    pub fn power_on(&self) {
        self.state().powered = true;
    }

    /// Blocks that a power cut may lose now.
    #[must_use]
    pub fn unflushed_blocks(&self) -> usize {
        self.state().cache.len()
    }

    async fn admit(&self, work: Work) -> Result<Option<IoBuf>, StoreError> {
        if let Some(range) = work.range() {
            check_range(&self.geometry(), work.op(), range.start, range.end - range.start)?;
        }
        let receiver = {
            let mut state = self.state();
            if !state.powered {
                return Err(work.error(StoreErrorKind::Offline));
            }
            if !state
                .holds
                .iter()
                .any(|hold| hold.matches(work.op(), work.range().as_ref()))
            {
                return state.perform(&*self.inner, work);
            }
            let (sender, receiver) = oneshot::channel();
            let id = state.next_id;
            state.next_id += 1;
            state.held.push(Held { id, work, sender });
            self.held_count.send_replace(state.held.len());
            receiver
        };
        receiver
            .await
            .expect("held operations are answered before the store goes, which the caller borrows")
    }

    fn finish(&self, state: &mut State, released: Vec<Held>) {
        self.held_count.send_replace(state.held.len());
        for Held { work, sender, .. } in released {
            // A receiver that is gone is a dropped future; the work is done all the same.
            drop(sender.send(state.perform(&*self.inner, work)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BlockStore for FaultStore {
    /// The wrapped store's, with a volatile cache.
    fn geometry(&self) -> Geometry {
        Geometry {
            volatile_cache: true,
            ..self.inner.geometry()
        }
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        Ok(self
            .admit(Work::Read { at, buf })
            .await?
            .expect("reads give their buffer back"))
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        Ok(self
            .admit(Work::Write { at, buf, durability })
            .await?
            .expect("writes give their buffer back"))
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.admit(Work::Flush).await.map(drop)
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.admit(Work::clear(StoreOp::Unmap, range, Durability::Cached))
            .await
            .map(drop)
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.admit(Work::clear(StoreOp::WriteZeroes, range, durability))
            .await
            .map(drop)
    }

    async fn measure(&self) -> io::Result<Measured> {
        self.inner.measure().await
    }

    async fn space(&self) -> io::Result<Option<Space>> {
        self.inner.space().await
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let (held, unflushed) = (state.held.len(), state.cache.len());
        write!(
            f,
            "FaultStore({:?}, {held} held, {unflushed} blocks unflushed)",
            self.inner
        )
    }
}

struct State {
    cache: Cache,
    powered: bool,
    holds: Vec<Matching>,
    held: Vec<Held>,
    next_id: u64,
    rules: Vec<Rule>,
}

struct Held {
    id: u64,
    work: Work,
    sender: oneshot::Sender<Result<Option<IoBuf>, StoreError>>,
}

struct Rule {
    matching: Matching,
    skip: u64,
    times: u64,
    fault: Fault,
}

impl State {
    fn perform(&mut self, inner: &dyn BlockStore, work: Work) -> Result<Option<IoBuf>, StoreError> {
        match self.due(&work) {
            None => self.cache.apply(inner, work),
            Some(Fault::Fail(kind)) => Err(work.error(kind)),
            Some(Fault::Tear { bytes, kind }) => {
                self.cache.change_prefix(&work, bytes);
                Err(work.error(kind))
            }
        }
    }

    /// The fault that strikes, if one is due. Every matching rule counts the operation, up to the one that strikes.
    fn due(&mut self, work: &Work) -> Option<Fault> {
        let (op, range) = (work.op(), work.range());
        for rule in self
            .rules
            .iter_mut()
            .filter(|rule| rule.matching.matches(op, range.as_ref()))
        {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                return Some(rule.fault);
            }
        }
        None
    }
}

/// An operation with all it owns.
enum Work {
    Clear {
        op: StoreOp,
        range: Range<u64>,
        durability: Durability,
    },
    Flush,
    Read {
        at: u64,
        buf: IoBuf,
    },
    Write {
        at: u64,
        buf: IoBuf,
        durability: Durability,
    },
}

impl Work {
    fn clear(op: StoreOp, range: Range<u64>, durability: Durability) -> Self {
        Self::Clear {
            op,
            range: range.start..range.end.max(range.start),
            durability,
        }
    }

    fn op(&self) -> StoreOp {
        match self {
            Self::Clear { op, .. } => *op,
            Self::Flush => StoreOp::Flush,
            Self::Read { .. } => StoreOp::Read,
            Self::Write { .. } => StoreOp::Write,
        }
    }

    fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Clear { range, .. } => Some(range.clone()),
            Self::Flush => None,
            Self::Read { at, buf } | Self::Write { at, buf, .. } => {
                Some(*at..at.saturating_add(buf.len() as u64))
            }
        }
    }

    fn error(&self, kind: StoreErrorKind) -> StoreError {
        let at = self.range().map_or(0, |range| range.start);
        StoreError {
            kind,
            op: self.op(),
            at,
            source: None,
        }
    }
}

/// The result of a future that needs no waiting.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future
        .now_or_never()
        .expect("a fault store wraps a store that completes at once")
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    /// A number from 0 to `most`, both included.
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        most.checked_add(1).map_or(mixed, |count| mixed % count)
    }
}
