//! Management Network Addresses (85h, SPC-4 §7.8.8): where the target is asked how it is, if it can be asked.

use super::Subject;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let Some(url) = subject.management_url else {
        return Vec::new();
    };
    // Ended by a zero and padded with zeroes to a multiple of four.
    let mut address = url.as_bytes().to_vec();
    address.resize((address.len() + 1).next_multiple_of(4), 0);
    // It is longer than no host name and port can be; else it is left out.
    let Ok(length) = u16::try_from(address.len()) else {
        return Vec::new();
    };
    let [high, low] = length.to_be_bytes();
    [&[TARGET_DEVICE | STATUS_SERVICE, 0, high, low], &address[..]].concat()
}

/// ASSOCIATION: the address is that of the whole target device.
const TARGET_DEVICE: u8 = 2 << 5;
/// SERVICE TYPE.
const STATUS_SERVICE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::tests::{config, geometry, subject};
    use super::*;

    #[test]
    fn the_address_is_padded_to_a_multiple_of_four() {
        let (config, geometry) = (config(), geometry());
        let known = Subject {
            management_url: Some("http://h:80/"),
            ..subject(&config, &geometry)
        };
        assert_eq!(body(&known), *b"\x43\0\0\x10http://h:80/\0\0\0\0");
        assert!(body(&subject(&config, &geometry)).is_empty());
    }
}
