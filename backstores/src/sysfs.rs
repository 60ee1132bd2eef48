//! What the kernel says about the device below a store, in `/sys/dev/block`.

use std::fs;
use std::path::PathBuf;

/// A device's directory; of a partition, which has no queue of its own, the parent's is asked.
#[derive(Debug)]
pub(crate) struct Device {
    dir: PathBuf,
}

impl Device {
    pub(crate) fn new(dev: u64) -> Self {
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        Self {
            dir: PathBuf::from(format!("/sys/dev/block/{major}:{minor}")),
        }
    }

    /// A value of the request queue.
    pub(crate) fn queue(&self, name: &str) -> Option<String> {
        let own = self.dir.join("queue").join(name);
        // `..` resolves in the kernel, behind the symbolic link.
        let parent = self.dir.join("../queue").join(name);
        let text = fs::read_to_string(own)
            .or_else(|_| fs::read_to_string(parent))
            .ok()?;
        Some(text.trim().to_owned())
    }

    pub(crate) fn queue_number(&self, name: &str) -> Option<u64> {
        self.queue(name)?.parse().ok()
    }

    /// A number that the device, or the partition, says of itself.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join(name)).ok()?;
        text.trim().parse().ok()
    }

    /// Names of those who sit on the device: device-mapper volumes, RAID arrays.
    pub(crate) fn holders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("holders"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// `MAJOR:MINOR` of the device and of its partitions.
    pub(crate) fn numbers(&self) -> Vec<String> {
        let children = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let dirs = std::iter::once(self.dir.clone()).chain(children);
        let numbers = dirs.filter_map(|dir| fs::read_to_string(dir.join("dev")).ok());
        numbers.map(|number| number.trim().to_owned()).collect()
    }
}

/// Whether a file system's device turns; `false` where there is none to ask.
pub(crate) fn is_rotational(dev: u64) -> bool {
    Device::new(dev).queue_number("rotational") == Some(1)
}
