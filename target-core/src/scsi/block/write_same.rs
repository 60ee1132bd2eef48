//! WRITE SAME (10) and (16) (SBC-4): one block of data, written over a whole run; with UNMAP, zeroes that
//! need no space.

use backstores::{CHUNK, Durability, IoBuf, TAGS_LEN};

use super::chunks::{chunks, strides, turn};
use super::protect::{self, Protect};
use super::usage;
use crate::scsi::cdb::{Cdb, LbaRange, lba_range_10_to_end, lba_range_16_to_end};
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::{is_thin, maximum_write_same_blocks};
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

// ANCHOR (blocks are never anchored here, as the VPD says) and the obsolete PBDATA and LBDATA must be 0.
pub(crate) const WRITE_SAME_10: CommandSpec = CommandSpec {
    opcode: 0x41,
    service_action: None,
    name: "WRITE SAME (10)",
    usage: &usage::ten(0x41, UNMAP),
    offer: Offer::Always,
    needs: Needs::write(lba_range_10_to_end).protected(),
    timeout_s: 120,
    operation: Operation::WriteSame,
};

pub(crate) const WRITE_SAME_16: CommandSpec = CommandSpec {
    opcode: 0x93,
    name: "WRITE SAME (16)",
    usage: &usage::sixteen(0x93, UNMAP | NDOB),
    needs: Needs::write(lba_range_16_to_end).protected(),
    ..WRITE_SAME_10
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let range = context.range();
    let unmap = cdb.u8_at(1) & UNMAP != 0;
    let no_data = cdb.u8_at(1) & NDOB != 0;
    if range.blocks > u64::from(maximum_write_same_blocks(&geometry)) {
        let length_field = if cdb.opcode() == WRITE_SAME_10.opcode {
            7
        } else {
            10
        };
        return Err(Cdb::invalid_field(length_field));
    }
    if unmap && !is_thin(unit.config(), &geometry) {
        return Err(Cdb::invalid_bit(1, 3));
    }
    let block = u64::from(geometry.block_size);
    let protect = Protect::of(cdb)?;
    let pattern = if no_data {
        if protect.is_some() {
            return Err(Cdb::invalid_bit(1, 7));
        }
        None
    } else {
        let pattern = get_pattern(geometry.block_size as usize, protect, data).await?;
        if let Some(protect) = protect {
            return Box::pin(protect::write_same(context, range, protect, &pattern, data)).await;
        }
        // Blocks without contents have no protection information, which what was sent is to have.
        let keeps_zeroes = unit.is_protected() && !unmap;
        (keeps_zeroes || pattern.iter().any(|byte| *byte != 0)).then_some(pattern)
    };
    let durability = unit.durability(false);
    match pattern {
        None => zero(context, range, block, unmap, durability, data).await,
        // Blocks that would not read as zeroes cannot be unmapped: they are written (SBC-4 §4.7.3.4.4).
        Some(pattern) => repeat(context, range, &pattern, durability, data).await,
    }
}

/// The block that is sent, with its protection information if there is some.
async fn get_pattern(
    block_size: usize,
    protect: Option<Protect>,
    data: &mut Transfer,
) -> Result<IoBuf, Failure> {
    let len = block_size + protect.map_or(0, |_| TAGS_LEN);
    // Anything but one block is a mistake of the initiator, who has another block size in mind.
    if data.offered_out() != len as u64 || data.want_out(len as u64) != len as u64 {
        return Err(Sense::INVALID_FIELD_IN_CDB.into());
    }
    data.get(len).await
}

async fn zero(
    context: &CommandContext<'_>,
    range: LbaRange,
    block: u64,
    unmap: bool,
    durability: Durability,
    data: &Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let at = range.lba * block;
    for bytes in strides(at, range.blocks * block) {
        turn(bytes.start > at).await;
        data.check()?;
        if unmap {
            unit.store().unmap(bytes).await?;
        } else {
            unit.store().write_zeroes(bytes, durability).await?;
        }
    }
    if unmap {
        unit.settle_unmapped().await?;
    }
    Ok(())
}

/// Fills one chunk with the pattern and writes it again and again.
async fn repeat(
    context: &CommandContext<'_>,
    range: LbaRange,
    pattern: &[u8],
    durability: Durability,
    data: &Transfer,
) -> Result<(), Failure> {
    let store = context.unit().store();
    let block = pattern.len() as u64;
    let len = range.blocks * block;
    let mut buf = data.second_buffer(usize::try_from(len).map_or(CHUNK, |len| len.min(CHUNK)));
    for slot in buf.chunks_exact_mut(pattern.len()) {
        slot.copy_from_slice(pattern);
    }
    let at = range.lba * block;
    for chunk in chunks(at, len) {
        turn(chunk.at > at).await;
        data.check()?;
        buf.set_len(chunk.len);
        buf = store.write(chunk.at, buf, durability).await?;
    }
    Ok(())
}

const UNMAP: u8 = 0x08;
/// No Data-Out: the block is all zeroes. In WRITE SAME (10) this bit is reserved.
const NDOB: u8 = 0x01;
