//! LOG SELECT (SPC-4 §6.7): sets the counters of log pages back. They cannot be set to anything else.

use super::log_pages::{self, CODE, PageCode, SPF, STATISTICS, SUPPORTED_PAGES};
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, LogicalUnit, Sense, UnitAttention};
use crate::transfer::Transfer;

/// SP is not among the bits: nothing is saved.
pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x4c,
    service_action: None,
    name: "LOG SELECT",
    usage: &[0x4c, PCR, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        reservation: ReservationClass::Writes,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::LogSelect,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let code = (cdb.u8_at(2) & CODE, cdb.u8_at(3));
    let announced = usize::from(cdb.u16_at(7));
    if announced > 0 {
        check_without_page(cdb)?;
        let list = data.get_parameters(announced).await?;
        data.check()?;
        return check_list(&list, unit);
    }
    let wanted = named(code, unit)?;
    // PAGE CONTROL 11b sets cumulative values back, PCR all values. There are no thresholds, so that 10b changes nothing.
    let sets_back = cdb.u8_at(1) & PCR != 0 || cdb.bits(2, 7, 6) == DEFAULT_CUMULATIVE;
    if sets_back && wanted.contains(&STATISTICS) && unit.statistics().reset() {
        context.raise_for_others(UnitAttention::LogParametersChanged);
    }
    Ok(())
}

/// The pages that a CDB without a list names (SPC-4 §6.7, table of page and subpage codes).
fn named((code, subpage): PageCode, unit: &LogicalUnit) -> Result<Vec<PageCode>, Failure> {
    let all: Vec<_> = log_pages::pages(unit).collect();
    if (code, subpage) == SUPPORTED_PAGES {
        return Ok(all);
    }
    let of_code: Vec<_> = all.into_iter().filter(|page| page.0 == code).collect();
    if of_code.is_empty() {
        return Err(Cdb::invalid_bit(2, 5));
    }
    let wanted: Vec<_> = of_code
        .into_iter()
        .filter(|page| subpage == ALL_SUBPAGES || page.1 == subpage)
        .collect();
    if wanted.is_empty() {
        return Err(Cdb::invalid_field(3));
    }
    Ok(wanted)
}

/// With a list pages are named there alone, and nothing is set back.
fn check_without_page(cdb: Cdb<'_>) -> Result<(), Failure> {
    if cdb.u8_at(1) & PCR != 0 {
        return Err(Cdb::invalid_bit(1, 1));
    }
    if cdb.u8_at(2) & CODE != 0 {
        return Err(Cdb::invalid_bit(2, 5));
    }
    if cdb.u8_at(3) != 0 {
        return Err(Cdb::invalid_field(3));
    }
    Ok(())
}

