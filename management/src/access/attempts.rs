//! How often somebody may try to log in: after a few failures each further try has to wait twice as long as the one
//! before. Counted by address and by name, so that neither one attacker nor one victim is enough.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Failures, by who is behind them.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    failures: BTreeMap<String, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Attempts {
    /// How long these have to wait; `None` when one of them may try now.
    pub(super) fn wait(&self, whom: &[String], now: Instant) -> Option<Duration> {
        let waits = whom.iter().filter_map(|who| self.failures.get(who)?.wait(now));
        waits.max()
    }

    /// They failed.
    pub(super) fn failed(&mut self, whom: &[String], now: Instant) {
        self.failures
            .retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
        for who in whom {
            if self.failures.len() >= KEPT && !self.failures.contains_key(who) {
                // Somebody tries from everywhere. The oldest goes.
                let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.last);
                if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                    self.failures.remove(&key);
                }
            }
            let failures = self
                .failures
                .entry(who.clone())
                .or_insert(Failures { count: 0, last: now });
            failures.count = failures.count.saturating_add(1);
            failures.last = now;
        }
    }

    /// They succeeded.
    pub(super) fn succeeded(&mut self, whom: &[String]) {
        for who in whom {
            self.failures.remove(who);
        }
    }
}

impl Failures {
    fn wait(&self, now: Instant) -> Option<Duration> {
        let beyond = self.count.checked_sub(FREE)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << beyond.min(10)).min(LONGEST_PAUSE);
        let left = pause.checked_sub(now.duration_since(self.last))?;
        (!left.is_zero()).then_some(left)
    }
}

/// Failures without a pause.
const FREE: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Failures are forgotten after this long without one.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Who is remembered at most.
const KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixth_try_waits_and_each_one_after_it_longer() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let who = ["address 192.0.2.1".to_owned(), "user admin".to_owned()];
        for _ in 0..4 {
            attempts.failed(&who, now);
        }
        assert_eq!(attempts.wait(&who, now), None);
        attempts.failed(&who, now);
        assert_eq!(attempts.wait(&who, now), Some(Duration::from_secs(1)));
        attempts.failed(&who, now);
        assert_eq!(attempts.wait(&who, now), Some(Duration::from_secs(2)));
        assert_eq!(attempts.wait(&who, now + Duration::from_secs(2)), None);
        let other = ["address 192.0.2.2".to_owned(), "user admin".to_owned()];
        assert!(
            attempts.wait(&other, now).is_some(),
            "another address, the same victim"
        );
        attempts.succeeded(&who);
        assert_eq!(attempts.wait(&who, now), None);
    }

    #[test]
    fn who_is_remembered_is_bounded() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for number in 0..KEPT + 100 {
            attempts.failed(&[format!("address {number}")], now);
        }
        assert_eq!(attempts.failures.len(), KEPT);
    }
}
