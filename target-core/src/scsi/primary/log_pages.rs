//! The log pages that there are (SPC-4 §7.3, SBC-4 §6.4), for LOG SENSE and LOG SELECT. All their parameters are lists of bytes:
//! none has a threshold, none can be set to a value, and none is saved.

use crate::scsi::LogicalUnit;

/// PAGE CODE and SUBPAGE CODE.
pub(super) type PageCode = (u8, u8);

pub(super) const SUPPORTED_PAGES: PageCode = (0x00, 0x00);
pub(super) const SUPPORTED_SUBPAGES: PageCode = (0x00, 0xff);
pub(super) const PROVISIONING: PageCode = (0x0c, 0x00);
pub(super) const SELF_TESTS: PageCode = (0x10, 0x00);
pub(super) const STATISTICS: PageCode = (0x19, 0x00);
pub(super) const EXCEPTIONS: PageCode = (0x2f, 0x00);

/// The pages of a unit, ascending.
pub(super) fn pages(unit: &LogicalUnit) -> impl Iterator<Item = PageCode> {
    let is_thin = unit.is_thin();
    let all = [
        SUPPORTED_PAGES,
        SUPPORTED_SUBPAGES,
        PROVISIONING,
        SELF_TESTS,
        STATISTICS,
        EXCEPTIONS,
    ];
    all.into_iter()
        .filter(move |page| *page != PROVISIONING || is_thin)
}

/// First byte of a page: disable save.
pub(super) const DS: u8 = 0x80;
/// First byte of a page: it has a subpage code.
pub(super) const SPF: u8 = 0x40;
/// PAGE CODE in the first byte.
pub(super) const CODE: u8 = 0x3f;
/// The control byte of a parameter: FORMAT AND LINKING 11b, a list of bytes, which the target does not save by itself
/// (TSD). Updating is not disabled (DU 0).
pub(super) const BINARY_LIST: u8 = 0x20 | 0x03;
