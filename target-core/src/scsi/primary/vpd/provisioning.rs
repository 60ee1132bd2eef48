//! Logical Block Provisioning (B2h, SBC-4 §6.6.7), in step with LBPME and LBPRZ of READ CAPACITY (16).

use backstores::Geometry;

use super::Subject;
use crate::scsi::UnitConfig;
use crate::scsi::thin::threshold_exponent;

/// Whether the unit offers logical block provisioning: it may, and its store can give space back.
pub(crate) const fn is_thin(config: &UnitConfig, geometry: &Geometry) -> bool {
    config.thin && geometry.unmap_granularity != 0
}

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    if is_thin(subject.config, subject.geometry) {
        // ANC_SUP 0: blocks are mapped or deallocated, never anchored.
        vec![
            threshold_exponent(subject.geometry),
            LBPU | LBPWS | LBPWS10 | LBPRZ,
            THIN,
            0,
        ]
    } else {
        vec![0; 4]
    }
}

/// UNMAP works.
const LBPU: u8 = 0x80;
/// The UNMAP bit of WRITE SAME (16) works.
const LBPWS: u8 = 0x40;
/// The UNMAP bit of WRITE SAME (10) works.
const LBPWS10: u8 = 0x20;
/// Unmapped blocks read as zeroes.
const LBPRZ: u8 = 0x04;
/// PROVISIONING TYPE.
const THIN: u8 = 2;

#[cfg(test)]
mod tests {
    use backstores::Geometry;

    use crate::scsi::UnitConfig;
    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    #[test]
    fn thin_units_take_every_way_to_unmap() {
        let page = with_page(0xb2, &geometry(), &config()).unwrap();
        assert_eq!(page, [0, 0xb2, 0, 4, 11, 0xe4, 2, 0]);
    }

    #[test]
    fn thick_units_take_none() {
        let thick = UnitConfig {
            thin: false,
            ..config()
        };
        let never_gives_back = Geometry {
            unmap_granularity: 0,
            ..geometry()
        };
        for page in [
            with_page(0xb2, &geometry(), &thick),
            with_page(0xb2, &never_gives_back, &config()),
        ] {
            assert_eq!(page.unwrap(), [0, 0xb2, 0, 4, 0, 0, 0, 0]);
        }
    }
}
