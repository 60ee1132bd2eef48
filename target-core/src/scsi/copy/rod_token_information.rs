//! RECEIVE ROD TOKEN INFORMATION (SPC-4): how a token command went, and the token that it made.

use super::copy_status::{complete, long_form};
use super::limits::THIRD_PARTY_COPY_IN;
use super::operation::ListId;
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_IN,
    service_action: Some(0x07),
    name: "RECEIVE ROD TOKEN INFORMATION",
    usage: &[
        THIRD_PARTY_COPY_IN,
        0x07,
        0xff,
        0xff,
        0xff,
        0xff,
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
    operation: table::Operation::RodTokenInformation,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let operation = context
        .unit()
        .copies()
        .find(context.nexus(), ListId::Long(cdb.u32_at(2)))
        .ok_or_else(|| Cdb::invalid_field(2))?;
    let mut reply = long_form(&operation, context.unit());
    match operation.token() {
        Some(token) => {
            reply.extend(DESCRIPTOR_LEN.to_be_bytes());
            reply.extend([0; 2]);
            reply.extend(token.as_bytes());
        }
        None => reply.extend([0; 4]),
    }
    complete(&mut reply);
    data.put_parameters(&reply, cdb.u32_at(10) as usize).await
}

/// A ROD token descriptor: two bytes and the token.
const DESCRIPTOR_LEN: u32 = 514;
