//! REPORT LUNS (SPC-4 §6.33): the numbers under which this initiator reaches logical units.

use iscsi_proto::Lun;

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{AttentionRule, CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa0,
    service_action: None,
    name: "REPORT LUNS",
    usage: &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        unit: false,
        attention: AttentionRule::ClearReportedLuns,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportLuns,
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
    let numbers = match cdb.u8_at(2) {
        // All but well-known ones, and all: there are no well-known logical units here.
        0x00 | 0x02 => context.lun_numbers(),
        // Well-known ones; administrative ones; those of an administrative one.
        0x01 | 0x10..=0x12 => Vec::new(),
        _ => return Err(Cdb::invalid_field(2)),
    };
    data.put_parameters(&list(&numbers), allocation).await
}

fn list(numbers: &[u16]) -> Vec<u8> {
    let luns: Vec<u8> = numbers
        .iter()
        .filter_map(|number| Lun::from_number(*number))
        .flat_map(Lun::to_bytes)
        .collect();
    let length = u32::try_from(luns.len()).expect("at most 16384 numbers of eight bytes");
    [&length.to_be_bytes()[..], &[0; 4], &luns].concat()
}

/// Shorter lists could not hold a single number (SPC-4 §6.33).
const MINIMUM_ALLOCATION: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_counts_bytes_and_uses_both_addressing_methods() {
        assert_eq!(list(&[]), [0; 8]);
        assert_eq!(
            list(&[0, 255, 256]),
            [
                [0, 0, 0, 24, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0, 0],
                [0, 255, 0, 0, 0, 0, 0, 0],
                [0x41, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat()
        );
    }
}
