//! SCSI Ports (88h, SPC-4 §7.8.13): every port of the target device with its number and name.

use super::Subject;
use super::identification::port_name;

pub(super) fn body(subject: &Subject<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    for group in subject.port_groups {
        let name = port_name(&crate::nexus::TargetPort {
            name: subject.port.name.clone(),
            tpgt: iscsi_proto::Tpgt(group.number),
        });
        let [high, low] = group.number.to_be_bytes();
        let [length_high, length_low] = u16::try_from(name.len())
            .expect("iSCSI names have at most 223 bytes")
            .to_be_bytes();
        // These are no initiator ports: INITIATOR PORT TRANSPORTID LENGTH is 0.
        body.extend([0, 0, high, low, 0, 0, 0, 0, 0, 0, length_high, length_low]);
        body.extend(name);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, geometry, subject};
    use super::*;
    use crate::scsi::access_state::{AccessState, GroupView, StateCause};

    #[test]
    fn every_port_is_listed_with_its_name() {
        let (config, geometry) = (config(), geometry());
        let group = |number| GroupView {
            number,
            state: AccessState::ActiveOptimized,
            cause: StateCause::None,
        };
        let both = Subject {
            port_groups: &[group(1), group(0x0203)],
            ..subject(&config, &geometry)
        };
        let expected = [
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40, 0x53, 0x98, 0, 36][..],
            b"iqn.2024-01.org.example:a,t,0x0001\0\0",
            &[0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 40, 0x53, 0x98, 0, 36],
            b"iqn.2024-01.org.example:a,t,0x0203\0\0",
        ]
        .concat();
        assert_eq!(body(&both), expected);
    }
}
