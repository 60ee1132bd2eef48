//! READ (6), (10), (12) and (16) (SBC-4).
//!
//! DPO is allowed and changes nothing. FUA makes the medium hold what the cache holds first, then reads: what is
//! returned would survive a power cut.

use super::chunks::chunks;
use super::protect::{self, Protect};
use super::usage;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_6, lba_range_10, lba_range_12, lba_range_16};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const READ_6: CommandSpec = CommandSpec {
    opcode: 0x08,
    service_action: None,
    name: "READ (6)",
    usage: &[0x08, 0x1f, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs::read(lba_range_6),
    timeout_s: 30,
    operation: Operation::Read,
};

pub(crate) const READ_10: CommandSpec = CommandSpec {
    opcode: 0x28,
    name: "READ (10)",
    usage: &usage::ten(0x28, usage::TRANSFER),
    needs: Needs {
        devices: Devices::All,
        protection: true,
        ..Needs::read(lba_range_10)
    },
    ..READ_6
};

pub(crate) const READ_12: CommandSpec = CommandSpec {
    opcode: 0xa8,
    name: "READ (12)",
    usage: &usage::twelve(0xa8, usage::TRANSFER),
    needs: Needs {
        devices: Devices::All,
        protection: true,
        ..Needs::read(lba_range_12)
    },
    ..READ_6
};

pub(crate) const READ_16: CommandSpec = CommandSpec {
    opcode: 0x88,
    name: "READ (16)",
    usage: &usage::sixteen(0x88, usage::TRANSFER),
    needs: Needs::read(lba_range_16).protected(),
    ..READ_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let block = u64::from(geometry.block_size);
    let range = context.range();
    // In READ (6) these bits belong to the LBA.
    let fua = cdb.opcode() != READ_6.opcode && cdb.bit(1, 3);
    if fua && geometry.volatile_cache {
        data.check()?;
        unit.store().flush().await?;
    }
    if let Some(protect) = Protect::of(cdb)? {
        return Box::pin(protect::read(context, range, protect, data)).await;
    }
    let room = data.want_in(range.blocks * block);
    for chunk in chunks(range.lba * block, room.next_multiple_of(block)) {
        let buf = data.in_buffer(chunk.len).await?;
        data.check()?;
        let buf = unit.store().read(chunk.at, buf).await?;
        data.put(buf).await?;
    }
    Ok(())
}
