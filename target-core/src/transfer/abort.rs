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
    /// Whose abort is also ours.
    parent: Option<AbortSignal>,
}

impl AbortSignal {
    /// The signal of a part of the task: it fires with the task's, and it can fire alone.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(Arc::new(AbortState {
            parent: Some(self.clone()),
            ..AbortState::default()
        }))
    }

    /// Aborts. Idempotent, callable from any thread.
    pub fn fire(&self) {
        self.0.fired.store(true, Ordering::Release);
        self.0.wake.notify_waiters();
    }

    /// Whether it was aborted.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        self.0.fired.load(Ordering::Acquire) || self.0.parent.as_ref().is_some_and(Self::is_fired)
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
            match &self.0.parent {
                // Parts have no parts of their own, so this goes one step deep.
                Some(parent) => tokio::select! {
                    () = woken => {}
                    () = Box::pin(parent.fired()) => {}
                },
                None => woken.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_is_aborted_with_its_task_and_never_the_other_way() {
        let task = AbortSignal::default();
        let (alone, with_it) = (task.part(), task.part());
        alone.fire();
        alone.fired().await;
        assert!(!task.is_fired() && !with_it.is_fired());
        let waits = tokio::spawn({
            let with_it = with_it.clone();
            async move { with_it.fired().await }
        });
        tokio::task::yield_now().await;
        task.fire();
        waits.await.unwrap();
        assert!(with_it.is_fired());
    }
}
