//! A view of CDB bytes with big-endian accessors, and the LBA fields of each CDB group (SAM-5 §5.2, SPC-4 §4.3).
//!
//! Nothing is checked here: the engine has compared the bytes with the usage map of the command before a command
//! sees them. A read past the end of a CDB gives zeroes, so that no length can make it panic.

use super::{Failure, Sense};

/// One CDB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cdb<'a>(&'a [u8]);

/// A run of logical blocks as a CDB names it. It may be empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LbaRange {
    /// First block.
    pub(crate) lba: u64,
    /// Number of blocks.
    pub(crate) blocks: u64,
}

impl LbaRange {
    /// Whether all of it lies on a medium of `capacity` blocks. An empty run may start right behind the last block
    /// (SBC-4: a transfer of no blocks is no error there; behind that it is).
    pub(crate) fn fits(self, capacity: u64) -> bool {
        self.lba
            .checked_add(self.blocks)
            .is_some_and(|end| end <= capacity)
    }

    /// The first block of it that is not on the medium.
    pub(crate) fn first_outside(self, capacity: u64) -> u64 {
        self.lba.max(capacity)
    }
}

impl<'a> Cdb<'a> {
    /// All bytes of a CDB, padded or not.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// OPERATION CODE.
    pub(crate) fn opcode(self) -> u8 {
        self.u8_at(0)
    }

    /// SERVICE ACTION, at the place that the opcode's CDB format gives it (SPC-4 §4.3).
    pub(crate) fn service_action(self) -> u16 {
        match self.opcode() {
            VARIABLE_LENGTH => self.u16_at(8),
            _ => u16::from(self.u8_at(1) & 0x1f),
        }
    }

    /// One byte.
    pub(crate) fn u8_at(self, byte: usize) -> u8 {
        self.0.get(byte).copied().unwrap_or(0)
    }

    /// Two bytes from `byte` on.
    pub(crate) fn u16_at(self, byte: usize) -> u16 {
        u16::from_be_bytes(self.array_at(byte))
    }

    /// Three bytes from `byte` on.
    pub(crate) fn u24_at(self, byte: usize) -> u32 {
        let [a, b, c] = self.array_at(byte);
        u32::from_be_bytes([0, a, b, c])
    }

    /// Four bytes from `byte` on.
    pub(crate) fn u32_at(self, byte: usize) -> u32 {
        u32::from_be_bytes(self.array_at(byte))
    }

    /// Eight bytes from `byte` on.
    pub(crate) fn u64_at(self, byte: usize) -> u64 {
        u64::from_be_bytes(self.array_at(byte))
    }

    /// Bit `bit` (7 is the most significant) of a byte.
    pub(crate) fn bit(self, byte: usize, bit: u8) -> bool {
        self.u8_at(byte) & (1 << bit) != 0
    }

    /// Bits `high` down to `low` of a byte, as a number.
    pub(crate) fn bits(self, byte: usize, high: u8, low: u8) -> u8 {
        let width = high - low + 1;
        (self.u8_at(byte) >> low) & (0xff >> (8 - width))
    }

    /// INVALID FIELD IN CDB that points at a whole byte, or at the first byte of a longer field.
    pub(crate) fn invalid_field(byte: u16) -> Failure {
        Sense::INVALID_FIELD_IN_CDB.in_cdb(byte, None).into()
    }

    /// INVALID FIELD IN CDB that points at a field inside a byte by its most significant bit.
    pub(crate) fn invalid_bit(byte: u16, bit: u8) -> Failure {
        Sense::INVALID_FIELD_IN_CDB.in_cdb(byte, Some(bit)).into()
    }

    fn array_at<const N: usize>(self, byte: usize) -> [u8; N] {
        let mut field = [0; N];
        for (i, slot) in field.iter_mut().enumerate() {
            *slot = self.u8_at(byte.saturating_add(i));
        }
        field
    }
}

/// Six-byte group: 21 bits of LBA, and a length whose zero means 256 blocks (READ (6), WRITE (6)).
pub(crate) fn lba_range_6(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    let blocks = match cdb.u8_at(4) {
        0 => 256,
        blocks => u64::from(blocks),
    };
    LbaRange {
        lba: u64::from(cdb.u24_at(1) & 0x1f_ffff),
        blocks,
    }
}

/// Ten-byte group: LBA at byte 2, length at byte 7.
pub(crate) fn lba_range_10(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: u64::from(cdb.u32_at(2)),
        blocks: u64::from(cdb.u16_at(7)),
    }
}

