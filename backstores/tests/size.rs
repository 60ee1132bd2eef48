//! Media that grow, shrink and run out of space under an open store.

mod common;

use std::fs::{self, OpenOptions};
use std::process::Command;

use backstores::{
    BlockStore, Durability, IoBuf, Measured, Space, StoreErrorKind, StoreOptions, StoreSource, TAGS_LEN,
    TagChecks, open, open_encrypted,
};
use common::LoopDevice;
use futures_util::future::join_all;
use tempfile::TempDir;

fn block(byte: u8) -> IoBuf {
    let mut buf = IoBuf::from_heap(512);
    buf.fill(byte);
    buf
}

async fn read(store: &dyn BlockStore, at: u64) -> Result<u8, StoreErrorKind> {
    let read = store.read(at, IoBuf::from_heap(512)).await;
    read.map(|buf| buf[0]).map_err(|error| error.kind)
}

#[tokio::test]
async fn a_file_that_was_grown_is_larger_at_the_next_look() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    let source = StoreSource::File {
        path: path.clone(),
        size: Some(1 << 20),
    };
    let store = open(&source, StoreOptions::default()).unwrap();
    assert_eq!(store.measure().await.unwrap(), Measured::Unchanged);
    // Half a block at the end is none.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((2 << 20) + 256).unwrap();
    assert_eq!(read(&*store, 1 << 20).await, Err(StoreErrorKind::OutOfRange));
    assert_eq!(store.measure().await.unwrap(), Measured::Grown { size: 2 << 20 });
    assert_eq!(store.geometry().size, 2 << 20);
    let last = (2 << 20) - 512;
    store.write(last, block(7), Durability::Cached).await.unwrap();
    assert_eq!(read(&*store, last).await, Ok(7));
    assert_eq!(read(&*store, 2 << 20).await, Err(StoreErrorKind::OutOfRange));
    assert_eq!(store.measure().await.unwrap(), Measured::Unchanged);
}

#[tokio::test]
async fn many_stores_that_are_looked_at_share_a_few_threads() {
    let dir = TempDir::new().unwrap();
    let stores: Vec<_> = (0..300)
        .map(|number| {
            let source = StoreSource::File {
                path: dir.path().join(number.to_string()),
                size: Some(4096),
            };
            open(&source, StoreOptions::default()).unwrap()
        })
        .collect();
    for looked in join_all(stores.iter().map(|store| store.measure())).await {
        assert_eq!(looked.unwrap(), Measured::Unchanged);
    }
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 200, "{threads} threads");
}

#[tokio::test]
async fn protection_information_grows_with_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    let source = StoreSource::File {
        path: path.clone(),
        size: Some(1 << 20),
    };
    let options = StoreOptions {
        protection: true,
        ..StoreOptions::default()
    };
    let tags_of = async |store: &dyn BlockStore, at| {
        let (buf, tags) = (IoBuf::from_heap(512), IoBuf::from_heap(TAGS_LEN));
        let read = store.read_protected(at, buf, tags, TagChecks::ALL).await;
        read.unwrap().1.to_vec()
    };
    let store = open(&source, options).unwrap();
    store.write(512, block(3), Durability::Cached).await.unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(2 << 20).unwrap();
    assert_eq!(store.measure().await.unwrap(), Measured::Grown { size: 2 << 20 });
    assert_eq!(store.geometry().size, 2 << 20);
    let last = (2 << 20) - 512;
    assert_eq!(tags_of(&*store, last).await, [0xff; 8], "never written");
    store.write(last, block(7), Durability::Cached).await.unwrap();
    assert_eq!(tags_of(&*store, last).await[4..], 4095_u32.to_be_bytes());
    assert_eq!(tags_of(&*store, 512).await[4..], 1_u32.to_be_bytes());
    store.flush().await.unwrap();
    drop(store);
    let same_file = StoreSource::File { path, size: None };
    let store = open(&same_file, options).unwrap();
    assert_eq!(store.geometry().size, 2 << 20);
    assert_eq!(tags_of(&*store, last).await[4..], 4095_u32.to_be_bytes());
    assert_eq!(read(&*store, last).await, Ok(7));
}

#[tokio::test]
async fn an_encrypted_file_that_was_grown_is_encrypted_to_its_end() {
    let dir = TempDir::new().unwrap();
    let (path, key) = (dir.path().join("disk.img"), dir.path().join("key"));
    fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    let source = StoreSource::File {
        path: path.clone(),
        size: Some(1 << 20),
    };
    let store = open_encrypted(&source, StoreOptions::default(), &key).unwrap();
    store.write(0, block(3), Durability::Cached).await.unwrap();
    let before = fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(before + (1 << 20)).unwrap();
    assert_eq!(store.measure().await.unwrap(), Measured::Grown { size: 2 << 20 });
    let last = (2 << 20) - 512;
    assert_eq!(read(&*store, last).await, Ok(0));
    store.write(last, block(7), Durability::Stable).await.unwrap();
    drop(store);
    let same_file = StoreSource::File {
        path: path.clone(),
        size: None,
    };
    let store = open_encrypted(&same_file, StoreOptions::default(), &key).unwrap();
    assert_eq!(store.geometry().size, 2 << 20);
    assert_eq!(
        (read(&*store, 0).await, read(&*store, last).await),
        (Ok(3), Ok(7))
    );
    let raw = fs::read(&path).unwrap();
    assert!(!raw.windows(16).any(|bytes| bytes == [7; 16]));
}

