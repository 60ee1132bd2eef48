//! SEND DIAGNOSTIC (SPC-4 §6.42): self-tests, and the choice of a diagnostic page, of which there is one.
//!
//! The default self-test is told by the status alone. The others leave their results for the log page (`self_test.rs`).

use std::sync::Arc;

use backstores::{BlockStore, CHUNK, IoBuf, StoreOp};
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::receive_diagnostic::SUPPORTED_PAGES;
use crate::scsi::access_state::Answered;
use crate::scsi::block::chunks::chunks;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::self_test::{SelfTestEnd, SelfTestKind};
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, LogicalUnit, Sense};
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
    let code = cdb.bits(1, 7, 5);
    if code != 0 || flags & SELFTEST != 0 {
        // A self-test takes no parameters, and is of one kind.
        if len != 0 {
            return Err(Cdb::invalid_field(3));
        }
        if code != 0 && flags & PF != 0 {
            return Err(Cdb::invalid_bit(1, 4));
        }
        if code != 0 && flags & SELFTEST != 0 {
            return Err(Cdb::invalid_bit(1, 2));
        }
        data.check()?;
        return match code {
            0 if context.unit().self_tests().sense().is_some() => Err(Sense::SELF_TEST_IN_PROGRESS.into()),
            0 => {
                context.unit().check_medium()?;
                short_test(&**context.unit().store(), || data.check()).await
            }
            ABORT_BACKGROUND => {
                let tests = context.unit().self_tests();
                if tests.abort(SelfTestEnd::AbortedBySendDiagnostic) {
                    return Ok(());
                }
                Err(Cdb::invalid_bit(1, 7))
            }
            code => {
                let kind = SelfTestKind::from_code(code).ok_or_else(|| Cdb::invalid_bit(1, 7))?;
                run_test(context, kind, data).await
            }
        };
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

/// A self-test whose result is remembered.
async fn run_test(context: &CommandContext<'_>, kind: SelfTestKind, data: &Transfer) -> Result<(), Failure> {
    let unit = context.shared_unit();
    unit.check_medium()?;
    if !kind.is_in_background() {
        let running = unit.self_tests().begin(kind)?;
        let found = examine(unit, kind, || data.check()).await;
        let end = end_of(unit, found);
        if let Some(end) = end {
            running.ended(end);
        }
        return match end {
            None => Err(Failure::Aborted),
            Some(SelfTestEnd::Passed) => Ok(()),
            Some(_) => Err(Sense::LOGICAL_UNIT_FAILED_SELF_TEST.into()),
        };
    }
    // There is always one where commands run.
    let Ok(runtime) = Handle::try_current() else {
        return Err(Failure::Busy);
    };
    let running = unit.self_tests().begin(kind)?;
    let tested = Arc::clone(unit);
    let task = runtime.spawn(async move {
        let found = examine(&tested, kind, || Ok(())).await;
        if let Some(end) = end_of(&tested, found) {
            running.ended(end);
        }
    });
    unit.self_tests().is_done_by(task.abort_handle());
    Ok(())
}

/// The result of what was found; `None` when the test was aborted.
fn end_of(unit: &LogicalUnit, found: Result<(), Failure>) -> Option<SelfTestEnd> {
    match found {
        Ok(()) => Some(SelfTestEnd::Passed),
        Err(Failure::Store(error)) => {
            let sense = Sense::from_store(&error);
            let block = error.at / u64::from(unit.store().geometry().block_size);
            tracing::warn!(serial = unit.config().serial, %error, "a self-test failed");
            Some(SelfTestEnd::Failed {
                block: (error.op == StoreOp::Read).then_some(block),
                sense: (sense.key, sense.code),
            })
        }
        Err(_) => None,
    }
}

async fn examine(
    unit: &LogicalUnit,
    kind: SelfTestKind,
    proceed: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    short_test(&**unit.store(), &proceed).await?;
    if kind.is_extended() {
        read_all(unit, &proceed).await?;
    }
    Ok(())
}

/// Reads the first block and the last one, and puts on the medium what is in the cache.
async fn short_test(
    store: &dyn BlockStore,
    proceed: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let geometry = store.geometry();
    let block = u64::from(geometry.block_size);
    for at in [0, geometry.size - block] {
        store
            .read(at, IoBuf::from_heap(geometry.block_size as usize))
            .await?;
        proceed()?;
    }
    Ok(store.flush().await?)
}

/// Reads everything that takes space.
async fn read_all(unit: &LogicalUnit, proceed: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let store = unit.store();
    let size = store.geometry().size;
    let mut buf = IoBuf::from_heap(CHUNK);
    let mut at = 0;
    while at < size {
        let extent = store.extent(at..size).await?;
        if extent.mapped {
            for chunk in chunks(at, extent.end - at) {
                buf.set_len(chunk.len);
                buf = store.read(chunk.at, buf).await?;
                unit.self_tests().advance(chunk.at, size);
                proceed()?;
                yield_now().await;
            }
        }
        at = extent.end;
        unit.self_tests().advance(at, size);
        proceed()?;
        yield_now().await;
    }
    Ok(())
}

const SELF_TEST_CODE: u8 = 0xe0;
/// The code that ends a self-test in the background.
const ABORT_BACKGROUND: u8 = 0b100;
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
    async fn self_tests_leave_their_results_in_the_log() {
        let (device, store) = faulty(1024);
        run(&device, 0, &[0x2a, 0, 0, 0, 0, 100, 0, 0, 1, 0], &[1; 512]).await;
        let first = async || {
            let (_, page) = run(&device, 0, &[0x4d, 0, 0x50, 0, 0, 0, 0, 1, 0x94, 0], &[]).await;
            assert_eq!(
                (page.len(), &page[..8]),
                (404, &[0x90, 0, 1, 0x90, 0, 1, 0x23, 16][..])
            );
            page[8..24].to_vec()
        };
        assert_eq!(first().await, [0; 16], "none was asked for");
        // In the foreground: short, extended.
        assert_eq!(code(&device, &[0x1d, 0xa0, 0, 0, 0, 0], &[]).await, None);
        assert_eq!(first().await[0], 0xa0);
        assert_eq!(code(&device, &[0x1d, 0xc0, 0, 0, 0, 0], &[]).await, None);
        assert_eq!(first().await[0], 0xc0);
        let fault = || Fault::Fail(StoreErrorKind::Medium);
        let at_100 = || Matching::op(StoreOp::Read).touching(100 * 512..101 * 512);
        store.inject(at_100(), 0, 1, fault());
        let failed = code(&device, &[0x1d, 0xc0, 0, 0, 0, 0], &[]).await;
        assert_eq!(failed, Some((0x3e, 0x03)));
        let result = first().await;
        assert_eq!((result[0], &result[12..15]), (0xc4, &[0x03, 0x11, 0x00][..]));

        // In the background: one at a time, which can be ended.
        store.hold(Matching::op(StoreOp::Read));
        assert_eq!(code(&device, &[0x1d, 0x20, 0, 0, 0, 0], &[]).await, None);
        store.until_held(1).await;
        assert_eq!(first().await[0], 0x2f);
        for flags in [0x40, 0xa0, 0x04] {
            let another = [0x1d, flags, 0, 0, 0, 0];
            assert_eq!(code(&device, &another, &[]).await, Some((0x04, 0x09)));
        }
        let (_, told) = run(&device, 0, &[0x03, 0, 0, 0, 18, 0], &[]).await;
        assert_eq!((told[2], &told[12..16]), (0x02, &[0x04, 0x09, 0, 0x80][..]));
        assert_eq!(code(&device, &[0; 6], &[]).await, None, "others go on");
        assert_eq!(code(&device, &[0x1d, 0x80, 0, 0, 0, 0], &[]).await, None);
        assert_eq!(first().await[0], 0x21);
        assert_eq!(
            code(&device, &[0x1d, 0x80, 0, 0, 0, 0], &[]).await,
            Some((0x24, 0))
        );
        assert_eq!(code(&device, &[0x1d, 0x40, 0, 0, 0, 0], &[]).await, None);
        device
            .unit(0)
            .unwrap()
            .reset(crate::scsi::UnitAttention::LogicalUnitReset);
        assert_eq!(first().await[0], 0x42);

        // Nothing runs beside one in the foreground.
        let foreground = crate::scsi::testing::Command::new(0, &[0x1d, 0xa0, 0, 0, 0, 0]);
        let nexus = crate::scsi::testing::nexus(1);
        let foreground = tokio::spawn(foreground.begin(&device, &nexus));
        while code(&device, &[0; 6], &[]).await != Some((0x04, 0x09)) {
            tokio::task::yield_now().await;
        }
        let (_, inquiry) = run(&device, 0, &[0x12, 0, 0, 0, 96, 0], &[]).await;
        assert_eq!(inquiry.len(), 96);
        store.resume();
        assert_eq!(status(&foreground.await.unwrap().0), Status::Good);
        assert_eq!(code(&device, &[0x1d, 0x40, 0, 0, 0, 0], &[]).await, None);
        while first().await[0] == 0x4f {
            tokio::task::yield_now().await;
        }
        assert_eq!(first().await[0], 0x40);
    }

    #[tokio::test]
    async fn other_self_tests_and_pages_are_refused() {
        let device = device(&[unit(64)]);
        for (cdb, data, expected) in [
            ([0x1d, 0x60, 0, 0, 0, 0], &[][..], Some((0x24, 0))),
            ([0x1d, 0xe0, 0, 0, 0, 0], &[], Some((0x24, 0))),
            ([0x1d, 0x24, 0, 0, 0, 0], &[], Some((0x24, 0))),
            ([0x1d, 0x30, 0, 0, 0, 0], &[], Some((0x24, 0))),
            ([0x1d, 0x20, 0, 0, 4, 0], &[0; 4], Some((0x24, 0))),
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
