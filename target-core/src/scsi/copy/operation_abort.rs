//! COPY OPERATION ABORT (SPC-4): ends a copy by its list identifier. It does not wait for the end.

use super::limits::THIRD_PARTY_COPY_OUT;
use super::operation::ListId;
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_OUT,
    service_action: Some(0x1c),
    name: "COPY OPERATION ABORT",
    usage: &[
        THIRD_PARTY_COPY_OUT,
        0x1c,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Disk,
        reservation: ReservationClass::Writes,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: table::Operation::CopyOperationAbort,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    _data: &mut Transfer,
) -> Result<(), Failure> {
    let id = cdb.u32_at(2);
    let copies = context.unit().copies();
    let find = |list| {
        let operation = copies.find(context.nexus(), list)?;
        operation.ending().is_none().then_some(operation)
    };
    // Identifiers of both lengths live side by side; the one under way is meant.
    let short = u8::try_from(id).ok().and_then(|id| find(ListId::Short(id)));
    let operation = find(ListId::Long(id))
        .or(short)
        .ok_or_else(|| Cdb::invalid_field(2))?;
    operation.cancel.fire();
    Ok(())
}
