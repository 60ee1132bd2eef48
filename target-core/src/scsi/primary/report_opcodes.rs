//! REPORT SUPPORTED OPERATION CODES (SPC-4 §6.35), read off the same table that checks every CDB.

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{COMMANDS, CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa3,
    service_action: Some(0x0c),
    name: "REPORT SUPPORTED OPERATION CODES",
    usage: &[
        0xa3,
        0x0c,
        RCTD | OPTIONS,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        reservation: ReservationClass::Reads,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReportOpcodes,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let timeouts = cdb.u8_at(2) & RCTD != 0;
    let unit = context.unit();
    let supported: Vec<&CommandSpec> = COMMANDS
        .iter()
        .copied()
        .filter(|command| command.exists_on(unit))
        .collect();
    let (opcode, action) = (cdb.u8_at(3), cdb.u16_at(4));
    let reply = match cdb.u8_at(2) & OPTIONS {
        0 => all(&supported, timeouts),
        1..=3 => one(
            find(&supported, cdb.u8_at(2) & OPTIONS, opcode, action)?,
            timeouts,
            unit.is_protected(),
        ),
        _ => return Err(Cdb::invalid_bit(2, 2)),
    };
    data.put_parameters(&reply, cdb.u32_at(6) as usize).await
}

/// The command that a REPORTING OPTIONS of 1, 2 or 3 names; `None` when there is none like it.
fn find<'a>(
    supported: &[&'a CommandSpec],
    options: u8,
    opcode: u8,
    action: u16,
) -> Result<Option<&'a CommandSpec>, Failure> {
    let same: Vec<_> = supported
        .iter()
        .copied()
        .filter(|command| command.opcode == opcode)
        .collect();
    let has_actions = same.iter().any(|command| command.service_action.is_some());
    let exact = |command: &&&CommandSpec| command.service_action == Some(action);
    match options {
        // One by operation code alone: a code that needs a service action is a mistake.
        1 if has_actions => Err(Cdb::invalid_bit(2, 2)),
        1 => Ok(same.first().copied()),
        // One by operation code and service action: a code that has none is a mistake.
        2 if !same.is_empty() && !has_actions => Err(Cdb::invalid_bit(2, 2)),
        2 => Ok(same.iter().find(exact).copied()),
        // Either: without service actions the field must be 0 to find it.
        _ if has_actions => Ok(same.iter().find(exact).copied()),
        _ => Ok(same.first().copied().filter(|_| action == 0)),
    }
}

fn all(supported: &[&CommandSpec], timeouts: bool) -> Vec<u8> {
    let mut descriptors = Vec::new();
    for command in supported {
        let [action_high, action_low] = command.service_action.unwrap_or(0).to_be_bytes();
        let flags = u8::from(command.service_action.is_some()) * SERVACTV + u8::from(timeouts) * CTDP_ALL;
        let [len_high, len_low] = cdb_length(command);
        descriptors.extend([
            command.opcode,
            0,
            action_high,
            action_low,
            0,
            flags,
            len_high,
            len_low,
        ]);
        if timeouts {
            descriptors.extend(timeouts_descriptor(command));
        }
    }
    let length = u32::try_from(descriptors.len()).expect("the table has a few dozen entries");
    [&length.to_be_bytes()[..], &descriptors].concat()
}

fn one(command: Option<&CommandSpec>, timeouts: bool, is_protected: bool) -> Vec<u8> {
    let Some(command) = command else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let [len_high, len_low] = cdb_length(command);
    let mut reply = vec![0, STANDARD | (u8::from(timeouts) * CTDP_ONE), len_high, len_low];
    reply.extend((0..command.usage.len()).map(|byte| command.usage_at(byte, is_protected)));
    if timeouts {
        reply.extend(timeouts_descriptor(command));
    }
    reply
}

fn cdb_length(command: &CommandSpec) -> [u8; 2] {
    u16::try_from(command.usage.len())
        .expect("no CDB is longer than 260 bytes")
        .to_be_bytes()
}

/// NOMINAL COMMAND PROCESSING TIMEOUT is left unspecified, RECOMMENDED COMMAND TIMEOUT is ours.
fn timeouts_descriptor(command: &CommandSpec) -> Vec<u8> {
    [&[0, 10, 0, 0, 0, 0, 0, 0][..], &command.timeout_s.to_be_bytes()].concat()
}

/// Return command timeouts descriptors.
const RCTD: u8 = 0x80;
/// REPORTING OPTIONS.
const OPTIONS: u8 = 0x07;
/// A command descriptor has a service action; has a timeouts descriptor.
const SERVACTV: u8 = 0x01;
const CTDP_ALL: u8 = 0x02;
/// SUPPORT values of the one-command form, and its timeouts bit.
const NOT_SUPPORTED: u8 = 0x01;
const STANDARD: u8 = 0x03;
const CTDP_ONE: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::block::read::READ_10;
    use crate::scsi::block::read_capacity::READ_CAPACITY_16;
    use crate::scsi::primary::report_tmfs;

    const SOME: [&CommandSpec; 3] = [&READ_10, &READ_CAPACITY_16, &report_tmfs::SPEC];

    #[test]
    fn the_whole_list_counts_its_bytes() {
        let list = all(&SOME, false);
        assert_eq!(list[..12], [0, 0, 0, 24, 0x28, 0, 0, 0, 0, 0, 0, 10]);
        assert_eq!(list[12..20], [0x9e, 0, 0, 0x10, 0, 1, 0, 16]);
        let timed = all(&SOME, true);
        assert_eq!(timed[..12], [0, 0, 0, 60, 0x28, 0, 0, 0, 0, 2, 0, 10]);
        assert_eq!(timed[12..24], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30]);
    }

    #[test]
    fn one_command_comes_with_its_usage_map() {
        assert_eq!(
            one(Some(&READ_10), false, false),
            [
                0, 3, 0, 10, 0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0
            ]
        );
        assert_eq!(one(Some(&READ_10), false, true)[5], 0xf8, "RDPROTECT too");
        assert_eq!(one(Some(&READ_10), true, false)[..4], [0, 0x83, 0, 10]);
        assert_eq!(one(Some(&READ_10), true, false).len(), 26);
        assert_eq!(one(None, true, false), [0, 1, 0, 0]);
    }

    #[test]
    fn reporting_options_ask_for_the_service_action_or_not() {
        let found = |options, opcode, action| {
            find(&SOME, options, opcode, action)
                .map(|command| command.map(|command| command.name))
                .ok()
        };
        assert_eq!(found(1, 0x28, 0), Some(Some("READ (10)")));
        assert_eq!(found(1, 0x9e, 0), None);
        assert_eq!(found(1, 0xc0, 0), Some(None));
        assert_eq!(found(2, 0x9e, 0x10), Some(Some("READ CAPACITY (16)")));
        assert_eq!(found(2, 0x9e, 0x11), Some(None));
        assert_eq!(found(2, 0x28, 0), None);
        assert_eq!(found(2, 0xc0, 0), Some(None));
        assert_eq!(found(3, 0x28, 0), Some(Some("READ (10)")));
        assert_eq!(found(3, 0x28, 1), Some(None));
        assert_eq!(found(3, 0x9e, 0x10), Some(Some("READ CAPACITY (16)")));
        assert_eq!(found(3, 0x9e, 0), Some(None));
    }
}
