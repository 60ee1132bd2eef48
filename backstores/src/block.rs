//! Opens block devices: exclusively, always with O_DIRECT, with the limits that the kernel tells.
//!
//! Always direct: whoever uses the disk caches already and a second cache only costs copies, and the page cache would
//! hide from us what a write-through device promises. Space operations are fallocate(2), which the kernel maps to the
//! device's discard and zeroing commands while keeping its own cache in order; a hole is punched only where the device
//! guarantees zeroes afterwards.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FlockOperation;

use crate::disk_store::{DiskStore, Probe};
use crate::engine::Disk;
use crate::holder;
use crate::spec::Blocks;
use crate::sysfs::Device;
use crate::{BlockStore, CacheMode, Geometry, OpenError, StoreOptions};

/// Opens a block device as a store.
pub(crate) fn open(path: &Path, options: StoreOptions) -> Result<Arc<dyn BlockStore>, OpenError> {
    let opener = Opener { path, options };
    let metadata = std::fs::metadata(path).map_err(|error| opener.open_failed(&error))?;
    opener.require_device(&metadata)?;
    let file = opener.open_exclusively()?;
    let metadata = file.metadata().map_err(|error| opener.open_failed(&error))?;
    opener.require_device(&metadata)?;
    let limits = Limits::of(&file, &metadata).map_err(|error| opener.open_failed(&error))?;
    let block_size = opener.block_size(&limits)?;
    let mut blocks = Blocks::check(path, limits.size, block_size, options)?;
    blocks.prefer_physical(limits.physical);
    let geometry = Geometry {
        size: limits.size,
        block_size,
        physical_block_size: blocks.physical,
        optimal_len: limits.optimal,
        unmap_granularity: if options.read_only {
            0
        } else {
            limits.unmap_granularity
        },
        unmap_alignment: limits.unmap_alignment,
        volatile_cache: limits.volatile && options.cache == CacheMode::WriteBack,
        read_only: options.read_only,
        rotational: limits.rotational,
    };
    Ok(Arc::new(DiskStore::new(
        Disk::new(file.into(), true),
        geometry,
        options.cache,
        Probe {
            size: |disk| ioctl::<u64>(disk.fd(), BLKGETSIZE64),
            space: |_| Ok(None),
        },
    )))
}

struct Opener<'a> {
    path: &'a Path,
    options: StoreOptions,
}

