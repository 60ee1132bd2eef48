//! How long things took: counted in buckets whose bounds grow by half to two thirds from 1 µs to 10 s.

use std::ops::AddAssign;
use std::time::Duration;

use super::counter::Counter;

/// Upper bounds of the buckets, nanoseconds, each included; one more bucket is for what took longer. Every bound of the
/// series 1, 2, 5 is among them.
pub const BOUNDS: [u64; 43] = bounds();

/// A histogram that is being written.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [Counter; BUCKETS],
    sum: Counter,
}

/// A histogram at one moment, or what was added between two.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HistogramCounts {
    /// For each bucket, how many fell into it alone.
    pub counts: [u64; BUCKETS],
    /// All of them together, nanoseconds.
    pub sum: u64,
}

impl Histogram {
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)].add(1);
        self.sum.add(nanoseconds);
    }

    pub(crate) fn counts(&self) -> HistogramCounts {
        HistogramCounts {
            counts: std::array::from_fn(|place| self.counts[place].value()),
            sum: self.sum.value(),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| Counter::default()),
            sum: Counter::default(),
        }
    }
}

impl HistogramCounts {
    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean; `None` when nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// What this part of them (0 to 1) did not exceed, as if each bucket were filled evenly; `None` when nothing was
    /// counted. What took longer than the last bound counts as that.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (wanted, mut below) = (part * count as f64, 0_u64);
        for (place, in_bucket) in self.counts.iter().enumerate() {
            let through = below + in_bucket;
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            if *in_bucket > 0 && through as f64 >= wanted {
                let low = place.checked_sub(1).map_or(0, |before| BOUNDS[before]);
                let Some(high) = BOUNDS.get(place) else { break };
                let share = (wanted - below as f64) / *in_bucket as f64;
                let width = Duration::from_nanos(high - low);
                return Some(Duration::from_nanos(low) + width.mul_f64(share.clamp(0.0, 1.0)));
            }
            below = through;
        }
        Some(Duration::from_nanos(BOUNDS[BOUNDS.len() - 1]))
    }

    /// What was added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            counts: std::array::from_fn(|place| self.counts[place].saturating_sub(before.counts[place])),
            sum: self.sum.saturating_sub(before.sum),
        }
    }
}

impl AddAssign<&Self> for HistogramCounts {
    fn add_assign(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: 0,
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < nanoseconds)
}

const fn bounds() -> [u64; 43] {
    let mut bounds = [0; 43];
    let mut place = 0;
    let mut decade = 100;
    while place < 42 {
        bounds[place] = STEPS[place % 6] * decade;
        place += 1;
        if place.is_multiple_of(6) {
            decade *= 10;
        }
    }
    bounds[42] = 10_000_000_000;
    bounds
}

/// Tenths of a decade's beginning.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
const BUCKETS: usize = BOUNDS.len() + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_from_a_microsecond_to_ten_seconds() {
        assert_eq!(&BOUNDS[..7], [1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000]);
        assert_eq!(BOUNDS[42], 10_000_000_000);
        assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let histogram = Histogram::default();
        for nanoseconds in [0, 1_000, 1_001, 10_000_000_000, 10_000_000_001] {
            histogram.record(nanoseconds);
        }
        let counts = histogram.counts();
        let filled: Vec<_> = counts
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .collect();
        assert_eq!(filled, [(0, &2), (1, &1), (42, &1), (43, &1)]);
        assert_eq!(counts.sum, 20_000_002_002);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let histogram = Histogram::default();
        (0..98).for_each(|_| histogram.record(90_000));
        (0..2).for_each(|_| histogram.record(4_000_000));
        let counts = histogram.counts();
        let median = counts.quantile(0.5).unwrap();
        assert!(median > Duration::from_micros(70) && median <= Duration::from_micros(100));
        let late = counts.quantile(0.99).unwrap();
        assert!(late > Duration::from_millis(3) && late <= Duration::from_millis(5));
        assert_eq!(counts.mean(), Some(Duration::from_nanos(168_200)));
        assert_eq!(HistogramCounts::default().quantile(0.5), None);
        assert_eq!(HistogramCounts::default().mean(), None);
    }

    #[test]
    fn what_took_longer_than_the_last_bound_counts_as_that() {
        let histogram = Histogram::default();
        histogram.record(60_000_000_000);
        assert_eq!(histogram.counts().quantile(0.5), Some(Duration::from_secs(10)));
    }
}
