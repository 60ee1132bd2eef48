//! Stores, engines and buffers for the tests.
#![allow(
    dead_code,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "each test binary uses a part of this, and clippy does not take it for tests"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, RwLock};

use backstores::{
    BlockStore, CacheMode, DataThread, EngineChoice, IoBuf, OpenError, StoreOptions, StoreSource,
};
use tempfile::TempDir;

pub(crate) const ENGINES: [EngineChoice; 2] = [EngineChoice::Pool, EngineChoice::Uring];
pub(crate) const SIZE: u64 = 8 * 1024 * 1024;

/// A place for a store, cleaned up with it.
pub(crate) struct Source {
    pub(crate) source: StoreSource,
    key: Option<PathBuf>,
    _dir: Option<TempDir>,
    _loop_device: Option<LoopDevice>,
}

impl Source {
    pub(crate) fn open(&self, options: StoreOptions) -> Result<Arc<dyn BlockStore>, OpenError> {
        match &self.key {
            None => backstores::open(&self.source, options),
            Some(key) => backstores::open_encrypted(&self.source, options, key),
        }
    }

    /// The same place with everything on it encrypted.
    fn encrypted(self) -> Self {
        let dir = self._dir.unwrap_or_else(|| TempDir::new().unwrap());
        let key = dir.path().join("key");
        std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
        Self {
            key: Some(key),
            _dir: Some(dir),
            ..self
        }
    }
}

/// Every kind of store that this machine can have. What it cannot is an error where `REQUIRE_TOOLS` is set.
pub(crate) fn sources() -> Vec<(&'static str, Source, StoreOptions)> {
    let default = StoreOptions::default();
    let through = StoreOptions {
        cache: CacheMode::WriteThrough,
        ..default
    };
    let direct = StoreOptions {
        direct: true,
        block_size: Some(4096),
        ..default
    };
    let protected = StoreOptions {
        protection: true,
        ..default
    };
    let mut sources = vec![
        ("memory", memory(), default),
        ("file", file(), default),
        ("file, write-through", file(), through),
        ("file, direct", file(), direct),
        ("memory, encrypted", memory().encrypted(), default),
        ("file, encrypted", file().encrypted(), default),
        ("memory, protected", memory(), protected),
        ("file, protected", file(), protected),
        ("file, encrypted, direct", file().encrypted(), direct),
    ];
    for (name, options) in [("block", default), ("block, write-through", through)] {
        let dir = TempDir::new().unwrap();
        if let Some(device) = LoopDevice::new(dir.path(), SIZE) {
            let source = StoreSource::Block {
                path: device.path.clone(),
            };
            sources.push((
                name,
                Source {
                    source,
                    key: None,
                    _dir: Some(dir),
                    _loop_device: Some(device),
                },
                options,
            ));
        }
    }
    sources
}

fn memory() -> Source {
    Source {
        source: StoreSource::Memory { size: SIZE },
        key: None,
        _dir: None,
        _loop_device: None,
    }
}

fn file() -> Source {
    let dir = TempDir::new().unwrap();
    let source = StoreSource::File {
        path: dir.path().join("disk.img"),
        size: Some(SIZE),
    };
    Source {
        source,
        key: None,
        _dir: Some(dir),
        _loop_device: None,
    }
}

/// A loop device over a sparse file; needs root.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
}

impl LoopDevice {
    pub(crate) fn new(dir: &Path, size: u64) -> Option<Self> {
        let backing = dir.join("backing.img");
        std::fs::File::create(&backing).unwrap().set_len(size).unwrap();
        match run(Command::new("losetup").args(["--find", "--show"]).arg(&backing)) {
            Ok(output) if output.status.success() => Some(Self {
                path: String::from_utf8(output.stdout).unwrap().trim().into(),
            }),
            failed => {
                skipped("loop devices", &format!("{failed:?}"));
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}

/// Drops a store and opens it again. A child process between fork and exec has copies of all descriptors and thereby
/// holds our locks a moment longer, so no child starts meanwhile.
pub(crate) fn reopen(
    store: Arc<dyn BlockStore>,
    source: &Source,
    options: StoreOptions,
) -> Result<Arc<dyn BlockStore>, OpenError> {
    let _no_children = CHILDREN.read().unwrap();
    drop(store);
    source.open(options)
}

/// Starts a child process and waits for it.
pub(crate) fn run(command: &mut Command) -> std::io::Result<Output> {
    let _child = CHILDREN.write().unwrap();
    command.output()
}

/// Read-locked where no child process may start.
pub(crate) static CHILDREN: RwLock<()> = RwLock::new(());

/// Says that something could not be tested here; an error where that must not be.
pub(crate) fn skipped(what: &str, why: &str) {
    assert!(
        std::env::var_os("REQUIRE_TOOLS").is_none(),
        "{what} are required here: {why}"
    );
    println!("SKIPPED: no {what} here: {why}");
}

/// Runs a future as a data thread does.
pub(crate) fn on_data_thread<T>(engine: EngineChoice, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let _data_thread = DataThread::enter(engine).unwrap();
        future.await
    })
}

pub(crate) fn filled(len: usize, byte: u8) -> IoBuf {
    let mut buf = IoBuf::from_heap(len);
    buf.fill(byte);
    buf
}

/// Reads into a buffer that holds something else.
pub(crate) async fn read(store: &dyn BlockStore, at: u64, len: usize) -> Vec<u8> {
    store.read(at, filled(len, 0xEE)).await.unwrap().to_vec()
}
