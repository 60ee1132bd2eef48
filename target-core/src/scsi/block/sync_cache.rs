//! SYNCHRONIZE CACHE (10) and (16) (SBC-4): what was written before is on the medium.
//!
//! The whole cache is flushed, whatever range was named, and there is no other cache that SYNC_NV could mean. IMMED
//! allows an early answer; the answer is given when the flush is done all the same, so that a failure is told to the one
//! who asked. The blocks are not claimed: no write has to wait for a flush.

use super::usage;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_10_to_end, lba_range_16_to_end};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SYNCHRONIZE_CACHE_10: CommandSpec = CommandSpec {
    opcode: 0x35,
    service_action: None,
    name: "SYNCHRONIZE CACHE (10)",
    usage: &usage::ten(0x35, SYNC_NV | IMMED),
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Writes,
        ..Needs::named(lba_range_10_to_end)
    },
    timeout_s: 60,
    operation: Operation::SynchronizeCache,
};

pub(crate) const SYNCHRONIZE_CACHE_16: CommandSpec = CommandSpec {
    opcode: 0x91,
    name: "SYNCHRONIZE CACHE (16)",
    usage: &usage::sixteen(0x91, SYNC_NV | IMMED),
    needs: Needs {
        reservation: ReservationClass::Writes,
        ..Needs::named(lba_range_16_to_end)
    },
    ..SYNCHRONIZE_CACHE_10
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    data.check()?;
    context.unit().store().flush().await?;
    Ok(())
}

const SYNC_NV: u8 = 0x04;
const IMMED: u8 = 0x02;
