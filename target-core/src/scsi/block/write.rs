//! WRITE (6), (10), (12) and (16) (SBC-4).
//!
//! An initiator may send less than the CDB calls for (RFC 7143 §11.4.5.2): then the whole blocks that came are
//! written, and the residual tells the rest.

use super::chunks::chunks;
use super::protect::{self, Protect};
use super::usage;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_6, lba_range_10, lba_range_12, lba_range_16};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const WRITE_6: CommandSpec = CommandSpec {
    opcode: 0x0a,
    service_action: None,
    name: "WRITE (6)",
    usage: &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs::write(lba_range_6),
    timeout_s: 30,
    operation: Operation::Write,
};

pub(crate) const WRITE_10: CommandSpec = CommandSpec {
    opcode: 0x2a,
    name: "WRITE (10)",
    usage: &usage::ten(0x2a, usage::TRANSFER),
    needs: Needs::write(lba_range_10).protected(),
    ..WRITE_6
};

pub(crate) const WRITE_12: CommandSpec = CommandSpec {
    opcode: 0xaa,
    name: "WRITE (12)",
    usage: &usage::twelve(0xaa, usage::TRANSFER),
    needs: Needs::write(lba_range_12).protected(),
    ..WRITE_6
};

pub(crate) const WRITE_16: CommandSpec = CommandSpec {
    opcode: 0x8a,
    name: "WRITE (16)",
    usage: &usage::sixteen(0x8a, usage::TRANSFER),
    needs: Needs::write(lba_range_16).protected(),
    ..WRITE_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let block = u64::from(unit.store().geometry().block_size);
    let range = context.range();
    // In WRITE (6) these bits belong to the LBA.
    let fua = cdb.opcode() != WRITE_6.opcode && cdb.bit(1, 3);
    if let Some(protect) = Protect::of(cdb)? {
        return Box::pin(protect::write(context, range, protect, fua, data)).await;
    }
    let durability = unit.durability(fua);
    let sent = data.want_out(range.blocks * block);
    for chunk in chunks(range.lba * block, sent - sent % block) {
        let buf = data.get(chunk.len).await?;
        data.check()?;
        unit.store().write(chunk.at, buf, durability).await?;
    }
    Ok(())
}
