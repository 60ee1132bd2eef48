//! REPORT IDENTIFYING INFORMATION (SPC-4 §6.32): what people and programs called the unit.

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::identifying::InformationKind;
use crate::scsi::table::{CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x05),
    name: "REPORT IDENTIFYING INFORMATION",
    usage: &[0xa3, 0x05, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, KIND, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportIdentifying,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let code = cdb.bits(10, 7, 1);
    let reply = if code == ALL_KINDS {
        let descriptor = |kind: InformationKind| {
            let [high, low] = u16::try_from(kind.longest())
                .expect("a few hundred bytes")
                .to_be_bytes();
            [kind.code() << 1, 0, high, low]
        };
        with_length(&InformationKind::ALL.map(descriptor).concat())
    } else {
        let kind = InformationKind::from_code(code).ok_or_else(|| Cdb::invalid_bit(10, 7))?;
        with_length(&context.unit().identifying(kind))
    };
    data.put_parameters(&reply, cdb.u32_at(6) as usize).await
}

fn with_length(body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len())
        .expect("a few hundred bytes")
        .to_be_bytes();
    [&[0, 0, high, low], body].concat()
}

/// IDENTIFYING INFORMATION TYPE.
pub(super) const KIND: u8 = 0xfe;
/// The type that asks which there are.
const ALL_KINDS: u8 = 0x7f;
