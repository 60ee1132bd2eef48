//! Device Identification (83h, SPC-4 §7.8.6): names of the logical unit, of the target port that was asked, and of the
//! target device. The iSCSI forms are those of
//! RFC 7143 §4.2.7 and §10.1.

use super::Subject;
use crate::nexus::TargetPort;
use crate::scsi::UnitConfig;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    for (code_set, kind, name) in unit_names(subject.config) {
        designator(&mut body, code_set, Association::LogicalUnit, kind, &name);
    }
    let [high, low] = subject.relative_port.to_be_bytes();
    designator(
        &mut body,
        BINARY,
        Association::TargetPort,
        RELATIVE_PORT,
        &[0, 0, high, low],
    );
    // The number of a portal group is also that of the target port group it is alone in.
    designator(
        &mut body,
        BINARY,
        Association::TargetPort,
        TARGET_PORT_GROUP,
        &[0, 0, high, low],
    );
    body.extend(port_name(subject.port));
    let device_name = name_string(&subject.port.name.to_string());
    designator(
        &mut body,
        UTF8,
        Association::TargetDevice,
        SCSI_NAME,
        &device_name,
    );
    body
}

/// The designator of a target port's name.
pub(super) fn port_name(port: &TargetPort) -> Vec<u8> {
    let mut body = Vec::new();
    let name = name_string(&port.to_string());
    designator(&mut body, UTF8, Association::TargetPort, SCSI_NAME, &name);
    body
}

/// What a logical unit is called: code set, designator type and designator of each name.
pub(crate) fn unit_names(config: &UnitConfig) -> [(u8, u8, Vec<u8>); 3] {
    let vendor_and_serial = format!("{:<8}{}", config.vendor, config.serial);
    let naa_name = format!("naa.{}", hex(&config.naa));
    // The NAA name comes first: some initiators take the first designator that they understand.
    [
        (BINARY, NAA, config.naa.clone()),
        (ASCII, T10_VENDOR, vendor_and_serial.into_bytes()),
        (UTF8, SCSI_NAME, name_string(&naa_name)),
    ]
}

/// What a designator names.
#[derive(Clone, Copy)]
enum Association {
    LogicalUnit,
    TargetPort,
    TargetDevice,
}

fn designator(body: &mut Vec<u8>, code_set: u8, association: Association, kind: u8, value: &[u8]) {
    // PROTOCOL IDENTIFIER and its PIV bit have a meaning for ports and devices only.
    let (protocol, association) = match association {
        Association::LogicalUnit => (0x00, 0x00),
        Association::TargetPort => (ISCSI << 4, PIV | 0x10),
        Association::TargetDevice => (ISCSI << 4, PIV | 0x20),
    };
    let length = u8::try_from(value.len()).expect("iSCSI names have at most 223 bytes, serial numbers fewer");
    body.extend([protocol | code_set, association | kind, 0, length]);
    body.extend(value);
}

/// A SCSI name string: ended by a zero and padded with zeroes to a multiple of four (SPC-4 §7.8.6.11).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((name.len() + 1).next_multiple_of(4), 0);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// CODE SET.
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;

/// DESIGNATOR TYPE.
const T10_VENDOR: u8 = 1;
const NAA: u8 = 3;
const RELATIVE_PORT: u8 = 4;
const TARGET_PORT_GROUP: u8 = 5;
const SCSI_NAME: u8 = 8;

/// PROTOCOL IDENTIFIER of iSCSI (SPC-4 §7.6.1).
const ISCSI: u8 = 5;
/// Protocol identifier valid.
const PIV: u8 = 0x80;

#[cfg(test)]
mod tests {
    use crate::scsi::primary::vpd::tests::{config, geometry, with_page};

    #[test]
    fn unit_port_and_device_are_named_in_this_order() {
        let page = with_page(0x83, &geometry(), &config()).unwrap();
        let expected: &[(&[u8], &[u8])] = &[
            (
                &[0x01, 0x03, 0, 16],
                &[0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
            (&[0x02, 0x01, 0, 16], b"LUNAPORTserial-7"),
            (
                &[0x03, 0x08, 0, 40],
                b"naa.600102030405060708090A0B0C0D0E0F\0\0\0\0",
            ),
            (&[0x51, 0x94, 0, 4], &[0, 0, 0, 1]),
            (&[0x51, 0x95, 0, 4], &[0, 0, 0, 1]),
            (&[0x53, 0x98, 0, 36], b"iqn.2024-01.org.example:a,t,0x0001\0\0"),
            (&[0x53, 0xa8, 0, 28], b"iqn.2024-01.org.example:a\0\0\0"),
        ];
        let flat: Vec<u8> = expected
            .iter()
            .flat_map(|(head, value)| [*head, *value].concat())
            .collect();
        assert_eq!(page[..4], [0, 0x83, 0, u8::try_from(flat.len()).unwrap()]);
        assert_eq!(page[4..], flat);
    }
}
