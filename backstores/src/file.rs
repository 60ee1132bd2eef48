//! Opens regular files: creation, locking, and the checks that name the culprit.
//!
//! The lock is flock(2) on the open file: exclusive, or shared among read-only users. It conflicts between processes as
//! well as within one, whatever name the file is opened by, and ends with the last operation on the file. Other programs
//! that do not ask for it are not kept out.
//!
//! O_DIRECT is all or nothing: where the file system wants larger blocks than the store offers, opening fails and says
//! so. A second, buffered descriptor for the odd requests would have to be kept coherent with the first.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};

use crate::disk_store::{DiskStore, Probe};
use crate::engine::Disk;
use crate::holder;
use crate::protect::{self, ProtectedStore};
use crate::spec::Blocks;
use crate::{BlockStore, CacheMode, Geometry, IoBuf, OpenError, Space, StoreOptions};

/// Opens or creates a file with its protection information. Nothing that was created is left when it fails.
pub(crate) fn open_protected(
    path: &Path,
    size: Option<u64>,
    options: StoreOptions,
) -> Result<Arc<dyn BlockStore>, OpenError> {
    let (is_new, tags_path) = (!path.exists(), protect::path_of(path));
    let tags_are_new = !tags_path.exists();
    let data = open_unguarded(path, size, options)?;
    let geometry = data.geometry();
    let tags =
        protect::prepare(&tags_path, geometry.size, geometry.block_size, options.read_only).and_then(|len| {
            // Tags are small and written in pieces: never past the page cache.
            let options = StoreOptions {
                read_only: options.read_only,
                cache: options.cache,
                ..StoreOptions::default()
            };
            open_unguarded(&tags_path, Some(len), options)
        });
    match tags {
        Ok(tags) => Ok(Arc::new(ProtectedStore::with_threads(data, tags, tags_path))),
        Err(error) => {
            for (path, is_new) in [(path, is_new), (&tags_path, tags_are_new)] {
                if is_new {
                    // It may not even be there; the first error says more.
                    let _ = std::fs::remove_file(path);
                }
            }
            Err(error)
        }
    }
}

/// Opens or creates a file as a store. One that has protection information is not written without it: the tags would not
/// fit any more.
pub(crate) fn open(
    path: &Path,
    size: Option<u64>,
    options: StoreOptions,
) -> Result<Arc<dyn BlockStore>, OpenError> {
    let tags = protect::path_of(path);
    if !options.read_only && tags.exists() {
        return Err(OpenError {
            path: path.into(),
            problem: format!("has protection information in {}", tags.display()),
            fix: "add pi=1, or remove that file".into(),
        });
    }
    open_unguarded(path, size, options)
}

fn open_unguarded(
    path: &Path,
    size: Option<u64>,
    options: StoreOptions,
) -> Result<Arc<dyn BlockStore>, OpenError> {
    let opener = Opener { path, options };
    let block_size = options.block_size.unwrap_or(512);
    let (file, metadata) = match (std::fs::metadata(path), size) {
        (Ok(metadata), _) => opener.existing(&metadata, size)?,
        (Err(error), Some(size)) if error.kind() == io::ErrorKind::NotFound => {
            opener.create(size, block_size)?
        }
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {
            return Err(opener.refuse("no such file", "add size=… to create it"));
        }
        (Err(error), _) => return Err(opener.system(&error, "check the path and its permissions")),
    };
    opener.finish(file, &metadata, block_size)
}

struct Opener<'a> {
    path: &'a Path,
    options: StoreOptions,
}

