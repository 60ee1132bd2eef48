//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 §6.36).

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x0d),
    name: "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
    usage: &[0xa3, 0x0d, REPD, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        reservation: ReservationClass::Reads,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportTmfs,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let allocation = cdb.u32_at(6) as usize;
    if allocation < MINIMUM_ALLOCATION {
        return Err(Cdb::invalid_field(6));
    }
    let extended = cdb.u8_at(2) & REPD != 0;
    let reply = reply(context.offers_queries(), extended);
    data.put_parameters(&reply, allocation).await
}

/// The extended form adds time-outs, which are left unspecified.
fn reply(queries: bool, extended: bool) -> Vec<u8> {
    let mut reply = if queries {
        vec![FUNCTIONS | QUERY_TASK, FURTHER_QUERIES, 0, 0]
    } else {
        vec![FUNCTIONS, 0, 0, 0]
    };
    if extended {
        reply[3] = 12;
        reply.resize(16, 0);
    }
    reply
}

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET.
const FUNCTIONS: u8 = 0x80 | 0x40 | 0x10 | 0x08 | 0x02;
/// QTS.
const QUERY_TASK: u8 = 0x04;
/// QAES, QTSS and ITNRS.
const FURTHER_QUERIES: u8 = 0x04 | 0x02 | 0x01;
/// Return extended parameter data.
const REPD: u8 = 0x80;
const MINIMUM_ALLOCATION: usize = 4;
