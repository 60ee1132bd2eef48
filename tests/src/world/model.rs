//! The model disk: for every block, which contents a read may return now.
//!
//! It knows when each write began and ended, and how. A write that was acknowledged must be seen until a later one; one
//! that is in flight, failed on the way or was aborted may or may not have landed; one that was refused has not. A read
//! decides what was open: from then on what it returned holds like a write. A power cut takes everything back that was
//! not flushed or written with FUA. Times are the ticks of one counter, drawn when a command is sent and when its answer
//! arrives, so that what the target did in between is bracketed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;

/// What a block holds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Content {
    /// All zeroes.
    Zero,
    /// A stamp and the block's own number, all over.
    Stamped(u64, u64),
    /// A stamp without a number: from one block written many times.
    Same(u64),
    /// Nothing that was ever written as a whole.
    Torn,
}

/// Name of a change.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ChangeId(u64);

/// Why a content may not be read.
#[derive(Clone, Debug)]
pub(crate) struct Stale {
    /// The block.
    pub(crate) block: u64,
    /// What was read.
    pub(crate) found: Content,
    /// What could have been.
    pub(crate) possible: Vec<Content>,
    /// What was read would have been right but for what a flush or FUA had promised to keep over a power cut.
    pub(crate) promised: bool,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            found,
            possible,
            ..
        } = self;
        write!(f, "block {block} held {found:?} instead of one of {possible:?}")
    }
}

/// One logical unit.
#[derive(Debug, Default)]
pub(crate) struct Model {
    changes: BTreeMap<ChangeId, Change>,
    blocks: HashMap<u64, Block>,
    next: u64,
    last_cut: u64,
    /// Changes that were acknowledged.
    good: HashSet<ChangeId>,
    /// Stamped contents that a COMPARE AND WRITE found and replaced.
    replaced: HashSet<(u64, Content)>,
}

#[derive(Debug)]
struct Change {
    blocks: Range<u64>,
    start: u64,
    fua: bool,
    /// A command that runs behind it, if it runs at all, has seen what was there before.
    is_overtaken: bool,
}

/// A change as a command knows it that has to run behind it.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    change: ChangeId,
    blocks: Range<u64>,
    start: u64,
}

#[derive(Debug)]
struct Block {
    /// Contents that may be there.
    candidates: Vec<Candidate>,
    /// Contents known to have been there.
    sure: Vec<Sure>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    content: Content,
    change: Option<ChangeId>,
    /// After this it can no longer land; `u64::MAX` while it may.
    end: u64,
}

/// At some time between `start` and `end` the block held this: any other content that ended before is gone.
#[derive(Clone, Copy, Debug)]
struct Sure {
    content: Content,
    start: u64,
    end: u64,
    /// A power cut does not take it back.
    durable: bool,
}

impl Content {
    /// The bytes of a block.
    #[must_use]
    pub(crate) fn bytes(self) -> [u8; BLOCK] {
        let (stamp, number) = match self {
            Self::Zero | Self::Torn => return [0; BLOCK],
            Self::Stamped(stamp, number) => (stamp, number),
            Self::Same(stamp) => (stamp, u64::MAX),
        };
        let mut unit = [0; 16];
        unit[..8].copy_from_slice(&stamp.to_be_bytes());
        unit[8..].copy_from_slice(&number.to_be_bytes());
        let mut bytes = [0; BLOCK];
        bytes
            .chunks_exact_mut(16)
            .for_each(|slot| slot.copy_from_slice(&unit));
        bytes
    }

    /// What bytes say.
    #[must_use]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let (first, rest) = bytes.split_at(16);
        // Every unit equals the one before it.
        if bytes[..bytes.len() - 16] != *rest {
            return Self::Torn;
        }
        let stamp = u64::from_be_bytes(first[..8].try_into().expect("eight bytes"));
        match u64::from_be_bytes(first[8..].try_into().expect("eight bytes")) {
            0 if stamp == 0 => Self::Zero,
            u64::MAX => Self::Same(stamp),
            number => Self::Stamped(stamp, number),
        }
    }
}

impl Model {
    /// A change of some blocks begins; `content` says what each would hold. Stamps are never 0.
    pub(crate) fn begin(
        &mut self,
        now: u64,
        blocks: Range<u64>,
        fua: bool,
        content: impl Fn(u64) -> Content,
    ) -> ChangeId {
        self.next += 1;
        let id = ChangeId(self.next);
        for number in blocks.clone() {
            self.block(number).candidates.push(Candidate {
                content: content(number),
                change: Some(id),
                end: u64::MAX,
            });
        }
        let start = now;
        let change = Change {
            blocks,
            start,
            fua,
            is_overtaken: false,
        };
        self.changes.insert(id, change);
        id
    }

