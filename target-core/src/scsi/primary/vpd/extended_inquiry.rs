//! Extended INQUIRY Data (86h, SPC-4 §7.8.7): what is checked, which task attributes are kept, which cache there is.

use super::Subject;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = vec![0; BODY_LEN];
    // Byte 4: no protection information, so that neither guards nor tags are checked.
    body[5 - 4] = HEADSUP | ORDSUP | SIMPSUP;
    body[6 - 4] = if subject.geometry.volatile_cache { V_SUP } else { 0 };
    body[7 - 4] = LUICLR;
    body
}

/// Page length of SPC-4, without the header.
const BODY_LEN: usize = 0x3c;
const HEADSUP: u8 = 0x04;
const ORDSUP: u8 = 0x02;
const SIMPSUP: u8 = 0x01;
/// There is a volatile cache.
const V_SUP: u8 = 0x01;
/// What was told to one I_T nexus is cleared for that one alone.
const LUICLR: u8 = 0x01;

#[cfg(test)]
mod tests {
    use backstores::Geometry;

    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    #[test]
    fn the_cache_is_there_when_the_store_has_one() {
        let page = with_page(0x86, &geometry(), &config()).unwrap();
        assert_eq!(page[..9], [0, 0x86, 0, 0x3c, 0, 0x07, 0x01, 0x01, 0]);
        assert_eq!(page.len(), 64);
        let stable = Geometry {
            volatile_cache: false,
            ..geometry()
        };
        assert_eq!(with_page(0x86, &stable, &config()).unwrap()[6], 0);
    }
}
