//! SET TARGET PORT GROUPS (SPC-4 §6.45): puts target port groups into asymmetric access states, all of a list or none. They
//! hold until others are set, over restarts too.

use crate::scsi::access_state::{AccessState, Answered, GroupView};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa4,
    service_action: Some(0x0a),
    name: "SET TARGET PORT GROUPS",
    usage: &[0xa4, 0x0a, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Always,
        reservation: ReservationClass::Writes,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::SetPortGroups,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let list = data.get_parameters(cdb.u32_at(6) as usize).await?;
    data.check()?;
    let wanted = parse(&list, &context.port_groups())?;
    context.set_access_states(&wanted, data.abort_signal()).await
}

/// The states that a list asks for. An empty list asks for nothing.
fn parse(list: &[u8], groups: &[GroupView]) -> Result<Vec<(u16, AccessState)>, Failure> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let descriptors = list.get(HEADER_LEN..).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let (descriptors, rest) = descriptors.as_chunks::<DESCRIPTOR_LEN>();
    if !rest.is_empty() {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let mut wanted = Vec::with_capacity(descriptors.len());
    for (index, [state, _, high, low]) in descriptors.iter().enumerate() {
        let at = HEADER_LEN + index * DESCRIPTOR_LEN;
        let invalid = |at: usize, bit| {
            let byte = u16::try_from(at).expect("a parameter list has at most 65535 bytes");
            Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, bit)
        };
        let number = u16::from_be_bytes([*high, *low]);
        let state = AccessState::from_code(state & STATE).ok_or_else(|| invalid(at, Some(3)))?;
        if !groups.iter().any(|group| group.number == number) {
            return Err(invalid(at + 2, None).into());
        }
        wanted.push((number, state));
    }
    Ok(wanted)
}

const HEADER_LEN: usize = 4;
const DESCRIPTOR_LEN: usize = 4;
/// ASYMMETRIC ACCESS STATE.
const STATE: u8 = 0x0f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::access_state::StateCause;

    const GROUPS: [GroupView; 1] = [GroupView {
        number: 0x0102,
        state: AccessState::ActiveOptimized,
        cause: StateCause::None,
    }];

    #[test]
    fn descriptors_name_a_group_and_its_state() {
        assert_eq!(parse(&[], &GROUPS).unwrap(), []);
        assert_eq!(parse(&[0; 4], &GROUPS).unwrap(), []);
        assert_eq!(
            parse(&[0, 0, 0, 0, 2, 0, 1, 2], &GROUPS).unwrap(),
            [(0x0102, AccessState::Standby)]
        );
    }

    #[test]
    fn what_cannot_be_is_refused_where_it_stands() {
        // Offline is a state of single ports, transitioning none that can be asked for.
        for (list, code, byte) in [
            (&[0, 0, 0][..], (0x1a, 0x00), None),
            (&[0, 0, 0, 0, 2], (0x1a, 0x00), None),
            (&[0, 0, 0, 0, 0x0e, 0, 1, 2], (0x26, 0x00), Some(4)),
            (&[0, 0, 0, 0, 0x0f, 0, 1, 2], (0x26, 0x00), Some(4)),
            (&[0, 0, 0, 0, 4, 0, 1, 2], (0x26, 0x00), Some(4)),
            (&[0, 0, 0, 0, 2, 0, 1, 2, 2, 0, 9, 9], (0x26, 0x00), Some(10)),
        ] {
            let Err(Failure::Check(sense)) = parse(list, &GROUPS) else {
                panic!("{list:02x?}");
            };
            assert_eq!(
                (sense.code, sense.field.map(|field| field.byte)),
                (code, byte),
                "{list:02x?}"
            );
        }
    }
}