#[tokio::test]
async fn a_file_that_was_cut_keeps_its_size_and_refuses_what_is_gone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    let source = StoreSource::File {
        path: path.clone(),
        size: Some(1 << 20),
    };
    let store = open(&source, StoreOptions::default()).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 19).unwrap();
    assert_eq!(store.measure().await.unwrap(), Measured::Shrunk { end: 1 << 19 });
    assert_eq!(store.geometry().size, 1 << 20);
    assert_eq!(read(&*store, 0).await, Ok(0));
    assert_eq!(read(&*store, 1 << 19).await, Err(StoreErrorKind::OutOfRange));
    let written = store.write(1 << 19, block(7), Durability::Cached).await;
    assert_eq!(written.unwrap_err().kind, StoreErrorKind::OutOfRange);
    assert_eq!(
        fs::metadata(&path).unwrap().len(),
        1 << 19,
        "no write makes it longer"
    );
    // It comes back when the file does.
    file.set_len(1 << 20).unwrap();
    assert_eq!(store.measure().await.unwrap(), Measured::Unchanged);
    assert_eq!(read(&*store, 1 << 19).await, Ok(0));
}

#[tokio::test]
async fn a_file_tells_the_space_that_it_takes() {
    let dir = TempDir::new().unwrap();
    let source = StoreSource::File {
        path: dir.path().join("disk.img"),
        size: Some(1 << 20),
    };
    let store = open(&source, StoreOptions::default()).unwrap();
    let before = store.space().await.unwrap().unwrap();
    store.write(0, block(7), Durability::Stable).await.unwrap();
    let after = store.space().await.unwrap().unwrap();
    assert!(after.used > before.used, "{before:?} {after:?}");
    assert!(after.available.is_some());
}

#[tokio::test]
async fn memory_takes_the_pages_that_were_written() {
    let store = open(&StoreSource::Memory { size: 1 << 20 }, StoreOptions::default()).unwrap();
    let used = |used| {
        Some(Space {
            used,
            available: None,
        })
    };
    assert_eq!(store.space().await.unwrap(), used(0));
    store.write(70_144, block(7), Durability::Cached).await.unwrap();
    assert_eq!(store.space().await.unwrap(), used(65_536));
    store.unmap(0..1 << 20).await.unwrap();
    assert_eq!(store.space().await.unwrap(), used(0));
}

#[tokio::test]
async fn a_device_that_was_grown_is_larger_at_the_next_look() {
    let dir = TempDir::new().unwrap();
    let Some(device) = LoopDevice::new(dir.path(), 1 << 20) else {
        return;
    };
    let source = StoreSource::Block {
        path: device.path.clone(),
    };
    let store = open(&source, StoreOptions::default()).unwrap();
    OpenOptions::new()
        .write(true)
        .open(dir.path().join("backing.img"))
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    let measured = Command::new("losetup")
        .arg("--set-capacity")
        .arg(&device.path)
        .status();
    assert!(measured.unwrap().success());
    assert_eq!(store.measure().await.unwrap(), Measured::Grown { size: 2 << 20 });
    store
        .write((2 << 20) - 512, block(7), Durability::Cached)
        .await
        .unwrap();
    assert_eq!(read(&*store, (2 << 20) - 512).await, Ok(7));
}

#[tokio::test]
async fn a_full_file_system_is_no_space_until_there_is_some() {
    let Some(small) = SmallFileSystem::new("1m") else {
        return;
    };
    let source = StoreSource::File {
        path: small.directory.path().join("disk.img"),
        size: Some(4 << 20),
    };
    let store = open(&source, StoreOptions::default()).unwrap();
    let mut full = None;
    for at in (0..4 << 20).step_by(512 * 8) {
        if let Err(error) = store.write(at, block(7), Durability::Cached).await {
            full = Some((at, error.kind));
            break;
        }
    }
    let (at, kind) = full.expect("four mebibytes do not fit in one");
    assert_eq!(kind, StoreErrorKind::NoSpace);
    let zeroed = store.write_zeroes(at..at + 65_536, Durability::Cached).await;
    if let Err(error) = zeroed {
        assert_eq!(error.kind, StoreErrorKind::NoSpace);
    }
    assert_eq!(read(&*store, 0).await, Ok(7), "what is there can be read");
    store.flush().await.unwrap();
    // Giving blocks back makes room for others.
    store.unmap(0..65_536).await.unwrap();
    store.write(at, block(8), Durability::Stable).await.unwrap();
    assert_eq!(read(&*store, at).await, Ok(8));
}

/// A file system in memory; needs root.
struct SmallFileSystem {
    directory: TempDir,
}

impl SmallFileSystem {
    fn new(size: &str) -> Option<Self> {
        let directory = TempDir::new().expect("a place for temporary files");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self { directory }),
            failed => {
                common::skipped("file systems of our own", &format!("{failed:?}"));
                None
            }
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // Lazily: the store may still be open.
        drop(
            Command::new("umount")
                .arg("--lazy")
                .arg(self.directory.path())
                .status(),
        );
    }
}
