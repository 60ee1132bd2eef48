//! Random operations against a plain array of bytes.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use std::ops::Range;

use backstores::{BlockStore, Durability};
use common::{ENGINES, filled, on_data_thread, read, sources};
use proptest::prelude::*;

/// Blocks of 4 KiB that the operations play in: three memory pages and a bit.
const BLOCKS: u64 = 50;
const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
enum Op {
    Flush,
    Read(Range<u64>),
    Unmap(Range<u64>),
    Write(Range<u64>, u8, bool),
    WriteZeroes(Range<u64>, bool),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..BLOCKS, 1..=BLOCKS).prop_map(|(start, len)| start * BLOCK..(start + len).min(BLOCKS) * BLOCK)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Flush),
        4 => range().prop_map(Op::Read),
        2 => range().prop_map(Op::Unmap),
        6 => (range(), 1_u8.., any::<bool>()).prop_map(|(range, byte, stable)| Op::Write(range, byte, stable)),
        2 => (range(), any::<bool>()).prop_map(|(range, stable)| Op::WriteZeroes(range, stable)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn every_store_behaves_like_an_array_of_bytes(ops in prop::collection::vec(op(), 1..40)) {
        for engine in ENGINES {
            for (name, source, options) in sources() {
                let store = source.open(options).unwrap();
                on_data_thread(engine, compare(&*store, &ops, name));
            }
        }
    }
}

async fn compare(store: &dyn BlockStore, ops: &[Op], name: &str) {
    let mut model = vec![0_u8; usize::try_from(BLOCKS * BLOCK).unwrap()];
    for op in ops {
        match op.clone() {
            Op::Flush => store.flush().await.unwrap(),
            Op::Read(range) => {
                let content = read(store, range.start, places(&range).len()).await;
                assert!(content == model[places(&range)], "{name}: {op:?}");
            }
            Op::Unmap(range) => {
                store.unmap(range.clone()).await.unwrap();
                model[places(&range)].fill(0);
            }
            Op::Write(range, byte, stable) => {
                let buf = filled(places(&range).len(), byte);
                store.write(range.start, buf, durability(stable)).await.unwrap();
                model[places(&range)].fill(byte);
            }
            Op::WriteZeroes(range, stable) => {
                store
                    .write_zeroes(range.clone(), durability(stable))
                    .await
                    .unwrap();
                model[places(&range)].fill(0);
            }
        }
    }
    assert!(read(store, 0, model.len()).await == model, "{name}: at the end");
}

fn places(range: &Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

fn durability(stable: bool) -> Durability {
    if stable {
        Durability::Stable
    } else {
        Durability::Cached
    }
}
