//! The text as Prometheus takes it.

use super::*;

#[test]
fn a_family_is_announced_once_and_labels_are_escaped() {
    let mut out = Exposition::default();
    let mut family = out.family("a_total", FamilyKind::Counter, "Back\\slash\nand line.");
    family.value(&[], 1);
    family.value(&[("name", "q\"b\\l\nend")], 2);
    assert_eq!(
        out.into_text(),
        "# HELP a_total Back\\\\slash\\nand line.\n# TYPE a_total counter\na_total 1\n\
         a_total{name=\"q\\\"b\\\\l\\nend\"} 2\n"
    );
}

#[test]
#[should_panic(expected = "a_total is written once")]
fn a_family_does_not_come_twice() {
    let mut out = Exposition::default();
    out.family("a_total", FamilyKind::Counter, "Once.");
    out.family("a_total", FamilyKind::Counter, "Twice.");
}

#[test]
fn buckets_add_up_and_sum_is_in_seconds() {
    let mut counts = HistogramCounts::default();
    let bucket = |bound| BOUNDS.iter().position(|it| *it == bound).unwrap();
    counts.counts[bucket(1_000)] = 1;
    counts.counts[bucket(150_000)] = 2;
    counts.counts[BOUNDS.len()] = 1;
    counts.sum = 12_000_301_000;
    let mut out = Exposition::default();
    out.family("a_seconds", FamilyKind::Histogram, "Times.")
        .histogram(&[("op", "read")], &counts, Detail::Coarse);
    let text = out.into_text();
    let lines: Vec<_> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "a_seconds_bucket{op=\"read\",le=\"0.0001\"} 1",
            "a_seconds_bucket{op=\"read\",le=\"0.0005\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.001\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.005\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.01\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.05\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.1\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"0.5\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"1\"} 3",
            "a_seconds_bucket{op=\"read\",le=\"+Inf\"} 4",
            "a_seconds_sum{op=\"read\"} 12.000301",
            "a_seconds_count{op=\"read\"} 4",
        ]
    );
}

#[test]
fn the_fine_bounds_are_1_2_5_from_10_microseconds_to_10_seconds() {
    let told: Vec<_> = BOUNDS
        .iter()
        .filter(|bound| Detail::Fine.tells(**bound))
        .collect();
    assert_eq!(told.len(), 19);
    assert_eq!((told[0], told[1], told[18]), (&10_000, &20_000, &10_000_000_000));
}
