//! Rates, by what the counters were before and after.

use super::*;
use iscsi_proto::IscsiName;
use target_core::metrics::{BOUNDS, LunRow};

fn counts(reads: u64, bytes: u64, nanoseconds: u64) -> LunCounts {
    let mut latency = HistogramCounts::default();
    let bucket = BOUNDS.iter().position(|bound| nanoseconds <= *bound).unwrap();
    latency.counts[bucket] = reads;
    latency.sum = reads * nanoseconds;
    let mut counts = LunCounts::default();
    counts.read.latency = latency;
    counts.read.bytes = bytes;
    counts
}

fn gathered(luns: &[(u16, LunCounts)]) -> Gathered {
    let target: IscsiName = "iqn.2026-11.org.example:a".parse().unwrap();
    let row = |(lun, counts): &(u16, LunCounts)| LunRow {
        target: target.clone(),
        lun: *lun,
        counts: counts.clone(),
    };
    Gathered {
        luns: luns.iter().map(row).collect(),
        ..Gathered::default()
    }
}

fn between(before: &Gathered, after: &Gathered) -> Sample {
    Sample::between(7, before, after, Duration::from_secs(2))
}

#[test]
fn a_rate_is_what_was_added_by_the_time_that_passed() {
    let before = gathered(&[(0, counts(100, 409_600, 90_000))]);
    let after = gathered(&[
        (0, counts(300, 1_228_800, 90_000)),
        (1, counts(10, 5_120, 90_000)),
    ]);
    let sample = between(&before, &after);
    assert_eq!((sample.number, sample.interval), (7, 2.0));
    let [first, second] = &sample.luns[..] else {
        panic!("two units: {sample:?}")
    };
    assert_eq!(
        (first.lun, first.rates.read.iops, first.rates.iops),
        (0, 100.0, 100.0)
    );
    assert_eq!(first.rates.bytes_per_second, 409_600.0);
    assert_eq!(first.rates.mean_us, Some(90.0));
    let median = first.rates.p50_us.unwrap();
    assert!(median > 70.0 && median <= 100.0, "{median}");
    assert_eq!((second.lun, second.rates.read.iops), (1, 5.0));
    assert_eq!(second.rates.write.mean_us, None);
}

#[test]
fn counters_that_went_back_give_no_rate() {
    let sample = between(
        &gathered(&[(0, counts(100, 1, 90_000))]),
        &gathered(&[(0, counts(10, 0, 90_000))]),
    );
    assert_eq!(sample.luns[0].rates.iops, 0.0);
}

#[test]
fn of_many_rows_the_busiest_are_kept_and_idle_ones_never() {
    let before = gathered(&[]);
    let after = gathered(&[
        (0, counts(4, 0, 90_000)),
        (1, LunCounts::default()),
        (2, counts(8, 0, 90_000)),
        (3, counts(2, 0, 90_000)),
    ]);
    let kept = |limit| -> Vec<u16> {
        let sample = between(&before, &after).busy_only(limit);
        sample.luns.iter().map(|row| row.lun).collect()
    };
    assert_eq!(kept(10), [0, 2, 3]);
    assert_eq!(kept(2), [0, 2]);
    assert_eq!(kept(1), [2]);
}
