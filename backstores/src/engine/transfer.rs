//! One read or write of a whole buffer, with the rules that hold in every engine: short results go on where they
//! stopped, interruptions start again, and a failure that the kernel reports only once is remembered.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::sync::oneshot;

use super::Disk;
use crate::IoBuf;

/// Which way, and how far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Read,
    Write {
        /// On the medium before it is done.
        stable: bool,
    },
}

/// Owns its buffer and keeps its disk open until it ends.
#[derive(Debug)]
pub(crate) struct Transfer {
    disk: Arc<Disk>,
    direction: Direction,
    at: u64,
    buf: IoBuf,
    done: usize,
}

/// What follows a system call.
pub(super) enum Step {
    /// The rest is to be asked for.
    Again(Transfer),
    /// It has ended.
    Ended(io::Result<IoBuf>),
}

impl Transfer {
    pub(crate) fn new(disk: Arc<Disk>, direction: Direction, at: u64, buf: IoBuf) -> Self {
        Self {
            disk,
            direction,
            at,
            buf,
            done: 0,
        }
    }

    /// Serves a read from the page cache if that takes no waiting; gives everything else back.
    pub(super) fn try_cached(mut self) -> Result<io::Result<IoBuf>, Self> {
        while self.direction == Direction::Read && !self.disk.direct {
            let rest = &mut [IoSliceMut::new(&mut self.buf[self.done..])];
            let at = self.at + self.done as u64;
            // Whatever goes wrong here goes wrong again in the blocking call, which then tells.
            let Ok(len @ 1..) = rustix::io::preadv2(&self.disk.fd, rest, at, ReadWriteFlags::NOWAIT) else {
                break;
            };
            match self.advance(Ok(len)) {
                Step::Again(rest) => self = rest,
                Step::Ended(result) => return Ok(result),
            }
        }
        Err(self)
    }

    /// Leaves it to the disk's threads.
    pub(super) fn hand_over(self, sender: oneshot::Sender<io::Result<IoBuf>>) {
        let disk = Arc::clone(&self.disk);
        disk.workers.run_for(sender, move || self.run());
    }

    /// Runs it here, blocking.
    pub(super) fn run(mut self) -> io::Result<IoBuf> {
        loop {
            let (at, from) = (self.at + self.done as u64, self.done);
            let result = match self.direction {
                Direction::Read => {
                    let rest = &mut [IoSliceMut::new(&mut self.buf[from..])];
                    rustix::io::preadv2(&self.disk.fd, rest, at, ReadWriteFlags::empty())
                }
                Direction::Write { stable } => {
                    let flags = if stable {
                        ReadWriteFlags::DSYNC
                    } else {
                        ReadWriteFlags::empty()
                    };
                    rustix::io::pwritev2(&self.disk.fd, &[IoSlice::new(&self.buf[from..])], at, flags)
                }
            };
            match self.advance(result) {
                Step::Again(rest) => self = rest,
                Step::Ended(result) => return result,
            }
        }
    }

    /// The ring's form of what is left. It points into the buffer and at the descriptor, both of which this value
    /// keeps: it must stay alive, and its buffer untouched, until the completion.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        use std::os::fd::AsRawFd;
        let fd = types::Fd(self.disk.fd.as_raw_fd());
        let at = self.at + self.done as u64;
        let rest = &mut self.buf[self.done..];
        let len = u32::try_from(rest.len()).expect("a buffer is at most a chunk");
        match self.direction {
            Direction::Read => opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(at).build(),
            Direction::Write { stable } => {
                let flags = if stable { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), len)
                    .offset(at)
                    .rw_flags(flags)
                    .build()
            }
        }
    }

    /// Takes the result of a system call into account.
    pub(super) fn advance(mut self, result: Result<usize, Errno>) -> Step {
        match result {
            Err(Errno::INTR) => Step::Again(self),
            Err(error) => {
                self.note(error);
                Step::Ended(Err(error.into()))
            }
            Ok(len) => {
                self.done += len;
                if self.done >= self.buf.len() {
                    Step::Ended(Ok(self.buf))
                } else if len == 0 {
                    Step::Ended(Err(self.stuck()))
                } else {
                    Step::Again(self)
                }
            }
        }
    }

    /// A stable write also reports, and thereby uses up, what happened to pages written back earlier. Only a lack of
    /// space, after which the disk is whole once there is room again, and a refusal are taken as the write's own.
    fn note(&self, error: Errno) {
        match (self.direction, error) {
            (Direction::Read | Direction::Write { stable: false }, _)
            | (_, Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::INVAL | Errno::OPNOTSUPP) => {}
            (Direction::Write { stable: true }, error) => self.disk.note_loss(error.into()),
        }
    }

    fn stuck(&self) -> io::Error {
        match self.direction {
            Direction::Read => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the medium ends here; did it shrink?",
            ),
            Direction::Write { .. } => io::Error::new(io::ErrorKind::WriteZero, "the medium takes no more"),
        }
    }
}