    /// It was acknowledged. Whether it was done in its turn, as far as those behind it have seen.
    pub(crate) fn acknowledged(&mut self, id: ChangeId, now: u64) -> bool {
        let Some(change) = self.changes.remove(&id) else {
            return true;
        };
        self.good.insert(id);
        // A change that straddles a power cut may have been done before it, and be gone.
        let certain = change.fua || change.start > self.last_cut;
        for number in change.blocks {
            let block = self.block(number);
            for candidate in block.candidates.iter_mut().filter(|c| c.change == Some(id)) {
                candidate.end = now;
                if certain {
                    block.sure.push(Sure {
                        content: candidate.content,
                        start: change.start,
                        end: now,
                        durable: change.fua,
                    });
                }
            }
        }
        !change.is_overtaken
    }

    /// A change that is under way, for a command that has to run behind it.
    pub(crate) fn before(&self, id: ChangeId) -> Option<Before> {
        let change = self.changes.get(&id)?;
        Some(Before {
            change: id,
            blocks: change.blocks.clone(),
            start: change.start,
        })
    }

    /// A command that runs behind a change found this in a block. `false` when that change was acknowledged and what was
    /// found is older; as long as it is under way its acknowledgement will tell.
    pub(crate) fn follows(&mut self, before: &Before, number: u64, found: Content) -> bool {
        if before.start <= self.last_cut || !before.blocks.contains(&number) {
            return true;
        }
        let mut same = self
            .block(number)
            .candidates
            .iter()
            .filter(|c| c.content == found);
        if !same.all(|candidate| candidate.end < before.start) {
            return true;
        }
        if let Some(change) = self.changes.get_mut(&before.change) {
            change.is_overtaken = true;
            return true;
        }
        !self.good.contains(&before.change)
    }

    /// It ended otherwise: it may or may not have landed, and will not land any more.
    pub(crate) fn uncertain(&mut self, id: ChangeId, now: u64) {
        let Some(change) = self.changes.remove(&id) else {
            return;
        };
        for number in change.blocks {
            let candidates = &mut self.block(number).candidates;
            for candidate in candidates.iter_mut().filter(|c| c.change == Some(id)) {
                candidate.end = now;
            }
        }
    }

    /// It was refused before anything happened.
    pub(crate) fn refused(&mut self, id: ChangeId) {
        let Some(change) = self.changes.remove(&id) else {
            return;
        };
        for number in change.blocks {
            self.block(number).candidates.retain(|c| c.change != Some(id));
        }
    }

    /// A block was read between `start` and `now`.
    pub(crate) fn read(&mut self, number: u64, found: Content, start: u64, now: u64) -> Result<(), Stale> {
        let last_cut = self.last_cut;
        let block = self.block(number);
        let possible = block.possible(start, 0);
        if !possible.contains(&found) {
            let promised = last_cut > 0 && block.possible(start, last_cut).contains(&found);
            return Err(Stale {
                block: number,
                found,
                possible,
                promised,
            });
        }
        // Before a power cut it may have been something that is gone now.
        if start > last_cut {
            block.sure.push(Sure {
                content: found,
                start,
                end: now,
                durable: false,
            });
        }
        Ok(())
    }

    /// A COMPARE AND WRITE that began at `start` found this content and replaced it. `false` when another one had done so:
    /// a stamp is written once, so it cannot be found again, unless a power cut brings it back.
    pub(crate) fn replaced(&mut self, number: u64, found: Content, start: u64) -> bool {
        let certain = matches!(found, Content::Stamped(..)) && start > self.last_cut;
        !certain || self.replaced.insert((number, found))
    }

    /// Something that a read would return if it began now: the latest content that may be there.
    pub(crate) fn likely(&mut self, number: u64, now: u64) -> Content {
        let possible = self.block(number).possible(now, 0);
        possible.last().copied().unwrap_or(Content::Zero)
    }

    /// A flush that began at `start` was acknowledged: what was sure before it began is on the medium.
    pub(crate) fn flushed(&mut self, start: u64) {
        if start < self.last_cut {
            return;
        }
        for sure in self.blocks.values_mut().flat_map(|block| &mut block.sure) {
            sure.durable |= sure.end < start;
        }
    }

    /// The power was cut.
    pub(crate) fn power_cut(&mut self, now: u64) {
        self.last_cut = now;
        self.replaced.clear();
        for block in self.blocks.values_mut() {
            block.sure.retain(|sure| sure.durable);
        }
    }

    fn block(&mut self, number: u64) -> &mut Block {
        self.blocks.entry(number).or_insert_with(|| Block {
            candidates: vec![Candidate {
                content: Content::Zero,
                change: None,
                end: 0,
            }],
            sure: Vec::new(),
        })
    }
}

