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
use crate::scsi::{Failure, LogicalUnit, SanitizeMark};
use crate::transfer::Transfer;

/// What is done.
#[derive(Debug)]
pub(super) enum Work {
    /// Every block is given back, or reads as zeroes where nothing can be.
    Clear,
    /// The key of the store is replaced.
    EraseKey,
    /// Whatever may hold data is overwritten with zeroes, then given back.
    EraseBlocks,
    /// Every block is written with a pattern.
    Overwrite {
        /// One block.
        pattern: Vec<u8>,
        /// How often.
        passes: u8,
        /// Every other time all bits are inverted, but not the last time.
        invert: bool,
    },
}

/// Begins the work. With `immediate` that is all; else waits for its end, and an abort ends only the waiting. The command
/// has the medium for itself, so that no other one is on the way to a block; those that come now are refused.
pub(super) async fn start(
    context: &CommandContext<'_>,
    kind: ErasureKind,
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
    let Some(before) = unit.erasure().begin(kind) else {
        return unit.erasure().check(ErasureRule::Restart);
    };
    context.release();
    let (marked, is_marked) = oneshot::channel();
    let job = Job::new(Arc::clone(unit), before);
    runtime.spawn(job.carry_out(kind, work, marked));
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

    async fn carry_out(
        mut self,
        kind: ErasureKind,
        work: Work,
        marked: oneshot::Sender<Result<(), Failure>>,
    ) {
        let mark = match kind {
            ErasureKind::Format => None,
            ErasureKind::Sanitize { unrestricted } => Some(SanitizeMark { unrestricted }),
        };
        if let Some(mark) = mark
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
        match self.work(work).await {
            Ok(()) => {
                if mark.is_some() {
                    // It has been told if this fails: then the next start wants another attempt.
                    let _ = self.unit.erasure().mark(None).await;
                }
                self.end = End::Succeeded;
            }
            Err(error) => tracing::warn!(serial, %error, "erasing the medium failed"),
        }
    }

    async fn work(&self, work: Work) -> Result<(), StoreError> {
        match work {
            Work::Clear => self.clear(1).await,
            Work::EraseBlocks => self.erase_blocks().await,
            Work::EraseKey => self.unit.store().erase_key().await,
            Work::Overwrite {
                pattern,
                passes,
                invert,
            } => self.overwrite(pattern, passes, invert).await,
        }
    }

    async fn overwrite(&self, mut pattern: Vec<u8>, passes: u8, invert: bool) -> Result<(), StoreError> {
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
