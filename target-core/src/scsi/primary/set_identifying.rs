//! SET IDENTIFYING INFORMATION (SPC-4 §6.43): what people and programs call the unit, from now on and over restarts.

use super::report_identifying::KIND;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::identifying::InformationKind;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xa4,
    service_action: Some(0x06),
    name: "SET IDENTIFYING INFORMATION",
    usage: &[0xa4, 0x06, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, KIND, 0],
    offer: Offer::Keeps,
    needs: Needs {
        reservation: ReservationClass::Writes,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::SetIdentifying,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let kind = InformationKind::from_code(cdb.bits(10, 7, 1)).ok_or_else(|| Cdb::invalid_bit(10, 7))?;
    let len = cdb.u32_at(6) as usize;
    if len > kind.longest() {
        return Err(Cdb::invalid_field(6));
    }
    let value = data.get_parameters(len).await?;
    data.check()?;
    if value.len() < len {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    if kind == InformationKind::Text && !is_text(&value) {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(0, None)
            .into());
    }
    context.unit().set_identifying(kind, value).await?;
    context.raise_for_others(UnitAttention::IdentifierChanged);
    Ok(())
}

/// UTF-8 with one zero, which ends it; or nothing at all.
fn is_text(value: &[u8]) -> bool {
    match value.split_last() {
        None => true,
        Some((0, text)) => !text.contains(&0) && std::str::from_utf8(text).is_ok(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::scsi::Status;
    use crate::scsi::testing::{Command, TestMemory, device, nexus, run, sense, status, unit};

    const SUPPORTED: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 64, 4, 0, 1, 0];

    fn report(kind: u8) -> [u8; 12] {
        [0xa3, 0x05, 0, 0, 0, 0, 0, 0, 2, 0, kind << 1, 0]
    }

    fn set(kind: u8, len: u8) -> [u8; 12] {
        [0xa4, 0x06, 0, 0, 0, 0, 0, 0, 0, len, kind << 1, 0]
    }

    #[tokio::test]
    async fn what_was_set_is_told_and_known_again() {
        let memory = TestMemory::shared();
        let first = unit(64);
        first.remember(&memory).unwrap();
        let device = device(&[first]);
        let other = nexus(2);
        device.attach(&other);
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
        assert_eq!(sense(&outcome).code, (0x29, 0x00));
        assert_eq!(run(&device, 0, &report(0x7f), &[]).await.1, SUPPORTED);
        assert_eq!(run(&device, 0, &report(0), &[]).await.1, [0; 4]);
        let (outcome, _) = run(&device, 0, &set(2, 7), b"rack 7\0").await;
        assert_eq!(status(&outcome), Status::Good);
        assert_eq!(run(&device, 0, &report(2), &[]).await.1, *b"\0\0\0\x07rack 7\0");
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
        assert_eq!(sense(&outcome).code, (0x3f, 0x05));

        let again = unit(64);
        again.remember(&memory).unwrap();
        let device = crate::scsi::testing::device(&[again]);
        assert_eq!(run(&device, 0, &report(2), &[]).await.1, *b"\0\0\0\x07rack 7\0");
    }

    #[tokio::test]
    async fn what_is_no_information_is_refused() {
        let memory = TestMemory::shared();
        let kept = unit(64);
        kept.remember(&memory).unwrap();
        let device = device(&[kept]);
        for (cdb, list, code) in [
            (set(1, 1), &[1][..], (0x24, 0)),
            (set(0, 65), &[1; 65], (0x24, 0)),
            (set(2, 2), b"ab", (0x26, 0)),
            (set(2, 4), b"a\0b\0", (0x26, 0)),
            (set(2, 2), b"\xff\0", (0x26, 0)),
            (set(0, 4), b"abc", (0x1a, 0)),
        ] {
            let (outcome, _) = run(&device, 0, &cdb, list).await;
            assert_eq!(sense(&outcome).code, code, "{cdb:02x?}");
        }
        let (outcome, _) = run(&device, 0, &report(1), &[]).await;
        assert_eq!(sense(&outcome).code, (0x24, 0));
    }

    #[tokio::test]
    async fn nothing_can_be_set_where_nothing_is_kept() {
        let device: Arc<_> = device(&[unit(64)]);
        let (outcome, _) = run(&device, 0, &set(0, 1), &[1]).await;
        assert!(matches!(sense(&outcome).code, (0x20 | 0x24, 0)));
    }
}
