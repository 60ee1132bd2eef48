//! MODE SENSE (6) and (10) (SPC-4 §6.13, §6.14): header, block descriptor, mode pages.

use backstores::Geometry;

use super::mode_pages::{ALL_PAGES, ALL_SUBPAGES, ModePage, ModeSubject, PageControl};
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{DeviceType, Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const MODE_SENSE_6: CommandSpec = CommandSpec {
    opcode: 0x1a,
    service_action: None,
    name: "MODE SENSE (6)",
    usage: &[0x1a, DBD, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Reads,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ModeSense,
};

pub(crate) const MODE_SENSE_10: CommandSpec = CommandSpec {
    opcode: 0x5a,
    name: "MODE SENSE (10)",
    usage: &[0x5a, LLBAA | DBD, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
    ..MODE_SENSE_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let ten = cdb.opcode() == MODE_SENSE_10.opcode;
    let (form, allocation) = if ten {
        (Form::Ten, usize::from(cdb.u16_at(7)))
    } else {
        (Form::Six, usize::from(cdb.u8_at(4)))
    };
    let control = match cdb.bits(2, 7, 6) {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ if unit.can_keep() => PageControl::Saved,
        _ => return Err(Sense::SAVING_PARAMETERS_NOT_SUPPORTED.into()),
    };
    let subject = unit.mode_subject(&geometry);
    let pages = pages(cdb.u8_at(2) & 0x3f, cdb.u8_at(3), control, &subject)?;
    let (specific, descriptor) = match subject.device_type {
        // Drives have neither (MMC-6 §7.2.2).
        DeviceType::Cdrom => (0, Vec::new()),
        DeviceType::Disk => {
            let protected = if unit.check_writable().is_err() { WP } else { 0 };
            let descriptor = if cdb.u8_at(1) & DBD != 0 {
                Vec::new()
            } else {
                block_descriptor(&geometry, ten && cdb.u8_at(1) & LLBAA != 0)
            };
            (DPOFUA | protected, descriptor)
        }
    };
    let reply = form.assemble(specific, &descriptor, &pages);
    data.put_parameters(&reply, allocation).await
}

/// Length of the fields in the mode parameter header.
#[derive(Clone, Copy)]
enum Form {
    Six,
    Ten,
}

impl Form {
    fn assemble(self, device_specific: u8, descriptor: &[u8], pages: &[u8]) -> Vec<u8> {
        let content = descriptor.len() + pages.len();
        // All pages and the longest descriptor are far below 255 bytes.
        let short = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let mut reply = match self {
            // MODE DATA LENGTH does not count itself; MEDIUM TYPE is 0 for block devices, and reserved for drives.
            Self::Six => vec![short(content + 3), 0, device_specific, short(descriptor.len())],
            Self::Ten => {
                let long_lba = u8::from(descriptor.len() == LONG_DESCRIPTOR_LEN);
                let length = short(content + 6);
                vec![
                    0,
                    length,
                    0,
                    device_specific,
                    long_lba,
                    0,
                    0,
                    short(descriptor.len()),
                ]
            }
        };
        reply.extend(descriptor);
        reply.extend(pages);
        reply
    }
}

/// The pages that a page code and a subpage code ask for.
fn pages(code: u8, subpage: u8, control: PageControl, subject: &ModeSubject<'_>) -> Result<Vec<u8>, Failure> {
    // One subpage of all pages is no combination that there is (SPC-4 §6.13, table of page and subpage codes).
    if code == ALL_PAGES && subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(Cdb::invalid_field(3));
    }
    let of_code: Vec<ModePage> = ModePage::of(subject)
        .filter(|page| code == ALL_PAGES || code == page.code())
        .collect();
    if of_code.is_empty() {
        return Err(Cdb::invalid_bit(2, 5));
    }
    let wanted: Vec<u8> = of_code
        .into_iter()
        .filter(|page| subpage == ALL_SUBPAGES || subpage == page.subpage())
        .flat_map(|page| page.bytes(control, subject))
        .collect();
    if wanted.is_empty() {
        return Err(Cdb::invalid_field(3));
    }
    Ok(wanted)
}

/// Number and length of the blocks (SBC-4 §6.5.2): eight bytes, or sixteen with LONGLBA.
pub(super) fn block_descriptor(geometry: &Geometry, long: bool) -> Vec<u8> {
    let blocks = geometry.size / u64::from(geometry.block_size);
    let length = geometry.block_size.to_be_bytes();
    if long {
        [&blocks.to_be_bytes()[..], &[0; 4], &length].concat()
    } else {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes();
        [&blocks[..], &length].concat()
    }
}

/// Disable block descriptors.
const DBD: u8 = 0x08;
/// Long LBA accepted.
const LLBAA: u8 = 0x10;
const LONG_DESCRIPTOR_LEN: usize = 16;

/// DEVICE-SPECIFIC PARAMETER (SBC-4 §6.5.1): write-protected.
const WP: u8 = 0x80;
/// DEVICE-SPECIFIC PARAMETER: READ and WRITE take DPO and FUA.
const DPOFUA: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::SoftThreshold;
    use crate::scsi::primary::mode_pages::tests::subject;
    use crate::scsi::primary::vpd::tests::geometry;

    fn select(code: u8, subpage: u8) -> Result<Vec<u8>, Failure> {
        pages(code, subpage, PageControl::Current, &subject(&geometry()))
    }

    #[test]
    fn all_pages_come_ascending() {
        let all = select(0x3f, 0).unwrap();
        assert_eq!(all.len(), 12 + 16 + 20 + 12 + 12);
        assert_eq!(
            [all[0], all[12], all[28], all[48], all[60]],
            [0x01, 0x02, 0x08, 0x0a, 0x1c]
        );
        let with_subpages = select(0x3f, 0xff).unwrap();
        assert_eq!(with_subpages[..60], all[..60]);
        assert_eq!(with_subpages[60..62], [0x4a, 0x01]);
        assert_eq!(with_subpages[92..], all[60..]);
        assert_eq!(select(0x0a, 0xff).unwrap(), with_subpages[48..92]);
    }

    #[test]
    fn a_subpage_comes_when_it_or_all_are_asked_for() {
        let geometry = geometry();
        let thin = ModeSubject {
            soft_threshold: Some(SoftThreshold::Percent(80)),
            ..subject(&geometry)
        };
        let codes = |code, subpage| {
            pages(code, subpage, PageControl::Current, &thin)
                .map(|pages| (pages[0], pages.len()))
                .ok()
        };
        assert_eq!(codes(0x1c, 0), Some((0x1c, 12)));
        assert_eq!(codes(0x1c, 2), Some((0x5c, 24)));
        assert_eq!(codes(0x1c, 0xff), Some((0x1c, 36)));
        assert_eq!(codes(0x1c, 3), None);
        assert_eq!(codes(0x3f, 0), Some((0x01, 72)));
        assert_eq!(codes(0x3f, 0xff), Some((0x01, 128)));
    }

    #[test]
    fn unknown_pages_and_subpages_are_refused_where_they_are_named() {
        for (code, subpage, byte, bit) in [(0x05, 0, 2, Some(5)), (0x0a, 2, 3, None), (0x3f, 1, 3, None)] {
            let Err(Failure::Check(sense)) = select(code, subpage) else {
                panic!("{code:#04x}/{subpage:#04x} is no page");
            };
            let field = sense.field.unwrap();
            assert_eq!((sense.code, field.byte, field.bit), ((0x24, 0), byte, bit));
        }
    }

    #[test]
    fn headers_count_what_follows() {
        assert_eq!(Form::Six.assemble(0x90, &[0; 8], &[7; 12])[..4], [23, 0, 0x90, 8]);
        assert_eq!(
            Form::Ten.assemble(0x10, &[0; 16], &[7; 12])[..8],
            [0, 34, 0, 0x10, 1, 0, 0, 16]
        );
        assert_eq!(
            Form::Ten.assemble(0x10, &[], &[7; 12])[..8],
            [0, 18, 0, 0x10, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_short_descriptor_of_a_large_medium_says_all_ones() {
        assert_eq!(block_descriptor(&geometry(), false), [0, 0x20, 0, 0, 0, 0, 2, 0]);
        let large = Geometry {
            size: 1 << 45,
            ..geometry()
        };
        assert_eq!(
            block_descriptor(&large, false),
            [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]
        );
        assert_eq!(
            block_descriptor(&large, true),
            [0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
        );
    }
}
