//! Command descriptor blocks that scripts use, as SPC-4 and SBC-4 lay them out.

/// TEST UNIT READY.
#[must_use]
pub fn test_unit_ready() -> [u8; 16] {
    [0; 16]
}

/// INQUIRY, standard data.
#[must_use]
pub fn inquiry(allocation: u16) -> [u8; 16] {
    let [high, low] = allocation.to_be_bytes();
    cdb(&[0x12, 0, 0, high, low, 0])
}

/// INQUIRY, a vital product data page.
#[must_use]
pub fn vpd(page: u8, allocation: u16) -> [u8; 16] {
    let [high, low] = allocation.to_be_bytes();
    cdb(&[0x12, 1, page, high, low, 0])
}

/// REPORT LUNS.
#[must_use]
pub fn report_luns(allocation: u32) -> [u8; 16] {
    let mut cdb = cdb(&[0xa0]);
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// READ CAPACITY (10).
#[must_use]
pub fn read_capacity_10() -> [u8; 16] {
    cdb(&[0x25])
}

/// READ CAPACITY (16).
#[must_use]
pub fn read_capacity_16(allocation: u32) -> [u8; 16] {
    let mut cdb = cdb(&[0x9e, 0x10]);
    cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// READ (10).
#[must_use]
pub fn read_10(lba: u32, blocks: u16) -> [u8; 16] {
    ten(0x28, lba, blocks)
}

/// WRITE (10).
#[must_use]
pub fn write_10(lba: u32, blocks: u16) -> [u8; 16] {
    ten(0x2a, lba, blocks)
}

/// READ (16).
#[must_use]
pub fn read_16(lba: u64, blocks: u32) -> [u8; 16] {
    sixteen(0x88, lba, blocks)
}

/// WRITE (16).
#[must_use]
pub fn write_16(lba: u64, blocks: u32) -> [u8; 16] {
    sixteen(0x8a, lba, blocks)
}

/// SYNCHRONIZE CACHE (10), the whole medium.
#[must_use]
pub fn synchronize_cache_10() -> [u8; 16] {
    ten(0x35, 0, 0)
}

/// MODE SENSE (6), all pages.
#[must_use]
pub fn mode_sense_6(allocation: u8) -> [u8; 16] {
    cdb(&[0x1a, 0, 0x3f, 0, allocation, 0])
}

/// The bytes given, and zeroes.
#[must_use]
pub fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

fn ten(opcode: u8, lba: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = cdb(&[opcode]);
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn sixteen(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = cdb(&[opcode]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
