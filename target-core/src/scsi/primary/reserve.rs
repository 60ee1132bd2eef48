//! RESERVE (6) and (10) as SPC-2 has them: the unit is this nexus' alone until it releases it, is lost, or the unit is
//! reset. Extents and third parties, which SPC-2 made obsolete or left optional, are refused with their bits.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const RESERVE_6: CommandSpec = CommandSpec {
    opcode: 0x16,
    service_action: None,
    name: "RESERVE (6)",
    usage: &[0x16, 0, 0, 0, 0, 0],
    offer: Offer::Always,
    // What is reserved decides about it otherwise than about any other command.
    needs: Needs::UNIT,
    timeout_s: 10,
    operation: Operation::Reserve,
};

pub(crate) const RESERVE_10: CommandSpec = CommandSpec {
    opcode: 0x56,
    name: "RESERVE (10)",
    usage: &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ..RESERVE_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let reservations = context.unit().reservations();
    reservations
        .reserve_legacy(context.nexus(), data.abort_signal())
        .await
}
