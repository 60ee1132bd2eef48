//! TransportIDs of iSCSI (SPC-4 §7.6.4.6): how parameter lists and READ FULL STATUS name an initiator port.

use iscsi_proto::{IscsiName, Isid};

use crate::nexus::InitiatorPort;
use crate::scsi::{Failure, Sense};

/// Whom a TransportID names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum TransportId {
    /// Format 00b: every port of an initiator device that we know of.
    Device(IscsiName),
    /// Format 01b: one port.
    Port(InitiatorPort),
}

impl TransportId {
    /// The first TransportID of `list`, and its length. `at` is the place of `list` in the parameter list. A list that
    /// ends too early is 05/1A/00, anything that is no TransportID of iSCSI is 05/26/00 with a pointer at it.
    pub(crate) fn parse(list: &[u8], at: u16) -> Result<(Self, u16), Failure> {
        let invalid = |offset: u16, bit| {
            Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(at.saturating_add(offset), bit)
        };
        let header = list
            .first_chunk::<HEADER_LEN>()
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        if header[0] & PROTOCOL != ISCSI {
            return Err(invalid(0, Some(3)).into());
        }
        let additional = u16::from_be_bytes([header[2], header[3]]);
        if additional < MIN_ADDITIONAL || !additional.is_multiple_of(4) {
            return Err(invalid(2, None).into());
        }
        let text = list[HEADER_LEN..]
            .get(..usize::from(additional))
            .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
        // The first zero ends the text, whatever comes behind it.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(text).map_err(|_| invalid(4, None))?;
        let named = match header[0] & FORMAT {
            FORMAT_DEVICE => text.parse().ok().map(Self::Device),
            FORMAT_PORT => port(text).map(Self::Port),
            _ => return Err(invalid(0, Some(7)).into()),
        };
        let named = named.ok_or_else(|| invalid(4, None))?;
        let len = additional.checked_add(4).ok_or_else(|| invalid(2, None))?;
        Ok((named, len))
    }

    /// The TransportID of a port, format 01b.
    pub(crate) fn encode(port: &InitiatorPort) -> Vec<u8> {
        let text = port.to_string();
        // At least one zero ends it.
        let padded = (text.len() + 1)
            .next_multiple_of(4)
            .max(usize::from(MIN_ADDITIONAL));
        let [high, low] = u16::try_from(padded)
            .expect("a name has at most 223 bytes")
            .to_be_bytes();
        let mut id = vec![FORMAT_PORT | ISCSI, 0, high, low];
        id.extend(text.as_bytes());
        id.resize(HEADER_LEN + padded, 0);
        id
    }
}

/// `name,i,0xISID`; the ISID of one to twelve hexadecimal digits.
fn port(text: &str) -> Option<InitiatorPort> {
    let (name, digits) = text.split_once(SEPARATOR)?;
    let is_isid = (1..=12).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let isid = is_isid.then(|| u64::from_str_radix(digits, 16).ok())??;
    let [_, _, isid @ ..] = isid.to_be_bytes();
    Some(InitiatorPort {
        name: name.parse().ok()?,
        isid: Isid(isid),
    })
}

const HEADER_LEN: usize = 4;
/// PROTOCOL IDENTIFIER, and iSCSI's.
const PROTOCOL: u8 = 0x0f;
const ISCSI: u8 = 0x05;
/// FORMAT CODE.
const FORMAT: u8 = 0xc0;
const FORMAT_DEVICE: u8 = 0x00;
const FORMAT_PORT: u8 = 0x40;
/// ADDITIONAL LENGTH is at least this, and a multiple of four.
const MIN_ADDITIONAL: u16 = 20;
const SEPARATOR: &str = ",i,0x";

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u8, text: &[u8]) -> Vec<u8> {
        let len = u8::try_from(text.len()).unwrap();
        [&[first, 0, 0, len], text].concat()
    }

    fn code(parsed: Result<(TransportId, u16), Failure>) -> ((u8, u8), Option<u16>) {
        match parsed {
            Err(Failure::Check(sense)) => (sense.code, sense.field.map(|field| field.byte)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_formats_are_read() {
        let device = id(0x05, b"iqn.2024-01.org.example:host\0\0\0\0");
        let (named, len) = TransportId::parse(&device, 28).unwrap();
        assert_eq!(len, 36);
        assert_eq!(
            named,
            TransportId::Device("iqn.2024-01.org.example:host".parse().unwrap())
        );
        let port = id(0x45, b"iqn.2024-01.org.example:host,i,0x80000000000A\0\0\0");
        let (named, _) = TransportId::parse(&port, 28).unwrap();
        let TransportId::Port(named) = named else {
            panic!("{named:?}");
        };
        assert_eq!(named.isid, Isid([0x80, 0, 0, 0, 0, 0x0a]));
        assert_eq!(named.name.as_str(), "iqn.2024-01.org.example:host");
    }

    #[test]
    fn what_we_write_we_read() {
        let port = InitiatorPort {
            name: "iqn.2024-01.org.example:host".parse().unwrap(),
            isid: Isid([0x40, 1, 0x37, 0, 0, 1]),
        };
        let written = TransportId::encode(&port);
        assert_eq!(written[..4], [0x45, 0, 0, 48]);
        assert_eq!(
            &written[4..],
            b"iqn.2024-01.org.example:host,i,0x400137000001\0\0\0"
        );
        let (read, len) = TransportId::parse(&written, 0).unwrap();
        assert_eq!(read, TransportId::Port(port));
        assert_eq!(usize::from(len), written.len());
    }

    #[test]
    fn short_identifiers_are_padded_to_the_least_length() {
        let port = InitiatorPort {
            name: "iqn.2024-01.a".parse().unwrap(),
            isid: Isid([0; 6]),
        };
        assert_eq!(TransportId::encode(&port).len() % 4, 0);
        assert!(TransportId::encode(&port).len() >= 24);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let name = b"iqn.2024-01.org.example:host\0\0\0\0";
        assert_eq!(
            code(TransportId::parse(&id(0x06, name), 28)),
            ((0x26, 0), Some(28))
        );
        assert_eq!(
            code(TransportId::parse(&id(0x85, name), 28)),
            ((0x26, 0), Some(28))
        );
        assert_eq!(
            code(TransportId::parse(&id(0x45, name), 28)),
            ((0x26, 0), Some(32))
        );
        assert_eq!(
            code(TransportId::parse(&id(0x05, b"iqn.2024-01.a\0\0\0"), 28)),
            ((0x26, 0), Some(30))
        );
        assert_eq!(
            code(TransportId::parse(
                &id(0x45, b"iqn.2024-01.org.example:h,i,0x0123456789abc\0"),
                28
            )),
            ((0x26, 0), Some(32))
        );
        let whole = id(0x05, name);
        assert_eq!(code(TransportId::parse(&whole[..3], 28)), ((0x1a, 0), None));
        assert_eq!(code(TransportId::parse(&whole[..35], 28)), ((0x1a, 0), None));
    }
}
