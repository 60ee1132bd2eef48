//! UNMAP (SBC-4): gives the space of runs of blocks back. They read as zeroes afterwards.

use super::chunks::{strides, turn};
use super::usage::GROUP;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::{MAXIMUM_UNMAP_BLOCKS, MAXIMUM_UNMAP_DESCRIPTORS};
use crate::scsi::table::{Access, CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::task_set::Claim;
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x42,
    service_action: None,
    name: "UNMAP",
    // ANCHOR must be 0: blocks are not anchored here.
    usage: &[0x42, 0, 0, 0, 0, 0, GROUP, 0xff, 0xff, 0],
    offer: Offer::Thin,
    needs: Needs {
        writes: true,
        reservation: ReservationClass::Writes,
        ..Needs::MEDIUM
    },
    timeout_s: 60,
    operation: Operation::Unmap,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let list = data.get_parameters(usize::from(cdb.u16_at(7))).await?;
    let block = u64::from(geometry.block_size);
    // Everything is checked before anything is unmapped.
    let ranges = parse(&list, geometry.size / block)?;
    for range in ranges {
        context
            .claim(Claim {
                blocks: range.lba..range.lba + range.blocks,
                access: Access::Write,
            })
            .await?;
        let at = range.lba * block;
        for bytes in strides(at, range.blocks * block) {
            turn(bytes.start > at).await;
            data.check()?;
            unit.store().unmap(bytes).await?;
        }
    }
    unit.settle_unmapped().await
}

/// The runs of a parameter list, those of no blocks left out. Runs may overlap.
fn parse(list: &[u8], capacity: u64) -> Result<Vec<LbaRange>, Failure> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let header = list.get(..HEADER_LEN).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let data_len = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let descriptors_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // UNMAP DATA LENGTH counts from behind itself, the descriptors' length from behind the header.
    let cut_short = data_len + 2 > list.len() || descriptors_len + HEADER_LEN > list.len();
    if cut_short || descriptors_len + HEADER_LEN > data_len + 2 {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    // A last descriptor that is not complete is ignored (SBC-4, parameter list of UNMAP).
    let descriptors = list[HEADER_LEN..HEADER_LEN + descriptors_len].chunks_exact(DESCRIPTOR_LEN);
    if descriptors.len() > MAXIMUM_UNMAP_DESCRIPTORS as usize {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(2, None)
            .into());
    }
    let mut total = 0;
    let mut ranges = Vec::with_capacity(descriptors.len());
    for (descriptor, at) in descriptors.zip((FIRST_COUNT_AT..).step_by(DESCRIPTOR_LEN)) {
        let fields = Cdb::new(descriptor);
        let range = LbaRange {
            lba: fields.u64_at(0),
            blocks: u64::from(fields.u32_at(8)),
        };
        if !range.fits(capacity) {
            let outside = range.first_outside(capacity);
            return Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE.at(outside).into());
        }
        total += range.blocks;
        if total > u64::from(MAXIMUM_UNMAP_BLOCKS) {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(at, None)
                .into());
        }
        if range.blocks != 0 {
            ranges.push(range);
        }
    }
    Ok(ranges)
}

const HEADER_LEN: usize = 8;
const DESCRIPTOR_LEN: usize = 16;
/// Place of NUMBER OF LOGICAL BLOCKS of the first descriptor.
const FIRST_COUNT_AT: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 32;

    fn list(descriptors: &[(u64, u32)]) -> Vec<u8> {
        let len = u16::try_from(descriptors.len() * 16).unwrap();
        let mut list = [(len + 6).to_be_bytes(), len.to_be_bytes(), [0; 2], [0; 2]].concat();
        for (lba, blocks) in descriptors {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    fn code(list: &[u8]) -> (u8, u8) {
        match parse(list, CAPACITY) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn runs_come_in_order_and_empty_ones_are_left_out() {
        let runs = parse(&list(&[(8, 2), (0, 0), (CAPACITY, 0), (9, 4)]), CAPACITY).unwrap();
        assert_eq!(
            runs,
            [LbaRange { lba: 8, blocks: 2 }, LbaRange { lba: 9, blocks: 4 }]
        );
        assert_eq!(parse(&[], CAPACITY).unwrap(), []);
        assert_eq!(parse(&list(&[]), CAPACITY).unwrap(), []);
    }

    #[test]
    fn an_incomplete_last_descriptor_is_ignored() {
        let mut short = list(&[(8, 2), (16, 2)]);
        short.truncate(8 + 16 + 15);
        short[..4].copy_from_slice(&[0, 37, 0, 31]);
        assert_eq!(parse(&short, CAPACITY).unwrap(), [LbaRange { lba: 8, blocks: 2 }]);
    }

    #[test]
    fn lengths_must_agree_with_what_came() {
        let whole = list(&[(8, 2)]);
        for len in [1, 7, 8, 23] {
            assert_eq!(code(&whole[..len]), (0x1a, 0x00), "{len}");
        }
        let mut contradicts_itself = whole;
        contradicts_itself[1] = 6;
        assert_eq!(code(&contradicts_itself), (0x1a, 0x00));
    }

    #[test]
    fn runs_must_lie_on_the_medium() {
        for run in [
            (CAPACITY, 1),
            (CAPACITY - 1, 2),
            (CAPACITY + 1, 0),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
        ] {
            assert_eq!(code(&list(&[(0, 1), run])), (0x21, 0x00), "{run:?}");
        }
    }

    #[test]
    fn more_than_the_limits_of_block_limits_is_refused() {
        assert!(parse(&list(&[(0, 0x10_0000)]), CAPACITY).is_ok());
        assert_eq!(code(&list(&[(0, 0x10_0001)])), (0x26, 0x00));
        assert_eq!(code(&list(&[(0, 0x10_0000), (0, 1)])), (0x26, 0x00));
        assert!(parse(&list(&[(0, 1); 256]), CAPACITY).is_ok());
        assert_eq!(code(&list(&[(0, 1); 257])), (0x26, 0x00));
    }
}
