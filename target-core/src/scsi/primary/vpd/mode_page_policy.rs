//! Mode Page Policy (87h, SPC-4 §7.8.9): whose mode parameters are whose. Every page is one for all I_T nexuses.

use super::Subject;

pub(super) fn body(_subject: &Subject<'_>) -> Vec<u8> {
    vec![ALL_PAGES, ALL_SUBPAGES, SHARED, 0]
}

/// POLICY PAGE CODE and POLICY SUBPAGE CODE of all pages that are not listed by themselves.
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// MODE PAGE POLICY, with MLUS 0: each logical unit has pages of its own.
const SHARED: u8 = 0;

#[cfg(test)]
mod tests {
    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    #[test]
    fn one_policy_holds_for_all_pages() {
        let page = with_page(0x87, &geometry(), &config()).unwrap();
        assert_eq!(page, [0, 0x87, 0, 4, 0x3f, 0xff, 0, 0]);
    }
}
