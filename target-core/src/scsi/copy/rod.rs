//! Representations of data: the blocks that a token stands for, and the watch that notices their first change.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::ranges::total;
use crate::scsi::LogicalUnit;
use crate::scsi::cdb::LbaRange;
use crate::scsi::task_set::Claim;

/// Blocks of one unit as they were at one time.
#[derive(Debug)]
pub(crate) struct Rod {
    /// The unit; a token does not keep it, nor its store, alive.
    unit: Weak<LogicalUnit>,
    block: u32,
    /// In the order in which they are read.
    ranges: Vec<LbaRange>,
    /// The same by place: first block and end.
    sorted: Vec<(u64, u64)>,
    changed: AtomicBool,
}

/// The representations that a unit's changes may end.
#[derive(Debug, Default)]
pub(crate) struct RodWatch {
    /// At most as many as there are tokens.
    rods: Mutex<Vec<Weak<Rod>>>,
    /// How many of them there are, so that a write need not look when there is none.
    count: AtomicUsize,
}

impl Rod {
    /// Blocks of `unit`, which do not overlap. Not watched yet.
    pub(super) fn new(unit: &Arc<LogicalUnit>, ranges: Vec<LbaRange>) -> Arc<Self> {
        let mut sorted: Vec<_> = ranges
            .iter()
            .map(|range| (range.lba, range.lba + range.blocks))
            .collect();
        sorted.sort_unstable();
        Arc::new(Self {
            unit: Arc::downgrade(unit),
            block: unit.store().geometry().block_size,
            ranges,
            sorted,
            changed: AtomicBool::new(false),
        })
    }

    /// The unit, while it exists.
    pub(super) fn unit(&self) -> Option<Arc<LogicalUnit>> {
        self.unit.upgrade()
    }

    /// Whether it no longer represents what its blocks hold.
    pub(super) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Bytes represented.
    pub(super) fn bytes(&self) -> u64 {
        total(&self.ranges) * u64::from(self.block)
    }

    /// Where on the unit byte `offset` of the representation is, and how many bytes follow it there without a gap.
    pub(super) fn locate(&self, mut offset: u64) -> Option<(u64, u64)> {
        let block = u64::from(self.block);
        for range in &self.ranges {
            let len = range.blocks * block;
            if offset < len {
                return Some((range.lba * block + offset, len - offset));
            }
            offset -= len;
        }
        None
    }

    fn touches(&self, blocks: &Range<u64>) -> bool {
        let after = self.sorted.partition_point(|(_, end)| *end <= blocks.start);
        self.sorted
            .get(after)
            .is_some_and(|(start, _)| *start < blocks.end)
    }
}

impl RodWatch {
    /// From now on a change of its blocks is noted. A task that writes some of them already is not noticed: wait for it.
    pub(super) fn add(&self, rod: &Arc<Rod>) {
        self.change(|rods| rods.push(Arc::downgrade(rod)));
    }

    /// A task runs with this claim. To be told before it touches any block.
    pub(crate) fn task_runs(&self, claim: Option<&Claim>) {
        if let Some(claim) = claim.filter(|claim| claim.access.writes())
            && self.count.load(Ordering::SeqCst) != 0
        {
            self.note(&claim.blocks);
        }
    }

    fn note(&self, blocks: &Range<u64>) {
        self.change(|rods| {
            rods.retain(|rod| {
                let Some(rod) = rod.upgrade() else { return false };
                if rod.touches(blocks) {
                    rod.changed.store(true, Ordering::Release);
                }
                !rod.is_changed()
            });
        });
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Weak<Rod>>)) {
        let mut rods = self.rods.lock().expect("nothing panics while it is held");
        rods.retain(|rod| rod.strong_count() != 0);
        change(&mut rods);
        self.count.store(rods.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::table::Access;
    use crate::scsi::testing::unit;

    fn rod(unit: &Arc<LogicalUnit>, ranges: &[(u64, u64)]) -> Arc<Rod> {
        let ranges = ranges.iter().map(|(lba, blocks)| LbaRange {
            lba: *lba,
            blocks: *blocks,
        });
        Rod::new(unit, ranges.collect())
    }

    #[test]
    fn bytes_are_found_in_the_order_of_the_ranges() {
        let rod = rod(&unit(64), &[(20, 2), (4, 1)]);
        assert_eq!(rod.bytes(), 3 * 512);
        assert_eq!(rod.locate(0), Some((20 * 512, 1024)));
        assert_eq!(rod.locate(1023), Some((20 * 512 + 1023, 1)));
        assert_eq!(rod.locate(1024), Some((4 * 512, 512)));
        assert_eq!(rod.locate(1536), None);
    }

    #[test]
    fn the_first_change_of_any_block_is_noted_and_no_other() {
        let unit = unit(64);
        let watch = RodWatch::default();
        let run = |blocks, access| watch.task_runs(Some(&Claim { blocks, access }));
        let rod = rod(&unit, &[(20, 2), (4, 1)]);
        watch.add(&rod);
        for blocks in [0..4, 5..20, 22..64] {
            run(blocks, Access::Write);
        }
        run(0..64, Access::Read);
        run(0..64, Access::ReadStill);
        watch.task_runs(None);
        assert!(!rod.is_changed());
        run(21..64, Access::Exclusive);
        assert!(rod.is_changed());
        assert_eq!(watch.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_is_forgotten_is_not_watched() {
        let unit = unit(64);
        let watch = RodWatch::default();
        let first = rod(&unit, &[(0, 1)]);
        watch.add(&first);
        drop(first);
        watch.add(&rod(&unit, &[(1, 1)]));
        assert_eq!(watch.count.load(Ordering::SeqCst), 1);
    }
}
