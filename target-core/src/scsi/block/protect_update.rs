//! Blocks with protection information that are written in one step with something else (SBC-4): WRITE ATOMIC, WRITE AND
//! VERIFY, COMPARE AND WRITE and ORWRITE with a WRPROTECT or ORPROTECT other than 0. What the field means is said in
//! `protect.rs`.

use backstores::{Durability, IoBuf, TAGS_LEN, check_tags};

use super::protect::{Piece, Protect, Unit};
use super::verify::compare;
use crate::scsi::cdb::LbaRange;
use crate::scsi::engine::CommandContext;
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

/// WRITE ATOMIC, whose limits have been checked.
pub(super) async fn write_atomic(
    context: &CommandContext<'_>,
    LbaRange { lba, blocks }: LbaRange,
    protect: Protect,
    durability: Durability,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let whole = blocks * unit.len as u64;
    // What comes short cannot be written as a whole.
    if data.want_out(whole) != whole {
        return Err(Sense::INVALID_FIELD_IN_CDB.into());
    }
    let (mut blocks_of_all, mut tags_of_all) = room(unit, blocks);
    for piece in unit.pieces(lba, blocks) {
        let from = usize::try_from(piece.lba - lba).expect("the limit is that of one buffer");
        let sent = data.get(piece.count * unit.len).await?;
        let to = from + piece.count;
        unit.split(
            &sent,
            &mut blocks_of_all[from * unit.block..to * unit.block],
            &mut tags_of_all[from * TAGS_LEN..to * TAGS_LEN],
        );
    }
    data.check()?;
    let at = lba * unit.block as u64;
    let store = context.unit().store();
    store
        .write_protected(at, blocks_of_all, tags_of_all, protect.checks, durability)
        .await?;
    Ok(())
}

/// WRITE AND VERIFY. What is compared, if anything is, is what the field says.
pub(super) async fn write_and_verify(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    bytes_are_compared: bool,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let store = context.unit().store();
    let sent = data.want_out(range.blocks * unit.len as u64);
    for piece in unit.pieces(range.lba, sent / unit.len as u64) {
        let whole = data.get(piece.count * unit.len).await?;
        let (blocks, tags) = unit.parts(&whole, data);
        data.check()?;
        let at = piece.lba * unit.block as u64;
        store
            .write_protected(at, blocks, tags, protect.checks, Durability::Stable)
            .await?;
        data.check()?;
        let (blocks, tags) = unit.read(context, piece, protect, data).await?;
        if bytes_are_compared {
            let mut found = data.second_buffer(whole.len());
            unit.join(&blocks, &tags, &mut found);
            protect.forgive(unit, &whole, &mut found);
            compare(&whole, &found, (piece.lba - range.lba) * unit.len as u64)?;
        }
    }
    Ok(())
}

/// COMPARE AND WRITE, whose limits have been checked. Of what is compared the tags are checked as the field says, and the
/// contents are held against the medium's.
pub(super) async fn compare_and_write(
    context: &CommandContext<'_>,
    LbaRange { lba, blocks }: LbaRange,
    protect: Protect,
    durability: Durability,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let count = usize::try_from(blocks).expect("both halves fit a buffer");
    let both = data.get(2 * count * unit.len).await?;
    let (expected, replacement) = both.split_at(count * unit.len);
    let piece = Piece { lba, count };
    let (blocks, tags) = unit.parts(expected, data);
    let store = context.unit().store();
    let at = lba * unit.block as u64;
    check_tags(&store.geometry(), at, &blocks, &tags, protect.checks)?;
    data.check()?;
    let (mut found, mut tags) = unit.read(context, piece, protect, data).await?;
    let pairs = expected
        .chunks_exact(unit.len)
        .zip(found.chunks_exact(unit.block));
    for ((expected, found), offset) in pairs.zip((0..).step_by(unit.len)) {
        compare(&expected[..unit.block], found, offset)?;
    }
    unit.split(replacement, &mut found, &mut tags);
    data.check()?;
    store
        .write_protected(at, found, tags, protect.checks, durability)
        .await?;
    Ok(())
}

/// ORWRITE. Both operands are checked as the field says; the result has a guard of its own, and the other tags of Data-Out.
pub(super) async fn or_write(
    context: &CommandContext<'_>,
    range: LbaRange,
    protect: Protect,
    durability: Durability,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = Unit::of(context);
    let store = context.unit().store();
    let sent = data.want_out(range.blocks * unit.len as u64);
    for piece in unit.pieces(range.lba, sent / unit.len as u64) {
        let whole = data.get(piece.count * unit.len).await?;
        let (ours, mut tags) = unit.parts(&whole, data);
        drop(whole);
        let at = piece.lba * unit.block as u64;
        check_tags(&store.geometry(), at, &ours, &tags, protect.checks)?;
        data.check()?;
        let (mut found, _) = unit.read(context, piece, protect, data).await?;
        found.iter_mut().zip(&ours[..]).for_each(|(old, new)| *old |= new);
        let results = found.chunks_exact(unit.block);
        for (result, tags) in results.zip(tags.chunks_exact_mut(TAGS_LEN)) {
            tags[..2].copy_from_slice(&backstores::guard(result).to_be_bytes());
        }
        data.check()?;
        store
            .write_protected(at, found, tags, protect.checks, durability)
            .await?;
    }
    Ok(())
}

/// Buffers for the contents and the tags of at most a chunk. From the heap, since they are kept while others of the pool are
/// waited for.
fn room(unit: Unit, blocks: u64) -> (IoBuf, IoBuf) {
    let count = usize::try_from(blocks).expect("the limit is that of one buffer");
    (
        IoBuf::from_heap(count * unit.block),
        IoBuf::from_heap(count * TAGS_LEN),
    )
}
