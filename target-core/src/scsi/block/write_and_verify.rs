//! WRITE AND VERIFY (10), (12) and (16) (SBC-4): writes the blocks to the medium and reads them again, with BYTCHK to
//! compare them with what was sent. Nobody else changes them in between, so that a difference is a fault of the medium.

use backstores::Durability;

use super::chunks::chunks;
use super::protect::Protect;
use super::verify::compare;
use super::{protect_update, usage};
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_10, lba_range_12, lba_range_16};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const WRITE_AND_VERIFY_10: CommandSpec = CommandSpec {
    opcode: 0x2e,
    service_action: None,
    name: "WRITE AND VERIFY (10)",
    usage: &usage::ten(0x2e, usage::VERIFY),
    offer: Offer::Always,
    needs: Needs::exclusive(lba_range_10).protected(),
    timeout_s: 60,
    operation: Operation::WriteAndVerify,
};

pub(crate) const WRITE_AND_VERIFY_12: CommandSpec = CommandSpec {
    opcode: 0xae,
    name: "WRITE AND VERIFY (12)",
    usage: &usage::twelve(0xae, usage::VERIFY),
    needs: Needs::exclusive(lba_range_12).protected(),
    ..WRITE_AND_VERIFY_10
};

pub(crate) const WRITE_AND_VERIFY_16: CommandSpec = CommandSpec {
    opcode: 0x8e,
    name: "WRITE AND VERIFY (16)",
    usage: &usage::sixteen(0x8e, usage::VERIFY),
    needs: Needs::exclusive(lba_range_16).protected(),
    ..WRITE_AND_VERIFY_10
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let bytes_are_compared = match cdb.bits(1, 2, 1) {
        0 => false,
        1 => true,
        // Reserved here, unlike in VERIFY.
        _ => return Err(Cdb::invalid_bit(1, 2)),
    };
    if let Some(protect) = Protect::of(cdb)? {
        let range = context.range();
        return Box::pin(protect_update::write_and_verify(
            context,
            range,
            protect,
            bytes_are_compared,
            data,
        ))
        .await;
    }
    let store = context.unit().store();
    let block = u64::from(store.geometry().block_size);
    let range = context.range();
    let at = range.lba * block;
    let sent = data.want_out(range.blocks * block);
    for chunk in chunks(at, sent - sent % block) {
        let buf = data.get(chunk.len).await?;
        data.check()?;
        let written = store.write(chunk.at, buf, Durability::Stable).await?;
        let buf = data.second_buffer(chunk.len);
        data.check()?;
        let found = store.read(chunk.at, buf).await?;
        if bytes_are_compared {
            compare(&written, &found, chunk.at - at)?;
        }
    }
    Ok(())
}
