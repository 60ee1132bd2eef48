//! What opening refuses, in which words, and that it leaves nothing behind.

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use backstores::{OpenError, StoreOptions, StoreSource, open};
use common::{LoopDevice, skipped};
use tempfile::TempDir;

#[test]
fn a_new_file_is_sparse_and_opens_again_unless_it_is_too_small() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    let geometry = open(&file(&path, Some(1 << 30)), StoreOptions::default())
        .unwrap()
        .geometry();
    assert_eq!(
        (geometry.size, geometry.block_size, geometry.physical_block_size),
        (1 << 30, 512, 4096)
    );
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 100, "sparse");

    drop(open(&file(&path, Some(1 << 30)), StoreOptions::default()).unwrap());
    drop(open(&file(&path, None), StoreOptions::default()).unwrap());
    let grown = open(&file(&path, Some(1 << 20)), StoreOptions::default()).unwrap();
    assert_eq!(grown.geometry().size, 1 << 30, "it may have grown since");
    drop(grown);
    assert_refused(
        &file(&path, Some(1 << 31)),
        StoreOptions::default(),
        "the file has 1073741824 bytes, size= says 2147483648; leave out size= to take the file as it is",
    );
}

#[test]
fn what_is_no_usable_file_is_refused_by_name_and_fix() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("odd.img"), [0; 1000]).unwrap();
    fs::write(at("empty.img"), []).unwrap();
    fs::write(at("two.img"), [0; 1024]).unwrap();
    let default = StoreOptions::default();
    let large = StoreOptions {
        block_size: Some(4096),
        ..default
    };
    for (path, size, options, text) in [
        (
            at("none.img"),
            None,
            default,
            "no such file; add size=… to create it",
        ),
        (
            at("no/dir.img"),
            Some(4096),
            default,
            "its directory does not exist; create the directory first",
        ),
        (
            at("new.img"),
            Some(1000),
            default,
            "1000 bytes is no multiple of the block size 512; make it 1024 bytes (or 512)",
        ),
        (at("new.img"), Some(0), default, "is empty; give it a size"),
        (
            at("odd.img"),
            None,
            default,
            "1000 bytes is no multiple of the block size 512; make it 1024 bytes (or 512)",
        ),
        (
            at("two.img"),
            None,
            large,
            "1024 bytes is no multiple of the block size 4096; make it 4096 bytes (or 0)",
        ),
        (at("empty.img"), None, default, "is empty; give it a size"),
        (
            dir.path().into(),
            None,
            default,
            "is a directory; name a file inside it",
        ),
        (
            "/dev/null".into(),
            None,
            default,
            "is not a regular file; name a regular file or a block device",
        ),
        (
            at("new.img"),
            Some(4096),
            StoreOptions {
                block_size: Some(1024),
                ..default
            },
            "block size 1024 is not offered; use block-size=512 or 4096",
        ),
        (
            at("new.img"),
            Some(4096),
            StoreOptions {
                physical_block_size: Some(512),
                ..large
            },
            "physical block size 512 does not fit blocks of 4096 bytes; use a power of two from 4096 on",
        ),
        (
            at("new.img"),
            Some(4096),
            StoreOptions {
                read_only: true,
                ..default
            },
            "no such file, and a read-only disk creates none; leave out ro or size=",
        ),
    ] {
        assert_refused(&file(&path, size), options, text);
    }
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "nothing was created: {left:?}");
}

#[test]
fn a_file_is_served_once_or_by_readers_only() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let (path, link) = (dir.path().join("disk.img"), dir.path().join("other name"));
    let first = open(&file(&path, Some(1 << 20)), StoreOptions::default()).unwrap();
    fs::hard_link(&path, &link).unwrap();
    let read_only = StoreOptions {
        read_only: true,
        ..StoreOptions::default()
    };
    let text = "is already served by this process; export it once, or everywhere with ro";
    assert_refused(&file(&link, None), StoreOptions::default(), text);
    assert_refused(&file(&path, None), read_only, text);
    drop(first);
    let readers = (
        open(&file(&path, None), read_only).unwrap(),
        open(&file(&link, None), read_only).unwrap(),
    );
    assert_refused(&file(&path, None), StoreOptions::default(), text);
    drop(readers);
    drop(open(&file(&path, None), StoreOptions::default()).unwrap());
}

#[test]
fn another_process_that_holds_a_file_is_named() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(4096).unwrap();
    // `cat` says that the lock is held, and ends it with its input.
    let holder = Command::new("flock")
        .arg(&path)
        .arg("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut holder) = holder else {
        return skipped("flock(1)", "not installed");
    };
    let (mut input, mut output) = (holder.stdin.take().unwrap(), holder.stdout.take().unwrap());
    std::io::Write::write_all(&mut input, b"x").unwrap();
    std::io::Read::read_exact(&mut output, &mut [0]).unwrap();

    let error = open(&file(&path, None), StoreOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("is in use by process {} (flock)", holder.id())),
        "{error}"
    );
    drop(input);
    holder.wait().unwrap();
    drop(open(&file(&path, None), StoreOptions::default()).unwrap());
}

