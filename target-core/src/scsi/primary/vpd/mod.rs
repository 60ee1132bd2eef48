//! Vital product data pages (SPC-4 §7.8, SBC-4 §6.6): a table of page codes and, per page, one pure builder.
//! Everything a page tells is in [`Subject`]; nothing here knows a command.

mod block_limits;
mod characteristics;
mod extended_inquiry;
mod identification;
mod management;
mod mode_page_policy;
mod provisioning;
mod scsi_ports;
mod third_party_copy;

use backstores::{Abilities, Geometry};

pub(crate) use block_limits::{
    AtomicLimits, MAXIMUM_UNMAP_BLOCKS, MAXIMUM_UNMAP_DESCRIPTORS, maximum_compare_and_write_blocks,
    maximum_write_same_blocks,
};
pub(crate) use identification::unit_names;
pub(crate) use provisioning::is_thin;

use crate::nexus::TargetPort;
use crate::scsi::access_state::GroupView;
use crate::scsi::{DeviceType, UnitConfig};

/// Whom the pages are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Identity of the unit.
    pub(crate) config: &'a UnitConfig,
    /// Shape of its medium.
    pub(crate) geometry: &'a Geometry,
    /// What its store can do beside.
    pub(crate) abilities: Abilities,
    /// The target port by which it was asked.
    pub(crate) port: &'a TargetPort,
    /// Number of that port in the device, 1 or more, which is also that of its target port group.
    pub(crate) relative_port: u16,
    /// All target port groups of the device, each with one port.
    pub(crate) port_groups: &'a [GroupView],
    /// Where the device is managed over the network, if anywhere.
    pub(crate) management_url: Option<&'a str>,
}

/// A page with its four-byte header, or `None` when there is no such page.
pub(crate) fn page(code: u8, subject: &Subject<'_>) -> Option<Vec<u8>> {
    let (_, body) = pages(subject).find(|(known, _)| *known == code)?;
    let body = body(subject);
    let length = u16::try_from(body.len()).expect("names are bounded, so is every page");
    // PERIPHERAL QUALIFIER 0: a device of this type is here.
    let mut page = vec![subject.config.device_type.code(), code];
    page.extend(length.to_be_bytes());
    page.extend(body);
    Some(page)
}

/// Supported VPD Pages (00h).
fn supported_pages(subject: &Subject<'_>) -> Vec<u8> {
    pages(subject).map(|(code, _)| *code).collect()
}

/// The pages that a unit has. From B0h on they belong to a type of device (SPC-4 §7.8.1); ours are those of disks, and only
/// disks are copied.
fn pages(subject: &Subject<'_>) -> impl Iterator<Item = &'static (u8, Body)> {
    let is_disk = subject.config.device_type == DeviceType::Disk;
    PAGES
        .iter()
        .filter(move |(code, _)| is_disk || (*code < 0xb0 && *code != THIRD_PARTY_COPY))
}

/// Unit Serial Number (80h).
fn serial_number(subject: &Subject<'_>) -> Vec<u8> {
    subject.config.serial.clone().into_bytes()
}

type Body = fn(&Subject<'_>) -> Vec<u8>;

/// All pages, ascending as page 00h must list them (SPC-4 §7.8).
const PAGES: &[(u8, Body)] = &[
    (0x00, supported_pages),
    (0x80, serial_number),
    (0x83, identification::body),
    (0x85, management::body),
    (0x86, extended_inquiry::body),
    (0x87, mode_page_policy::body),
    (0x88, scsi_ports::body),
    (THIRD_PARTY_COPY, third_party_copy::body),
    (0xb0, block_limits::body),
    (0xb1, characteristics::body),
    (0xb2, provisioning::body),
];

/// PAGE CODE of what a unit can copy.
const THIRD_PARTY_COPY: u8 = 0x8f;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use backstores::{Abilities, Geometry};
    use iscsi_proto::{IscsiName, Tpgt};

    use super::{Subject, page};
    use crate::nexus::TargetPort;
    use crate::scsi::access_state::{AccessState, GroupView, StateCause};
    use crate::scsi::{DeviceType, UnitConfig};

    /// A thin unit of 1 GiB, 512-byte blocks, four kilobytes to a physical block.
    pub(crate) fn config() -> UnitConfig {
        UnitConfig {
            device_type: DeviceType::Disk,
            naa: vec![0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            serial: "serial-7".into(),
            vendor: "LUNAPORT".into(),
            product: "disk".into(),
            revision: "0001".into(),
            thin: true,
            removable: false,
            soft_threshold: None,
        }
    }

    pub(crate) fn geometry() -> Geometry {
        Geometry {
            size: 1 << 30,
            block_size: 512,
            physical_block_size: 4096,
            optimal_len: 0,
            unmap_granularity: 4096,
            unmap_alignment: 0,
            volatile_cache: true,
            read_only: false,
            rotational: false,
        }
    }

    pub(crate) fn with_page(code: u8, geometry: &Geometry, config: &UnitConfig) -> Option<Vec<u8>> {
        page_of_able(code, geometry, Abilities::default(), config)
    }

    pub(crate) fn page_of_able(
        code: u8,
        geometry: &Geometry,
        abilities: Abilities,
        config: &UnitConfig,
    ) -> Option<Vec<u8>> {
        let subject = Subject {
            abilities,
            ..subject(config, geometry)
        };
        page(code, &subject)
    }

    /// A unit behind one port, of which there is nothing else to tell.
    pub(crate) fn subject<'a>(config: &'a UnitConfig, geometry: &'a Geometry) -> Subject<'a> {
        static PORT: LazyLock<TargetPort> = LazyLock::new(|| TargetPort {
            name: "iqn.2024-01.org.example:a".parse::<IscsiName>().unwrap(),
            tpgt: Tpgt(1),
        });
        Subject {
            config,
            geometry,
            abilities: Abilities::default(),
            port: &PORT,
            relative_port: 1,
            port_groups: &[GroupView {
                number: 1,
                state: AccessState::ActiveOptimized,
                cause: StateCause::None,
            }],
            management_url: None,
        }
    }

    #[test]
    fn page_00_lists_ascending_codes_that_all_exist() {
        let page = with_page(0x00, &geometry(), &config()).unwrap();
        assert_eq!(
            page,
            [
                0, 0, 0, 11, 0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2
            ]
        );
        for code in &page[4..] {
            assert!(with_page(*code, &geometry(), &config()).is_some(), "{code:#04x}");
        }
    }

    #[test]
    fn a_drive_has_no_pages_of_disks() {
        let drive = UnitConfig {
            device_type: DeviceType::Cdrom,
            ..config()
        };
        let page = with_page(0x00, &geometry(), &drive).unwrap();
        assert_eq!(page, [5, 0, 0, 7, 0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88]);
        assert_eq!(with_page(0xb0, &geometry(), &drive), None);
    }

    #[test]
    fn unknown_pages_are_none() {
        for code in [0x01, 0x81, 0x84, 0xb3, 0xff] {
            assert_eq!(with_page(code, &geometry(), &config()), None);
        }
    }

    #[test]
    fn page_80_is_the_serial_number() {
        let page = with_page(0x80, &geometry(), &config()).unwrap();
        assert_eq!(page, *b"\x00\x80\x00\x08serial-7");
    }
}
