//! Task attributes, seen at the store: what it is given while an older command is held.

use backstores::{FaultStore, Matching};

use super::*;
use crate::scsi::TaskAttribute::{self, HeadOfQueue, Ordered, Simple};
use crate::scsi::testing::faulty;

/// Begins a read of block `lba`.
fn read(device: &Arc<TargetDevice>, lba: u32, attribute: TaskAttribute) -> tokio::task::JoinHandle<Status> {
    let command = Command::new(0, &ten(0x28, 0, lba, 1))
        .expecting(512)
        .with(attribute)
        .begin(device, &nexus(1));
    tokio::spawn(async move { status(&command.await.0) })
}

/// Blocks that the store has been asked for and has not given, in the order it was asked.
fn asked(store: &FaultStore) -> Vec<u64> {
    let block = |held: backstores::HeldOp| held.range.unwrap().start / 512;
    store.held().into_iter().map(block).collect()
}

/// Gives every command the chance to get as far as it can.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn simple_commands_reach_the_store_side_by_side() {
    let (device, store) = faulty(64);
    store.hold(Matching::all());
    let commands = [0, 1, 2].map(|lba| read(&device, lba, Simple));
    store.until_held(3).await;
    // They may end in any order.
    for held in store.held().into_iter().rev() {
        assert!(store.release(held.id));
    }
    for command in commands {
        assert_eq!(command.await.unwrap(), Status::Good);
    }
}

#[tokio::test]
async fn an_ordered_command_stands_between_older_and_younger_ones() {
    let (device, store) = faulty(64);
    store.hold(Matching::all());
    let older = [read(&device, 0, Simple), read(&device, 1, Simple)];
    let ordered = read(&device, 2, Ordered);
    let younger = [read(&device, 3, Simple), read(&device, 4, Simple)];
    settle().await;
    assert_eq!(asked(&store), [0, 1]);
    assert!(store.release(store.held()[0].id));
    settle().await;
    assert_eq!(asked(&store), [1], "one older command is still under way");
    assert!(store.release(store.held()[0].id));
    settle().await;
    assert_eq!(asked(&store), [2]);
    assert!(store.release(store.held()[0].id));
    settle().await;
    assert_eq!(asked(&store), [3, 4]);
    store.resume();
    for command in older.into_iter().chain([ordered]).chain(younger) {
        assert_eq!(command.await.unwrap(), Status::Good);
    }
}

#[tokio::test]
async fn a_head_of_queue_command_waits_for_nobody() {
    let (device, store) = faulty(64);
    store.hold(Matching::all());
    let _older = read(&device, 0, Simple);
    let _ordered = read(&device, 1, Ordered);
    let _younger = read(&device, 2, Simple);
    let _urgent = read(&device, 3, HeadOfQueue);
    settle().await;
    assert_eq!(asked(&store), [0, 3]);
}

#[tokio::test]
async fn ordered_commands_follow_one_another() {
    let (device, store) = faulty(64);
    store.hold(Matching::all());
    let commands = [0, 1, 2].map(|lba| read(&device, lba, Ordered));
    for (lba, command) in (0..).zip(commands) {
        settle().await;
        assert_eq!(asked(&store), [lba]);
        assert!(store.release(store.held()[0].id));
        assert_eq!(command.await.unwrap(), Status::Good);
    }
}
