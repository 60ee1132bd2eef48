//! Encryption at rest: what lies on the medium, who can read it, and what an erase leaves.
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of a test for the product"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstores::{BlockStore, Durability, EngineChoice, StoreErrorKind, StoreOptions, StoreSource};
use common::{filled, on_data_thread, read};
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            dir: TempDir::new().unwrap(),
        };
        std::fs::write(place.at("key"), (0..64).collect::<Vec<u8>>()).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn source(&self) -> StoreSource {
        StoreSource::File {
            path: self.at("disk.img"),
            size: Some(SIZE),
        }
    }

    fn source_as_it_is(&self) -> StoreSource {
        StoreSource::File {
            path: self.at("disk.img"),
            size: None,
        }
    }

    fn open(&self, key: &Path) -> Arc<dyn BlockStore> {
        backstores::open_encrypted(&self.source(), StoreOptions::default(), key).unwrap()
    }

    /// What lies on the medium.
    fn raw(&self) -> Vec<u8> {
        std::fs::read(self.at("disk.img")).unwrap()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    on_data_thread(EngineChoice::Auto, future)
}

#[test]
fn the_medium_shows_neither_content_nor_repetition_and_the_key_brings_it_back() {
    let place = Place::new();
    let store = place.open(&place.at("key"));
    run(store.write(4096, filled(8192, b'A'), Durability::Stable)).unwrap();
    drop(store);
    let raw = place.raw();
    assert!(
        raw[..4096]
            .iter()
            .chain(&raw[4096 + 8192..])
            .all(|byte| *byte == 0)
    );
    let mut sectors: Vec<_> = raw[4096..4096 + 8192].chunks(16).collect();
    sectors.sort_unstable();
    sectors.dedup();
    assert_eq!(sectors.len(), 512, "no two blocks are alike");

    let store = place.open(&place.at("key"));
    assert_eq!(run(read(&*store, 4096, 8192)), vec![b'A'; 8192]);
    drop(store);
    std::fs::write(place.at("other"), (1..65).collect::<Vec<u8>>()).unwrap();
    let store = place.open(&place.at("other"));
    assert_ne!(run(read(&*store, 4096, 512)), vec![b'A'; 512]);
}

#[test]
fn another_block_size_finds_the_same_content() {
    let place = Place::new();
    let small = place.open(&place.at("key"));
    run(small.write(4096, filled(8192, b'A'), Durability::Stable)).unwrap();
    drop(small);
    let options = StoreOptions {
        block_size: Some(4096),
        ..StoreOptions::default()
    };
    let large = backstores::open_encrypted(&place.source(), options, &place.at("key")).unwrap();
    assert_eq!(run(read(&*large, 4096, 8192)), vec![b'A'; 8192]);
}

#[test]
fn unmapped_ranges_give_their_space_back_and_read_as_zeroes() {
    let place = Place::new();
    let store = place.open(&place.at("key"));
    let plain = backstores::open(
        &StoreSource::File {
            path: place.at("plain.img"),
            size: Some(SIZE),
        },
        StoreOptions::default(),
    )
    .unwrap();
    assert_eq!(
        store.geometry().unmap_granularity,
        plain.geometry().unmap_granularity
    );
    run(store.write(0, filled(262_144, 1), Durability::Stable)).unwrap();
    run(store.unmap(65_536..131_072)).unwrap();
    assert!(place.raw()[65_536..131_072].iter().all(|byte| *byte == 0));
    assert_eq!(run(read(&*store, 65_536, 65_536)), vec![0; 65_536]);
    assert_eq!(run(read(&*store, 131_072, 512)), vec![1; 512]);
}

#[test]
fn an_erase_leaves_nothing_that_any_key_can_read() {
    let place = Place::new();
    let old_key = std::fs::read(place.at("key")).unwrap();
    let store = place.open(&place.at("key"));
    assert!(store.abilities().key_erase);
    run(store.write(0, filled(4096, b'A'), Durability::Stable)).unwrap();
    run(store.erase_key()).unwrap();
    assert_ne!(std::fs::read(place.at("key")).unwrap(), old_key);
    let noise = run(read(&*store, 0, 4096));
    assert!(noise.iter().filter(|byte| **byte == b'A').count() < 100);

    // The disk goes on with the new key, now and after a restart.
    run(store.write(0, filled(4096, b'B'), Durability::Stable)).unwrap();
    drop(store);
    let store = place.open(&place.at("key"));
    assert_eq!(run(read(&*store, 0, 4096)), vec![b'B'; 4096]);
}

#[test]
fn stores_without_a_key_of_their_own_cannot_be_erased() {
    let place = Place::new();
    let plain = backstores::open(&StoreSource::Memory { size: SIZE }, StoreOptions::default()).unwrap();
    drop(place.open(&place.at("key")));
    let read_only = StoreOptions {
        read_only: true,
        ..StoreOptions::default()
    };
    let reader = backstores::open_encrypted(&place.source_as_it_is(), read_only, &place.at("key")).unwrap();
    for store in [plain, reader] {
        assert!(!store.abilities().key_erase);
        let error = run(store.erase_key()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::NotSupported);
    }
}

#[test]
fn a_key_that_is_none_is_refused_and_no_disk_is_made() {
    let place = Place::new();
    std::fs::write(place.at("short"), [1; 32]).unwrap();
    for (key, text) in [
        (
            "short",
            "holds no key; it has to hold 64 random bytes, or 128 hexadecimal digits",
        ),
        ("missing", "the key cannot be read"),
        (".", "is no regular file"),
    ] {
        let path = place.at(key);
        let error = backstores::open_encrypted(&place.source(), StoreOptions::default(), &path).unwrap_err();
        assert_eq!(error.path, path);
        assert!(error.to_string().contains(text), "{error}");
        assert!(!place.at("disk.img").exists());
    }
}
