//! MECHANISM STATUS (MMC-6 §6.11): a drive without a changer, idle, its tray open or closed.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xbd,
    service_action: None,
    name: "MECHANISM STATUS",
    usage: &[0xbd, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::MechanismStatus,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let door = if context.unit().medium().is_loaded() {
        0
    } else {
        DOOR_OPEN
    };
    let reply = [0, door, 0, 0, 0, 0, 0, 0];
    data.put_parameters(&reply, usize::from(cdb.u16_at(8))).await
}

const DOOR_OPEN: u8 = 0x10;
