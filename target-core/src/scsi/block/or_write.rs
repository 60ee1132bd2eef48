//! ORWRITE (16) (SBC-4): the blocks are combined with Data-Out by a bitwise or. Nobody else sees or changes them meanwhile,
//! so that no bit that two initiators set is lost.

use super::chunks::chunks;
use super::protect::Protect;
use super::{protect_update, usage};
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_16};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x8b,
    service_action: None,
    name: "ORWRITE (16)",
    usage: &usage::sixteen(0x8b, usage::TRANSFER),
    offer: Offer::Always,
    needs: Needs::exclusive(lba_range_16).protected(),
    timeout_s: 30,
    operation: Operation::OrWrite,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let block = u64::from(unit.store().geometry().block_size);
    let range = context.range();
    let durability = unit.durability(cdb.bit(1, 3));
    if let Some(protect) = Protect::of(cdb)? {
        return Box::pin(protect_update::or_write(
            context, range, protect, durability, data,
        ))
        .await;
    }
    let sent = data.want_out(range.blocks * block);
    for chunk in chunks(range.lba * block, sent - sent % block) {
        let ours = data.get(chunk.len).await?;
        let buf = data.second_buffer(chunk.len);
        data.check()?;
        let mut found = unit.store().read(chunk.at, buf).await?;
        found.iter_mut().zip(&ours[..]).for_each(|(old, new)| *old |= new);
        data.check()?;
        unit.store().write(chunk.at, found, durability).await?;
    }
    Ok(())
}
