//! AES-256 in XTS mode (IEEE 1619) over whole sectors, many blocks of a sector at a time.
//!
//! The cipher is the `aes` crate's, which uses the processor's instructions where there are some. The mode is ours: it
//! goes over a chunk once, from one buffer to another, and hands the cipher as many blocks as it can work on at once.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use zeroize::Zeroizing;

/// Both keys of XTS: 32 bytes for the data, 32 for the tweak.
pub(super) type Key = Zeroizing<[u8; KEY_LEN]>;

/// Ciphers made of a key.
pub(super) struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    pub(super) fn new(key: &Key) -> Self {
        let (data, tweak) = key.split_at(KEY_LEN / 2);
        let cipher = |half: &[u8]| Aes256::new_from_slice(half).expect("half a key has 32 bytes");
        Self {
            data: cipher(data),
            tweak: cipher(tweak),
        }
    }

    /// Encrypts whole sectors, the first of which has the number `sector`.
    pub(super) fn encrypt(&self, mut sector: u64, from: &[u8], into: &mut [u8]) {
        debug_assert!(from.len() == into.len() && from.len().is_multiple_of(SECTOR));
        for (from, into) in from.chunks_exact(SECTOR).zip(into.chunks_exact_mut(SECTOR)) {
            let tweaks = self.tweaks(sector);
            let (blocks, _) = into.as_chunks_mut::<BLOCK>();
            for ((block, plain), tweak) in blocks.iter_mut().zip(from.as_chunks().0).zip(&tweaks) {
                *block = mask(plain, *tweak);
            }
            self.data.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
            unmask(blocks, &tweaks);
            sector += 1;
        }
    }

    /// Decrypts whole sectors in place, the first of which has the number `sector`. One of zeroes only was never
    /// written, and stays as it is.
    pub(super) fn decrypt(&self, mut sector: u64, bytes: &mut [u8]) {
        debug_assert!(bytes.len().is_multiple_of(SECTOR));
        for bytes in bytes.chunks_exact_mut(SECTOR) {
            if bytes.iter().any(|byte| *byte != 0) {
                let tweaks = self.tweaks(sector);
                let (blocks, _) = bytes.as_chunks_mut::<BLOCK>();
                unmask(blocks, &tweaks);
                self.data.decrypt_blocks(Array::cast_slice_from_core_mut(blocks));
                unmask(blocks, &tweaks);
            }
            sector += 1;
        }
    }

    /// The tweak of each block of a sector: its number, encrypted, then doubled from block to block in the field that
    /// IEEE 1619 defines.
    fn tweaks(&self, sector: u64) -> [u128; BLOCKS] {
        let mut first = u128::from(sector).to_le_bytes().into();
        self.tweak.encrypt_block(&mut first);
        let mut next = u128::from_le_bytes(first.into());
        std::array::from_fn(|_| {
            let tweak = next;
            let carry = if tweak >> 127 == 1 { FIELD_POLYNOMIAL } else { 0 };
            next = (tweak << 1) ^ carry;
            tweak
        })
    }
}

fn mask(block: &[u8; BLOCK], tweak: u128) -> [u8; BLOCK] {
    (u128::from_le_bytes(*block) ^ tweak).to_le_bytes()
}

fn unmask(blocks: &mut [[u8; BLOCK]], tweaks: &[u128; BLOCKS]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        *block = mask(block, *tweak);
    }
}

/// Bytes of a key.
pub(super) const KEY_LEN: usize = 64;

/// Bytes that share a tweak. 512 whatever the block size of the disk is, so that a disk can be given another one.
pub(super) const SECTOR: usize = 512;

const BLOCK: usize = 16;
const BLOCKS: usize = SECTOR / BLOCK;

/// x^128 = x^7 + x^2 + x + 1.
const FIELD_POLYNOMIAL: u128 = 0x87;

#[cfg(test)]
mod tests {
    use aes::cipher::consts::{U32, U64};
    use xts_mode::{Xts128, get_tweak_default};

    use super::*;

    fn key(byte: impl Fn(usize) -> usize) -> Key {
        Zeroizing::new(std::array::from_fn(|i| u8::try_from(byte(i) % 256).unwrap()))
    }

    fn encrypted(key: &Key, sector: u64, plain: &[u8]) -> Vec<u8> {
        let mut cipher = vec![0; plain.len()];
        Xts::new(key).encrypt(sector, plain, &mut cipher);
        cipher
    }

    /// Vector 10 of IEEE 1619-2007, annex B: AES-256, data unit FFh.
    #[test]
    fn the_standards_vector_is_met() {
        const DATA: [u8; 32] = [
            0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45, 0x23, 0x53, 0x60, 0x28, 0x74, 0x71, 0x35, 0x26,
            0x62, 0x49, 0x77, 0x57, 0x24, 0x70, 0x93, 0x69, 0x99, 0x59, 0x57, 0x49, 0x66, 0x96, 0x76, 0x27,
        ];
        const TWEAK: [u8; 32] = [
            0x31, 0x41, 0x59, 0x26, 0x53, 0x58, 0x97, 0x93, 0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95,
            0x02, 0x88, 0x41, 0x97, 0x16, 0x93, 0x99, 0x37, 0x51, 0x05, 0x82, 0x09, 0x74, 0x94, 0x45, 0x92,
        ];
        let key = key(|i| usize::from([DATA, TWEAK].concat()[i]));
        let plain: Vec<u8> = (0..=255).chain(0..=255).collect();
        let cipher = encrypted(&key, 0xff, &plain);
        assert_eq!(
            cipher[..16],
            [
                0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86, 0xe4, 0x83, 0x6c, 0x99, 0xe3, 0x70, 0xcf,
                0x9b
            ]
        );
    }

    #[test]
    fn another_implementation_agrees_and_decryption_is_the_way_back() {
        let key = key(|i| i * 7 + 3);
        let plain: Vec<u8> = (0..8 * SECTOR).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for sector in [0, 5, u64::from(u32::MAX), 1 << 40] {
            let mut cipher = encrypted(&key, sector, &plain);
            let halves = Array::<u8, U64>::from(*key).split::<U32>();
            let other = Xts128::new(Aes256::new(&halves.0), Aes256::new(&halves.1));
            let mut expected = plain.clone();
            other.encrypt_area(&mut expected, SECTOR, sector.into(), get_tweak_default);
            assert!(cipher == expected, "sector {sector}");
            Xts::new(&key).decrypt(sector, &mut cipher);
            assert!(cipher == plain, "sector {sector}");
        }
    }

    #[test]
    fn sectors_of_zeroes_stay_zeroes() {
        let key = key(|i| i);
        let mut bytes = [vec![0; SECTOR], encrypted(&key, 1, &[9; SECTOR]), vec![0; SECTOR]].concat();
        Xts::new(&key).decrypt(0, &mut bytes);
        assert_eq!(bytes, [[0; SECTOR], [9; SECTOR], [0; SECTOR]].concat());
    }
}
