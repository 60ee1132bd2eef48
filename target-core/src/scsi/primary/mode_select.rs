//! MODE SELECT (6) and (10) (SPC-4 §6.11, §6.12): changes the mode parameters of a unit, all of a list or nothing.

use backstores::Geometry;

use super::mode_pages::{ModePage, ModeParameters, ModeSubject, PageControl, SPF};
use super::mode_sense::block_descriptor;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, Sense, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const MODE_SELECT_6: CommandSpec = CommandSpec {
    opcode: 0x15,
    service_action: None,
    name: "MODE SELECT (6)",
    usage: &[0x15, PF | SP, 0, 0, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Writes,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ModeSelect,
};

pub(crate) const MODE_SELECT_10: CommandSpec = CommandSpec {
    opcode: 0x55,
    name: "MODE SELECT (10)",
    usage: &[0x55, PF | SP, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
    ..MODE_SELECT_6
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let (header, len) = if cdb.opcode() == MODE_SELECT_10.opcode {
        (Header::Ten, usize::from(cdb.u16_at(7)))
    } else {
        (Header::Six, usize::from(cdb.u8_at(4)))
    };
    let save = cdb.u8_at(1) & SP != 0;
    if save && !unit.can_keep() {
        return Err(Cdb::invalid_bit(1, 0));
    }
    if cdb.u8_at(1) & PF == 0 && len != 0 {
        // Without PF the pages would be vendor specific.
        return Err(Cdb::invalid_bit(1, 4));
    }
    let list = data.get_parameters(len).await?;
    data.check()?;
    let before = unit.mode_parameters();
    let after = parse(header, &list, &unit.mode_subject(&geometry))?;
    if before.write_cache && !after.write_cache {
        // What was acknowledged while the cache was on has to be as safe as what follows.
        unit.store().flush().await?;
    }
    if save {
        // Everything that can be saved is, also what was changed without being saved before (SPC-4 §6.11).
        unit.save_mode_parameters(after).await?;
    } else {
        unit.set_mode_parameters(after);
    }
    if after != before {
        context.raise_for_others(UnitAttention::ModeParametersChanged);
    }
    Ok(())
}

/// Which mode parameter header the list begins with.
#[derive(Clone, Copy, Debug)]
enum Header {
    Six,
    Ten,
}

/// The parameters as they are after a list.
fn parse(header: Header, list: &[u8], subject: &ModeSubject<'_>) -> Result<ModeParameters, Failure> {
    if list.is_empty() {
        return Ok(subject.current);
    }
    let header_len = match header {
        Header::Six => 4,
        Header::Ten => 8,
    };
    let head = list.get(..header_len).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let (descriptor_len, medium_type_at, long) = match header {
        Header::Six => (usize::from(head[3]), 1, false),
        Header::Ten => (
            usize::from(u16::from_be_bytes([head[6], head[7]])),
            2,
            head[4] & 1 != 0,
        ),
    };
    // MODE DATA LENGTH is reserved here, and initiators send back the device-specific parameter as they got it.
    if head[medium_type_at] != 0 {
        return Err(invalid_field(medium_type_at));
    }
    let pages_at = header_len + descriptor_len;
    let descriptor = list
        .get(header_len..pages_at)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    check_descriptor(descriptor, header_len, long, subject.geometry)?;

    let mut after = subject.current;
    let mut at = pages_at;
    while at < list.len() {
        let (page, len) = parse_page(list, at, subject)?;
        page.apply(&list[at..at + len], subject.geometry, &mut after);
        at += len;
    }
    Ok(after)
}

/// A block descriptor may only say what is so: the block length is fixed, and so is the number of blocks (0 and all
/// ones leave it alone, SBC-4 §6.5.2).
fn check_descriptor(descriptor: &[u8], at: usize, long: bool, geometry: &Geometry) -> Result<(), Failure> {
    let count_len = if long { 8 } else { 4 };
    let expected = block_descriptor(geometry, long);
    if descriptor.is_empty() {
        return Ok(());
    }
    if descriptor.len() != expected.len() {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let count = &descriptor[..count_len];
    let unchanged = count.iter().all(|byte| *byte == 0) || count.iter().all(|byte| *byte == 0xff);
    if !unchanged && *count != expected[..count_len] {
        return Err(invalid_field(at));
    }
    if descriptor[count_len..] != expected[count_len..] {
        return Err(invalid_field(at + expected.len() - 3));
    }
    Ok(())
}

/// The page at `at` with its length: known, complete, and different from the current one only where it may be.
fn parse_page(list: &[u8], at: usize, subject: &ModeSubject<'_>) -> Result<(ModePage, usize), Failure> {
    let second = *list.get(at + 1).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let has_subpage = list[at] & SPF != 0;
    let subpage = if has_subpage { second } else { 0 };
    let mut of_code = ModePage::of(subject)
        .filter(|page| page.code() == list[at] & CODE)
        .peekable();
    if of_code.peek().is_none() {
        return Err(invalid_field(at));
    }
    let page = of_code
        .find(|page| page.subpage() == subpage && (page.subpage() != 0) == has_subpage)
        .ok_or_else(|| invalid_field(if has_subpage { at + 1 } else { at }))?;
    let now = page.bytes(PageControl::Current, subject);
    let changeable = page.bytes(PageControl::Changeable, subject);
    // The bytes of PAGE LENGTH end the header.
    let length_at = if has_subpage { 2 } else { 1 };
    let head = list
        .get(at..at + page.header_len())
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    if head[length_at..] != now[length_at..page.header_len()] {
        return Err(invalid_field(at + length_at));
    }
    let sent = list
        .get(at..at + now.len())
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    // The PS bit in the first byte is reserved here.
    for byte in page.header_len()..now.len() {
        let wrong = (sent[byte] ^ now[byte]) & !changeable[byte];
        if wrong != 0 {
            let bit = u8::try_from(wrong.ilog2()).ok();
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(place(at + byte), bit)
                .into());
        }
    }
    Ok((page, now.len()))
}

fn invalid_field(at: usize) -> Failure {
    Sense::INVALID_FIELD_IN_PARAMETER_LIST
        .in_parameters(place(at), None)
        .into()
}

fn place(at: usize) -> u16 {
    u16::try_from(at).expect("a parameter list has at most 65535 bytes")
}

/// Page format: mode pages follow.
const PF: u8 = 0x10;
/// PAGE CODE in the first byte of a page.
const CODE: u8 = 0x3f;
/// Save pages.
const SP: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::primary::mode_pages::tests::subject;
    use crate::scsi::primary::vpd::tests::geometry;

    const CONTROL: [u8; 12] = [0x0a, 0x0a, 0x02, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];

    fn six(descriptor: &[u8], pages: &[u8]) -> Vec<u8> {
        let len = u8::try_from(descriptor.len()).unwrap();
        [&[0, 0, 0x10, len], descriptor, pages].concat()
    }

    fn with(page: &[u8], byte: usize, value: u8) -> Vec<u8> {
        let mut page = page.to_vec();
        page[byte] = value;
        page
    }

    fn parse_six(list: &[u8]) -> Result<ModeParameters, Failure> {
        parse(Header::Six, list, &subject(&geometry()))
    }

    #[test]
    fn changeable_bits_change() {
        let before = ModeParameters::default();
        let mut caching = vec![0; 20];
        (caching[0], caching[1]) = (0x08, 0x12);
        let cases = [
            (six(&[], &CONTROL), before),
            (
                six(&[], &with(&CONTROL, 2, 0x06)),
                ModeParameters {
                    descriptor_sense: true,
                    ..before
                },
            ),
            (
                six(&[], &with(&CONTROL, 4, 0x08)),
                ModeParameters {
                    software_write_protect: true,
                    ..before
                },
            ),
            (
                six(&[], &caching),
                ModeParameters {
                    write_cache: false,
                    ..before
                },
            ),
            (six(&[0, 0x20, 0, 0, 0, 0, 2, 0], &CONTROL), before),
            (six(&[0, 0, 0, 0, 0, 0, 2, 0], &CONTROL), before),
            (six(&[0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], &CONTROL), before),
            (vec![], before),
            (six(&[], &[]), before),
        ];
        for (list, after) in cases {
            assert_eq!(parse_six(&list).unwrap(), after, "{list:02x?}");
        }
        let ten = [&[0, 0, 0, 0x10, 0, 0, 0, 0][..], &with(&CONTROL, 2, 0x06)].concat();
        assert!(
            parse(Header::Ten, &ten, &subject(&geometry()))
                .unwrap()
                .descriptor_sense
        );
    }

    #[test]
    fn anything_else_is_refused_where_it_is_wrong() {
        let cases: [(Vec<u8>, u16, Option<u8>); 9] = [
            (six(&[], &with(&CONTROL, 2, 0x22)), 6, Some(5)),
            (six(&[], &with(&CONTROL, 3, 0x00)), 7, Some(4)),
            (six(&[], &with(&CONTROL, 11, 0x81)), 15, Some(7)),
            (six(&[], &with(&CONTROL, 0, 0x0b)), 4, None),
            (six(&[], &with(&CONTROL, 0, 0x4a)), 5, None),
            (six(&[], &with(&CONTROL, 1, 0x09)), 5, None),
            (six(&[0, 0, 0, 1, 0, 0, 2, 0], &[]), 4, None),
            (six(&[0, 0, 0, 0, 0, 0, 4, 0], &[]), 9, None),
            (with(&six(&[], &CONTROL), 1, 5), 1, None),
        ];
        for (list, byte, bit) in cases {
            let Err(Failure::Check(sense)) = parse_six(&list) else {
                panic!("{list:02x?}");
            };
            let field = sense.field.unwrap();
            assert_eq!((sense.code, field.in_cdb), ((0x26, 0x00), false));
            assert_eq!((field.byte, field.bit), (byte, bit), "{list:02x?}");
        }
    }

    #[test]
    fn cut_lists_are_a_length_error() {
        let whole = six(&[0; 8], &CONTROL);
        for len in [1, 3, 5, 11] {
            let Err(Failure::Check(sense)) = parse_six(&whole[..len]) else {
                panic!("{len}");
            };
            assert_eq!(sense.code, (0x1a, 0x00), "{len}");
        }
        for len in [1, 2, 11] {
            let Err(Failure::Check(sense)) = parse_six(&six(&[], &CONTROL[..len])) else {
                panic!("{len}");
            };
            assert_eq!(sense.code, (0x1a, 0x00), "{len}");
        }
    }
}
