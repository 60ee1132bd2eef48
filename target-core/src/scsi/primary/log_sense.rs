//! LOG SENSE (SPC-4 §6.8): pages of log parameters (SPC-4 §7.3, SBC-4 §6.4), as far as there is something to tell.

use backstores::Space;

use super::log_pages::{
    self, BINARY_LIST, DS, EXCEPTIONS, PROVISIONING, PageCode, SELF_TESTS, SPF, STATISTICS, SUPPORTED_PAGES,
    SUPPORTED_SUBPAGES,
};
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::self_test::RESULTS_KEPT;
use crate::scsi::statistics::Counts;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::scsi::thin::threshold_sets;
use crate::scsi::{Failure, LogicalUnit};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x4d,
    service_action: None,
    name: "LOG SENSE",
    usage: &[0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::LogSense,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    // PAGE CONTROL tells values of counters from their thresholds; of lists, which all parameters here are, it is ignored.
    let code = (cdb.u8_at(2) & 0x3f, cdb.u8_at(3));
    let first = cdb.u16_at(5);
    let page = match code {
        SUPPORTED_PAGES => supported(unit, false),
        SUPPORTED_SUBPAGES => supported(unit, true),
        PROVISIONING if unit.is_thin() => {
            // A store that cannot be asked now has nothing to tell.
            let space = unit.store().space().await.unwrap_or(None);
            parameters(code, first, &provisioning(unit, space))?
        }
        SELF_TESTS => parameters(code, first, &self_tests(unit))?,
        STATISTICS => parameters(code, first, &[(1, statistics(unit.statistics().counts()))])?,
        EXCEPTIONS => parameters(code, first, &[(0, NO_EXCEPTION.to_vec())])?,
        (page, _) if log_pages::pages(unit).any(|(known, _)| known == page) => {
            return Err(Cdb::invalid_field(3));
        }
        _ => return Err(Cdb::invalid_bit(2, 5)),
    };
    data.put_parameters(&page, usize::from(cdb.u16_at(7))).await
}

/// A parameter: its code and value.
type Parameter = (u16, Vec<u8>);

/// The page of these parameters from `first` on. Behind the last one none can be asked for.
fn parameters(code: PageCode, first: u16, all: &[Parameter]) -> Result<Vec<u8>, Failure> {
    if all.iter().all(|(number, _)| *number < first) && first != 0 {
        return Err(Cdb::invalid_field(5));
    }
    let mut body = Vec::new();
    for (number, value) in all.iter().filter(|(number, _)| *number >= first) {
        let length = u8::try_from(value.len()).expect("parameters are short");
        body.extend(number.to_be_bytes());
        body.extend([BINARY_LIST, length]);
        body.extend(value);
    }
    let mut page = page(code, &body);
    page[0] |= DS;
    Ok(page)
}

fn page((code, subpage): PageCode, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).expect("pages are short").to_be_bytes();
    let subpage_format = if subpage == 0 { 0 } else { SPF };
    [&[code | subpage_format, subpage, high, low], body].concat()
}

/// Page 00h, with or without subpages.
fn supported(unit: &LogicalUnit, subpages: bool) -> Vec<u8> {
    let pages = log_pages::pages(unit);
    if subpages {
        let body: Vec<u8> = pages.flat_map(|(code, subpage)| [code, subpage]).collect();
        page(SUPPORTED_SUBPAGES, &body)
    } else {
        let body: Vec<u8> = pages
            .filter(|(_, subpage)| *subpage == 0)
            .map(|(code, _)| code)
            .collect();
        page(SUPPORTED_PAGES, &body)
    }
}

/// Available and used mapping resources in threshold sets (SBC-4 §6.4.4), as far as the store knows them.
fn provisioning(unit: &LogicalUnit, space: Option<Space>) -> Vec<Parameter> {
    let geometry = unit.store().geometry();
    let count = |bytes, scope| {
        [
            &threshold_sets(bytes, &geometry).to_be_bytes()[..],
            &[scope, 0, 0, 0],
        ]
        .concat()
    };
    let available = space.and_then(|space| space.available);
    let available = available.map(|bytes| (1, count(bytes, NOT_DEDICATED)));
    let used = space.map(|space| (2, count(space.used, DEDICATED)));
    available.into_iter().chain(used).collect()
}

/// Results of self-tests, the latest first; all twenty parameters are there, those without a result are zeroes.
fn self_tests(unit: &LogicalUnit) -> Vec<Parameter> {
    let results = unit.self_tests().results().into_iter();
    let values = results.map(|result| result.to_parameter().to_vec());
    let none = std::iter::repeat_with(|| vec![0; 16]);
    (1..).zip(values.chain(none)).take(RESULTS_KEPT).collect()
}

