//! RECEIVE COPY FAILURE DETAILS (SPC-4), once RECEIVE COPY RESULTS with FAILED SEGMENT DETAILS: the status and
//! sense of an EXTENDED COPY (LID1) that failed. They are told once.

use super::copy_status::complete;
use super::limits::THIRD_PARTY_COPY_IN;
use super::operation::{Conclusion, ListId};
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_IN,
    service_action: Some(0x04),
    name: "RECEIVE COPY FAILURE DETAILS (LID1)",
    usage: &[
        THIRD_PARTY_COPY_IN,
        0x04,
        0xff,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Disk,
        reservation: ReservationClass::Persistent,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: table::Operation::FailedSegmentDetails,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let copies = context.unit().copies();
    let list = ListId::Short(cdb.u8_at(2));
    let operation = copies
        .find(context.nexus(), list)
        .ok_or_else(|| Cdb::invalid_field(2))?;
    // A copy that has not failed has nothing to tell: AVAILABLE DATA is 0.
    let failed = operation
        .ending()
        .filter(|ending| ending.how == Conclusion::Failed);
    let mut reply = vec![0; 4];
    if let Some(ending) = &failed {
        let sense_len = u16::try_from(ending.sense.len()).expect("sense data have a few bytes");
        reply.resize(56, 0);
        reply.extend([ending.status, 0]);
        reply.extend(sense_len.to_be_bytes());
        reply.extend(&ending.sense);
    }
    complete(&mut reply);
    data.put_parameters(&reply, cdb.u32_at(10) as usize).await?;
    if failed.is_some() {
        copies.forget(&operation);
    }
    Ok(())
}
