//! COMPARE AND WRITE (SBC-4): compares blocks with the first half of Data-Out and, when they are equal, writes the second
//! half, in one step that no other command sees half done.

use backstores::TAGS_LEN;

use super::protect::Protect;
use super::protect_update;
use super::usage::{GROUP, TRANSFER};
use super::verify::compare;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::maximum_compare_and_write_blocks;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x89,
    service_action: None,
    name: "COMPARE AND WRITE",
    usage: &[
        0x89, TRANSFER, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, GROUP, 0,
    ],
    offer: Offer::Always,
    needs: Needs::exclusive(range).protected(),
    timeout_s: 30,
    operation: Operation::CompareAndWrite,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let LbaRange { lba, blocks } = context.range();
    let most = maximum_compare_and_write_blocks(&geometry, unit.store().abilities());
    if blocks > u64::from(most) {
        return Err(Cdb::invalid_field(NUMBER_OF_BLOCKS));
    }
    let protect = Protect::of(cdb)?;
    let block = u64::from(geometry.block_size);
    let both = 2 * blocks * (block + protect.map_or(0, |_| TAGS_LEN as u64));
    // With less there would be nothing to write, with more the halves would lie elsewhere.
    if data.offered_out() != both || data.want_out(both) != both {
        return Err(Cdb::invalid_field(NUMBER_OF_BLOCKS));
    }
    if blocks == 0 {
        return Ok(());
    }
    let durability = unit.durability(cdb.bit(1, 3));
    if let Some(protect) = protect {
        let range = context.range();
        return Box::pin(protect_update::compare_and_write(
            context, range, protect, durability, data,
        ))
        .await;
    }
    let len = usize::try_from(both).expect("both halves fit a buffer");
    let halves = data.get(len).await?;
    let (expected, replacement) = halves.split_at(len / 2);
    let buf = data.second_buffer(len / 2);
    data.check()?;
    let mut found = unit.store().read(lba * block, buf).await?;
    compare(expected, &found, 0)?;
    found.copy_from_slice(replacement);
    data.check()?;
    unit.store().write(lba * block, found, durability).await?;
    Ok(())
}

fn range(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: cdb.u64_at(2),
        blocks: u64::from(cdb.u8_at(13)),
    }
}

/// Place of NUMBER OF LOGICAL BLOCKS.
const NUMBER_OF_BLOCKS: u16 = 13;
