//! The whole target in simulated worlds, one for a seed, at each ErrorRecoveryLevel.
//!
//! `LUNAPORT_SEED=n` runs one world, at the level of `LUNAPORT_LEVEL`, and prints what happened in it; `LUNAPORT_SEEDS=n`
//! runs so many at each level.

use tests::world::{self, Tally};

#[test]
fn nothing_that_must_hold_is_violated_in_any_world() {
    hold(0, 200);
}

#[test]
fn nothing_is_violated_where_pdus_are_lost() {
    hold(1, 200);
}

#[test]
fn nothing_is_violated_where_connections_break_and_tasks_go_on() {
    hold(2, 200);
}

#[test]
fn a_seed_names_one_world() {
    for (seed, level) in [(3, 0), (14, 0), (15, 1), (16, 2)] {
        let once = world::run(seed, level).trace;
        assert_eq!(once, world::run(seed, level).trace);
    }
}

#[expect(clippy::print_stdout, reason = "what a failing run leaves behind")]
fn hold(level: u8, seeds: u64) {
    if let Some(seed) = number("LUNAPORT_SEED") {
        if number("LUNAPORT_LEVEL").unwrap_or(0) == u64::from(level) {
            let report = world::run(seed, level);
            println!("{}", report.trace.join("\n"));
            assert!(report.violations.is_empty(), "seed {seed}");
        }
        return;
    }
    let (mut failing, mut tally) = (Vec::new(), Tally::default());
    let seeds = number("LUNAPORT_SEEDS").unwrap_or(seeds);
    for seed in 0..seeds {
        let report = world::run(seed, level);
        tally.add(&report.tally);
        if let Some(first) = report.violations.first() {
            println!(
                "seed {seed} at level {level}: {first} (rerun: LUNAPORT_SEED={seed} LUNAPORT_LEVEL={level} cargo test \
                 -p tests --test simulation -- --nocapture)"
            );
            failing.push(seed);
        }
    }
    println!("what befell PDUs at level {level} in {seeds} worlds:\n{tally}");
    assert!(failing.is_empty(), "seeds {failing:?} at level {level}");
    // Of fewer worlds chance may have left something out.
    let missing = tally.missing(level);
    assert!(
        seeds < 200 || missing.is_empty(),
        "never tried at level {level}: {missing:?}"
    );
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
