//! REPORT LUNS (SPC-4 §6.33): the numbers under which this initiator reaches logical units.

use iscsi_proto::Lun;

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
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
        answered: Answered::Always,
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
        // Well-known ones.
        0x01 => Vec::new(),
        // Administrative ones alone, or with all that belong to none: what is asked of LUN 0. The subsidiary ones of an
        // administrative logical unit (12h) can be asked of such a one only.
        0x10 if context.lun().number() == Some(0) => Vec::new(),
        0x11 if context.lun().number() == Some(0) => context.lun_numbers(),
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

    #[tokio::test]
    async fn each_selection_lists_what_there_is_of_it() {
        use crate::scsi::testing::{Command, config, memory, nexus, sense, status};
        use crate::scsi::{LogicalUnit, Status, TargetDevice};

        // No LUN 0, and one that needs flat space addressing.
        let device = TargetDevice::new("iqn.2024-01.org.example:disk".parse().unwrap(), &[]);
        for number in [3, 300] {
            assert!(device.map(number, LogicalUnit::new(config(), memory(64))));
        }
        let ask = async |lun, selection| {
            let cdb = [0xa0, 0, selection, 0, 0, 0, 0, 0, 1, 0, 0, 0];
            let (outcome, list) = Command::new(lun, &cdb)
                .expecting(256)
                .run(&device, &nexus(1))
                .await;
            match status(&outcome) {
                Status::Good => Ok(list),
                _ => Err(sense(&outcome).field.map(|field| field.byte)),
            }
        };
        for lun in [0, 3] {
            for selection in [0x00, 0x02] {
                assert_eq!(ask(lun, selection).await, Ok(list(&[3, 300])), "{selection:#04x}");
            }
            assert_eq!(ask(lun, 0x01).await, Ok(list(&[])));
            for selection in [0x03, 0x12, 0xff] {
                assert_eq!(ask(lun, selection).await, Err(Some(2)), "{selection:#04x}");
            }
        }
        assert_eq!(ask(0, 0x10).await, Ok(list(&[])));
        assert_eq!(ask(0, 0x11).await, Ok(list(&[3, 300])));
        assert_eq!(ask(3, 0x11).await, Err(Some(2)));
    }

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
