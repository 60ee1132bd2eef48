//! The eight-byte LUN field of SAM-5 §4.7 and the flat number that administrators write.

use std::fmt;

/// A LUN as it travels: eight bytes, kept as they came so that they can be echoed.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Lun([u8; 8]);

impl Lun {
    /// LUN 0 in peripheral device addressing: all zeroes.
    pub const ZERO: Self = Self([0; 8]);

    /// The highest number that single-level addressing can carry (flat space, 14 bits).
    pub const MAX_NUMBER: u16 = 0x3fff;

    /// The wire form of a number: peripheral device addressing up to 255, flat space addressing above
    /// (SAM-5 §4.7.7.2, §4.7.7.3). `None` above [`Self::MAX_NUMBER`].
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        let [high, low] = number.to_be_bytes();
        match number {
            0..=0xff => Some(Self([0, low, 0, 0, 0, 0, 0, 0])),
            0x100..=Self::MAX_NUMBER => Some(Self([0x40 | high, low, 0, 0, 0, 0, 0, 0])),
            _ => None,
        }
    }

    /// The bytes of a header field.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The bytes for a header field.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// The number meant, whichever of the two addressing methods was used; `None` for forms that name no
    /// logical unit of ours (several levels, bus numbers, well-known logical units, extended addressing).
    #[must_use]
    pub fn number(self) -> Option<u16> {
        if self.0[2..] != [0; 6] {
            return None;
        }
        match self.0[0] >> 6 {
            0b00 if self.0[0] == 0 => Some(u16::from(self.0[1])),
            0b01 => Some(u16::from_be_bytes([self.0[0] & 0x3f, self.0[1]])),
            _ => None,
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "Lun({number})"),
            None => write!(f, "Lun({:02x?})", self.0),
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "{number}"),
            None => write!(f, "{:#018x}", u64::from_be_bytes(self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lun;

    #[test]
    fn numbers_round_trip_in_both_addressing_methods() {
        for number in [0, 1, 255, 256, 0x3fff] {
            assert_eq!(Lun::from_number(number).unwrap().number(), Some(number));
        }
        assert_eq!(Lun::from_number(0x4000), None);
        assert_eq!(
            Lun::from_number(256).unwrap().to_bytes(),
            [0x41, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(Lun::from_bytes([0x40, 3, 0, 0, 0, 0, 0, 0]).number(), Some(3));
    }

    #[test]
    fn foreign_forms_name_no_unit() {
        assert_eq!(Lun::from_bytes([0xc1, 1, 0, 0, 0, 0, 0, 0]).number(), None);
        assert_eq!(Lun::from_bytes([0, 1, 0, 2, 0, 0, 0, 0]).number(), None);
        assert_eq!(Lun::from_bytes([1, 1, 0, 0, 0, 0, 0, 0]).number(), None);
    }
}
