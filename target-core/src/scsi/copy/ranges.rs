//! Block device range descriptors (SBC-3): the blocks that a token command is about.

use super::limits::MAXIMUM_RANGES;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::{Failure, Sense};

/// The ranges of a list whose length is at `length_at` and whose descriptors follow it, those of no blocks left out.
/// None overlaps another, all lie on a medium of `capacity` blocks, and together they have at most `most` blocks.
pub(super) fn parse(list: &[u8], length_at: u16, capacity: u64, most: u64) -> Result<Vec<LbaRange>, Failure> {
    let invalid = |byte| Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, None);
    let first = usize::from(length_at) + 2;
    let len = usize::from(Cdb::new(list).u16_at(length_at.into()));
    if len < DESCRIPTOR_LEN || len % DESCRIPTOR_LEN != 0 {
        return Err(invalid(length_at).into());
    }
    let descriptors = list
        .get(first..first + len)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    if len / DESCRIPTOR_LEN > usize::from(MAXIMUM_RANGES) {
        return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS
            .in_parameters(length_at, None)
            .into());
    }
    let mut ranges = Vec::with_capacity(len / DESCRIPTOR_LEN);
    let mut total = 0;
    for descriptor in descriptors.chunks_exact(DESCRIPTOR_LEN).map(Cdb::new) {
        let range = LbaRange {
            lba: descriptor.u64_at(0),
            blocks: u64::from(descriptor.u32_at(8)),
        };
        if !range.fits(capacity) {
            let outside = range.first_outside(capacity);
            return Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE.at(outside).into());
        }
        // At most 512 ranges of 32 bits each: no sum wraps.
        total += range.blocks;
        if range.blocks != 0 {
            ranges.push(range);
        }
    }
    if total > most || overlap(&ranges) {
        return Err(invalid(length_at).into());
    }
    Ok(ranges)
}

/// Blocks of all ranges.
pub(super) fn total(ranges: &[LbaRange]) -> u64 {
    ranges.iter().map(|range| range.blocks).sum()
}

fn overlap(ranges: &[LbaRange]) -> bool {
    let mut sorted: Vec<_> = ranges.iter().map(|range| (range.lba, range.blocks)).collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
}

const DESCRIPTOR_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[(u64, u32)]) -> Vec<u8> {
        let mut list = vec![0xee, 0xee];
        list.extend(u16::try_from(16 * ranges.len()).unwrap().to_be_bytes());
        for (lba, blocks) in ranges {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    }

    fn code(list: &[u8]) -> (u8, u8) {
        match parse(list, 2, 100, 50) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranges_come_in_their_order_and_empty_ones_are_left_out() {
        let ranges = parse(&list(&[(60, 4), (100, 0), (10, 5)]), 2, 100, 9).unwrap();
        assert_eq!(
            ranges,
            [LbaRange { lba: 60, blocks: 4 }, LbaRange { lba: 10, blocks: 5 }]
        );
        assert_eq!(total(&ranges), 9);
    }

    #[test]
    fn a_length_that_is_no_number_of_descriptors_or_not_there_is_refused() {
        for len in [0_u8, 15, 17, 31] {
            let mut wrong = list(&[(1, 1), (2, 1)]);
            wrong[3] = len;
            assert_eq!(code(&wrong), (0x26, 0x00), "{len}");
        }
        let whole = list(&[(1, 1), (2, 1)]);
        for len in [4, 19, 20, 35] {
            assert_eq!(code(&whole[..len]), (0x1a, 0x00), "{len}");
        }
    }

    #[test]
    fn blocks_named_twice_too_many_or_beyond_the_medium_are_refused() {
        assert_eq!(code(&list(&[(10, 5), (14, 1)])), (0x26, 0x00));
        assert_eq!(code(&list(&[(14, 1), (10, 5)])), (0x26, 0x00));
        assert_eq!(code(&list(&[(0, 40), (50, 11)])), (0x26, 0x00));
        assert_eq!(code(&list(&[(0, 1), (99, 2)])), (0x21, 0x00));
        assert_eq!(code(&list(&[(u64::MAX, u32::MAX)])), (0x21, 0x00));
        assert!(parse(&list(&[(0, 0); 512]), 2, 100, 50).is_ok());
        assert_eq!(code(&list(&[(0, 0); 513])), (0x26, 0x08));
    }
}
