//! PRE-FETCH (10) and (16) (SBC-4): CONDITION MET when the blocks are where reading them touches no medium, GOOD when there
//! is no room for that, or nobody can promise it.
//!
//! IMMED allows an answer before the blocks are there; the answer is the same, since nothing here waits for a medium.

use super::usage;
use crate::scsi::Failure;
use crate::scsi::cdb::{Cdb, lba_range_10_to_end, lba_range_16_to_end};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const PRE_FETCH_10: CommandSpec = CommandSpec {
    opcode: 0x34,
    service_action: None,
    name: "PRE-FETCH (10)",
    usage: &usage::ten(0x34, IMMED),
    offer: Offer::Always,
    needs: Needs::named(lba_range_10_to_end),
    timeout_s: 30,
    operation: Operation::PreFetch,
};

pub(crate) const PRE_FETCH_16: CommandSpec = CommandSpec {
    opcode: 0x90,
    name: "PRE-FETCH (16)",
    usage: &usage::sixteen(0x90, IMMED),
    needs: Needs::named(lba_range_16_to_end),
    ..PRE_FETCH_10
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let store = context.unit().store();
    let block = u64::from(store.geometry().block_size);
    let range = context.range();
    let at = range.lba * block;
    data.check()?;
    if store.prefetch(at..at + range.blocks * block).await {
        return Err(Failure::ConditionMet);
    }
    Ok(())
}

const IMMED: u8 = 0x02;
