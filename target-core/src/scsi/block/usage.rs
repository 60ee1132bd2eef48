//! CDB usage maps of the formats that block commands share, and the flags of their second byte. A flag that a map does
//! not have is refused by the engine. RDPROTECT, WRPROTECT and VRPROTECT (the top three bits) are in no map: they belong to
//! commands whose entry in the table says so, on units with protection information.

/// Second byte of commands that read or write: DPO and FUA.
pub(super) const TRANSFER: u8 = DPO | FUA;

/// Second byte of commands that verify: DPO and BYTCHK.
pub(super) const VERIFY: u8 = DPO | 0x06;

/// Disable page out, a hint about caching that changes nothing here.
pub(super) const DPO: u8 = 0x10;

/// Force unit access.
pub(super) const FUA: u8 = 0x08;

/// GROUP NUMBER, which counts for statistics only.
pub(super) const GROUP: u8 = 0x1f;

/// Ten bytes: LBA, group, length of two bytes.
pub(super) const fn ten(opcode: u8, flags: u8) -> [u8; 10] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0]
}

/// Twelve bytes: LBA, length of four bytes, group.
pub(super) const fn twelve(opcode: u8, flags: u8) -> [u8; 12] {
    [
        opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0,
    ]
}

/// Sixteen bytes: LBA of eight bytes, length of four bytes, group.
pub(super) const fn sixteen(opcode: u8, flags: u8) -> [u8; 16] {
    [
        opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0,
    ]
}
