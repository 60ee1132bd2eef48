//! INQUIRY (SPC-4 §6.6): what this is, in standard data and in vital product data pages.

use super::vpd::{self, Subject};
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{AttentionRule, CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::scsi::{DeviceType, Failure, UnitConfig};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x12,
    service_action: None,
    name: "INQUIRY",
    usage: &[0x12, EVPD, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        unit: false,
        attention: AttentionRule::Keep,
        answered: Answered::Always,
        erasure: ErasureRule::Run,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::Inquiry,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let evpd = cdb.u8_at(1) & EVPD != 0;
    let page_code = cdb.u8_at(2);
    if !evpd && page_code != 0 {
        return Err(Cdb::invalid_field(2));
    }
    let reply = match (context.addressed_unit(), evpd) {
        (Some(unit), false) => {
            let has_ports = context.port_groups().len() > 1;
            standard(unit.config(), unit.is_protected(), has_ports)
        }
        (None, false) => standard_without_unit(),
        (Some(unit), true) => vpd::page(
            page_code,
            &Subject {
                config: unit.config(),
                geometry: &unit.store().geometry(),
                abilities: unit.store().abilities(),
                port: &context.nexus().target,
                relative_port: context.relative_port(),
                port_groups: &context.port_groups(),
                management_url: context.management_url(),
            },
        )
        .ok_or_else(|| Cdb::invalid_field(2))?,
        // Where no unit is there is nothing to tell but that (SPC-4 §6.6.1).
        (None, true) => return Err(Cdb::invalid_field(2)),
    };
    data.put_parameters(&reply, usize::from(cdb.u16_at(3))).await
}

fn standard(config: &UnitConfig, is_protected: bool, has_ports: bool) -> Vec<u8> {
    let mut reply = vec![0; STANDARD_LEN];
    reply[0] = config.device_type.code();
    reply[1] = if config.removable { RMB } else { 0 };
    reply[2] = VERSION_SPC_4;
    reply[3] = HISUP | RESPONSE_FORMAT;
    reply[4] = ADDITIONAL_LENGTH;
    reply[5] = TPGS_IMPLICIT_AND_EXPLICIT
        | match config.device_type {
            DeviceType::Cdrom => 0,
            DeviceType::Disk => THIRD_PARTY_COPY,
        }
        | if is_protected { PROTECT } else { 0 };
    reply[6] = if has_ports { MULTIP } else { 0 };
    reply[7] = CMDQUE;
    pad(&mut reply[8..16], &config.vendor);
    pad(&mut reply[16..32], &config.product);
    pad(&mut reply[32..36], &config.revision);
    let command_set = match config.device_type {
        DeviceType::Cdrom => VERSION_MMC_6,
        DeviceType::Disk => VERSION_SBC_3,
    };
    let versions = VERSION_DESCRIPTORS.into_iter().chain([command_set]);
    for (field, version) in reply[58..74].chunks_exact_mut(2).zip(versions) {
        field.copy_from_slice(&version.to_be_bytes());
    }
    reply
}

/// PERIPHERAL QUALIFIER 011b and device type 1Fh: no unit can be here under this number.
fn standard_without_unit() -> Vec<u8> {
    let mut reply = vec![0; STANDARD_LEN];
    reply[0] = 0x7f;
    reply[2] = VERSION_SPC_4;
    reply[3] = HISUP | RESPONSE_FORMAT;
    reply[4] = ADDITIONAL_LENGTH;
    reply[7] = CMDQUE;
    reply[8..36].fill(b' ');
    reply
}

/// ASCII text, left-aligned and padded with spaces (SPC-4 §4.4.1). Text that is too long is cut.
fn pad(field: &mut [u8], text: &str) {
    field.fill(b' ');
    field
        .iter_mut()
        .zip(text.bytes())
        .for_each(|(slot, byte)| *slot = byte);
}

const STANDARD_LEN: usize = 96;
const ADDITIONAL_LENGTH: u8 = 91;
const EVPD: u8 = 0x01;
const RMB: u8 = 0x80;
const VERSION_SPC_4: u8 = 6;
/// LUNs are reported in the format of REPORT LUNS.
const HISUP: u8 = 0x10;
const RESPONSE_FORMAT: u8 = 2;
/// Blocks have protection information, or may be formatted to have it.
const PROTECT: u8 = 0x01;
/// States of target port groups change by the administrator's hand and by SET TARGET PORT GROUPS.
const TPGS_IMPLICIT_AND_EXPLICIT: u8 = 0x30;
/// 3PC: copies by EXTENDED COPY and by token.
const THIRD_PARTY_COPY: u8 = 0x08;
/// There is more than one target port.
const MULTIP: u8 = 0x10;
/// The unit has a task set that takes more than one command.
const CMDQUE: u8 = 0x02;

/// SAM-5, iSCSI, SPC-4, each without a claim to a certain revision (SPC-4 §6.6).
const VERSION_DESCRIPTORS: [u16; 3] = [0x00a0, 0x0960, 0x0460];
const VERSION_SBC_3: u16 = 0x04c0;
const VERSION_MMC_6: u16 = 0x04e0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::primary::vpd::tests::config;

    #[test]
    fn standard_data_name_the_unit_and_its_standards() {
        let reply = standard(&config(), false, false);
        assert_eq!(reply[..8], [0x00, 0x00, 0x06, 0x12, 91, 0x38, 0, 0x02]);
        assert_eq!(&reply[8..36], b"LUNAPORTdisk            0001");
        assert_eq!(reply[36..58], [0; 22]);
        assert_eq!(reply[58..66], [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]);
        assert_eq!(reply[66..], [0; 30]);
        assert_eq!(standard(&config(), true, false)[5], 0x39);
        assert_eq!(standard(&config(), false, true)[6], 0x10);
        let removable = UnitConfig {
            removable: true,
            ..config()
        };
        assert_eq!(standard(&removable, false, false)[1], 0x80);
        let drive = UnitConfig {
            device_type: DeviceType::Cdrom,
            ..removable
        };
        assert_eq!(standard(&drive, false, false)[..2], [0x05, 0x80]);
        assert_eq!(standard(&drive, false, false)[64..66], [0x04, 0xe0]);
    }

    #[test]
    fn an_absent_unit_says_that_none_can_be_there() {
        let reply = standard_without_unit();
        assert_eq!((reply.len(), reply[0]), (96, 0x7f));
    }
}
