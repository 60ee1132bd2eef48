//! Rates: what the counters of the node came to between two looks at them, and those of the last five minutes.
//!
//! The counters themselves are the node's (`target_core::metrics`); here they are looked at every two seconds, whether
//! or not somebody asks, so that whoever comes sees how it went so far.

mod sample;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use target_core::iscsi::Node;
use target_core::metrics::Gathered;
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use sample::{InitiatorRates, KindRates, LunRates, Rates, Sample, SessionRates};

/// The rates of a node.
#[derive(Debug)]
pub struct RateLog {
    node: Arc<Node>,
    inner: Mutex<Inner>,
    live: broadcast::Sender<Arc<Sample>>,
}

#[derive(Debug, Default)]
struct Inner {
    before: Option<(Instant, Gathered)>,
    next: u64,
    latest: Option<Arc<Sample>>,
    /// Without the rows in which nothing happened. The last [`KEPT`].
    recent: VecDeque<Arc<Sample>>,
}

impl RateLog {
    /// Nothing is known before the second look.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            inner: Mutex::default(),
            live: broadcast::channel(BACKLOG).0,
        }
    }

    /// Looks every [`INTERVAL`] until it is dropped.
    pub async fn run(&self) {
        let mut pause = interval(INTERVAL);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pause.tick().await;
            self.look(Instant::now());
        }
    }

    /// Looks once.
    pub fn look(&self, now: Instant) {
        let gathered = self.node.counts();
        let mut inner = self.inner();
        if let Some((since, before)) = &inner.before {
            let passed = now.duration_since(*since);
            if passed.is_zero() {
                return;
            }
            let sample = Arc::new(Sample::between(inner.next, before, &gathered, passed));
            inner.next += 1;
            inner.recent.push_back(Arc::new(sample.busy_only(ROWS_KEPT)));
            if inner.recent.len() > KEPT {
                inner.recent.pop_front();
            }
            inner.latest = Some(Arc::clone(&sample));
            // Nobody listens: nothing to do.
            drop(self.live.send(sample));
        }
        inner.before = Some((now, gathered));
    }

    /// The rates of the last interval, with a row for everything that there is; `None` in the first two seconds.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<Sample>> {
        self.inner().latest.clone()
    }

    /// The last five minutes, oldest first. Rows in which nothing happened are left out, and of many the least busy.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<Sample>> {
        self.inner().recent.iter().cloned().collect()
    }

    /// Those after `seen`, as far as they are kept, and all that come.
    #[must_use]
    pub fn follow(&self, seen: u64) -> (Vec<Arc<Sample>>, broadcast::Receiver<Arc<Sample>>) {
        // Both under the lock, so that none is missed or comes twice.
        let inner = self.inner();
        let missed = inner.recent.iter().filter(|sample| sample.number > seen);
        (missed.cloned().collect(), self.live.subscribe())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two looks.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// Samples kept: five minutes.
const KEPT: usize = 150;
/// Rows of each list that a kept sample has at most.
const ROWS_KEPT: usize = 256;
/// Samples that a listener may lag behind.
const BACKLOG: usize = 16;