/// General access statistics and performance (SPC-4 §7.3.9.2). Times are not measured, and so are 0.
fn statistics(counts: Counts) -> Vec<u8> {
    let numbers = [
        counts.reads,
        counts.writes,
        counts.blocks_written,
        counts.blocks_read,
        0,
        0,
        0,
        0,
    ];
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// SCOPE of a resource: of this unit alone, or shared with others.
const DEDICATED: u8 = 1;
const NOT_DEDICATED: u8 = 2;
/// No informational exception, and no temperature to tell.
const NO_EXCEPTION: [u8; 4] = [0, 0, 0xff, 0];

#[cfg(test)]
mod tests {

    use crate::scsi::testing::{device, run, sense, unit};

    async fn log(
        device: &std::sync::Arc<crate::scsi::TargetDevice>,
        page: u8,
        subpage: u8,
        first: u16,
    ) -> Vec<u8> {
        let [high, low] = first.to_be_bytes();
        run(
            device,
            0,
            &[0x4d, 0, 0x40 | page, subpage, 0, high, low, 2, 0, 0],
            &[],
        )
        .await
        .1
    }

    #[tokio::test]
    async fn pages_are_listed_with_and_without_their_subpages() {
        let device = device(&[unit(4096)]);
        assert_eq!(
            log(&device, 0, 0, 0).await,
            [0, 0, 0, 5, 0x00, 0x0c, 0x10, 0x19, 0x2f]
        );
        assert_eq!(
            log(&device, 0, 0xff, 0).await,
            [
                0x40, 0xff, 0, 12, 0x00, 0x00, 0x00, 0xff, 0x0c, 0, 0x10, 0, 0x19, 0, 0x2f, 0
            ]
        );
    }

    #[tokio::test]
    async fn reads_and_writes_are_counted_with_their_blocks() {
        let device = device(&[unit(4096)]);
        run(&device, 0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[1; 4096]).await;
        for _ in 0..2 {
            run(&device, 0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 3, 0], &[]).await;
        }
        // One that fails moves nothing.
        run(&device, 0, &[0x28, 0, 0, 1, 0, 0, 0, 0, 3, 0], &[]).await;
        let page = log(&device, 0x19, 0, 0).await;
        assert_eq!(page[..8], [0x99, 0, 0, 68, 0, 1, 0x23, 64]);
        let numbers: Vec<u64> = page[8..]
            .chunks(8)
            .map(|number| u64::from_be_bytes(number.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, [2, 1, 8, 6, 0, 0, 0, 0]);
    }

    #[tokio::test]
    async fn lists_are_told_whatever_values_are_asked_for() {
        let device = device(&[unit(4096)]);
        let expected = log(&device, 0x2f, 0, 0).await;
        assert_eq!(expected, [0xaf, 0, 0, 8, 0, 0, 0x23, 4, 0, 0, 0xff, 0]);
        for control in 0..4 {
            let cdb = [0x4d, 0, control << 6 | 0x2f, 0, 0, 0, 0, 2, 0, 0];
            assert_eq!(run(&device, 0, &cdb, &[]).await.1, expected);
        }
    }

    #[tokio::test]
    async fn used_space_is_counted_in_threshold_sets() {
        let device = device(&[unit(1 << 14)]);
        for lba in (0..1 << 13).step_by(128) {
            let [high, low] = u16::try_from(lba).unwrap().to_be_bytes();
            run(&device, 0, &[0x2a, 0, 0, 0, high, low, 0, 0, 1, 0], &[1; 512]).await;
        }
        // 64 pages of 64 KiB are four sets of a mebibyte. What is left of the memory is not known.
        assert_eq!(
            log(&device, 0x0c, 0, 0).await,
            [0x8c, 0, 0, 12, 0, 2, 0x23, 8, 0, 0, 0, 4, 1, 0, 0, 0]
        );
    }

    #[tokio::test]
    async fn what_is_not_there_is_refused_where_it_is_named() {
        let device = device(&[unit(64)]);
        for (cdb, byte, bit) in [
            ([0x4d, 0, 0x0d | 0x40, 0, 0, 0, 0, 1, 0, 0], 2, Some(5)),
            ([0x4d, 0, 0x19 | 0x40, 1, 0, 0, 0, 1, 0, 0], 3, None),
            ([0x4d, 0, 0x19 | 0x40, 0, 0, 0, 2, 1, 0, 0], 5, None),
            ([0x4d, 1, 0x19 | 0x40, 0, 0, 0, 0, 1, 0, 0], 1, Some(0)),
        ] {
            let (outcome, _) = run(&device, 0, &cdb, &[]).await;
            let field = sense(&outcome).field.unwrap();
            assert_eq!((field.byte, field.bit), (byte, bit), "{cdb:02x?}");
        }
    }
}
