//! SEND DIAGNOSTIC (SPC-4 §6.42): the default self-test, and the choice of a diagnostic page, of which there is one.
//!
//! Self-tests in the background or with results to be read later are refused: nothing would run, and no result be kept.

use backstores::BlockStore;

use super::receive_diagnostic::SUPPORTED_PAGES;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x1d,
    service_action: None,
    name: "SEND DIAGNOSTIC",
    usage: &[
        0x1d,
        SELF_TEST_CODE | PF | SELFTEST | DEVOFFL | UNITOFFL,
        0,
        0xff,
        0xff,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Writes,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 60,
    operation: Operation::SendDiagnostic,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let flags = cdb.u8_at(1);
    let len = usize::from(cdb.u16_at(3));
    if flags & SELF_TEST_CODE != 0 {
        return Err(Cdb::invalid_bit(1, 7));
    }
    if flags & SELFTEST != 0 {
        // A self-test takes no parameters (SPC-4 §6.42).
        if len != 0 {
            return Err(Cdb::invalid_field(3));
        }
        data.check()?;
        context.unit().check_medium()?;
        return self_test(&**context.unit().store(), data).await;
    }
    if len != 0 && flags & PF == 0 {
        return Err(Cdb::invalid_bit(1, 4));
    }
    let list = data.get_parameters(len).await?;
    match list[..] {
        [] | [SUPPORTED_PAGES, _, 0, 0] => Ok(()),
        [SUPPORTED_PAGES, _, _, _, ..] => Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(2, None)
            .into()),
        [_, _, _, _, ..] => Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(0, None)
            .into()),
        _ => Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into()),
    }
}

/// Reads the first block and the last one, and puts on the medium what is in the cache.
async fn self_test(store: &dyn BlockStore, data: &Transfer) -> Result<(), Failure> {
    let geometry = store.geometry();
    let block = u64::from(geometry.block_size);
    for at in [0, geometry.size - block] {
        let buf = data.buffer(geometry.block_size as usize).await;
        store.read(at, buf).await?;
        data.check()?;
    }
    Ok(store.flush().await?)
}

const SELF_TEST_CODE: u8 = 0xe0;
/// Page format.
const PF: u8 = 0x10;
/// The default self-test.
const SELFTEST: u8 = 0x04;
/// Others may be held up by it; they are not.
const DEVOFFL: u8 = 0x02;
const UNITOFFL: u8 = 0x01;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use backstores::{Fault, Matching, StoreErrorKind, StoreOp};

    use crate::scsi::testing::{device, faulty, run, sense, status, unit};
    use crate::scsi::{Status, TargetDevice};

    async fn code(device: &Arc<TargetDevice>, cdb: &[u8], data: &[u8]) -> Option<(u8, u8)> {
        let (outcome, _) = run(device, 0, cdb, data).await;
        (status(&outcome) != Status::Good).then(|| sense(&outcome).code)
    }

    #[tokio::test]
    async fn the_self_test_finds_a_medium_that_cannot_be_read() {
        let (device, store) = faulty(64);
        assert_eq!(code(&device, &[0x1d, 0x04, 0, 0, 0, 0], &[]).await, None);
        store.inject(
            Matching::op(StoreOp::Read).touching(63 * 512..64 * 512),
            0,
            1,
            Fault::Fail(StoreErrorKind::Medium),
        );
        assert_eq!(
            code(&device, &[0x1d, 0x04, 0, 0, 0, 0], &[]).await,
            Some((0x11, 0))
        );
    }

    #[tokio::test]
    async fn other_self_tests_and_pages_are_refused() {
        let device = device(&[unit(64)]);
        for (cdb, data, expected) in [
            ([0x1d, 0x20, 0, 0, 0, 0], &[][..], Some((0x24, 0))),
            ([0x1d, 0xa0, 0, 0, 0, 0], &[], Some((0x24, 0))),
            ([0x1d, 0x04, 0, 0, 4, 0], &[0; 4], Some((0x24, 0))),
            ([0x1d, 0x00, 0, 0, 4, 0], &[0; 4], Some((0x24, 0))),
            ([0x1d, 0x10, 0, 0, 4, 0], &[0; 4], None),
            ([0x1d, 0x10, 0, 0, 4, 0], &[0x40, 0, 0, 0], Some((0x26, 0))),
            ([0x1d, 0x10, 0, 0, 2, 0], &[0, 0], Some((0x1a, 0))),
            ([0x1d, 0x00, 0, 0, 0, 0], &[], None),
        ] {
            assert_eq!(code(&device, &cdb, data).await, expected, "{cdb:02x?}");
        }
    }
}
