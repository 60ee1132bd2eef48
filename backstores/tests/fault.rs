//! The fault store keeps its own promises, on which simulations rely.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use backstores::{
    BlockStore, Durability, Fault, FaultStore, Matching, StoreErrorKind, StoreOp, StoreOptions, StoreSource,
};
use common::{filled, read};
use futures_util::poll;

#[tokio::test]
async fn held_operations_wait_and_are_done_in_the_order_of_release() {
    let store = store();
    store.hold(Matching::op(StoreOp::Write).touching(0..512));
    let mut first = store.write(0, filled(512, 1), Durability::Cached);
    let mut second = store.write(0, filled(1024, 2), Durability::Cached);
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    store
        .write(512, filled(512, 3), Durability::Cached)
        .await
        .unwrap();
    assert_eq!(
        read(&*store, 0, 1024).await,
        [vec![0; 512], vec![3; 512]].concat()
    );

    let ids: Vec<_> = store.held().iter().map(|held| held.id).collect();
    assert_eq!(store.held()[1].range, Some(0..1024));
    assert!(store.release(ids[1]) && !store.release(ids[1]));
    second.await.unwrap();
    store.resume();
    first.await.unwrap();
    assert_eq!(
        read(&*store, 0, 1024).await,
        [vec![1; 512], vec![2; 512]].concat()
    );
    assert_eq!(store.held(), []);
}

#[tokio::test]
async fn a_held_operation_is_done_even_if_its_future_is_gone() {
    let store = store();
    store.hold(Matching::all());
    let mut write = store.write(0, filled(512, 1), Durability::Cached);
    assert!(poll!(&mut write).is_pending());
    drop(write);
    store.resume();
    assert_eq!(read(&*store, 0, 512).await, vec![1; 512]);
}

#[tokio::test]
async fn the_chosen_operations_fail_and_no_others() {
    let store = store();
    store.inject(
        Matching::op(StoreOp::Read),
        1,
        2,
        Fault::Fail(StoreErrorKind::Medium),
    );
    store.inject(
        Matching::op(StoreOp::Flush),
        0,
        1,
        Fault::Fail(StoreErrorKind::Offline),
    );
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(store.read(0, filled(512, 9)).await.err().map(|error| error.kind));
    }
    assert_eq!(
        kinds,
        [
            None,
            Some(StoreErrorKind::Medium),
            Some(StoreErrorKind::Medium),
            None
        ]
    );
    let error = store.flush().await.unwrap_err();
    assert_eq!((error.kind, error.op), (StoreErrorKind::Offline, StoreOp::Flush));
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_torn_write_lands_in_part_and_fails() {
    let store = store();
    let tear = Fault::Tear {
        bytes: 1500,
        kind: StoreErrorKind::Medium,
    };
    store.inject(Matching::op(StoreOp::Write), 0, 1, tear);
    let error = store
        .write(0, filled(2048, 1), Durability::Cached)
        .await
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Medium);
    assert_eq!(
        read(&*store, 0, 2048).await,
        [vec![1; 1024], vec![0; 1024]].concat()
    );
}

#[tokio::test]
async fn a_power_cut_keeps_what_was_flushed_or_stable() {
    for seed in 0..50 {
        let store = store();
        store.write(0, filled(512, 1), Durability::Cached).await.unwrap();
        store.flush().await.unwrap();
        store
            .write(512, filled(512, 2), Durability::Cached)
            .await
            .unwrap();
        store
            .write(512, filled(512, 3), Durability::Stable)
            .await
            .unwrap();
        assert_eq!(store.unflushed_blocks(), 0);
        store.power_cut(seed);
        assert_eq!(
            store.read(0, filled(512, 9)).await.unwrap_err().kind,
            StoreErrorKind::Offline
        );
        store.power_on();
        assert_eq!(
            read(&*store, 0, 1024).await,
            [vec![1; 512], vec![3; 512]].concat()
        );
    }
}

#[tokio::test]
async fn a_power_cut_leaves_any_version_since_the_last_flush() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let store = store();
        store.write(0, filled(512, 1), Durability::Stable).await.unwrap();
        store.write(0, filled(512, 2), Durability::Cached).await.unwrap();
        store.unmap(0..512).await.unwrap();
        store.write(0, filled(512, 3), Durability::Cached).await.unwrap();
        store.power_cut(seed);
        store.power_on();
        let content = read(&*store, 0, 512).await;
        assert_eq!(content, vec![content[0]; 512], "a block is never torn");
        seen.insert(content[0]);
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
}

#[tokio::test]
async fn a_power_cut_tears_a_held_write_into_any_subset_of_a_prefix() {
    let mut landed = BTreeSet::new();
    for seed in 0..300 {
        let store = store();
        store.hold(Matching::all());
        let mut write = store.write(0, filled(1024, 7), Durability::Stable);
        assert!(poll!(&mut write).is_pending());
        store.power_cut(seed);
        assert_eq!(write.await.unwrap_err().kind, StoreErrorKind::Offline);
        store.power_on();
        store.resume();
        let content = read(&*store, 0, 1024).await;
        landed.insert((content[0], content[1023]));
    }
    assert_eq!(landed, BTreeSet::from([(0, 0), (0, 7), (7, 0), (7, 7)]));
}

#[tokio::test]
async fn equal_seeds_lose_the_same_blocks() {
    let outcome = async |seed| {
        let store = store();
        for block in 0..64 {
            store
                .write(block * 512, filled(512, 5), Durability::Cached)
                .await
                .unwrap();
        }
        store.power_cut(seed);
        store.power_on();
        read(&*store, 0, 64 * 512).await
    };
    assert_eq!(outcome(1).await, outcome(1).await);
    assert_ne!(outcome(1).await, outcome(2).await);
}

fn store() -> Arc<FaultStore> {
    let memory = backstores::open(&StoreSource::Memory { size: 1 << 20 }, StoreOptions::default()).unwrap();
    FaultStore::new(memory)
}
