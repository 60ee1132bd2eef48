//! A number that one thread counts up and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted by one thread: two that did would lose what one of them counted. That thread is the one that runs the loop of
/// the session whose counter it is.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Counts up. No locked instruction: nobody else writes.
    pub(crate) fn add(&self, more: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(more), Ordering::Relaxed);
    }

    /// The number now; it need not agree with others to the last command.
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
