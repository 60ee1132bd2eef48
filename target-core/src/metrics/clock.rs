//! The time of a session's loop, for its commands: they run between two looks at the clock, and need none of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds since the loop began, as of the beginning of its turn. One thread writes and reads it.
#[derive(Clone, Debug)]
pub struct TurnClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    now: AtomicU64,
}

impl TurnClock {
    /// A clock that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(Arc::new(Inner {
            began: now,
            now: AtomicU64::new(0),
        }))
    }

    /// A turn begins.
    pub fn set(&self, now: Instant) {
        // In 64 bits, where five hundred years fit: in 128 this was a hundred instructions of every turn.
        let since = now.saturating_duration_since(self.0.began);
        let since = since
            .as_secs()
            .wrapping_mul(NANOSECONDS)
            .wrapping_add(u64::from(since.subsec_nanos()));
        self.0.now.store(since, Ordering::Relaxed);
    }

    /// Nanoseconds since it began.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }
}

const NANOSECONDS: u64 = 1_000_000_000;
