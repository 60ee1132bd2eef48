//! Encryption at rest: a store over any other store, on which everything lies encrypted with AES-256-XTS.
//!
//! Sectors of 512 bytes have their number as tweak, little-endian, from 0 at the start of the store: what `cryptsetup`
//! calls `aes-xts-plain64`. The sector is that small whatever the block size is, so that a disk keeps its content when
//! it is served with another one.
//!
//! **Holes.** A sector that holds nothing but zeroes below reads as zeroes: so a sparse file, and what was unmapped or
//! zeroed, read as they have to. Encrypted content never looks like that (the chance is one in 2^4096 for each sector).
//! The price: who can look at the medium sees which sectors are in use, and who can write to it can turn one into
//! zeroes, where otherwise he could only turn it into noise or into what it held before. XTS protects from reading, not
//! from tampering.
//!
//! A wrong key is not noticed: there is no header that could tell. Everything reads as noise then.

mod key_file;
mod xts;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use async_trait::async_trait;
use key_file::KeyFile;
use tokio::sync::oneshot;
use xts::{SECTOR, Xts};

use crate::error::check_range;
use crate::{
    Abilities, BlockStore, Durability, Extent, Geometry, IoBuf, Measured, OpenError, Space, StoreError,
    StoreErrorKind, StoreOp,
};

/// The store, once its key was read.
pub(crate) struct EncryptedStore {
    inner: Arc<dyn BlockStore>,
    keys: Arc<Keys>,
    can_erase: bool,
}

/// The key, as it is used and where it is kept.
struct Keys {
    ciphers: RwLock<Arc<Xts>>,
    /// Held while a key is replaced.
    file: Mutex<KeyFile>,
}

/// A key that was read and claimed, for a store that is not open yet: nothing is created for the sake of a wrong key.
#[derive(Debug)]
pub(crate) struct ReadKey {
    keys: Arc<Keys>,
    can_erase: bool,
}

impl ReadKey {
    /// Reads the key. Blocking.
    pub(crate) fn from_file(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        let (file, key) = KeyFile::open(path, read_only)?;
        let can_erase = file.is_replaceable();
        let keys = Keys {
            ciphers: RwLock::new(Arc::new(Xts::new(&key))),
            file: Mutex::new(file),
        };
        Ok(Self {
            keys: Arc::new(keys),
            can_erase,
        })
    }

    /// Puts the encryption over a store.
    pub(crate) fn over(self, inner: Arc<dyn BlockStore>) -> EncryptedStore {
        EncryptedStore {
            inner,
            keys: self.keys,
            can_erase: self.can_erase,
        }
    }
}

impl Keys {
    fn ciphers(&self) -> Arc<Xts> {
        Arc::clone(&self.ciphers.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.replace(|key| {
            *self.ciphers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Xts::new(&key));
        })
    }
}

#[async_trait]
impl BlockStore for EncryptedStore {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            key_erase: self.can_erase,
            ..self.inner.abilities()
        }
    }

    async fn extent(&self, range: Range<u64>) -> Result<Extent, StoreError> {
        self.inner.extent(range).await
    }

    async fn measure(&self) -> io::Result<Measured> {
        self.inner.measure().await
    }

    async fn space(&self) -> io::Result<Option<Space>> {
        self.inner.space().await
    }

    async fn prefetch(&self, range: Range<u64>) -> bool {
        self.inner.prefetch(range).await
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, StoreError> {
        let mut buf = self.inner.read(at, buf).await?;
        self.keys.ciphers().decrypt(at / SECTOR as u64, &mut buf);
        Ok(buf)
    }

    async fn write(&self, at: u64, buf: IoBuf, durability: Durability) -> Result<IoBuf, StoreError> {
        // Before the work, and before the sector is computed.
        check_range(&self.inner.geometry(), StoreOp::Write, at, buf.len() as u64)?;
        // The caller's bytes are his: they may be sent elsewhere, or written again.
        let mut encrypted = buf.sibling(buf.len());
        self.keys
            .ciphers()
            .encrypt(at / SECTOR as u64, &buf, &mut encrypted);
        let mut written = self.inner.write(at, encrypted.carrying(buf), durability).await?;
        Ok(written
            .unload()
            .expect("a store gives back the buffer it was given"))
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }

    async fn unmap(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.inner.unmap(range).await
    }

    async fn write_zeroes(&self, range: Range<u64>, durability: Durability) -> Result<(), StoreError> {
        self.inner.write_zeroes(range, durability).await
    }

    /// To be called when nothing else is under way: a write that is may be encrypted with the old key still.
    async fn erase_key(&self) -> Result<(), StoreError> {
        if !self.can_erase {
            return Err(StoreError {
                kind: StoreErrorKind::NotSupported,
                op: StoreOp::EraseKey,
                at: 0,
                source: None,
            });
        }
        let (sender, receiver) = oneshot::channel();
        let keys = Arc::clone(&self.keys);
        // A thread of its own, as it happens once in a disk's life, and ends with the disk's key whole whoever waits.
        let spawned = std::thread::Builder::new()
            .name("erase-key".into())
            .spawn(move || drop(sender.send(keys.replace())));
        let replaced = match spawned {
            Ok(_) => receiver
                .await
                .unwrap_or_else(|_| Err(io::Error::other("the thread that replaces the key has panicked"))),
            Err(error) => Err(error),
        };
        replaced.map_err(|error| StoreError::from_io(StoreOp::EraseKey, 0, error))
    }
}

/// Without the key.
impl fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptedStore({:?})", self.inner)
    }
}

/// Without the key.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}
