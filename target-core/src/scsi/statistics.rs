//! What a unit has done since it exists or LOG SELECT set its counters back, for LOG SENSE.

use std::sync::atomic::{AtomicU64, Ordering};

use super::table::Operation;

/// Counters; each is read by itself, so that they need not agree to the last command.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    reads: AtomicU64,
    writes: AtomicU64,
    blocks_read: AtomicU64,
    blocks_written: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) blocks_read: u64,
    pub(crate) blocks_written: u64,
}

impl Statistics {
    /// A command has ended well that moved so many blocks.
    pub(crate) fn count(&self, operation: Operation, blocks: u64) {
        let (commands, moved) = match operation {
            Operation::Read => (&self.reads, &self.blocks_read),
            Operation::Write => (&self.writes, &self.blocks_written),
            _ => return,
        };
        commands.fetch_add(1, Ordering::Relaxed);
        moved.fetch_add(blocks, Ordering::Relaxed);
    }

    /// They begin anew. Whether any had counted something.
    pub(crate) fn reset(&self) -> bool {
        let all = [&self.reads, &self.writes, &self.blocks_read, &self.blocks_written];
        let old = all.map(|counter| counter.swap(0, Ordering::Relaxed));
        old.into_iter().any(|count| count != 0)
    }

    /// The counters now.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            blocks_read: self.blocks_read.load(Ordering::Relaxed),
            blocks_written: self.blocks_written.load(Ordering::Relaxed),
        }
    }
}
