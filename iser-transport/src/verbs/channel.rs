//! Descriptors that a library owns, waited for with tokio.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor of somebody else's. Dropped before its owner closes it.
#[derive(Debug)]
pub(super) struct Readable(AsyncFd<Borrowed>);

#[derive(Debug)]
struct Borrowed(RawFd);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Readable {
    /// Watches the descriptor in the runtime of this thread.
    ///
    /// # Safety
    /// The descriptor is open, and stays so until this is dropped.
    pub(super) unsafe fn new(fd: RawFd) -> io::Result<Self> {
        // SAFETY: the descriptor is open (the caller's); the flags are read and written back with one more.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: the caller's; a `Borrowed` always names the same descriptor.
        let watched = unsafe { AsyncFd::register_with_interest(Borrowed(fd), Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Ready with what `read` found; pending while that is `WouldBlock`.
    pub(super) fn poll_with<T>(
        &self,
        cx: &mut Context<'_>,
        read: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.poll_read(cx, read).map_ok(|(found, _)| found)
    }

    /// Like [`Self::poll_with`], where there is at most one thing to be read: it is not tried again before the descriptor
    /// says so once more.
    pub(super) fn poll_single<T>(
        &self,
        cx: &mut Context<'_>,
        read: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.poll_read(cx, read).map_ok(|(found, mut ready)| {
            // Whatever comes from now on makes it ready anew: it is watched for edges.
            ready.clear_ready();
            found
        })
    }

    fn poll_read<T>(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<(T, AsyncFdReadyGuard<'_, Borrowed>)>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            if let Ok(result) = ready.try_io(|_| read()) {
                return Poll::Ready(result.map(|found| (found, ready)));
            }
        }
    }
}