#[test]
fn a_device_is_claimed_exclusively_and_its_limits_are_the_kernels() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let Some(device) = LoopDevice::new(dir.path(), 1 << 20) else {
        return;
    };
    let source = StoreSource::Block {
        path: device.path.clone(),
    };
    let first = open(&source, StoreOptions::default()).unwrap();
    let geometry = first.geometry();
    assert_eq!((geometry.size, geometry.block_size), (1 << 20, 512));
    assert!(geometry.unmap_granularity > 0, "loop devices discard");
    let text = "is already served by this process; export it once, or everywhere with ro";
    assert_refused(&source, StoreOptions::default(), text);
    drop(first);
    let text = format!("is a block device; use block:{}", device.path.display());
    assert_refused(&file(&device.path, None), StoreOptions::default(), &text);
    let image = dir.path().join("backing.img");
    let text = format!("is a regular file; use file:{}", image.display());
    assert_refused(
        &StoreSource::Block { path: image },
        StoreOptions::default(),
        &text,
    );
    let larger = StoreOptions {
        block_size: Some(4096),
        ..StoreOptions::default()
    };
    assert_eq!(open(&source, larger).unwrap().geometry().block_size, 4096);
}

#[test]
fn a_mounted_device_is_refused_with_its_mount_point() {
    let _alone = alone();
    let dir = TempDir::new().unwrap();
    let Some(device) = LoopDevice::new(dir.path(), 4 << 20) else {
        return;
    };
    let mount = Mount::new(&device.path, "ext4", &dir.path().join("mnt"));
    let Some(mount) = mount else { return };
    let text = format!(
        "is mounted at {0}; unmount it first: umount {0}",
        mount.point.display()
    );
    assert_refused(
        &StoreSource::Block {
            path: device.path.clone(),
        },
        StoreOptions::default(),
        &text,
    );
    drop(mount);
}

#[test]
fn a_full_file_system_is_no_space_and_the_store_lives_on() {
    let _alone = alone();
    use backstores::{Durability, StoreErrorKind};
    let dir = TempDir::new().unwrap();
    let Some(mount) = Mount::new(Path::new("none"), "tmpfs", &dir.path().join("mnt")) else {
        return;
    };
    let source = file(&mount.point.join("disk.img"), Some(8 << 20));
    for engine in common::ENGINES {
        let store = open(&source, StoreOptions::default()).unwrap();
        common::on_data_thread(engine, async {
            let mut kinds = Vec::new();
            for at in (0..8 << 20).step_by(backstores::CHUNK) {
                let durability = if at % 2 == 0 {
                    Durability::Cached
                } else {
                    Durability::Stable
                };
                let written = store
                    .write(at, common::filled(backstores::CHUNK, 1), durability)
                    .await;
                kinds.extend(written.err().map(|error| error.kind));
            }
            assert!(
                !kinds.is_empty() && kinds.iter().all(|kind| *kind == StoreErrorKind::NoSpace),
                "{kinds:?}"
            );
            store.unmap(0..8 << 20).await.unwrap();
            store
                .write(0, common::filled(4096, 2), Durability::Stable)
                .await
                .unwrap();
            store.flush().await.unwrap();
        });
    }
    drop(mount);
}

/// One test at a time: a child process of another one would hold our locks between its fork and exec.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mounted file system; needs root.
struct Mount {
    point: PathBuf,
}

impl Mount {
    fn new(device: &Path, kind: &str, point: &Path) -> Option<Self> {
        fs::create_dir(point).expect("a fresh directory");
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        if kind == "ext4" && !run(Command::new("mkfs.ext4").arg("-q").arg(device)) {
            skipped("mkfs.ext4", "it does not run");
            return None;
        }
        let options = if kind == "tmpfs" { "size=4m" } else { "rw" };
        if run(Command::new("mount")
            .args(["-t", kind, "-o", options])
            .arg(device)
            .arg(point))
        {
            return Some(Self { point: point.into() });
        }
        skipped("mounts", kind);
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

fn file(path: &Path, size: Option<u64>) -> StoreSource {
    StoreSource::File {
        path: path.into(),
        size,
    }
}

/// The message is `PATH: problem; fix`.
#[track_caller]
fn assert_refused(source: &StoreSource, options: StoreOptions, text: &str) {
    let error: OpenError = open(source, options).expect_err(text);
    assert_eq!(error.to_string(), format!("{}: {text}", error.path.display()));
}
