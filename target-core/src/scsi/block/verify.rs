//! VERIFY (10), (12) and (16) (SBC-4): reads the blocks, and with BYTCHK compares them with Data-Out.

use super::chunks::{chunks, turn};
use super::protect::{self, Protect};
use super::usage;
use crate::scsi::cdb::{Cdb, LbaRange, lba_range_10, lba_range_12, lba_range_16};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const VERIFY_10: CommandSpec = CommandSpec {
    opcode: 0x2f,
    service_action: None,
    name: "VERIFY (10)",
    usage: &usage::ten(0x2f, usage::VERIFY),
    offer: Offer::Always,
    needs: Needs::read(lba_range_10).protected(),
    timeout_s: 30,
    operation: Operation::Verify,
};

pub(crate) const VERIFY_12: CommandSpec = CommandSpec {
    opcode: 0xaf,
    name: "VERIFY (12)",
    usage: &usage::twelve(0xaf, usage::VERIFY),
    needs: Needs::read(lba_range_12).protected(),
    ..VERIFY_10
};

pub(crate) const VERIFY_16: CommandSpec = CommandSpec {
    opcode: 0x8f,
    name: "VERIFY (16)",
    usage: &usage::sixteen(0x8f, usage::VERIFY),
    needs: Needs::read(lba_range_16).protected(),
    ..VERIFY_10
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let range = context.range();
    match (cdb.bits(1, 2, 1), Protect::of(cdb)?) {
        (0, None) => read_all(context, range, data).await,
        (0, Some(protect)) => Box::pin(protect::verify(context, range, protect, data)).await,
        (1, None) => compare_all(context, range, data).await,
        (1, Some(protect)) => Box::pin(protect::verify_equal(context, range, protect, data)).await,
        // One block with one reference tag cannot be equal to several that have each their own.
        (3, Some(_)) => Err(Cdb::invalid_bit(1, 7)),
        (3, None) => compare_each(context, range, data).await,
        _ => Err(Cdb::invalid_bit(1, 2)),
    }
}

/// BYTCHK 0: the blocks can be read.
async fn read_all(context: &CommandContext<'_>, range: LbaRange, data: &mut Transfer) -> Result<(), Failure> {
    let store = context.unit().store();
    let block = u64::from(store.geometry().block_size);
    let at = range.lba * block;
    for chunk in chunks(at, range.blocks * block) {
        turn(chunk.at > at).await;
        let buf = data.buffer(chunk.len).await;
        data.check()?;
        store.read(chunk.at, buf).await?;
    }
    Ok(())
}

/// BYTCHK 1: as many blocks of Data-Out as blocks on the medium.
async fn compare_all(
    context: &CommandContext<'_>,
    range: LbaRange,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let store = context.unit().store();
    let block = u64::from(store.geometry().block_size);
    let at = range.lba * block;
    let sent = data.want_out(range.blocks * block);
    for chunk in chunks(at, sent - sent % block) {
        let expected = data.get(chunk.len).await?;
        let buf = data.second_buffer(chunk.len);
        data.check()?;
        let found = store.read(chunk.at, buf).await?;
        compare(&expected, &found, chunk.at - at)?;
    }
    Ok(())
}

/// BYTCHK 3: one block of Data-Out, compared with every block on the medium.
async fn compare_each(
    context: &CommandContext<'_>,
    range: LbaRange,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let store = context.unit().store();
    let block_size = store.geometry().block_size as usize;
    let block = u64::from(store.geometry().block_size);
    if range.blocks == 0 {
        return Ok(());
    }
    if data.want_out(block) < block {
        return Err(Sense::INVALID_FIELD_IN_CDB.into());
    }
    let expected = data.get(block_size).await?;
    let at = range.lba * block;
    for chunk in chunks(at, range.blocks * block) {
        turn(chunk.at > at).await;
        let buf = data.second_buffer(chunk.len);
        data.check()?;
        let found = store.read(chunk.at, buf).await?;
        for found in found.chunks_exact(block_size) {
            compare(&expected, found, 0)?;
        }
    }
    Ok(())
}

/// MISCOMPARE, whose INFORMATION is the place in Data-Out of the first byte that differs; the first byte of `expected` is
/// at `offset` there.
pub(super) fn compare(expected: &[u8], found: &[u8], offset: u64) -> Result<(), Failure> {
    // Slices compare as one memcmp; the place is looked for only when it is needed.
    if expected == found {
        return Ok(());
    }
    let first = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    Err(Sense::MISCOMPARE_DURING_VERIFY_OPERATION
        .at(offset + first as u64)
        .into())
}
