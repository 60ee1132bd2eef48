//! Thresholds of thin units (SBC-4 §4.7.3.8): at how much used space initiators are warned, and how that is counted.

use backstores::Geometry;

/// When initiators are told that a unit is about to fill up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SoftThreshold {
    /// At this share of the unit's size, 1 to 100.
    Percent(u8),
    /// At so many bytes.
    Bytes(u64),
}

impl SoftThreshold {
    /// The used space that reaches it, bytes.
    pub(crate) fn bytes(self, geometry: &Geometry) -> u64 {
        match self {
            Self::Percent(percent) => geometry.size / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// THRESHOLD EXPONENT: space is counted in threshold sets of so many blocks, as a power of two. A set is a mebibyte, or
/// more where a unit has more of them than can be counted.
pub(crate) fn threshold_exponent(geometry: &Geometry) -> u8 {
    let smallest = (1 << 20) / u64::from(geometry.block_size);
    let blocks = geometry.size / u64::from(geometry.block_size);
    let enough = blocks.checked_shr(32).unwrap_or(0) + 1;
    let set = smallest.max(enough).next_power_of_two();
    u8::try_from(set.ilog2()).expect("a bit of a number")
}

/// So many bytes in threshold sets.
pub(crate) fn threshold_sets(bytes: u64, geometry: &Geometry) -> u32 {
    let blocks = bytes / u64::from(geometry.block_size);
    u32::try_from(blocks >> threshold_exponent(geometry)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::primary::vpd::tests::geometry;

    #[test]
    fn sets_are_mebibytes_until_there_are_too_many() {
        let small = geometry();
        assert_eq!(threshold_exponent(&small), 11);
        assert_eq!(threshold_sets(3 << 20, &small), 3);
        let large = Geometry {
            size: 1 << 60,
            ..geometry()
        };
        assert_eq!(threshold_exponent(&large), 20);
        assert_eq!(threshold_sets(1 << 60, &large), 1 << 31);
        let four_kilobytes = Geometry {
            block_size: 4096,
            ..geometry()
        };
        assert_eq!(threshold_exponent(&four_kilobytes), 8);
    }

    #[test]
    fn a_share_is_one_of_the_size() {
        let geometry = geometry();
        assert_eq!(SoftThreshold::Percent(50).bytes(&geometry), (1 << 30) / 100 * 50);
        assert_eq!(SoftThreshold::Bytes(7).bytes(&geometry), 7);
    }
}
