//! Block Device Characteristics (B1h, SBC-4 §6.6.2).

use super::Subject;
use super::provisioning::is_thin;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let rate = if subject.geometry.rotational {
        NOT_REPORTED
    } else {
        NON_ROTATING
    };
    let mut body = vec![0; BODY_LEN];
    body[..2].copy_from_slice(&rate.to_be_bytes());
    let thin = is_thin(subject.config, subject.geometry);
    if thin {
        body[3] |= READABLE_AFTER_BLOCK_ERASE;
        body[4] |= VBULS;
    }
    if subject.abilities.key_erase {
        body[3] |= READABLE_AFTER_CRYPTO_ERASE;
    }
    body
}

const BODY_LEN: usize = 0x3c;

/// WABEREQ and WACEREQ 01b: what was erased can be read before it is written; what is read is not told (SBC-4 §6.6.2).
/// They are 0 where there is no such SANITIZE.
const READABLE_AFTER_BLOCK_ERASE: u8 = 0x40;
const READABLE_AFTER_CRYPTO_ERASE: u8 = 0x10;
/// VERIFY with BYTCHK compares unmapped blocks too.
const VBULS: u8 = 0x01;

/// MEDIUM ROTATION RATE values. The speed of a turning medium is not known here.
const NOT_REPORTED: u16 = 0;
const NON_ROTATING: u16 = 1;

#[cfg(test)]
mod tests {
    use backstores::{Abilities, Geometry};

    use crate::scsi::UnitConfig;
    use crate::scsi::primary::vpd::tests::{config, geometry, page_of_able, with_page};

    #[test]
    fn only_a_medium_that_does_not_turn_says_so() {
        let flash = with_page(0xb1, &geometry(), &config()).unwrap();
        assert_eq!((flash.len(), &flash[..6]), (64, &[0, 0xb1, 0, 0x3c, 0, 1][..]));
        let turning = Geometry {
            rotational: true,
            ..geometry()
        };
        assert_eq!(with_page(0xb1, &turning, &config()).unwrap()[4..6], [0, 0]);
    }

    #[test]
    fn each_way_to_erase_tells_what_reads_find_afterwards() {
        let key_erase = Abilities {
            key_erase: true,
            ..Abilities::default()
        };
        let thick = UnitConfig {
            thin: false,
            ..config()
        };
        for (config, abilities, expected) in [
            (config(), Abilities::default(), [0x40, 0x01]),
            (config(), key_erase, [0x50, 0x01]),
            (thick.clone(), Abilities::default(), [0, 0]),
            (thick, key_erase, [0x10, 0]),
        ] {
            let page = page_of_able(0xb1, &geometry(), abilities, &config).unwrap();
            assert_eq!(page[7..9], expected);
        }
    }
}
