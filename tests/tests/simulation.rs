//! The whole target in simulated worlds, one for a seed.
//!
//! `LUNAPORT_SEED=n` runs one world and prints what happened in it; `LUNAPORT_SEEDS=n` runs so many.

use tests::world;

#[test]
fn nothing_that_must_hold_is_violated_in_any_world() {
    if let Some(seed) = number("LUNAPORT_SEED") {
        let report = world::run(seed);
        println!("{}", report.trace.join("\n"));
        assert!(report.violations.is_empty(), "seed {seed}");
        return;
    }
    let mut failing = Vec::new();
    for seed in 0..number("LUNAPORT_SEEDS").unwrap_or(200) {
        let report = world::run(seed);
        if let Some(first) = report.violations.first() {
            println!(
                "seed {seed}: {first} (rerun: LUNAPORT_SEED={seed} cargo test -p tests --test simulation -- --nocapture)"
            );
            failing.push(seed);
        }
    }
    assert!(failing.is_empty(), "seeds {failing:?}");
}

#[test]
fn a_seed_names_one_world() {
    for seed in [3, 14, 15] {
        assert_eq!(world::run(seed).trace, world::run(seed).trace);
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
