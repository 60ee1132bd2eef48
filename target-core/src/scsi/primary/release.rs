//! RELEASE (6) and (10) as SPC-2 has them: ends what RESERVE began. From a nexus that holds nothing it does nothing.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const RELEASE_6: CommandSpec = CommandSpec {
    opcode: 0x17,
    service_action: None,
    name: "RELEASE (6)",
    usage: &[0x17, 0, 0, 0, 0, 0],
    offer: Offer::Always,
    // What is reserved decides about it otherwise than about any other command.
    needs: Needs::UNIT,
    timeout_s: 10,
    operation: Operation::Release,
};

pub(crate) const RELEASE_10: CommandSpec = CommandSpec {
    opcode: 0x57,
    name: "RELEASE (10)",
    usage: &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ..RELEASE_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let reservations = context.unit().reservations();
    reservations
        .release_legacy(context.nexus(), data.abort_signal())
        .await
}
