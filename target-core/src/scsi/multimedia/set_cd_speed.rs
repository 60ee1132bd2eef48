//! SET CD SPEED (MMC-6 §6.37): accepted, as a wish. An image has no speed.
//!
//! SET STREAMING and GET PERFORMANCE belong to a feature that the drive does not claim, and are not there.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xbb,
    service_action: None,
    name: "SET CD SPEED",
    usage: &[0xbb, ROTATIONAL_CONTROL, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::SetCdSpeed,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    _cdb: Cdb<'_>,
    _data: &mut Transfer,
) -> Result<(), Failure> {
    Ok(())
}

const ROTATIONAL_CONTROL: u8 = 0x03;
