//! Blocking threads: started on demand, a bounded number, gone after ten idle seconds.
//!
//! Each disk has its own, so that a medium that hangs holds up nobody else. Looks at all disks share some: with its own
//! for that, each of thousands of disks would always have a thread. They are not tokio's blocking threads,
//! which drop queued jobs when their runtime ends: a job accepted here runs to its end, and a thread without a runtime
//! may hand one in.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Handle of the threads; dropping it lets them end once the queue is empty.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    /// How many threads there are at most.
    max: usize,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// One job per operation under way, which the callers bound (command windows and pools); a bound here would make
    /// "accepted" a matter of waiting.
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Default for Workers {
    /// As many as keep a disk's queue busy; more would only add stacks.
    fn default() -> Self {
        Self::new(16)
    }
}

impl Workers {
    pub(super) fn new(max: usize) -> Self {
        Self {
            shared: Arc::default(),
            max,
        }
    }

    /// Queues a job; its result arrives in the receiver.
    pub(crate) fn run<T, F>(&self, job: F) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.run_for(sender, job);
        receiver
    }

    /// Queues a job for somebody who waits already.
    pub(super) fn run_for<T, F>(&self, sender: oneshot::Sender<T>, job: F)
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // A receiver that is gone is a dropped future; the job has done its work all the same.
        self.enqueue(Box::new(move || drop(sender.send(job()))));
    }

    fn enqueue(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        if state.threads == self.max {
            return;
        }
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new()
            .name("store-io".into())
            .spawn(move || shared.serve())
        {
            Ok(_detached) => state.threads += 1,
            Err(error) => {
                tracing::warn!(%error, threads = state.threads, "cannot start a blocking I/O thread");
                if state.threads == 0 {
                    // Nobody would ever come: dropping the job tells its caller.
                    drop(state.jobs.pop_back());
                }
            }
        }
    }
}

impl Shared {
    /// Life of a thread.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                break;
            } else {
                state.idle += 1;
                let (woken, wait) = self
                    .work
                    .wait_timeout(state, LINGER)
                    .unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                if wait.timed_out() && state.jobs.is_empty() {
                    break;
                }
            }
        }
        state.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.lock();
        write!(f, "Workers({} threads, {} jobs)", state.threads, state.jobs.len())
    }
}

const LINGER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_jobs_than_threads_all_end_even_when_nobody_listens() {
        let workers = Workers::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..100_u32 {
            let sender = sender.clone();
            drop(workers.run(move || sender.send(number)));
        }
        drop((workers, sender));
        let mut numbers: Vec<_> = receiver.into_iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_job_that_blocks_does_not_hold_up_the_next() {
        let workers = Workers::default();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let blocked = workers.run(move || wait.recv().is_ok());
        assert_eq!(workers.run(|| 7).blocking_recv(), Ok(7));
        go.send(()).unwrap();
        assert_eq!(blocked.blocking_recv(), Ok(true));
    }
}
