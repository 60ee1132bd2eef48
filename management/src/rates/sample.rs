//! One interval's rates, as the API shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use target_core::metrics::{Gathered, HistogramCounts, KindCounts, LunCounts};
use utoipa::ToSchema;

/// The rates of an interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Sample {
    /// Counts up from 0 since the start.
    pub number: u64,
    /// When the interval ended, milliseconds since 1970.
    pub time: u64,
    /// How long it was, seconds.
    pub interval: f64,
    /// All transports together.
    pub total: Rates,
    /// By logical unit.
    pub luns: Vec<LunRates>,
    /// By initiator and logical unit, for initiators that have a session.
    pub initiators: Vec<InitiatorRates>,
    /// By session.
    pub sessions: Vec<SessionRates>,
}

/// What happened on a logical unit, by whomever.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct LunRates {
    /// The target.
    pub target: String,
    /// The number.
    pub lun: u16,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// What an initiator did on a logical unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct InitiatorRates {
    /// The target.
    pub target: String,
    /// The number of the unit.
    pub lun: u16,
    /// The initiator's name.
    pub initiator: String,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// What a session did.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct SessionRates {
    /// Its handle.
    pub tsih: u16,
    /// The initiator's name.
    pub initiator: String,
    /// The target.
    pub target: String,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// How much was done, and how fast. Latencies are absent where nothing was done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Rates {
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second, both directions.
    pub bytes_per_second: f64,
    /// Mean latency, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// Half of the commands took no longer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99 of 100 commands took no longer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Mean part of the latency that was waiting for a turn or for buffers, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_mean_us: Option<f64>,
    /// Mean part of the latency that the store took, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_mean_us: Option<f64>,
    /// Commands under way at the end of the interval.
    pub in_flight: u64,
    /// Commands that ended with an error, unit attentions apart, a second.
    pub errors_per_second: f64,
    /// Commands that read.
    pub read: KindRates,
    /// Commands that write.
    pub write: KindRates,
    /// Other commands.
    pub other: KindRates,
}

/// The same for commands of one kind.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct KindRates {
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Mean latency, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// Half of the commands took no longer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99 of 100 commands took no longer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

impl Sample {
    /// What was added from one look at the counters to the next.
    pub(super) fn between(number: u64, before: &Gathered, after: &Gathered, passed: Duration) -> Self {
        let seconds = passed.as_secs_f64();
        let added = |from: &LunCounts, to: &LunCounts| Rates::between(from, to, seconds);
        let whole = |gathered: &Gathered| {
            let mut whole = LunCounts::default();
            gathered.transports.iter().for_each(|row| whole += &row.counts);
            whole
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let luns_before = known(
            before
                .luns
                .iter()
                .map(|row| ((&row.target, row.lun), &row.counts)),
        );
        let initiators_before = known(before.initiators.iter().map(|row| {
            let key = (&row.target, row.lun, &row.initiator);
            (key, &row.counts)
        }));
        let sessions_before = known(before.sessions.iter().map(|row| {
            // A session has its nexus for itself, and what was gathered before keeps it.
            (Arc::as_ptr(&row.nexus), &row.counts)
        }));
        let nothing = LunCounts::default();
        Self {
            number,
            time: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            interval: seconds,
            total: added(&whole(before), &whole(after)),
            luns: after
                .luns
                .iter()
                .map(|row| LunRates {
                    target: row.target.to_string(),
                    lun: row.lun,
                    rates: added(
                        luns_before.get(&(&row.target, row.lun)).unwrap_or(&&nothing),
                        &row.counts,
                    ),
                })
                .collect(),
            initiators: after
                .initiators
                .iter()
                .map(|row| InitiatorRates {
                    target: row.target.to_string(),
                    lun: row.lun,
                    initiator: row.initiator.to_string(),
                    rates: added(
                        initiators_before
                            .get(&(&row.target, row.lun, &row.initiator))
                            .unwrap_or(&&nothing),
                        &row.counts,
                    ),
                })
                .collect(),
            sessions: after
                .sessions
                .iter()
                .map(|row| SessionRates {
                    tsih: row.tsih.0,
                    initiator: row.nexus.initiator.name.to_string(),
                    target: row.nexus.target.name.to_string(),
                    rates: added(
                        sessions_before.get(&Arc::as_ptr(&row.nexus)).unwrap_or(&&nothing),
                        &row.counts,
                    ),
                })
                .collect(),
        }
    }

    /// Only rows in which something happened; of more than `limit`, the busiest.
    pub(super) fn busy_only(&self, limit: usize) -> Self {
        Self {
            luns: busiest(&self.luns, limit, |row| &row.rates),
            initiators: busiest(&self.initiators, limit, |row| &row.rates),
            sessions: busiest(&self.sessions, limit, |row| &row.rates),
            total: self.total.clone(),
            ..*self
        }
    }
}

impl Rates {
    fn between(before: &LunCounts, after: &LunCounts, seconds: f64) -> Self {
        let read = added(&before.read, &after.read);
        let write = added(&before.write, &after.write);
        let other = added(&before.other, &after.other);
        let mut all = read.clone();
        all += &write;
        all += &other;
        let KindRates {
            iops,
            bytes_per_second,
            mean_us,
            p50_us,
            p99_us,
        } = KindRates::of(&all, seconds);
        Self {
            iops,
            bytes_per_second,
            mean_us,
            p50_us,
            p99_us,
            queue_mean_us: all.queue_wait.mean().map(micros),
            store_mean_us: all.store.mean().map(micros),
            in_flight: after.in_flight,
            errors_per_second: per_second(after.failed.saturating_sub(before.failed), seconds),
            read: KindRates::of(&read, seconds),
            write: KindRates::of(&write, seconds),
            other: KindRates::of(&other, seconds),
        }
    }

    /// Whether anything was done, or is under way.
    fn is_busy(&self) -> bool {
        self.iops > 0.0 || self.in_flight > 0
    }
}

impl KindRates {
    fn of(added: &KindCounts, seconds: f64) -> Self {
        let latency: &HistogramCounts = &added.latency;
        Self {
            iops: per_second(latency.count(), seconds),
            bytes_per_second: per_second(added.bytes, seconds),
            mean_us: latency.mean().map(micros),
            p50_us: latency.quantile(0.5).map(micros),
            p99_us: latency.quantile(0.99).map(micros),
        }
    }
}

fn added(before: &KindCounts, after: &KindCounts) -> KindCounts {
    KindCounts {
        bytes: after.bytes.saturating_sub(before.bytes),
        latency: after.latency.since(&before.latency),
        queue_wait: after.queue_wait.since(&before.queue_wait),
        store: after.store.since(&before.store),
    }
}

fn known<'a, K: Ord>(rows: impl Iterator<Item = (K, &'a LunCounts)>) -> BTreeMap<K, &'a LunCounts> {
    rows.collect()
}

fn busiest<T: Clone>(rows: &[T], limit: usize, rates: impl Fn(&T) -> &Rates) -> Vec<T> {
    let busy = |row: &&T| rates(row).is_busy();
    let mut least = 0.0;
    if rows.iter().filter(busy).count() > limit {
        let mut iops: Vec<f64> = rows.iter().filter(busy).map(|row| rates(row).iops).collect();
        iops.sort_by(|one, other| other.total_cmp(one));
        least = iops[limit - 1];
    }
    let kept = rows.iter().filter(busy).filter(|row| rates(row).iops >= least);
    kept.take(limit).cloned().collect()
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests;
