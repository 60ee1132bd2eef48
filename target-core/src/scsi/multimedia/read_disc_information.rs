//! READ DISC INFORMATION (MMC-6 §6.21): a complete disc that nothing can be added to.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x51,
    service_action: None,
    name: "READ DISC INFORMATION",
    usage: &[0x51, DATA_TYPE, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadDiscInformation,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    if cdb.u8_at(1) & DATA_TYPE != 0 {
        return Err(Cdb::invalid_bit(1, 2));
    }
    data.put_parameters(&standard(), usize::from(cdb.u16_at(7))).await
}

fn standard() -> [u8; STANDARD_LEN] {
    let mut reply = [0; STANDARD_LEN];
    reply[1] = DATA_LENGTH;
    reply[2] = SESSION_COMPLETE | DISC_COMPLETE;
    // First track of the disc; number of sessions; first and last track of the last session.
    reply[3..7].fill(1);
    reply[7] = UNRESTRICTED_USE;
    // LAST SESSION LEAD-IN START and LAST POSSIBLE LEAD-OUT START, which a complete disc does not have.
    reply[16..24].fill(0xff);
    reply
}

const DATA_TYPE: u8 = 0x07;
const STANDARD_LEN: usize = 34;
const DATA_LENGTH: u8 = 32;
/// STATE OF LAST SESSION and DISC STATUS.
const SESSION_COMPLETE: u8 = 3 << 2;
const DISC_COMPLETE: u8 = 2;
const UNRESTRICTED_USE: u8 = 0x20;
