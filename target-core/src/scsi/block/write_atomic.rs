//! WRITE ATOMIC (16) (SBC-4): blocks that are written as a whole or not at all, whatever happens. Only units over a store
//! that can do that have it; what the limits are, Block Limits tells.

use super::protect::Protect;
use super::protect_update;
use super::usage::{GROUP, TRANSFER};
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::AtomicLimits;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x9c,
    service_action: None,
    name: "WRITE ATOMIC (16)",
    // ATOMIC BOUNDARY must be 0: MAXIMUM ATOMIC BOUNDARY SIZE is.
    usage: &[
        0x9c, TRANSFER, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, GROUP, 0,
    ],
    offer: Offer::Atomic,
    // Nobody may see a part of it either.
    needs: Needs::exclusive(range).protected(),
    timeout_s: 30,
    operation: Operation::WriteAtomic,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let LbaRange { lba, blocks } = context.range();
    let limits = AtomicLimits::new(&geometry, unit.store().abilities());
    let granularity = u64::from(limits.granularity);
    if !lba.is_multiple_of(granularity) {
        return Err(Cdb::invalid_field(LBA));
    }
    if blocks > u64::from(limits.most) || !blocks.is_multiple_of(granularity) {
        return Err(Cdb::invalid_field(TRANSFER_LENGTH));
    }
    let durability = unit.durability(cdb.bit(1, 3));
    if let Some(protect) = Protect::of(cdb)? {
        return match blocks {
            0 => Ok(()),
            _ => {
                let range = context.range();
                Box::pin(protect_update::write_atomic(
                    context, range, protect, durability, data,
                ))
                .await
            }
        };
    }
    let block = u64::from(geometry.block_size);
    let whole = blocks * block;
    // What comes short cannot be written as a whole.
    if data.want_out(whole) != whole {
        return Err(Cdb::invalid_field(TRANSFER_LENGTH));
    }
    if blocks == 0 {
        return Ok(());
    }
    let len = usize::try_from(whole).expect("the limit is that of one buffer");
    let buf = data.get(len).await?;
    data.check()?;
    unit.store().write(lba * block, buf, durability).await?;
    Ok(())
}

fn range(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: cdb.u64_at(2),
        blocks: u64::from(cdb.u16_at(12)),
    }
}

/// Places of LOGICAL BLOCK ADDRESS and TRANSFER LENGTH.
const LBA: u16 = 2;
const TRANSFER_LENGTH: u16 = 12;
