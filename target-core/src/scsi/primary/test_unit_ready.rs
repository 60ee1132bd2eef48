//! TEST UNIT READY (SPC-4 §6.47): whether a medium could be accessed now.
//!
//! Everything it asks is asked of every command that needs a medium, before the command runs.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x00,
    service_action: None,
    name: "TEST UNIT READY",
    usage: &[0x00, 0, 0, 0, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::All,
        reservation: ReservationClass::Persistent,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::TestUnitReady,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    _data: &mut Transfer,
) -> Result<(), Failure> {
    Ok(())
}
