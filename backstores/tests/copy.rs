//! Copies between two stores without a buffer of ours.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use backstores::{BlockStore, Durability, IoBuf, StoreOptions, StoreSource};
use common::{filled, on_data_thread, read, sources};
use tempfile::TempDir;

const SIZE: u64 = 4 << 20;

fn memory() -> Arc<dyn BlockStore> {
    backstores::open(&StoreSource::Memory { size: SIZE }, StoreOptions::default()).unwrap()
}

fn file(path: &Path, options: StoreOptions) -> Arc<dyn BlockStore> {
    let source = StoreSource::File {
        path: path.into(),
        size: Some(SIZE),
    };
    backstores::open(&source, options).unwrap()
}

async fn write(store: &dyn BlockStore, at: u64, bytes: &[u8]) {
    for (piece, at) in bytes
        .chunks(backstores::CHUNK)
        .zip((at..).step_by(backstores::CHUNK))
    {
        let mut buf = IoBuf::from_heap(piece.len());
        buf.copy_from_slice(piece);
        store.write(at, buf, Durability::Cached).await.unwrap();
    }
}

async fn read_all(store: &dyn BlockStore) -> Vec<u8> {
    let mut all = Vec::new();
    for at in (0..SIZE).step_by(backstores::CHUNK) {
        all.extend(read(store, at, backstores::CHUNK).await);
    }
    all
}

/// Data, a hole and data again are copied to places that lie differently in pages and blocks of the file system.
async fn copies_like_memory_does(source: &dyn BlockStore, target: &dyn BlockStore) {
    let mut there: Vec<u8> = (0..SIZE)
        .map(|at| u8::try_from(at / 512 % 251).unwrap())
        .collect();
    there[100_000 / 512 * 512..1_500_000 / 512 * 512].fill(0);
    write(source, 0, &there[..100_000 / 512 * 512]).await;
    write(source, 1_500_000 / 512 * 512, &there[1_500_000 / 512 * 512..]).await;
    let mut here = vec![0xee; usize::try_from(SIZE).unwrap()];
    write(target, 0, &here).await;
    let from = source.copy_source().unwrap();
    for (at, to, len) in [
        (0, 0, 65_536),
        (512, 70_144, 300_032),
        (1_000_448, 1_048_576, 1 << 20),
        (SIZE - 512, SIZE - 512, 512),
        (0, 0, 0),
    ] {
        assert!(target.copy_from(&from, at, to, len).await);
        let (at, to, len) = (
            usize::try_from(at).unwrap(),
            usize::try_from(to).unwrap(),
            usize::try_from(len).unwrap(),
        );
        here[to..to + len].copy_from_slice(&there[at..at + len]);
    }
    assert!(read_all(target).await == here);
    assert!(read_all(source).await == there);
}

#[test]
fn memory_copies_from_memory() {
    on_data_thread(backstores::EngineChoice::Pool, async {
        copies_like_memory_does(&*memory(), &*memory()).await;
    });
}

#[test]
fn files_copy_from_files() {
    let through = StoreOptions {
        cache: backstores::CacheMode::WriteThrough,
        ..StoreOptions::default()
    };
    for options in [StoreOptions::default(), through] {
        let dir = TempDir::new().unwrap();
        let one = file(&dir.path().join("one"), StoreOptions::default());
        let two = file(&dir.path().join("two"), options);
        on_data_thread(backstores::EngineChoice::Pool, async {
            copies_like_memory_does(&*one, &*two).await;
        });
    }
}

#[test]
fn a_store_copies_within_itself() {
    let dir = TempDir::new().unwrap();
    let stores = [memory(), file(&dir.path().join("disk"), StoreOptions::default())];
    on_data_thread(backstores::EngineChoice::Pool, async {
        for store in &stores {
            write(&**store, 0, &[7; 65_536]).await;
            let itself = store.copy_source().unwrap();
            assert!(store.copy_from(&itself, 0, 1 << 20, 65_536).await);
            assert_eq!(read(&**store, 1 << 20, 65_536).await, [7; 65_536]);
            assert_eq!(read(&**store, (1 << 20) + 65_536, 512).await, [0; 512]);
        }
    });
}

#[test]
fn what_takes_no_space_takes_none_in_the_copy() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let (source, target) = (
        file(&one, StoreOptions::default()),
        file(&two, StoreOptions::default()),
    );
    on_data_thread(backstores::EngineChoice::Pool, async {
        write(&*source, 1 << 20, &[1; 65_536]).await;
        let from = source.copy_source().unwrap();
        assert!(target.copy_from(&from, 0, 0, SIZE).await);
        assert_eq!(read(&*target, 1 << 20, 65_536).await, [1; 65_536]);
    });
    let blocks = |path: &Path| path.metadata().unwrap().blocks();
    assert!(blocks(&two) <= blocks(&one).max(128 * 2), "{}", blocks(&two));
    assert!(blocks(&two) * 512 < SIZE / 2);
}

#[test]
fn pairs_that_cannot_say_so_and_the_end_of_a_store_is_its_end() {
    let dir = TempDir::new().unwrap();
    let direct = StoreOptions {
        direct: true,
        block_size: Some(4096),
        ..StoreOptions::default()
    };
    let (memory, file) = (memory(), file(&dir.path().join("one"), StoreOptions::default()));
    on_data_thread(backstores::EngineChoice::Pool, async {
        let (from_memory, from_file) = (memory.copy_source().unwrap(), file.copy_source().unwrap());
        assert!(!file.copy_from(&from_memory, 0, 0, 512).await);
        assert!(!memory.copy_from(&from_file, 0, 0, 512).await);
        for store in [&memory, &file] {
            let from = store.copy_source().unwrap();
            assert!(!store.copy_from(&from, 0, SIZE, 512).await);
            assert!(!store.copy_from(&from, 0, u64::MAX - 511, 512).await);
        }
    });
    let source = StoreSource::File {
        path: dir.path().join("direct"),
        size: Some(SIZE),
    };
    if let Ok(store) = backstores::open(&source, direct) {
        assert!(store.copy_source().is_none());
    }
}

#[test]
fn any_other_pair_is_copied_right_or_refused() {
    for (name, source, options) in sources() {
        let store = backstores::open(&source.source, options).unwrap();
        let dir = TempDir::new().unwrap();
        let target = file(&dir.path().join("target"), StoreOptions::default());
        on_data_thread(backstores::EngineChoice::Pool, async {
            let block = store.geometry().block_size as usize;
            let written = store.write(0, filled(8 * block, 5), Durability::Cached).await;
            written.unwrap();
            let Some(from) = store.copy_source() else { return };
            if target.copy_from(&from, 0, 0, 8 * block as u64).await {
                assert_eq!(read(&*target, 0, 8 * block).await, vec![5; 8 * block], "{name}");
            }
        });
    }
}
