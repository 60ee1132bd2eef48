//! Lengths and order of the parts of a PDU on a byte stream (§11.1, §11.2.1.5–6): BHS, AHS, header digest, data,
//! padding, data digest. Arithmetic only; a transport moves the bytes.

use crate::BHS_LEN;

/// The two length fields of a basic header segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Frame {
    /// All additional header segments together, bytes (a multiple of 4, at most 1020).
    pub ahs_len: usize,
    /// Data segment without padding, bytes (at most 2^24 − 1).
    pub data_len: usize,
}

impl Frame {
    /// Reads the length fields.
    #[must_use]
    pub fn of(bhs: &[u8; BHS_LEN]) -> Self {
        Self {
            ahs_len: usize::from(bhs[4]) * 4,
            data_len: usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]),
        }
    }

    /// Writes the length fields. Lengths that do not fit are the caller's bug.
    pub fn stamp(self, bhs: &mut [u8; BHS_LEN]) {
        debug_assert!(self.ahs_len.is_multiple_of(4) && self.data_len < 1 << 24);
        bhs[4] = u8::try_from(self.ahs_len / 4).expect("at most 1020 bytes of AHS");
        let data_len = u32::try_from(self.data_len).expect("24-bit length").to_be_bytes();
        bhs[5..8].copy_from_slice(&data_len[1..]);
    }

    /// Bytes that pad the data segment to a multiple of four.
    #[must_use]
    pub fn padding(self) -> usize {
        self.data_len.wrapping_neg() & 3
    }
}
