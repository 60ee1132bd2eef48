//! The parameter list of EXTENDED COPY (LID1) (SPC-4): a header, CSCD descriptors, segment descriptors.

use super::identification::{CSCD_LEN, Cscd};
use super::limits::{MAXIMUM_CSCD_DESCRIPTORS, MAXIMUM_DESCRIPTOR_LIST, MAXIMUM_SEGMENTS};
use super::segment::Segment;
use crate::scsi::cdb::Cdb;
use crate::scsi::{Failure, Sense};

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ParameterList {
    /// LIST IDENTIFIER, when the initiator wants to ask for the results.
    pub(super) list: Option<u8>,
    pub(super) cscds: Vec<Cscd>,
    pub(super) segments: Vec<Segment>,
}

/// Reads a list of at most 64 KiB. Segments of a bad kind are found before any is done.
pub(super) fn parse(list: &[u8]) -> Result<ParameterList, Failure> {
    let header = list.get(..HEADER_LEN).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let header = Cdb::new(header);
    let cscds_len = u32::from(header.u16_at(2));
    let segments_len = header.u32_at(8);
    if header.u32_at(12) != 0 {
        // MAXIMUM INLINE DATA LENGTH is 0.
        return Err(Sense::INLINE_DATA_LENGTH_EXCEEDED.in_parameters(12, None).into());
    }
    if cscds_len.saturating_add(segments_len) > MAXIMUM_DESCRIPTOR_LIST
        || !(cscds_len as usize).is_multiple_of(CSCD_LEN)
    {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let first_segment = HEADER_LEN + cscds_len as usize;
    let (Some(cscds), Some(segments)) = (
        list.get(HEADER_LEN..first_segment),
        list.get(first_segment..first_segment + segments_len as usize),
    ) else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    };
    Ok(ParameterList {
        list: identifier(header)?,
        cscds: parse_cscds(cscds)?,
        segments: parse_segments(segments, first_segment)?,
    })
}

/// LIST ID USAGE 11b gives no identifier; then it must be 0. The other values differ in what is kept of held data,
/// of which there is none.
fn identifier(header: Cdb<'_>) -> Result<Option<u8>, Failure> {
    match (header.bits(1, 4, 3), header.u8_at(0)) {
        (3, 0) => Ok(None),
        (3, _) => Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(0, None)
            .into()),
        (_, list) => Ok(Some(list)),
    }
}

fn parse_cscds(bytes: &[u8]) -> Result<Vec<Cscd>, Failure> {
    if bytes.len() / CSCD_LEN > usize::from(MAXIMUM_CSCD_DESCRIPTORS) {
        return Err(Sense::TOO_MANY_TARGET_DESCRIPTORS.in_parameters(2, None).into());
    }
    bytes
        .chunks_exact(CSCD_LEN)
        .zip((HEADER_LEN..).step_by(CSCD_LEN))
        .map(|(descriptor, at)| Cscd::parse(descriptor, place(at)))
        .collect()
}

fn parse_segments(bytes: &[u8], first: usize) -> Result<Vec<Segment>, Failure> {
    let mut segments = Vec::new();
    let mut done = 0;
    while done < bytes.len() {
        if segments.len() == usize::from(MAXIMUM_SEGMENTS) {
            return Err(Sense::TOO_MANY_SEGMENT_DESCRIPTORS.in_parameters(8, None).into());
        }
        let (segment, len) = Segment::parse(&bytes[done..], place(first + done))?;
        segments.push(segment);
        done += len;
    }
    Ok(segments)
}

fn place(at: usize) -> u16 {
    u16::try_from(at).expect("descriptor lists have a few KiB")
}

const HEADER_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::copy::tests::{block_segment, extended_copy_list};
    use crate::scsi::testing::unit;

    fn list(cscds: usize, segments: usize) -> Vec<u8> {
        let unit = unit(64);
        let segment = block_segment(0, 0, 1, 0, 1);
        extended_copy_list(1, &vec![&unit; cscds], &vec![segment; segments])
    }

    fn code(list: &[u8]) -> (u8, u8) {
        match parse(list) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_length_shorter_than_the_lists_is_an_error_of_length() {
        let whole = list(2, 2);
        assert_eq!(whole.len(), 16 + 64 + 56);
        for len in 0..whole.len() {
            assert_eq!(code(&whole[..len]), (0x1a, 0x00), "{len}");
        }
        let parsed = parse(&whole).unwrap();
        assert_eq!(
            (parsed.list, parsed.cscds.len(), parsed.segments.len()),
            (Some(1), 2, 2)
        );
        let longer = [&whole[..], &[0xff; 100]].concat();
        assert_eq!(parse(&longer).unwrap(), parsed);
    }

    #[test]
    fn descriptors_beyond_the_limits_are_counted_first_and_weighed_before_that() {
        assert!(parse(&list(16, 64)).is_ok());
        assert_eq!(code(&list(17, 1)), (0x26, 0x06));
        assert_eq!(code(&list(1, 65)), (0x26, 0x08));
        assert_eq!(code(&list(17, 73)), (0x1a, 0x00));
    }

    #[test]
    fn header_fields_that_cannot_be_met_are_refused() {
        let mut inline = list(1, 1);
        inline[15] = 1;
        assert_eq!(code(&inline), (0x26, 0x0b));
        let mut odd = list(1, 1);
        odd[3] = 33;
        assert_eq!(code(&odd), (0x1a, 0x00));
        let mut without_list = list(1, 1);
        without_list[1] = 0x18;
        assert_eq!(code(&without_list), (0x26, 0x00));
        without_list[0] = 0;
        assert_eq!(parse(&without_list).unwrap().list, None);
        let mut huge = list(1, 1);
        huge[8..12].fill(0xff);
        assert_eq!(code(&huge), (0x1a, 0x00));
    }
}
