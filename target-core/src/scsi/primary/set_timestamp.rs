//! SET TIMESTAMP (SPC-4 §6.46): sets the unit's clock. The others are told.

use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa4,
    service_action: Some(0x0f),
    name: "SET TIMESTAMP",
    usage: &[0xa4, 0x0f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        reservation: ReservationClass::Writes,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::SetTimestamp,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let list = data.get_parameters(cdb.u32_at(6) as usize).await?;
    data.check()?;
    let Some(milliseconds) = parse(&list)? else {
        return Ok(());
    };
    context.unit().clock().set(milliseconds);
    context.raise_for_others(UnitAttention::TimestampChanged);
    Ok(())
}

/// The time that a list asks for. An empty one asks for nothing.
fn parse(list: &[u8]) -> Result<Option<u64>, Failure> {
    if list.is_empty() {
        return Ok(None);
    }
    let list: &[u8; LIST_LEN] = list
        .try_into()
        .map_err(|_| Failure::from(Sense::PARAMETER_LIST_LENGTH_ERROR))?;
    let [_, _, _, _, a, b, c, d, e, f, _, _] = *list;
    if a > HIGHEST_FIRST_BYTE {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(TIMESTAMP, None)
            .into());
    }
    Ok(Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
}

const LIST_LEN: usize = 12;
/// Where TIMESTAMP is in the list.
const TIMESTAMP: u16 = 4;
/// A clock that is set beyond that would wrap too soon, and is refused.
const HIGHEST_FIRST_BYTE: u8 = 0xf0;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::scsi::testing::{Command, device, nexus, run, sense, status, unit};
    use crate::scsi::{Status, TargetDevice};

    const REPORT: [u8; 12] = [0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
    const SET: [u8; 12] = [0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
    /// 0x0102_0304_0506 milliseconds.
    const LIST: [u8; 12] = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0];

    async fn said(device: &Arc<TargetDevice>) -> Vec<u8> {
        run(device, 0, &REPORT, &[]).await.1
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_set_runs_on_and_only_the_others_are_told() {
        let device = device(&[unit(64), unit(64)]);
        let other = nexus(2);
        device.attach(&other);
        drop(Command::new(0, &[0; 6]).run(&device, &other).await);
        assert_eq!(said(&device).await[..4], [0, 10, 0b011, 0], "the host's");
        let (outcome, _) = run(&device, 0, &SET, &LIST).await;
        assert_eq!(status(&outcome), Status::Good);
        assert_eq!(said(&device).await, [0, 10, 0b010, 0, 1, 2, 3, 4, 5, 6, 0, 0]);
        tokio::time::advance(std::time::Duration::from_millis(0x0300)).await;
        assert_eq!(said(&device).await[4..10], [1, 2, 3, 4, 8, 6]);
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
        assert_eq!(sense(&outcome).code, (0x2a, 0x10));
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
        assert_eq!(status(&outcome), Status::Good);
        let (outcome, _) = run(&device, 0, &[0; 6], &[]).await;
        assert_eq!(status(&outcome), Status::Good);
        let (_, untouched) = run(&device, 1, &REPORT, &[]).await;
        assert_eq!(untouched[2], 0b011, "a unit has its own");
    }

    #[tokio::test]
    async fn a_reset_of_the_unit_leaves_the_clock_and_one_of_the_target_does_not() {
        use iscsi_proto::Lun;
        use iscsi_proto::pdu::Function;
        let device = device(&[unit(64)]);
        run(&device, 0, &SET, &LIST).await;
        let lun = Lun::from_number(0).unwrap();
        device.manage(&nexus(1), Function::LogicalUnitReset, lun);
        assert_eq!(said(&device).await[2], 0b010);
        device.manage(&nexus(1), Function::TargetWarmReset, lun);
        assert_eq!(said(&device).await[2], 0b011);
    }

    #[tokio::test]
    async fn what_is_no_time_changes_nothing() {
        let device = device(&[unit(64)]);
        run(&device, 0, &SET, &LIST).await;
        let before = said(&device).await;
        for len in (1..=255_u8).filter(|len| *len != 12) {
            let mut cdb = SET;
            cdb[9] = len;
            let (outcome, _) = run(&device, 0, &cdb, &vec![0x11; len.into()]).await;
            assert_eq!(sense(&outcome).code, (0x1a, 0), "{len}");
        }
        let (outcome, _) = run(&device, 0, &SET, &LIST[..11]).await;
        assert_eq!(sense(&outcome).code, (0x1a, 0), "truncated");
        let mut late = LIST;
        late[4] = 0xf1;
        let (outcome, _) = run(&device, 0, &SET, &late).await;
        let field = sense(&outcome).field.unwrap();
        assert_eq!((sense(&outcome).code, field.byte), ((0x26, 0), 4));
        let mut nothing = SET;
        nothing[9] = 0;
        assert_eq!(status(&run(&device, 0, &nothing, &[]).await.0), Status::Good);
        assert_eq!(said(&device).await[..6], before[..6]);
        late[4] = 0xf0;
        assert_eq!(status(&run(&device, 0, &SET, &late).await.0), Status::Good);
    }

    #[tokio::test]
    async fn every_allocation_length_gets_that_much() {
        let device = device(&[unit(64)]);
        for (allocation, expected) in [
            (0_u32, 0),
            (1, 1),
            (4, 4),
            (11, 11),
            (12, 12),
            (0xffff, 12),
            (u32::MAX, 12),
        ] {
            let mut cdb = REPORT;
            cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
            let (outcome, data) = run(&device, 0, &cdb, &[]).await;
            assert_eq!((status(&outcome), data.len()), (Status::Good, expected));
        }
    }
}
