//! PERSISTENT RESERVE IN (SPC-4 §6.15): who is registered, what is reserved, what this unit can do.

use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::reservations::{PersistentReservations, ReservationType, TransportId};
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, TargetDevice};
use crate::transfer::Transfer;

pub(crate) const READ_KEYS: CommandSpec = CommandSpec {
    opcode: 0x5e,
    service_action: Some(0x00),
    name: "PERSISTENT RESERVE IN, READ KEYS",
    usage: &[0x5e, 0x00, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Persistent,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::PersistentReserveIn,
};

pub(crate) const READ_RESERVATION: CommandSpec = CommandSpec {
    service_action: Some(0x01),
    name: "PERSISTENT RESERVE IN, READ RESERVATION",
    usage: &[0x5e, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    ..READ_KEYS
};

pub(crate) const REPORT_CAPABILITIES: CommandSpec = CommandSpec {
    service_action: Some(0x02),
    name: "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
    usage: &[0x5e, 0x02, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    ..READ_KEYS
};

pub(crate) const READ_FULL_STATUS: CommandSpec = CommandSpec {
    service_action: Some(0x03),
    name: "PERSISTENT RESERVE IN, READ FULL STATUS",
    usage: &[0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    ..READ_KEYS
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let reservations = context.unit().reservations();
    let state = reservations.persistent()?;
    let reply = match Some(cdb.service_action()) {
        action if action == READ_RESERVATION.service_action => read_reservation(&state),
        action if action == REPORT_CAPABILITIES.service_action => {
            capabilities(reservations.can_keep(), state.aptpl).to_vec()
        }
        action if action == READ_FULL_STATUS.service_action => full_status(&state, context.device()),
        _ => read_keys(&state),
    };
    data.put_parameters(&reply, usize::from(cdb.u16_at(7))).await
}

fn read_keys(state: &PersistentReservations) -> Vec<u8> {
    let keys = state.registrations.iter();
    let keys: Vec<u8> = keys
        .flat_map(|registration| registration.key.to_be_bytes())
        .collect();
    with_header(state, &keys)
}

fn read_reservation(state: &PersistentReservations) -> Vec<u8> {
    let Some(reservation) = &state.reservation else {
        return with_header(state, &[]);
    };
    let mut descriptor = vec![0; 16];
    let key = state.holder_key().unwrap_or(0);
    descriptor[..8].copy_from_slice(&key.to_be_bytes());
    descriptor[13] = LU_SCOPE | reservation.kind.code();
    with_header(state, &descriptor)
}

/// One descriptor a registration: a registration for all target ports is kept as one for each of them.
fn full_status(state: &PersistentReservations, device: &TargetDevice) -> Vec<u8> {
    let mut descriptors = Vec::new();
    for registration in &state.registrations {
        let id = TransportId::encode(&registration.nexus.initiator);
        let mut descriptor = [0; 24];
        descriptor[..8].copy_from_slice(&registration.key.to_be_bytes());
        if let Some(reservation) = &state.reservation
            && state.is_holder(&registration.nexus)
        {
            descriptor[12] = R_HOLDER;
            descriptor[13] = LU_SCOPE | reservation.kind.code();
        }
        let port = &registration.nexus.target;
        let relative = device.relative_port_of(port);
        descriptor[18..20].copy_from_slice(&relative.to_be_bytes());
        let len = u32::try_from(id.len()).expect("a TransportID has at most 65539 bytes");
        descriptor[20..24].copy_from_slice(&len.to_be_bytes());
        descriptors.extend(descriptor);
        descriptors.extend(id);
    }
    with_header(state, &descriptors)
}

/// PRGENERATION and ADDITIONAL LENGTH.
fn with_header(state: &PersistentReservations, rest: &[u8]) -> Vec<u8> {
    let len = u32::try_from(rest.len()).expect("registrations are bounded");
    [&state.generation.to_be_bytes()[..], &len.to_be_bytes(), rest].concat()
}

fn capabilities(can_keep: bool, keeps: bool) -> [u8; 8] {
    let mut mask = 0_u16;
    for kind in ReservationType::ALL {
        // Bit n of the first byte is type n, and of the second type n + 8 (table 209).
        mask |= 1 << ((kind.code() + 8) % 16);
    }
    let [mask_high, mask_low] = mask.to_be_bytes();
    [
        0,
        8,
        RLR_C | CRH | SIP_C | ATP_C | (u8::from(can_keep) * PTPL_C),
        TMV | ALLOW_COMMANDS | (u8::from(keeps) * PTPL_A),
        mask_high,
        mask_low,
        0,
        0,
    ]
}

const LU_SCOPE: u8 = 0x00;
/// In READ FULL STATUS.
const R_HOLDER: u8 = 0x01;
/// REPORT CAPABILITIES, byte 2: REPLACE LOST RESERVATION is known, RESERVE and RELEASE get along with persistent
/// reservations, SPEC_I_PT, ALL_TG_PT, APTPL.
const RLR_C: u8 = 0x80;
const CRH: u8 = 0x10;
const SIP_C: u8 = 0x08;
const ATP_C: u8 = 0x04;
const PTPL_C: u8 = 0x01;
/// Byte 3: the type mask is valid; 100b, which is what table 65 of SPC-4 allows; APTPL is in force.
const TMV: u8 = 0x80;
const ALLOW_COMMANDS: u8 = 0x40;
const PTPL_A: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_name_all_types_and_what_is_in_force() {
        assert_eq!(capabilities(false, false), [0, 8, 0x9c, 0xc0, 0xea, 0x01, 0, 0]);
        assert_eq!(capabilities(true, true), [0, 8, 0x9d, 0xc1, 0xea, 0x01, 0, 0]);
    }
}
