//! Every defect that can be planted in a simulated world is found, and by the rule that it breaks.

use tests::world::{self, Defect};

/// Worlds that a defect may hide in.
const WORLDS: u64 = 1000;

#[test]
fn the_simulation_finds_every_planted_defect() {
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        let finds = |seed: &u64| {
            let report = world::run_spoiled(*seed, defect);
            report
                .violations
                .iter()
                .any(|found| found.check == defect.breaks())
        };
        match (0..WORLDS).find(finds) {
            Some(seed) => println!("{defect:?} breaks {:?} in world {seed}", defect.breaks()),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found in {WORLDS} worlds: {missed:?}");
}
