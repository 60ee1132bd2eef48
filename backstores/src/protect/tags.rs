//! The eight bytes of protection information of a block (T10 type 1): guard, application tag, reference tag, each with its
//! most significant byte first.

use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of protection information that belong to one block.
pub const TAGS_LEN: usize = 8;

/// Which of the tags must be right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TagChecks {
    /// The guard is the CRC of the block.
    pub guard: bool,
    /// The reference tag is the lower half of the block's address.
    pub reference: bool,
}

impl TagChecks {
    /// Both.
    pub const ALL: Self = Self {
        guard: true,
        reference: true,
    };

    /// None.
    pub const NONE: Self = Self {
        guard: false,
        reference: false,
    };
}

/// Which tag is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mismatch {
    Guard,
    Reference,
}

/// Tags of blocks from number `first` on. The application tag is 0: nobody said what it should be.
pub(super) fn generate(first: u64, block_size: usize, data: &[u8], tags: &mut [u8]) {
    let blocks = data.chunks_exact(block_size).zip(tags.chunks_exact_mut(TAGS_LEN));
    for (number, (block, tags)) in (first..).zip(blocks) {
        tags[..2].copy_from_slice(&guard(block).to_be_bytes());
        tags[2..4].fill(0);
        tags[4..].copy_from_slice(&reference(number));
    }
}

/// Compares blocks from number `first` on with their tags. The first block that does not fit, counted from 0, and what is
/// wrong. With `escape` a block whose application tag is FFFFh is not looked at, as one that was never written.
pub(super) fn check(
    first: u64,
    block_size: usize,
    data: &[u8],
    tags: &[u8],
    checks: TagChecks,
    escape: bool,
) -> Option<(u64, Mismatch)> {
    let blocks = data.chunks_exact(block_size).zip(tags.chunks_exact(TAGS_LEN));
    for (number, (block, tags)) in (first..).zip(blocks) {
        if escape && tags[2..4] == [0xff, 0xff] {
            continue;
        }
        if checks.guard && tags[..2] != guard(block).to_be_bytes() {
            return Some((number - first, Mismatch::Guard));
        }
        if checks.reference && tags[4..] != reference(number) {
            return Some((number - first, Mismatch::Reference));
        }
    }
    None
}

/// The guard of a block: a CRC with the polynomial 8BB7h, from 0, over all of it.
#[must_use]
pub fn guard(block: &[u8]) -> u16 {
    u16::try_from(checksum(CrcAlgorithm::Crc16T10Dif, block)).expect("a CRC of sixteen bits")
}

fn reference(number: u64) -> [u8; 4] {
    let [.., a, b, c, d] = number.to_be_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of SBC-4, table "CRC test cases", over 32 bytes.
    #[test]
    fn the_guard_is_the_standards_crc() {
        assert_eq!(guard(&[0; 32]), 0x0000);
        assert_eq!(guard(&[0xff; 32]), 0xa293);
        let incrementing: Vec<u8> = (0..32).collect();
        assert_eq!(guard(&incrementing), 0x0224);
        assert_eq!(guard(b"123456789"), 0xd0db);
    }

    #[test]
    fn generated_tags_are_right_and_any_change_is_found() {
        let data: Vec<u8> = (0..1024_u32).map(|i| (i % 251) as u8).collect();
        let mut tags = [0; 16];
        generate(0x1_0000_0007, 512, &data, &mut tags);
        assert_eq!(tags[2..8], [0, 0, 0, 0, 0, 7]);
        assert_eq!(tags[10..16], [0, 0, 0, 0, 0, 8]);
        let found = |data: &[u8], tags: &[u8], checks| check(0x1_0000_0007, 512, data, tags, checks, true);
        assert_eq!(found(&data, &tags, TagChecks::ALL), None);
        let mut changed = data.clone();
        changed[700] ^= 1;
        assert_eq!(found(&changed, &tags, TagChecks::ALL), Some((1, Mismatch::Guard)));
        assert_eq!(found(&changed, &tags, TagChecks::NONE), None);
        let mut moved = tags;
        moved[7] ^= 1;
        assert_eq!(
            found(&data, &moved, TagChecks::ALL),
            Some((0, Mismatch::Reference))
        );
        moved[2..4].fill(0xff);
        assert_eq!(found(&changed[..512], &moved, TagChecks::ALL), None);
        assert!(check(0x1_0000_0007, 512, &data, &moved, TagChecks::ALL, false).is_some());
    }
}
