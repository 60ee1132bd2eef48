//! What befalls the stores: operations held back, failed and torn, and power cuts. And the sessions: orders to end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backstores::{Fault, FaultStore, Matching, StoreErrorKind, StoreOp};

use super::model::BLOCK;
use super::random::Random;
use super::scene::Scene;

/// Makes the stores misbehave until all initiators are done, then leaves them healthy.
pub(crate) async fn befall(scene: Arc<Scene>, mut random: Random) {
    let mut befallen = 0;
    while scene.busy.load(Ordering::Relaxed) > 0 {
        // Dense while most is going on; later somebody may just be silent for long.
        let pause = if befallen < DENSE {
            random.millis(1, 60)
        } else {
            random.millis(100, 2000)
        };
        befallen += 1;
        tokio::time::sleep(pause).await;
        let unit = random.below(scene.stores.len() as u64) as usize;
        scene.stores[unit].heal();
        match random.below(100) {
            0..35 => hold(&scene, unit, &mut random).await,
            35..80 => inject(&scene, unit, &mut random),
            80..88 => power_cut(&scene, unit, &mut random).await,
            88..94 => order(&scene, &mut random),
            _ => {}
        }
    }
    scene.stores.iter().for_each(|store| recover(store));
}

/// Cuts a store's power, for a while.
pub(crate) async fn power_cut(scene: &Scene, unit: usize, random: &mut Random) {
    scene.ledger.note(format_args!("power cut of unit {unit}"));
    scene.stores[unit].power_cut(random.next());
    let now = scene.tick();
    scene.model(unit).power_cut(now);
    let pause = random.millis(1, 500);
    tokio::time::sleep(pause).await;
    scene.stores[unit].power_on();
    scene.ledger.note(format_args!("power of unit {unit} is back"));
}

/// Has the target ask an initiator to leave.
fn order(scene: &Scene, random: &mut Random) {
    let sessions = scene.node.sessions();
    if !sessions.is_empty() {
        let which = random.below(sessions.len() as u64) as usize;
        scene.order(sessions[which].tsih, random.millis(1000, 8000));
    }
}

async fn hold(scene: &Scene, unit: usize, random: &mut Random) {
    let store = &scene.stores[unit];
    let matching = match random.below(4) {
        0 => Matching::all(),
        1 => Matching::op(StoreOp::Write),
        2 => Matching::op(random.pick(&[
            StoreOp::Read,
            StoreOp::Flush,
            StoreOp::Unmap,
            StoreOp::WriteZeroes,
        ])),
        _ => {
            let first = random.below(16) * BLOCK as u64;
            Matching::all().touching(first..first + 4 * BLOCK as u64)
        }
    };
    let time = if random.percent(12) {
        random.millis(6_000, 30_000)
    } else {
        random.millis(1, 600)
    };
    scene
        .ledger
        .note(format_args!("unit {unit} holds {matching:?} for {time:?}"));
    store.hold(matching);
    tokio::time::sleep(time).await;
    // Some one by one, in any order; then all.
    for _ in 0..random.below(6) {
        let held = store.held();
        if held.is_empty() {
            break;
        }
        let which = random.below(held.len() as u64) as usize;
        store.release(held[which].id);
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    }
    store.resume();
    scene.ledger.note(format_args!("unit {unit} goes on"));
}

fn inject(scene: &Scene, unit: usize, random: &mut Random) {
    let matching = match random.below(3) {
        0 => Matching::all(),
        1 => Matching::op(StoreOp::Write),
        _ => Matching::op(StoreOp::Flush),
    };
    let kind = random.pick(&[
        StoreErrorKind::Medium,
        StoreErrorKind::NoSpace,
        StoreErrorKind::Offline,
    ]);
    let fault = if random.percent(50) {
        Fault::Fail(kind)
    } else {
        let bytes = random.below(16) * BLOCK as u64;
        Fault::Tear { bytes, kind }
    };
    scene
        .ledger
        .note(format_args!("unit {unit}: {fault:?} befalls {matching:?}"));
    scene.stores[unit].inject(matching, random.below(3), 1, fault);
}

fn recover(store: &FaultStore) {
    store.power_on();
    store.heal();
    store.resume();
}

/// Misfortunes that follow closely upon each other.
const DENSE: usize = 60;
