//! PREVENT ALLOW MEDIUM REMOVAL (SBC-4). Units that are not removable do not have it.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x1e,
    service_action: None,
    name: "PREVENT ALLOW MEDIUM REMOVAL",
    // Bit 1 prevented changers once; it is reserved.
    usage: &[0x1e, 0, 0, 0, PREVENT, 0],
    offer: Offer::Removable,
    needs: Needs {
        reservation: ReservationClass::WritesUnless {
            byte: 4,
            mask: PREVENT,
            value: 0,
        },
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::PreventAllow,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    data.check()?;
    let mut medium = unit.medium();
    if cdb.u8_at(4) & PREVENT != 0 {
        medium.prevent(context.nexus());
    } else {
        medium.allow(context.nexus());
    }
    Ok(())
}

const PREVENT: u8 = 0x01;