impl Block {
    /// What a read that begins at `start` may return, going by what became sure after `since`.
    fn possible(&self, start: u64, since: u64) -> Vec<Content> {
        let mut latest: Option<Sure> = None;
        let mut latest_other: Option<Sure> = None;
        for sure in self.sure.iter().filter(|s| s.end < start && s.start >= since) {
            if latest.is_none_or(|l| l.content == sure.content || l.start <= sure.start) {
                let newer = latest.is_none_or(|l| l.start <= sure.start);
                if newer {
                    if latest.is_some_and(|l| l.content != sure.content) {
                        latest_other = latest;
                    }
                    latest = Some(*sure);
                }
            } else if latest_other.is_none_or(|other| other.start <= sure.start) {
                latest_other = Some(*sure);
            }
        }
        let gone = |candidate: &Candidate| {
            [latest, latest_other]
                .into_iter()
                .flatten()
                .any(|sure| sure.content != candidate.content && sure.start > candidate.end)
        };
        let left = self.candidates.iter().filter(|candidate| !gone(candidate));
        left.map(|candidate| candidate.content).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Range<u64> = 0..1;

    fn stamped(stamp: u64) -> impl Fn(u64) -> Content {
        move |block| Content::Stamped(stamp, block)
    }

    #[test]
    fn an_acknowledged_write_hides_what_was_before_it() {
        let mut model = Model::default();
        let write = model.begin(1, BLOCKS, false, stamped(1));
        assert!(
            model.read(0, Content::Zero, 2, 3).is_ok(),
            "it need not have landed"
        );
        model.acknowledged(write, 4);
        assert!(model.read(0, Content::Zero, 5, 6).is_err());
        assert!(model.read(0, Content::Stamped(1, 0), 5, 6).is_ok());
    }

    #[test]
    fn what_an_abort_left_open_a_read_decides() {
        for landed in [false, true] {
            let mut model = Model::default();
            let write = model.begin(1, BLOCKS, false, stamped(1));
            model.uncertain(write, 2);
            let contents = [Content::Zero, Content::Stamped(1, 0)];
            let (seen, other) = (contents[usize::from(landed)], contents[usize::from(!landed)]);
            assert!(model.read(0, seen, 3, 4).is_ok());
            assert!(model.read(0, other, 5, 6).is_err());
        }
    }

    #[test]
    fn a_power_cut_takes_back_what_was_not_flushed_and_nothing_else() {
        let mut model = Model::default();
        let first = model.begin(1, BLOCKS, false, stamped(1));
        model.acknowledged(first, 2);
        model.flushed(3);
        let second = model.begin(4, BLOCKS, false, stamped(2));
        model.acknowledged(second, 5);
        model.power_cut(6);
        let gone = model.read(0, Content::Zero, 7, 8).unwrap_err();
        assert!(gone.promised);
        assert!(model.read(0, Content::Stamped(1, 0), 7, 8).is_ok());
        assert!(
            model.read(0, Content::Stamped(2, 0), 9, 10).is_err(),
            "the cut decided"
        );
    }

    #[test]
    fn who_runs_behind_a_change_does_not_find_what_was_before_it() {
        let (zero, new) = (Content::Zero, Content::Stamped(1, 0));
        for is_answered_first in [false, true] {
            let mut model = Model::default();
            let write = model.begin(1, BLOCKS, false, stamped(1));
            let before = model.before(write).unwrap();
            if is_answered_first {
                assert!(model.acknowledged(write, 3));
                assert!(model.follows(&before, 0, new));
                assert!(!model.follows(&before, 0, zero));
                assert!(model.follows(&before, 1, zero), "another block");
            } else {
                assert!(model.follows(&before, 0, zero), "it may fail yet");
                assert!(!model.acknowledged(write, 3));
            }
        }
    }

    #[test]
    fn one_compare_and_write_replaces_a_content() {
        let mut model = Model::default();
        let old = Content::Stamped(1, 0);
        assert!(model.replaced(0, old, 1));
        assert!(model.replaced(1, old, 1), "of another block");
        assert!(!model.replaced(0, old, 2));
        model.power_cut(3);
        assert!(model.replaced(0, old, 2), "it may have been before the cut");
        assert!(model.replaced(0, old, 4), "the cut brought it back");
        assert!(!model.replaced(0, old, 5));
        for _ in 0..2 {
            assert!(
                model.replaced(0, Content::Zero, 6),
                "zeroes are written again and again"
            );
        }
    }

    #[test]
    fn a_block_of_two_writes_is_torn() {
        let mut bytes = Content::Stamped(7, 3).bytes();
        assert_eq!(Content::of(&bytes), Content::Stamped(7, 3));
        bytes[256..].copy_from_slice(&Content::Stamped(8, 3).bytes()[256..]);
        assert_eq!(Content::of(&bytes), Content::Torn);
        assert_eq!(Content::of(&[0; BLOCK]), Content::Zero);
    }
}