impl Opener<'_> {
    fn existing(&self, metadata: &Metadata, size: Option<u64>) -> Result<(File, Metadata), OpenError> {
        self.require_regular(metadata)?;
        let file = self
            .flags()
            .open(self.path)
            .map_err(|error| self.open_failed(&error))?;
        self.lock(&file)?;
        let metadata = file
            .metadata()
            .map_err(|error| self.system(&error, "check the file system"))?;
        self.require_regular(&metadata)?;
        block_on_io(&file).map_err(|error| self.system(&error, "check the file system"))?;
        match size {
            // One that was grown since it was created is larger.
            Some(size) if size > metadata.len() => Err(self.refuse(
                format!("the file has {} bytes, size= says {size}", metadata.len()),
                "leave out size= to take the file as it is",
            )),
            _ => Ok((file, metadata)),
        }
    }

    /// A sparse file that appears with its full size or not at all, as far as we live to clean up.
    fn create(&self, size: u64, block_size: u32) -> Result<(File, Metadata), OpenError> {
        if self.options.read_only {
            return Err(self.refuse(
                "no such file, and a read-only disk creates none",
                "leave out ro or size=",
            ));
        }
        let blocks = Blocks::check(self.path, size, block_size, self.options)?;
        debug_assert_eq!(blocks.size, size);
        let file = self
            .flags()
            .create_new(true)
            .mode(0o600)
            .open(self.path)
            .map_err(|error| self.open_failed(&error))?;
        let prepared = self.lock(&file).and_then(|()| {
            let durable = || {
                file.set_len(size)?;
                file.sync_all()?;
                sync_directory(parent(self.path))?;
                block_on_io(&file)?;
                file.metadata()
            };
            durable().map_err(|error| self.system(&error, "check space and limits of the file system"))
        });
        let prepared =
            prepared.and_then(|metadata| self.probe_direct(&file, size, block_size).map(|()| metadata));
        match prepared {
            Ok(metadata) => Ok((file, metadata)),
            Err(error) => {
                // Ours alone, as it was created exclusively. If even this fails, the first error says more.
                let _ = std::fs::remove_file(self.path);
                Err(error)
            }
        }
    }

    fn finish(
        &self,
        file: File,
        metadata: &Metadata,
        block_size: u32,
    ) -> Result<Arc<dyn BlockStore>, OpenError> {
        let mut blocks = Blocks::check(self.path, metadata.len(), block_size, self.options)?;
        self.probe_direct(&file, metadata.len(), block_size)?;
        let file_system_block = granularity(metadata);
        blocks.prefer_physical(file_system_block.min(4096));
        let geometry = Geometry {
            size: blocks.size,
            block_size,
            physical_block_size: blocks.physical,
            optimal_len: 0,
            unmap_granularity: if self.can_punch(&file, metadata.len(), file_system_block) {
                file_system_block
            } else {
                0
            },
            unmap_alignment: 0,
            // The page cache, or with O_DIRECT the device's cache and the file system's journal.
            volatile_cache: self.options.cache == CacheMode::WriteBack,
            read_only: self.options.read_only,
            rotational: crate::sysfs::is_rotational(metadata.dev()),
        };
        let disk = Disk::new(file.into(), self.options.direct);
        Ok(Arc::new(DiskStore::new(
            disk,
            geometry,
            self.options.cache,
            PROBE,
        )))
    }

    fn flags(&self) -> OpenOptions {
        let mut flags = OpenOptions::new();
        // O_NONBLOCK: a FIFO that took the path's place since we looked must not hold us.
        let direct = if self.options.direct { libc::O_DIRECT } else { 0 };
        flags
            .read(true)
            .write(!self.options.read_only)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | direct);
        flags
    }

    fn require_regular(&self, metadata: &Metadata) -> Result<(), OpenError> {
        let kind = metadata.file_type();
        if kind.is_file() {
            Ok(())
        } else if kind.is_block_device() {
            Err(self.refuse("is a block device", format!("use block:{}", self.path.display())))
        } else if kind.is_dir() {
            Err(self.refuse("is a directory", "name a file inside it"))
        } else {
            Err(self.refuse("is not a regular file", "name a regular file or a block device"))
        }
    }

    fn lock(&self, file: &File) -> Result<(), OpenError> {
        let operation = if self.options.read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        let lock = || Ok(rustix::fs::flock(file, operation)?);
        match holder::claim(self.path, lock, || false) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(holder::in_use(self.path)),
            Err(error) => {
                let problem = format!("cannot be locked ({error})");
                Err(self.refuse(problem, "keep it on a file system that knows flock"))
            }
        }
    }

    /// Reads the second block, which tells the needed alignment of offset and length.
    fn probe_direct(&self, file: &File, size: u64, block_size: u32) -> Result<(), OpenError> {
        if !self.options.direct || size < 2 * u64::from(block_size) {
            return Ok(());
        }
        let mut block = IoBuf::from_heap(block_size as usize);
        match rustix::io::pread(file, &mut block[..], u64::from(block_size)) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INVAL) if block_size < 4096 => Err(self.refuse(
                format!("direct I/O in blocks of {block_size} bytes does not work here"),
                "add block-size=4096 or leave out direct",
            )),
            Err(error) => Err(self.system(&error.into(), "leave out direct or check the medium")),
        }
    }

    /// Punches behind the end, where there is nothing to lose.
    fn can_punch(&self, file: &File, size: u64, granularity: u32) -> bool {
        let Some(behind) = size.checked_next_multiple_of(u64::from(granularity)) else {
            return false;
        };
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        !self.options.read_only && rustix::fs::fallocate(file, mode, behind, u64::from(granularity)).is_ok()
    }

    fn open_failed(&self, error: &io::Error) -> OpenError {
        match error.raw_os_error() {
            Some(libc::EINVAL) if self.options.direct => {
                self.refuse("direct I/O does not work on this file system", "leave out direct")
            }
            Some(libc::EACCES | libc::EPERM) => self.refuse(
                "permission denied",
                "change its owner or mode, or add ro if it is only read",
            ),
            Some(libc::EROFS) => self.refuse("the file system is read-only", "add ro or move the file"),
            Some(libc::ENOENT) => self.refuse("its directory does not exist", "create the directory first"),
            _ => self.system(error, "check the path and its permissions"),
        }
    }

    fn system(&self, error: &io::Error, fix: &str) -> OpenError {
        self.refuse(error.to_string(), fix)
    }

    fn refuse(&self, problem: impl Into<String>, fix: impl Into<String>) -> OpenError {
        OpenError {
            path: self.path.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// Of the file's own size and blocks, and of what the file system leaves to those who are not root.
const PROBE: Probe = Probe {
    size: |disk| Ok(u64::try_from(rustix::fs::fstat(disk.fd())?.st_size).unwrap_or(0)),
    space: |disk| {
        let blocks = u64::try_from(rustix::fs::fstat(disk.fd())?.st_blocks).unwrap_or(0);
        let file_system = rustix::fs::fstatvfs(disk.fd())?;
        Ok(Some(Space {
            used: blocks.saturating_mul(512),
            available: Some(file_system.f_bavail.saturating_mul(file_system.f_frsize)),
        }))
    },
};

/// The file system's block, as far as it is a plausible one.
fn granularity(metadata: &Metadata) -> u32 {
    u32::try_from(metadata.blksize())
        .ok()
        .filter(|size| size.is_power_of_two() && *size <= 1 << 20)
        .unwrap_or(4096)
}

/// Takes O_NONBLOCK away again, as it makes some file systems refuse what the engines would wait for.
pub(crate) fn block_on_io(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(
        file,
        flags - rustix::fs::OFlags::NONBLOCK,
    )?)
}

/// Makes a new name durable, where directories can be synced at all.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
