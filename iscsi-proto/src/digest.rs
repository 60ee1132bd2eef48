//! Header and data digests: CRC32C as RFC 7143 §13.1 defines it.
//!
//! The header digest covers the BHS and all AHS as they travel, padding of the segments included; the data digest
//! covers the data segment and its padding bytes (§11.2.3). Neither covers the other, nor itself.

/// A CRC32C being computed over several pieces.
#[derive(Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32c {
    /// Starts with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four bytes as they travel: the lowest byte of the register first, unlike every other number in a PDU,
    /// because CRC32C works on reflected bits (§13.1).
    #[must_use]
    pub fn wire_bytes(&self) -> [u8; 4] {
        let register = u32::try_from(self.0.finalize()).expect("a 32-bit CRC");
        register.to_le_bytes()
    }
}

/// The digest of one piece, as it travels.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc.wire_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Crc32c, crc32c};

    fn incrementing() -> Vec<u8> {
        (0..32).collect()
    }

    #[test]
    fn the_patterns_of_the_standard_come_out() {
        let decrementing: Vec<u8> = incrementing().into_iter().rev().collect();
        // The standard's SCSI Command that carries a READ(10).
        let mut read_10 = [0; 48];
        for (at, byte) in [
            (0, 0x01),
            (1, 0xc0),
            (16, 0x14),
            (22, 0x04),
            (27, 0x14),
            (31, 0x18),
            (32, 0x28),
            (40, 0x02),
        ] {
            read_10[at] = byte;
        }
        let cases: [(&[u8], [u8; 4]); 5] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&incrementing(), [0x4e, 0x79, 0xdd, 0x46]),
            (&decrementing, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read_10, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(crc32c(bytes), expected, "{bytes:02x?}");
        }
    }

    proptest! {
        #[test]
        fn any_division_into_pieces_agrees_with_another_implementation(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            cut in any::<prop::sample::Index>(),
        ) {
            let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut crc = Crc32c::new();
            crc.update(head);
            crc.update(tail);
            prop_assert_eq!(crc.wire_bytes(), ::crc32c::crc32c(&bytes).to_le_bytes());
        }
    }
}