impl Opener<'_> {
    fn require_device(&self, metadata: &Metadata) -> Result<(), OpenError> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            Ok(())
        } else if kind.is_file() {
            Err(self.refuse("is a regular file", format!("use file:{}", self.path.display())))
        } else {
            Err(self.refuse(
                "is not a block device",
                "name a device such as /dev/sdb, or use file: for a file",
            ))
        }
    }

    /// O_EXCL claims the device against mounts and other claims; the lock makes the claimant's name known.
    fn open_exclusively(&self) -> Result<File, OpenError> {
        let mut flags = OpenOptions::new();
        flags.read(true).write(!self.options.read_only);
        flags.custom_flags(libc::O_EXCL | libc::O_DIRECT | libc::O_NONBLOCK | libc::O_NOCTTY);
        let claim = || {
            let file = flags.open(self.path)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            crate::file::block_on_io(&file)?;
            Ok(file)
        };
        holder::claim(self.path, claim, || self.other_use().is_some())
            .map_err(|error| self.open_failed(&error))
    }

    fn block_size(&self, limits: &Limits) -> Result<u32, OpenError> {
        match self.options.block_size {
            None => Ok(limits.logical),
            Some(size) if size < limits.logical => Err(self.refuse(
                format!(
                    "the device has blocks of {} bytes, larger than {size}",
                    limits.logical
                ),
                format!("use block-size={}", limits.logical),
            )),
            Some(size) => Ok(size),
        }
    }

    fn open_failed(&self, error: &io::Error) -> OpenError {
        match error.raw_os_error() {
            Some(libc::EBUSY | libc::EWOULDBLOCK) => {
                self.other_use().unwrap_or_else(|| holder::in_use(self.path))
            }
            Some(libc::ENOENT) => self.refuse("no such device", "check the name; lsblk lists devices"),
            Some(libc::EACCES | libc::EPERM) => self.refuse(
                "permission denied",
                "run as a user who may open it (root, or group disk)",
            ),
            Some(libc::EROFS) => self.refuse("the device is read-only", "add ro"),
            Some(libc::ENXIO | libc::ENOMEDIUM) => self.refuse("there is no medium", "attach one first"),
            _ => self.refuse(error.to_string(), "check the device; dmesg may say more"),
        }
    }

    /// A mount, or another device on top of this one.
    fn other_use(&self) -> Option<OpenError> {
        let device = Device::new(std::fs::metadata(self.path).ok()?.rdev());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if let Some(point) = mount_point(&mounts, &device.numbers()) {
            return Some(self.refuse(
                format!("is mounted at {point}"),
                format!("unmount it first: umount {point}"),
            ));
        }
        let holders = device.holders();
        (!holders.is_empty()).then(|| {
            self.refuse(
                format!("is part of {}", holders.join(", ")),
                "take it out of there first",
            )
        })
    }

    fn refuse(&self, problem: impl Into<String>, fix: impl Into<String>) -> OpenError {
        OpenError {
            path: self.path.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// Where one of the devices is mounted. A line is `36 35 98:0 /root /mount/point options …`; blanks in paths are `\040`.
fn mount_point(mountinfo: &str, numbers: &[String]) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (number, point) = (fields.next()?, fields.nth(1)?);
        numbers
            .iter()
            .any(|device| device == number)
            .then(|| point.replace("\\040", " "))
    })
}

/// What the kernel says about a device. Bytes.
struct Limits {
    size: u64,
    logical: u32,
    physical: u32,
    optimal: u32,
    unmap_granularity: u32,
    unmap_alignment: u32,
    volatile: bool,
    rotational: bool,
}

impl Limits {
    fn of(file: &File, metadata: &Metadata) -> io::Result<Self> {
        let device = Device::new(metadata.rdev());
        let number = |name| device.queue_number(name).unwrap_or(0);
        let bytes = |name| u32::try_from(number(name)).unwrap_or(0);
        let discards = number("discard_max_bytes") > 0 && number("write_zeroes_max_bytes") > 0;
        Ok(Self {
            size: ioctl::<u64>(file, BLKGETSIZE64)?,
            logical: ioctl::<u32>(file, BLKSSZGET)?,
            physical: ioctl::<u32>(file, BLKPBSZGET)?,
            optimal: bytes("optimal_io_size"),
            unmap_granularity: if discards { bytes("discard_granularity") } else { 0 },
            unmap_alignment: device
                .number("discard_alignment")
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(0),
            // A device that does not say is taken to have a cache.
            volatile: device.queue("write_cache").as_deref() != Some("write through"),
            rotational: number("rotational") == 1,
        })
    }
}

/// Numbers that the kernel writes for us.
trait Number: Default {}
impl Number for u32 {}
impl Number for u64 {}

fn ioctl<T: Number>(file: &impl AsRawFd, request: libc::Ioctl) -> io::Result<T> {
    let mut value = T::default();
    // SAFETY: these requests write one number of the type that their caller names, and `value` is one.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(value),
    }
}

const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
const BLKPBSZGET: libc::Ioctl = 0x127B;
const BLKSSZGET: libc::Ioctl = 0x1268;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_device_number() {
        let mountinfo = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                         29 22 7:0 / /mnt/with\\040blank rw - ext4 /dev/loop0 rw\n";
        let at = |number: &str| mount_point(mountinfo, &[number.to_owned()]);
        assert_eq!(at("254:0").as_deref(), Some("/"));
        assert_eq!(at("7:0").as_deref(), Some("/mnt/with blank"));
        assert_eq!(at("7:1"), None);
    }
}
