//! Documents that were compared and wait to be applied: a few, for a while, each for the one who brought it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use management::document::Document;

/// A document that waits.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) document: Document,
    /// Take away what it does not name.
    pub(crate) prune: bool,
    /// What it was compared with.
    pub(crate) generation: u64,
    /// Who brought it.
    pub(crate) owner: String,
}

/// All of them.
#[derive(Default)]
pub(crate) struct WaitingImports(Mutex<VecDeque<(String, Instant, Waiting)>>);

impl WaitingImports {
    /// Keeps one, and gives the name that it is taken by. The oldest goes when there are too many.
    pub(crate) fn keep(&self, waiting: Waiting, entropy: fn(&mut [u8])) -> String {
        let mut bytes = [0; 16];
        entropy(&mut bytes);
        let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut all = self.fresh();
        if all.len() >= KEPT {
            all.pop_front();
        }
        all.push_back((name.clone(), Instant::now(), waiting));
        name
    }

    /// Takes one away, when it is this one's.
    pub(crate) fn take(&self, name: &str, owner: &str) -> Option<Waiting> {
        let mut all = self.fresh();
        let place = all
            .iter()
            .position(|(it, _, waiting)| it == name && waiting.owner == owner)?;
        all.remove(place).map(|(_, _, waiting)| waiting)
    }

    fn fresh(&self) -> MutexGuard<'_, VecDeque<(String, Instant, Waiting)>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, since, _)| since.elapsed() < LIFE);
        all
    }
}

/// Not the documents: they may have secrets in them.
impl fmt::Debug for WaitingImports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitingImports(…)")
    }
}

/// Documents at once: each may be as large as a request's body.
const KEPT: usize = 4;
const LIFE: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(owner: &str) -> Waiting {
        Waiting {
            document: Document::default(),
            prune: false,
            generation: 1,
            owner: owner.to_owned(),
        }
    }

    fn counted(bytes: &mut [u8]) {
        use std::sync::atomic::{AtomicU8, Ordering};
        static NEXT: AtomicU8 = AtomicU8::new(0);
        bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
    }

    #[test]
    fn a_document_is_for_who_brought_it_and_for_once() {
        let all = WaitingImports::default();
        let name = all.keep(waiting("user a"), counted);
        assert!(all.take(&name, "user b").is_none());
        assert!(all.take(&name, "user a").is_some());
        assert!(all.take(&name, "user a").is_none());
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let all = WaitingImports::default();
        let names: Vec<_> = (0..=KEPT).map(|_| all.keep(waiting("user a"), counted)).collect();
        assert!(all.take(&names[0], "user a").is_none());
        assert!(all.take(&names[1], "user a").is_some());
    }
}
