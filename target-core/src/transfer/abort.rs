//! The abort signal of a task: fired by whoever aborts it, looked at by the task between its steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells a task that it was aborted. Firing never waits; the task finds out at its next step.
#[derive(Clone, Debug, Default)]
pub struct AbortSignal(Arc<AbortState>);

#[derive(Debug, Default)]
struct AbortState {
    fired: AtomicBool,
    wake: Notify,
}

impl AbortSignal {
    /// Aborts. Idempotent, callable from any thread.
    pub fn fire(&self) {
        self.0.fired.store(true, Ordering::Release);
        self.0.wake.notify_waiters();
    }

    /// Whether it was aborted.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Waits until it is aborted.
    pub async fn fired(&self) {
        loop {
            let woken = self.0.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.is_fired() {
                return;
            }
            woken.await;
        }
    }
}
