//! REPORT TARGET PORT GROUPS (SPC-4 §6.37): which paths there are to the unit, and how good they are.

use crate::scsi::Failure;
use crate::scsi::access_state::{Answered, GroupView};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x0a),
    name: "REPORT TARGET PORT GROUPS",
    usage: &[0xa3, FORMAT | 0x0a, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Always,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportPortGroups,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let extended = match cdb.bits(1, 7, 5) {
        0b000 => false,
        0b001 => true,
        _ => return Err(Cdb::invalid_bit(1, 7)),
    };
    let reply = report(&context.port_groups(), extended);
    data.put_parameters(&reply, cdb.u32_at(6) as usize).await
}

fn report(groups: &[GroupView], extended: bool) -> Vec<u8> {
    let mut body = Vec::new();
    if extended {
        // IMPLICIT TRANSITION TIME stays 0: there are no transitions that take time.
        body.extend([EXTENDED_FORMAT, 0, 0, 0]);
    }
    for group in groups {
        let [high, low] = group.number.to_be_bytes();
        // No group is preferred (PREF): the states say which path is better. One port to a group.
        body.extend([
            group.state as u8,
            SUPPORTED_STATES,
            high,
            low,
            0,
            group.cause as u8,
            0,
            1,
        ]);
        body.extend([0, 0, high, low]);
    }
    let length = u32::try_from(body.len()).expect("at most 65535 groups of twelve bytes");
    [&length.to_be_bytes()[..], &body].concat()
}

/// PARAMETER DATA FORMAT.
const FORMAT: u8 = 0xe0;
/// RETURN DATA FORMAT with the extended header.
const EXTENDED_FORMAT: u8 = 0x10;
/// U_SUP, S_SUP, AN_SUP and AO_SUP; neither transitioning, offline nor dependent on blocks.
const SUPPORTED_STATES: u8 = 0x0f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::access_state::{AccessState, StateCause};

    const GROUPS: [GroupView; 2] = [
        GroupView {
            number: 1,
            state: AccessState::ActiveOptimized,
            cause: StateCause::None,
        },
        GroupView {
            number: 0x0203,
            state: AccessState::Standby,
            cause: StateCause::Explicit,
        },
    ];

    #[test]
    fn every_group_comes_with_its_port() {
        assert_eq!(
            report(&GROUPS, false),
            [
                0, 0, 0, 24, 0x00, 0x0f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x02, 0x0f, 2, 3, 0, 1, 0, 1, 0, 0, 2,
                3
            ]
        );
    }

    #[test]
    fn the_extended_header_is_counted() {
        let reply = report(&GROUPS[..1], true);
        assert_eq!(reply[..8], [0, 0, 0, 16, 0x10, 0, 0, 0]);
        assert_eq!(reply[8..], report(&GROUPS[..1], false)[4..]);
    }
}