/// Pages that are known and ascending may come without parameters; the first parameter is one that cannot be set.
fn check_list(list: &[u8], unit: &LogicalUnit) -> Result<(), Failure> {
    let known: Vec<_> = log_pages::pages(unit).collect();
    let mut last = None;
    let mut at = 0;
    while at < list.len() {
        let header: [u8; HEADER_LEN] = list
            .get(at..)
            .and_then(|rest| rest.first_chunk().copied())
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        let [first, subpage, high, low] = header;
        let code = (first & CODE, subpage);
        let of_code = known.iter().filter(|page| page.0 == code.0).count();
        if of_code == 0 {
            return Err(invalid(at, Some(5)));
        }
        if !known.contains(&code) {
            return Err(invalid(at + 1, None));
        }
        if (first & SPF != 0) != (subpage != 0) {
            return Err(invalid(at, Some(6)));
        }
        if last.is_some_and(|last| code <= last) {
            return Err(invalid(at, Some(5)));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let parameters = list
            .get(at + HEADER_LEN..)
            .and_then(|rest| rest.get(..length))
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        check_parameters(parameters, at + HEADER_LEN)?;
        last = Some(code);
        at += HEADER_LEN + length;
    }
    Ok(())
}

fn check_parameters(parameters: &[u8], at: usize) -> Result<(), Failure> {
    let Some(header) = parameters.first_chunk::<HEADER_LEN>() else {
        return match parameters {
            [] => Ok(()),
            // PAGE LENGTH cuts the parameter off.
            _ => Err(invalid(at - 2, None)),
        };
    };
    if parameters.len() - HEADER_LEN < usize::from(header[3]) {
        return Err(invalid(at - 2, None));
    }
    Err(invalid(at, None))
}

fn invalid(at: usize, bit: Option<u8>) -> Failure {
    let byte = u16::try_from(at).expect("a parameter list has at most 65535 bytes");
    Sense::INVALID_FIELD_IN_PARAMETER_LIST
        .in_parameters(byte, bit)
        .into()
}

/// Parameter code reset.
const PCR: u8 = 0x02;
/// PAGE CONTROL: what counters begin with.
const DEFAULT_CUMULATIVE: u8 = 0b11;
/// SUBPAGE CODE that names all subpages.
const ALL_SUBPAGES: u8 = 0xff;
/// Of pages and of parameters.
const HEADER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scsi::testing::{Command, device, nexus, run, sense, status, unit};
    use crate::scsi::{Status, TargetDevice};

    /// One that has read once.
    async fn used() -> Arc<TargetDevice> {
        let device = device(&[unit(4096)]);
        run(&device, 0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 3, 0], &[]).await;
        assert_eq!(reads(&device).await, 1);
        device
    }

    async fn reads(device: &Arc<TargetDevice>) -> u8 {
        let (_, page) = run(device, 0, &[0x4d, 0, 0x59, 0, 0, 0, 0, 0, 255, 0], &[]).await;
        page[15]
    }

    fn select(pcr: u8, control: u8, page: PageCode) -> [u8; 10] {
        [0x4c, pcr << 1, control << 6 | page.0, page.1, 0, 0, 0, 0, 0, 0]
    }

    #[tokio::test]
    async fn counters_begin_anew_and_only_the_others_are_told() {
        for (pcr, control, page) in [
            (1, 0b00, (0x00, 0x00)),
            (1, 0b01, (0x19, 0x00)),
            (1, 0b10, (0x19, 0xff)),
            (0, 0b11, (0x19, 0x00)),
            (0, 0b11, (0x00, 0x00)),
        ] {
            let device = used().await;
            let other = nexus(2);
            device.attach(&other);
            drop(Command::new(0, &[0; 6]).run(&device, &other).await);
            let (outcome, _) = run(&device, 0, &select(pcr, control, page), &[]).await;
            assert_eq!(status(&outcome), Status::Good);
            assert_eq!(reads(&device).await, 0, "{pcr} {control} {page:?}");
            let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
            assert_eq!(sense(&outcome).code, (0x2a, 0x02));
            let (outcome, _) = run(&device, 0, &[0; 6], &[]).await;
            assert_eq!(status(&outcome), Status::Good);
        }
    }

    #[tokio::test]
    async fn what_sets_no_counter_back_is_no_error_and_changes_nothing() {
        let device = used().await;
        let other = nexus(2);
        device.attach(&other);
        drop(Command::new(0, &[0; 6]).run(&device, &other).await);
        for (pcr, control, page) in [
            (0, 0b00, (0x00, 0x00)),
            (0, 0b01, (0x19, 0x00)),
            (0, 0b10, (0x19, 0x00)),
            (1, 0b01, (0x10, 0x00)),
            (1, 0b01, (0x00, 0xff)),
        ] {
            let (outcome, _) = run(&device, 0, &select(pcr, control, page), &[]).await;
            assert_eq!(status(&outcome), Status::Good, "{pcr} {control} {page:?}");
        }
        assert_eq!(reads(&device).await, 1);
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, &other).await;
        assert_eq!(status(&outcome), Status::Good);
    }

    #[tokio::test]
    async fn what_the_cdb_cannot_ask_for_is_refused_where_it_stands() {
        let device = used().await;
        for (cdb, byte, bit) in [
            // SP; a page and a subpage that are not there.
            ([0x4c, 0x03, 0, 0, 0, 0, 0, 0, 0, 0], 1, Some(0)),
            ([0x4c, 0x02, 0x0d, 0, 0, 0, 0, 0, 0, 0], 2, Some(5)),
            ([0x4c, 0x02, 0x19, 1, 0, 0, 0, 0, 0, 0], 3, None),
            // With a list: PCR, a page, a subpage.
            ([0x4c, 0x02, 0, 0, 0, 0, 0, 0, 4, 0], 1, Some(1)),
            ([0x4c, 0x00, 0x19, 0, 0, 0, 0, 0, 4, 0], 2, Some(5)),
            ([0x4c, 0x00, 0, 1, 0, 0, 0, 0, 4, 0], 3, None),
        ] {
            let (outcome, _) = run(&device, 0, &cdb, &[0x19, 0, 0, 0]).await;
            let field = sense(&outcome).field.unwrap();
            assert_eq!(sense(&outcome).code, (0x24, 0));
            assert_eq!((field.byte, field.bit), (byte, bit), "{cdb:02x?}");
        }
        assert_eq!(reads(&device).await, 1);
    }

    #[tokio::test]
    async fn lists_set_nothing_and_say_where() {
        let device = used().await;
        for (list, expected) in [
            // Pages without parameters.
            (&[0x19, 0, 0, 0][..], None),
            (&[0x90, 0, 0, 0, 0x99, 0, 0, 0], None),
            (&[0x40, 0xff, 0, 0], None),
            // Cut off in the header of a page, in its parameters.
            (&[0x19, 0, 0], Some(((0x1a, 0), None))),
            (&[0x19, 0, 0, 4, 0, 1, 3], Some(((0x1a, 0), None))),
            // PAGE LENGTH cuts a parameter's header, its value.
            (&[0x19, 0, 0, 3, 0, 1, 3], Some(((0x26, 0), Some((2, None))))),
            (
                &[0x19, 0, 0, 5, 0, 1, 3, 64, 0],
                Some(((0x26, 0), Some((2, None)))),
            ),
            // A page and a subpage that are not there, SPF that does not fit, pages out of order and twice.
            (&[0x0d, 0, 0, 0], Some(((0x26, 0), Some((0, Some(5)))))),
            (&[0x59, 1, 0, 0], Some(((0x26, 0), Some((1, None))))),
            (&[0x59, 0, 0, 0], Some(((0x26, 0), Some((0, Some(6)))))),
            (
                &[0x19, 0, 0, 0, 0x10, 0, 0, 0],
                Some(((0x26, 0), Some((4, Some(5))))),
            ),
            (
                &[0x19, 0, 0, 0, 0x19, 0, 0, 0],
                Some(((0x26, 0), Some((4, Some(5))))),
            ),
            // A parameter that is there, and whole.
            (
                &[0x19, 0, 0, 5, 0, 1, 0x23, 1, 0],
                Some(((0x26, 0), Some((4, None)))),
            ),
        ] {
            let mut cdb = select(0, 1, (0, 0));
            cdb[8] = u8::try_from(list.len()).unwrap();
            let (outcome, _) = run(&device, 0, &cdb, list).await;
            let found = match status(&outcome) {
                Status::Good => None,
                _ => {
                    let sense = sense(&outcome);
                    Some((sense.code, sense.field.map(|field| (field.byte, field.bit))))
                }
            };
            assert_eq!(found, expected, "{list:02x?}");
        }
        assert_eq!(reads(&device).await, 1);
    }
}
