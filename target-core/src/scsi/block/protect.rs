//! Protection information in transfers (SBC-4 §4.21): what RDPROTECT, WRPROTECT and VRPROTECT ask for, and blocks that are
//! followed by their eight bytes of it.
//!
//! Commands put these futures into boxes: whoever does without protection information need not have room for them.
//!
//! Type 1 alone. The application tag is the initiator's (ATO): it is kept and never compared with anything.

use backstores::{CHUNK, IoBuf, TAGS_LEN, TagChecks};

use super::chunks::turn;
use super::verify::compare;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::transfer::Transfer;

/// That blocks come with protection information, and what becomes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Protect {
    /// What must be right, on the medium and in what is to be written.
    pub(super) checks: TagChecks,
    /// Whether VERIFY compares guards; application and reference tags.
    compares: (bool, bool),
}

impl Protect {
    /// The three bits of a CDB that may have them; `None` when blocks come without. The engine has refused anything but 0
    /// on a unit without protection information.
    pub(super) fn of(cdb: Cdb<'_>) -> Result<Option<Self>, Failure> {
        let six_bytes = cdb.opcode() >> 5 == 0;
        if six_bytes {
            return Ok(None);
        }
        let checks = |guard, reference| TagChecks { guard, reference };
        let (checks, compares) = match cdb.bits(1, 7, 5) {
            0b000 => return Ok(None),
            0b001 | 0b101 => (TagChecks::ALL, (true, true)),
            0b010 => (checks(false, true), (false, true)),
            0b011 => (TagChecks::NONE, (true, true)),
            0b100 => (checks(true, false), (true, false)),
            _ => return Err(Cdb::invalid_bit(1, 7)),
        };
        Ok(Some(Self { checks, compares }))
    }

    /// Makes tags that are not to be compared the same in both runs of blocks.
    pub(super) fn forgive(self, unit: Unit, expected: &[u8], found: &mut [u8]) {
        let both = expected
            .chunks_exact(unit.len)
            .zip(found.chunks_exact_mut(unit.len));
        for (expected, found) in both {
            let (expected, found) = (&expected[unit.block..], &mut found[unit.block..]);
            if !self.compares.0 {
                found[..GUARD_LEN].copy_from_slice(&expected[..GUARD_LEN]);
            }
            if !self.compares.1 {
                found[GUARD_LEN..].copy_from_slice(&expected[GUARD_LEN..]);
            }
        }
    }
}

/// READ.
pub(super) async fn read(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let room = data.want_in(range.blocks * unit.len as u64);
    for piece in unit.pieces(range.lba, room.div_ceil(unit.len as u64)) {
        turn(piece.lba != range.lba).await;
        let mut out = data.in_buffer(piece.count * unit.len).await?;
        data.check()?;
        let (blocks, tags) = unit.read(context, piece, protect, data).await?;
        unit.join(&blocks, &tags, &mut out);
        data.put(out).await?;
    }
    Ok(())
}

/// VERIFY without Data-Out.
pub(super) async fn verify(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    for piece in unit.pieces(range.lba, range.blocks) {
        turn(piece.lba != range.lba).await;
        data.check()?;
        unit.read(context, piece, protect, data).await?;
    }
    Ok(())
}

/// VERIFY with as many blocks of Data-Out as on the medium: what is compared is what the field says.
pub(super) async fn verify_equal(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let sent = data.want_out(range.blocks * unit.len as u64);
    for piece in unit.pieces(range.lba, sent / unit.len as u64) {
        turn(piece.lba != range.lba).await;
        let expected = data.get(piece.count * unit.len).await?;
        let mut found = data.second_buffer(expected.len());
        data.check()?;
        let (blocks, tags) = unit.read(context, piece, protect, data).await?;
        unit.join(&blocks, &tags, &mut found);
        protect.forgive(unit, &expected, &mut found);
        compare(&expected, &found, (piece.lba - range.lba) * unit.len as u64)?;
    }
    Ok(())
}

/// WRITE.
pub(super) async fn write(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    force_unit_access: bool,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let durability = context.unit().durability(force_unit_access);
    let sent = data.want_out(range.blocks * unit.len as u64);
    for piece in unit.pieces(range.lba, sent / unit.len as u64) {
        turn(piece.lba != range.lba).await;
        let whole = data.get(piece.count * unit.len).await?;
        let (blocks, tags) = unit.parts(&whole, data);
        data.check()?;
        let at = piece.lba * unit.block as u64;
        let store = context.unit().store();
        store
            .write_protected(at, blocks, tags, protect.checks, durability)
            .await?;
    }
    Ok(())
}

