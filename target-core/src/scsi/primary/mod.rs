//! Commands of all devices (SPC-4), one file each.

pub(crate) mod mode_pages;
pub(crate) mod test_unit_ready;