/// Twelve-byte group: LBA at byte 2, length at byte 6.
pub(crate) fn lba_range_12(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: u64::from(cdb.u32_at(2)),
        blocks: u64::from(cdb.u32_at(6)),
    }
}

/// Sixteen-byte group: LBA at byte 2, length at byte 10.
pub(crate) fn lba_range_16(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: cdb.u64_at(2),
        blocks: u64::from(cdb.u32_at(10)),
    }
}

/// [`lba_range_10`] where a length of zero means "to the last block" (SYNCHRONIZE CACHE, WRITE SAME).
pub(crate) fn lba_range_10_to_end(cdb: Cdb<'_>, capacity: u64) -> LbaRange {
    to_end(lba_range_10(cdb, capacity), capacity)
}

/// [`lba_range_16`] where a length of zero means "to the last block" (SYNCHRONIZE CACHE, WRITE SAME).
pub(crate) fn lba_range_16_to_end(cdb: Cdb<'_>, capacity: u64) -> LbaRange {
    to_end(lba_range_16(cdb, capacity), capacity)
}

fn to_end(range: LbaRange, capacity: u64) -> LbaRange {
    match range.blocks {
        0 => LbaRange {
            blocks: capacity.saturating_sub(range.lba),
            ..range
        },
        _ => range,
    }
}

/// Operation code of variable-length CDBs, whose service action is sixteen bits wide at byte 8.
pub(crate) const VARIABLE_LENGTH: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_end_with_the_cdb() {
        let cdb = Cdb::new(&[0x88, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 0, 0, 0]);
        assert_eq!(cdb.u16_at(2), 0x0102);
        assert_eq!(cdb.u24_at(2), 0x01_0203);
        assert_eq!(cdb.u32_at(2), 0x0102_0304);
        assert_eq!(cdb.u64_at(2), 0x0102_0304_0506_0708);
        assert_eq!(cdb.u32_at(15), 0);
        assert_eq!(cdb.u64_at(usize::MAX), 0);
        assert!(cdb.bit(1, 4));
        assert!(!cdb.bit(1, 3));
        assert_eq!(cdb.bits(9, 4, 2), 2);
        assert_eq!(cdb.bits(0, 7, 0), 0x88);
        assert_eq!(cdb.service_action(), 0x11);
    }

    #[test]
    fn variable_length_cdbs_have_a_wide_service_action() {
        let mut bytes = [0; 32];
        bytes[0] = 0x7f;
        bytes[9] = 0x0b;
        assert_eq!(Cdb::new(&bytes).service_action(), 0x000b);
    }

    #[test]
    fn each_group_finds_its_lba_and_length() {
        let range = |lba, blocks| LbaRange { lba, blocks };
        assert_eq!(
            lba_range_6(Cdb::new(&[8, 0xff, 1, 2, 0, 0]), 9),
            range(0x1f_0102, 256)
        );
        assert_eq!(lba_range_6(Cdb::new(&[8, 0, 1, 2, 3, 0]), 9), range(0x102, 3));
        let ten = [0x28, 0, 0, 0, 0, 7, 0, 0x12, 0x34, 0];
        assert_eq!(lba_range_10(Cdb::new(&ten), 9), range(7, 0x1234));
        let twelve = [0xa8, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0];
        assert_eq!(lba_range_12(Cdb::new(&twelve), 9), range(7, 0x1_0000));
        let sixteen = [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0];
        assert_eq!(lba_range_16(Cdb::new(&sixteen), 9), range(0x1_0000_0000, 5));
        let sync = [0x35, 0, 0, 0, 0, 7, 0, 0, 0, 0];
        assert_eq!(lba_range_10_to_end(Cdb::new(&sync), 9), range(7, 2));
        assert_eq!(lba_range_10_to_end(Cdb::new(&sync), 6), range(7, 0));
    }

    #[test]
    fn a_range_that_wraps_is_outside() {
        let wrapping = LbaRange {
            lba: u64::MAX,
            blocks: 2,
        };
        assert!(!wrapping.fits(u64::MAX));
        assert!(LbaRange { lba: 8, blocks: 0 }.fits(8));
        assert!(!LbaRange { lba: 9, blocks: 0 }.fits(8));
        assert_eq!(LbaRange { lba: 6, blocks: 4 }.first_outside(8), 8);
        assert_eq!(LbaRange { lba: 20, blocks: 4 }.first_outside(8), 20);
    }
}
