//! REPORT TIMESTAMP (SPC-4 §6.38): what the unit's clock says.

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x0f),
    name: "REPORT TIMESTAMP",
    usage: &[0xa3, 0x0f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportTimestamp,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let (milliseconds, origin) = context.unit().clock().now();
    let [_, _, timestamp @ ..] = milliseconds.to_be_bytes();
    let mut reply = vec![0, LENGTH, origin as u8, 0];
    reply.extend(timestamp);
    reply.extend([0, 0]);
    data.put_parameters(&reply, cdb.u32_at(6) as usize).await
}

/// TIMESTAMP PARAMETER DATA LENGTH.
const LENGTH: u8 = 10;