/// WRITE SAME: one block with its protection information, whose reference tag goes up by one from block to block.
pub(super) async fn write_same(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    pattern: &[u8],
    data: &Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let durability = context.unit().durability(false);
    let (block, tags) = pattern.split_at(unit.block);
    let [.., a, b, c, d] = *tags else {
        return Err(crate::scsi::Sense::INVALID_FIELD_IN_CDB.into());
    };
    let first = u32::from_be_bytes([a, b, c, d]);
    let mut reference = first;
    for piece in unit.pieces(range.lba, range.blocks) {
        turn(piece.lba != range.lba).await;
        let mut blocks = data.second_buffer(piece.count * unit.block);
        let mut all_tags = data.second_buffer(piece.count * TAGS_LEN);
        for slot in blocks.chunks_exact_mut(unit.block) {
            slot.copy_from_slice(block);
        }
        for slot in all_tags.chunks_exact_mut(TAGS_LEN) {
            slot.copy_from_slice(tags);
            slot[TAGS_LEN - 4..].copy_from_slice(&reference.to_be_bytes());
            reference = reference.wrapping_add(1);
        }
        data.check()?;
        let at = piece.lba * unit.block as u64;
        let store = context.unit().store();
        store
            .write_protected(at, blocks, all_tags, protect.checks, durability)
            .await?;
    }
    Ok(())
}

/// Lengths in bytes: of a block, and of a block with what follows it.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) block: usize,
    pub(super) len: usize,
}

/// Blocks that fit into a buffer with what follows each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) lba: u64,
    pub(super) count: usize,
}

impl Unit {
    pub(super) fn of(context: &CommandContext<'_>) -> Self {
        let block = context.unit().store().geometry().block_size as usize;
        Self {
            block,
            len: block + TAGS_LEN,
        }
    }

    pub(super) fn pieces(self, lba: u64, blocks: u64) -> impl Iterator<Item = Piece> {
        let most = CHUNK / self.len;
        (0..blocks).step_by(most).map(move |done| Piece {
            lba: lba + done,
            count: usize::try_from(blocks - done).map_or(most, |rest| rest.min(most)),
        })
    }

    pub(super) async fn read(
        self,
        context: &CommandContext<'_>,
        piece: Piece,
        protect: Protect,
        data: &Transfer,
    ) -> Result<(IoBuf, IoBuf), Failure> {
        let blocks = data.second_buffer(piece.count * self.block);
        let tags = data.second_buffer(piece.count * TAGS_LEN);
        let at = piece.lba * self.block as u64;
        let store = context.unit().store();
        Ok(store.read_protected(at, blocks, tags, protect.checks).await?)
    }

    pub(super) fn join(self, blocks: &[u8], tags: &[u8], whole: &mut [u8]) {
        let parts = blocks.chunks_exact(self.block).zip(tags.chunks_exact(TAGS_LEN));
        for (whole, (block, tags)) in whole.chunks_exact_mut(self.len).zip(parts) {
            whole[..self.block].copy_from_slice(block);
            whole[self.block..].copy_from_slice(tags);
        }
    }

    /// Blocks and tags of what was sent, each in a buffer of its own.
    pub(super) fn parts(self, whole: &[u8], data: &Transfer) -> (IoBuf, IoBuf) {
        let count = whole.len() / self.len;
        let mut blocks = data.second_buffer(count * self.block);
        let mut tags = data.second_buffer(count * TAGS_LEN);
        self.split(whole, &mut blocks, &mut tags);
        (blocks, tags)
    }

    pub(super) fn split(self, whole: &[u8], blocks: &mut [u8], tags: &mut [u8]) {
        let parts = blocks
            .chunks_exact_mut(self.block)
            .zip(tags.chunks_exact_mut(TAGS_LEN));
        for (whole, (block, tags)) in whole.chunks_exact(self.len).zip(parts) {
            block.copy_from_slice(&whole[..self.block]);
            tags.copy_from_slice(&whole[self.block..]);
        }
    }
}

/// The guard stands first.
const GUARD_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_says_what_is_checked() {
        let of = |value: u8| Protect::of(Cdb::new(&[0x28, value << 5, 0, 0, 0, 0, 0, 0, 1, 0]));
        let checks = |value| {
            let checks = of(value).unwrap().unwrap().checks;
            (checks.guard, checks.reference)
        };
        assert_eq!(of(0).unwrap(), None);
        assert_eq!(
            [1, 2, 3, 4, 5].map(checks),
            [
                (true, true),
                (false, true),
                (false, false),
                (true, false),
                (true, true)
            ]
        );
        assert!(of(6).is_err() && of(7).is_err());
        assert_eq!(Protect::of(Cdb::new(&[0x08, 0x3f, 0, 0, 1, 0])).unwrap(), None);
    }

    #[test]
    fn pieces_fit_into_a_buffer_with_their_tags() {
        let unit = Unit { block: 512, len: 520 };
        let pieces: Vec<_> = unit.pieces(7, 1009).collect();
        assert_eq!(pieces[0], Piece { lba: 7, count: 504 });
        assert_eq!(pieces[2], Piece { lba: 1015, count: 1 });
        assert_eq!(pieces.len(), 3);
        assert_eq!(CHUNK / 520, 504);
    }
}
