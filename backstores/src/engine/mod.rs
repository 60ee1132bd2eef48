//! How bytes get to and from a descriptor without blocking a data thread.
//!
//! A buffered read first tries the page cache in place (`RWF_NOWAIT`): as cheap as a ring with many operations under
//! way, cheaper with one, and a miss costs little beside the medium. What remains goes through the data thread's own
//! io_uring (`uring.rs`), or, on other threads and where there is no io_uring, to the few threads of the disk
//! (`workers.rs`). Flushes and space operations always go there: the kernel hands them to a thread of its own anyway,
//! and several steps in one job cannot be torn by a dropped future.

mod data_thread;
mod transfer;
mod uring;
mod workers;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};

pub use data_thread::{DataThread, Engine, EngineChoice, EngineKind, probe};
pub(crate) use transfer::{Direction, Transfer};
pub(crate) use workers::Workers;

use crate::IoBuf;

/// An open descriptor, its threads, and whether it has lost data. Lives until the last operation on it has ended, and
/// with it the locks that the descriptor holds.
#[derive(Debug)]
pub(crate) struct Disk {
    fd: OwnedFd,
    /// Opened with O_DIRECT: nothing can be had without waiting.
    direct: bool,
    workers: Workers,
    /// First errno of a write-back that failed, 0 while there was none.
    lost: AtomicI32,
}

impl Disk {
    pub(crate) fn new(fd: OwnedFd, direct: bool) -> Arc<Self> {
        Arc::new(Self {
            fd,
            direct,
            workers: Workers::default(),
            lost: AtomicI32::new(0),
        })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether the page cache is bypassed.
    pub(crate) const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Moves a whole buffer. Once this has been polled the operation runs to its end, whatever becomes of the future.
    pub(crate) async fn transfer(
        self: &Arc<Self>,
        direction: Direction,
        at: u64,
        buf: IoBuf,
    ) -> io::Result<IoBuf> {
        let transfer = match Transfer::new(Arc::clone(self), direction, at, buf).try_cached() {
            Ok(done) => return done,
            Err(transfer) => transfer,
        };
        let completion =
            uring::submit(transfer).unwrap_or_else(|transfer| self.workers.run(move || transfer.run()));
        completion.await.unwrap_or_else(|_| Err(abandoned()))
    }

    /// Runs a blocking job on this disk's threads, to its end even if the future is dropped after its first poll.
    pub(crate) async fn blocking<T, F>(self: &Arc<Self>, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> io::Result<T> + Send + 'static,
    {
        let disk = Arc::clone(self);
        self.workers
            .run(move || job(&disk))
            .await
            .unwrap_or_else(|_| Err(abandoned()))
    }

    /// Looks at the medium without touching its content, on threads that all disks share.
    pub(crate) async fn look<T>(self: &Arc<Self>, look: fn(&Self) -> io::Result<T>) -> io::Result<T>
    where
        T: Send + 'static,
    {
        let disk = Arc::clone(self);
        LOOKING
            .run(move || look(&disk))
            .await
            .unwrap_or_else(|_| Err(abandoned()))
    }

    /// Puts everything written on the medium. After a failure the kernel may have marked the lost pages clean and a
    /// second attempt would lie, so the first failure stays.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.check_intact()?;
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Ok(()) => return self.check_intact(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    self.note_loss(error.into());
                    return Err(error.into());
                }
            }
        }
    }

    /// Remembers a failed write-back that the kernel will not report again.
    pub(crate) fn note_loss(&self, errno: OsError) {
        if self
            .lost
            .compare_exchange(0, errno.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            let error = io::Error::from_raw_os_error(errno.0);
            tracing::error!(%error, "write-back failed, data may be lost: flushes fail until the store is reopened");
        }
    }

    fn check_intact(&self) -> io::Result<()> {
        match self.lost.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::other(format!(
                "an earlier write-back failed ({}) and data may be lost; check the medium and reopen the store",
                io::Error::from_raw_os_error(errno)
            ))),
        }
    }
}

/// A raw errno.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsError(i32);

impl From<rustix::io::Errno> for OsError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

/// What is left to say when an engine went away with an operation, which no engine does.
fn abandoned() -> io::Error {
    io::Error::other("the I/O engine ended before the operation")
}

/// So many that media which hang, each with one look at a time, leave some for the others.
static LOOKING: LazyLock<Workers> = LazyLock::new(|| Workers::new(64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_write_back_no_flush_succeeds_again() {
        let disk = Disk::new(tempfile::tempfile().unwrap().into(), false);
        disk.sync().unwrap();
        disk.note_loss(rustix::io::Errno::IO.into());
        disk.note_loss(rustix::io::Errno::NXIO.into());
        for _ in 0..2 {
            let error = disk.sync().unwrap_err().to_string();
            assert!(
                error.starts_with("an earlier write-back failed (Input/output error"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_failed_stable_write_counts_unless_it_only_lacked_space() {
        use rustix::io::Errno;
        for (stable, errno, intact) in [
            (false, Errno::IO, true),
            (true, Errno::NOSPC, true),
            (true, Errno::DQUOT, true),
            (true, Errno::IO, false),
        ] {
            let disk = Disk::new(tempfile::tempfile().unwrap().into(), false);
            let direction = Direction::Write { stable };
            let transfer = Transfer::new(Arc::clone(&disk), direction, 0, IoBuf::from_heap(512));
            assert!(matches!(
                transfer.advance(Err(errno)),
                transfer::Step::Ended(Err(_))
            ));
            assert_eq!(disk.sync().is_ok(), intact, "{errno}, stable: {stable}");
        }
    }

    #[test]
    fn short_results_go_on_where_they_stopped() {
        let disk = Disk::new(tempfile::tempfile().unwrap().into(), false);
        let transfer = Transfer::new(disk, Direction::Read, 0, IoBuf::from_heap(512));
        let transfer::Step::Again(transfer) = transfer.advance(Ok(500)) else {
            panic!("12 bytes are left")
        };
        let transfer::Step::Ended(Ok(buf)) = transfer.advance(Ok(12)) else {
            panic!("nothing is left")
        };
        assert_eq!(buf.len(), 512);
    }
}
