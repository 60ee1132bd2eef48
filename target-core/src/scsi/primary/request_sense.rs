//! REQUEST SENSE (SPC-4 §6.39): tells a pending unit attention as parameter data, else how far formatting or sanitizing
//! is, else that there is nothing.

use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{AttentionRule, CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x03,
    service_action: None,
    name: "REQUEST SENSE",
    usage: &[0x03, DESC, 0, 0, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        unit: false,
        attention: AttentionRule::Deliver,
        answered: Answered::Always,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::RequestSense,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let sense = match context.addressed_unit() {
        // Without a unit the answer is GOOD all the same, and the sense says what is wrong (SPC-4 §6.39.1).
        None => Sense::LOGICAL_UNIT_NOT_SUPPORTED,
        Some(unit) => context
            .take_attention()
            .or_else(|| unit.erasure().sense())
            .or_else(|| unit.self_tests().sense())
            .unwrap_or(Sense::NO_SENSE),
    };
    let reply = sense.encode(cdb.u8_at(1) & DESC != 0);
    data.put_parameters(&reply, usize::from(cdb.u8_at(4))).await
}

/// Descriptor format is wanted.
const DESC: u8 = 0x01;
