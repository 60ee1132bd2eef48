//! What FORMAT UNIT and SANITIZE do to the whole medium, piece by piece, in a task of its own: it goes on when the command
//! has been answered or aborted, and when the connection is gone. Between two pieces everybody else on the same core has
//! a turn.

use std::sync::Arc;

use backstores::{CHUNK, Durability, IoBuf, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::chunks::{chunks, strides};
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::erasure::{Before, ErasureKind};
use crate::scsi::primary::vpd::is_thin;
use crate::scsi::table::ErasureRule;
use crate::scsi::{Failure, LogicalUnit, SanitizeMark, SanitizeWork};
use crate::transfer::Transfer;

/// What is done.
#[derive(Debug)]
pub(super) enum Work {
    /// FORMAT UNIT.
    Format {
        /// What every block is filled with, not empty. Without it every block is given back, or reads as zeroes where
        /// nothing can be.
        pattern: Option<Vec<u8>>,
    },
    /// SANITIZE.
    Sanitize {
        /// AUSE.
        unrestricted: bool,
        /// What.
        work: SanitizeWork,
    },
}

impl Work {
    /// As the unit knows it.
    fn kind(&self) -> ErasureKind {
        match *self {
            Self::Format { .. } => ErasureKind::Format,
            Self::Sanitize { unrestricted, .. } => ErasureKind::Sanitize { unrestricted },
        }
    }

    /// What it leaves behind while it goes on.
    fn mark(&self) -> Option<SanitizeMark> {
        match self {
            Self::Format { .. } => None,
            Self::Sanitize { unrestricted, work } => Some(SanitizeMark {
                unrestricted: *unrestricted,
                work: Some(work.clone()),
            }),
        }
    }
}

/// Begins the work. With `immediate` that is all; else waits for its end, and an abort ends only the waiting. The command
/// has the medium for itself, so that no other one is on the way to a block; those that come now are refused.
pub(super) async fn start(
    context: &CommandContext<'_>,
    work: Work,
    immediate: bool,
    data: &Transfer,
) -> Result<(), Failure> {
    data.check()?;
    let unit = context.shared_unit();
    // There is always one where commands run. Nobody awaits the task: how it ended, the unit tells.
    let Ok(runtime) = Handle::try_current() else {
        return Err(Failure::Busy);
    };
    let Some(before) = unit.erasure().begin(work.kind()) else {
        return unit.erasure().check(ErasureRule::Restart);
    };
    context.release();
    let (marked, is_marked) = oneshot::channel();
    let job = Job::new(Arc::clone(unit), before);
    runtime.spawn(job.carry_out(work, marked));
    let answer = async {
        // From then on the work gets to its end, or a restart finds its mark.
        if let Ok(Err(failure)) = is_marked.await {
            return Err(failure);
        }
        if immediate {
            return Ok(());
        }
        unit.erasure().ended().await
    };
    tokio::select! {
        biased;
        () = data.abort_signal().fired() => Err(Failure::Aborted),
        result = answer => result,
    }
}

/// Begins what a former process did not get to the end of: from the start, since nobody knows how far it came. The unit is
/// not used yet.
pub(crate) fn resume_sanitizing(unit: &Arc<LogicalUnit>, unrestricted: bool, work: SanitizeWork) {
    let work = Work::Sanitize { unrestricted, work };
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if let Some(before) = unit.erasure().begin(work.kind()) {
        let job = Job::new(Arc::clone(unit), before);
        runtime.spawn(job.carry_out(work, oneshot::channel().0));
    }
}

/// The blocks of commands that need the whole medium for themselves.
pub(super) fn whole_medium(_cdb: Cdb<'_>, capacity: u64) -> LbaRange {
    LbaRange {
        lba: 0,
        blocks: capacity,
    }
}

/// The work under way. However it ends, the unit hears of it.
struct Job {
    unit: Arc<LogicalUnit>,
    size: u64,
    /// How it was before; taken when nothing has been done.
    before: Before,
    end: End,
}

enum End {
    Failed,
    NotBegun,
    Succeeded,
}

impl Drop for Job {
    fn drop(&mut self) {
        let erasure = self.unit.erasure();
        match self.end {
            End::Failed => erasure.end(false),
            End::NotBegun => erasure.withdraw(self.before),
            End::Succeeded => erasure.end(true),
        }
    }
}

impl Job {
    fn new(unit: Arc<LogicalUnit>, before: Before) -> Self {
        let size = unit.store().geometry().size;
        Self {
            unit,
            size,
            before,
            end: End::NotBegun,
        }
    }

    async fn carry_out(mut self, work: Work, marked: oneshot::Sender<Result<(), Failure>>) {
        let mark = work.mark();
        if let Some(mark) = mark.clone()
            && let Err(failure) = self.unit.erasure().mark(Some(mark)).await
        {
            // The medium is as it was before anybody hears of it.
            drop(self);
            let _ = marked.send(Err(failure));
            return;
        }
        self.end = End::Failed;
        // Who asked may be gone.
        let _ = marked.send(Ok(()));
        let serial = &self.unit.config().serial;
        tracing::info!(serial, "the whole medium is being erased");
        let ended = self.work(work).await;
        if let Err(error) = &ended {
            tracing::warn!(serial, %error, "erasing the medium failed");
        }
        // While the mark says that there is something to do, the next start does it: with data on the medium that came
        // later, that must not be. So without a change of the mark the medium stays closed.
        let is_marked = match mark {
            None => Ok(()),
            Some(mark) => {
                let failed = SanitizeMark { work: None, ..mark };
                self.unit.erasure().mark(ended.is_err().then_some(failed)).await
            }
        };
        if ended.is_ok() && is_marked.is_ok() {
            self.end = End::Succeeded;
        }
    }

    async fn work(&self, work: Work) -> Result<(), StoreError> {
        match work {
            Work::Format { pattern: None } => self.clear(1).await,
            Work::Format {
                pattern: Some(pattern),
            } => self.overwrite(&pattern, 1, false).await,
            Work::Sanitize { work, .. } => match work {
                SanitizeWork::EraseBlocks => self.erase_blocks().await,
                SanitizeWork::EraseKey => self.unit.store().erase_key().await,
                SanitizeWork::Overwrite {
                    pattern,
                    passes,
                    invert,
                } => self.overwrite(&pattern, passes, invert).await,
            },
        }
    }

    /// The pattern begins anew in every block.
    async fn overwrite(&self, pattern: &[u8], passes: u8, invert: bool) -> Result<(), StoreError> {
        let block_size = self.unit.store().geometry().block_size as usize;
        let mut pattern: Vec<u8> = pattern.iter().copied().cycle().take(block_size).collect();
        let total = self.size.saturating_mul(u64::from(passes));
        let starts_inverted = passes.is_multiple_of(2);
        for pass in 0..u64::from(passes) {
            if invert && (pass > 0 || starts_inverted) {
                pattern.iter_mut().for_each(|byte| *byte = !*byte);
            }
            let done = pass * self.size;
            let progress = |bytes| self.unit.erasure().advance(done + bytes, total);
            self.fill(&pattern, 0, self.size, progress).await?;
            self.unit.store().flush().await?;
        }
        Ok(())
    }

    /// Really overwrites, since what a store gives back it may leave as it was. That reaches what the store's medium lets be
    /// reached: flash and file systems that copy on write keep older versions where nobody gets at them.
    async fn erase_blocks(&self) -> Result<(), StoreError> {
        let store = self.unit.store();
        let zeroes = vec![0; store.geometry().block_size as usize];
        let mut at = 0;
        while at < self.size {
            let extent = store.extent(at..self.size).await?;
            if extent.mapped {
                let progress = |bytes| self.unit.erasure().advance(at + bytes, 2 * self.size);
                self.fill(&zeroes, at, extent.end - at, progress).await?;
            }
            at = extent.end;
            yield_now().await;
        }
        store.flush().await?;
        self.clear(2).await
    }

    /// `parts` is how many equal parts the whole work has, of which this is the last.
    async fn clear(&self, parts: u64) -> Result<(), StoreError> {
        let store = self.unit.store();
        let thin = is_thin(self.unit.config(), &store.geometry());
        for stride in strides(0, self.size) {
            let done = (parts - 1) * self.size + stride.end;
            if thin {
                store.unmap(stride).await?;
            } else {
                store.write_zeroes(stride, Durability::Cached).await?;
            }
            self.unit.erasure().advance(done, parts * self.size);
            yield_now().await;
        }
        store.flush().await
    }

    /// Writes a pattern of one block over `len` bytes at `at`; says after each piece how many are done.
    async fn fill(
        &self,
        pattern: &[u8],
        at: u64,
        len: u64,
        progress: impl Fn(u64),
    ) -> Result<(), StoreError> {
        let mut buf = IoBuf::from_heap(CHUNK);
        for slot in buf.chunks_exact_mut(pattern.len()) {
            slot.copy_from_slice(pattern);
        }
        for chunk in chunks(at, len) {
            buf.set_len(chunk.len);
            buf = self.unit.store().write(chunk.at, buf, Durability::Cached).await?;
            progress(chunk.at - at + chunk.len as u64);
            yield_now().await;
        }
        Ok(())
    }
}
