//! Extended INQUIRY Data (86h, SPC-4 §7.8.7): what is checked, which task attributes are kept, which cache there is.

use super::Subject;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = vec![0; BODY_LEN];
    // Byte 4. SPT 0: of the types of protection information the first. Nobody says what application tags should be, so that they
    // are not checked.
    body[0] = if subject.abilities.protection {
        GRD_CHK | REF_CHK
    } else {
        0
    };
    body[5 - 4] = HEADSUP | ORDSUP | SIMPSUP;
    body[6 - 4] = if subject.geometry.volatile_cache { V_SUP } else { 0 };
    body[7 - 4] = LUICLR;
    body
}

/// Page length of SPC-4, without the header.
const BODY_LEN: usize = 0x3c;
/// Guards and reference tags are checked.
const GRD_CHK: u8 = 0x04;
const REF_CHK: u8 = 0x01;
const HEADSUP: u8 = 0x04;
const ORDSUP: u8 = 0x02;
const SIMPSUP: u8 = 0x01;
/// There is a volatile cache.
const V_SUP: u8 = 0x01;
/// What was told to one I_T nexus is cleared for that one alone.
const LUICLR: u8 = 0x01;

#[cfg(test)]
mod tests {
    use backstores::{Abilities, Geometry};

    use crate::scsi::primary::vpd::tests::{config, geometry, subject, with_page};
    use crate::scsi::primary::vpd::{Subject, page};

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

    #[test]
    fn guards_and_reference_tags_are_checked_where_there_are_some() {
        let (geometry, config) = (geometry(), config());
        let protected = Subject {
            abilities: Abilities {
                protection: true,
                ..Abilities::default()
            },
            ..subject(&config, &geometry)
        };
        assert_eq!(page(0x86, &protected).unwrap()[4], 0x05);
    }
}
