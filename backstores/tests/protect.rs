//! Protection information: what a plain write leaves, what is checked, where it lies.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use backstores::{
    BlockStore, Durability, EngineChoice, IoBuf, StoreErrorKind, StoreOptions, StoreSource, TagChecks,
};
use common::{filled, on_data_thread, read};
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

fn protected() -> StoreOptions {
    StoreOptions {
        protection: true,
        ..StoreOptions::default()
    }
}

fn stores(dir: &TempDir) -> [Arc<dyn BlockStore>; 2] {
    [
        backstores::open(&StoreSource::Memory { size: SIZE }, protected()).unwrap(),
        backstores::open(&file(dir), protected()).unwrap(),
    ]
}

fn disk(dir: &TempDir) -> PathBuf {
    dir.path().join("disk.img")
}

fn sidecar(dir: &TempDir) -> PathBuf {
    dir.path().join("disk.img.pi")
}

fn file(dir: &TempDir) -> StoreSource {
    StoreSource::File {
        path: disk(dir),
        size: Some(SIZE),
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    on_data_thread(EngineChoice::Auto, future)
}

/// Tags of a block of 512 bytes.
fn tags_at(store: &dyn BlockStore, at: u64) -> Vec<u8> {
    let read = store.read_protected(at, filled(512, 0xee), filled(8, 0xee), TagChecks::NONE);
    run(read).unwrap().1.to_vec()
}

fn buf(bytes: &[u8]) -> IoBuf {
    let mut buf = IoBuf::from_heap(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

#[test]
fn a_plain_write_makes_tags_and_an_unmap_takes_them() {
    let dir = TempDir::new().unwrap();
    for store in stores(&dir) {
        assert!(store.abilities().protection);
        assert_eq!(tags_at(&*store, 1024), [0xff; 8], "never written");
        run(store.write(512, filled(1024, 0xff), Durability::Cached)).unwrap();
        let tags = tags_at(&*store, 1024);
        assert_eq!(tags[2..], [0, 0, 0, 0, 0, 2]);
        assert_eq!(run(read(&*store, 512, 1024)), vec![0xff; 1024]);
        run(store.unmap(512..1024)).unwrap();
        assert_eq!(tags_at(&*store, 512), [0xff; 8]);
        assert_eq!(tags_at(&*store, 1024), tags[..]);
        run(store.write_zeroes(1024..1536, Durability::Stable)).unwrap();
        assert_eq!(tags_at(&*store, 1024), [0xff; 8]);
        assert_eq!(run(read(&*store, 0, 2048)), vec![0; 2048]);
    }
}

#[test]
fn tags_that_come_with_the_data_are_checked_and_kept() {
    let dir = TempDir::new().unwrap();
    // The guard of 512 zeroes is 0.
    let right = [0, 0, 0x12, 0x34, 0, 0, 0, 2];
    let wrong_guard = [0, 1, 0x12, 0x34, 0, 0, 0, 2];
    let wrong_address = [0, 0, 0x12, 0x34, 0, 0, 0, 3];
    for store in stores(&dir) {
        let write = |tags: &[u8], checks| {
            let written = store.write_protected(1024, filled(512, 0), buf(tags), checks, Durability::Cached);
            run(written)
                .map(|(_, tags)| tags.to_vec())
                .map_err(|error| (error.kind, error.at))
        };
        assert_eq!(write(&right, TagChecks::ALL).unwrap(), right);
        assert_eq!(tags_at(&*store, 1024), right);
        assert_eq!(
            write(&wrong_guard, TagChecks::ALL),
            Err((StoreErrorKind::Guard, 1024))
        );
        assert_eq!(
            write(&wrong_address, TagChecks::ALL),
            Err((StoreErrorKind::ReferenceTag, 1024))
        );
        assert_eq!(tags_at(&*store, 1024), right, "nothing was written");
        for (tags, kind) in [
            (wrong_guard, StoreErrorKind::Guard),
            (wrong_address, StoreErrorKind::ReferenceTag),
        ] {
            write(&tags, TagChecks::NONE).unwrap();
            let error = run(store.read(512, filled(1024, 0xee))).unwrap_err();
            assert_eq!((error.kind, error.at), (kind, 1024));
        }
        // What says of itself that it is not to be checked is not.
        write(&[1, 1, 0xff, 0xff, 1, 1, 1, 1], TagChecks::NONE).unwrap();
        assert_eq!(run(read(&*store, 1024, 512)), vec![0; 512]);
    }
}

#[test]
fn damage_to_the_file_is_found_and_a_write_repairs_it() {
    let dir = TempDir::new().unwrap();
    let store = backstores::open(&file(&dir), protected()).unwrap();
    run(store.write(0, filled(65_536, 7), Durability::Stable)).unwrap();
    drop(store);
    fs::File::options()
        .write(true)
        .open(disk(&dir))
        .unwrap()
        .write_all_at(&[8], 5000)
        .unwrap();

    let store = backstores::open(&file(&dir), protected()).unwrap();
    let error = run(store.read(0, filled(65_536, 0))).unwrap_err();
    assert_eq!((error.kind, error.at), (StoreErrorKind::Guard, 4608));
    assert_eq!(run(read(&*store, 0, 4608)), vec![7; 4608]);
    run(store.write(4608, filled(512, 9), Durability::Stable)).unwrap();
    assert_eq!(run(read(&*store, 4608, 512)), vec![9; 512]);
}

#[test]
fn tags_lie_in_a_sparse_file_beside_the_disk_in_the_order_of_the_blocks() {
    let dir = TempDir::new().unwrap();
    let store = backstores::open(&file(&dir), protected()).unwrap();
    run(store.write(3 * 512, filled(512, 0), Durability::Stable)).unwrap();
    let tags = fs::read(sidecar(&dir)).unwrap();
    assert_eq!(tags.len(), 4096 + 16_384);
    assert!(tags.starts_with(b"lunaport protection information 1, blocks of 512 bytes\n"));
    assert_eq!(tags[4096..4096 + 24], [0; 24]);
    let complement = tags[4096 + 24..4096 + 32]
        .iter()
        .map(|byte| !byte)
        .collect::<Vec<_>>();
    assert_eq!(complement, [0, 0, 0, 0, 0, 0, 0, 3]);
}

#[test]
fn a_disk_with_tags_is_not_written_without_them() {
    let dir = TempDir::new().unwrap();
    drop(backstores::open(&file(&dir), protected()).unwrap());
    let refused = |options, text: &str| {
        let error = backstores::open(&file(&dir), options).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(StoreOptions::default(), "add pi=1, or remove that file");
    let large = StoreOptions {
        block_size: Some(4096),
        ..protected()
    };
    refused(large, "is not the protection information of blocks of 4096 bytes");
    let read_only = StoreOptions {
        read_only: true,
        ..StoreOptions::default()
    };
    let source = StoreSource::File {
        path: disk(&dir),
        size: None,
    };
    assert!(
        !backstores::open(&source, read_only)
            .unwrap()
            .abilities()
            .protection
    );
    fs::remove_file(sidecar(&dir)).unwrap();
    drop(backstores::open(&file(&dir), StoreOptions::default()).unwrap());
}

#[test]
fn a_reader_beside_writers_never_sees_tags_of_other_data() {
    let dir = TempDir::new().unwrap();
    for store in stores(&dir) {
        run(async {
            let work = (0..400_u64).map(|number| {
                let store = &store;
                async move {
                    let byte = u8::try_from(number % 251).unwrap();
                    if number % 2 == 0 {
                        let written = store.write(4096, filled(8192, byte), Durability::Cached).await;
                        written.map(drop)
                    } else {
                        store.read(0, filled(16_384, 0)).await.map(drop)
                    }
                }
            });
            for result in futures_util::future::join_all(work).await {
                result.unwrap();
            }
        });
    }
}
