//! Block Device Characteristics (B1h, SBC-4 §6.6.2).

use super::Subject;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let rate = if subject.geometry.rotational {
        NOT_REPORTED
    } else {
        NON_ROTATING
    };
    let mut body = vec![0; BODY_LEN];
    body[..2].copy_from_slice(&rate.to_be_bytes());
    body
}

const BODY_LEN: usize = 0x3c;

/// MEDIUM ROTATION RATE values. The speed of a turning medium is not known here.
const NOT_REPORTED: u16 = 0;
const NON_ROTATING: u16 = 1;

#[cfg(test)]
mod tests {
    use backstores::Geometry;

    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

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
}
