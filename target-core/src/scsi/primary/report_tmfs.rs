//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 §6.36).

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x0d),
    name: "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
    usage: &[0xa3, 0x0d, REPD, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportTmfs,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let allocation = cdb.u32_at(6) as usize;
    if allocation < MINIMUM_ALLOCATION {
        return Err(Cdb::invalid_field(6));
    }
    let extended = cdb.u8_at(2) & REPD != 0;
    data.put_parameters(reply(extended), allocation).await
}

/// The extended form adds time-outs, which are left unspecified.
fn reply(extended: bool) -> &'static [u8] {
    const SHORT: [u8; 4] = [FUNCTIONS, 0, 0, 0];
    const LONG: [u8; 16] = [FUNCTIONS, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if extended { &LONG } else { &SHORT }
}

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET.
const FUNCTIONS: u8 = 0x80 | 0x40 | 0x10 | 0x08 | 0x02;
/// Return extended parameter data.
const REPD: u8 = 0x80;
const MINIMUM_ALLOCATION: usize = 4;
