//! Additional header segments (§11.2.2): extended CDBs and the read length of bidirectional commands.
//!
//! A segment is AHSLength (two bytes), AHSType (one) and as many bytes as AHSLength says, padded to a multiple of
//! four. Both types begin with a reserved byte, which AHSLength counts.

use bytes::Bytes;

use crate::DecodeError;

/// The additional header segments of one SCSI Command, decoded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ahs {
    /// CDB bytes after the first sixteen (§11.2.2.3); empty when there are none.
    pub extended_cdb: Bytes,
    /// Bidirectional Read Expected Data Transfer Length (§11.2.2.4).
    pub bidi_read_len: Option<u32>,
}

impl Ahs {
    /// Reads all segments. Unknown types, lengths that leave the area, repeated segments are errors.
    pub fn decode(area: &[u8]) -> Result<Self, DecodeError> {
        let mut ahs = Self::default();
        let mut rest = area;
        while !rest.is_empty() {
            let (kind, content, next) = split_segment(rest)?;
            match kind {
                EXTENDED_CDB => ahs.add_extended_cdb(content)?,
                BIDI_READ_LEN => ahs.add_bidi_read_len(content)?,
                _ => return Err(DecodeError::Ahs("reserved type")),
            }
            rest = next;
        }
        Ok(ahs)
    }

    /// Writes the segments, padded.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut area = Vec::new();
        if !self.extended_cdb.is_empty() {
            push_segment(&mut area, EXTENDED_CDB, &self.extended_cdb);
        }
        if let Some(len) = self.bidi_read_len {
            push_segment(&mut area, BIDI_READ_LEN, &len.to_be_bytes());
        }
        area
    }

    fn add_extended_cdb(&mut self, content: &[u8]) -> Result<(), DecodeError> {
        if !self.extended_cdb.is_empty() {
            return Err(DecodeError::Ahs("a second extended CDB"));
        }
        // A CDB that fits into the header has no such segment.
        if content.is_empty() {
            return Err(DecodeError::Ahs("an extended CDB without bytes"));
        }
        self.extended_cdb = Bytes::copy_from_slice(content);
        Ok(())
    }

    fn add_bidi_read_len(&mut self, content: &[u8]) -> Result<(), DecodeError> {
        let Ok(len) = content.try_into() else {
            return Err(DecodeError::Ahs(
                "a bidirectional read length that is not four bytes",
            ));
        };
        match self.bidi_read_len.replace(u32::from_be_bytes(len)) {
            None => Ok(()),
            Some(_) => Err(DecodeError::Ahs("a second bidirectional read length")),
        }
    }
}

/// Takes the first segment off: its type, its bytes after the reserved one, and what follows its padding.
fn split_segment(area: &[u8]) -> Result<(u8, &[u8], &[u8]), DecodeError> {
    let Some((&[high, low, kind], rest)) = area.split_first_chunk() else {
        return Err(DecodeError::Ahs("too short for a segment"));
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let padded = (PREFIX_LEN + len).next_multiple_of(4) - PREFIX_LEN;
    let (Some(content), Some(next)) = (rest.get(..len), rest.get(padded..)) else {
        return Err(DecodeError::Ahs("longer than the area"));
    };
    match content.split_first() {
        Some((_reserved, content)) => Ok((kind & TYPE_MASK, content, next)),
        None => Err(DecodeError::Ahs("length 0")),
    }
}

fn push_segment(area: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let len = u16::try_from(content.len() + 1).expect("an area has at most 1020 bytes");
    area.extend_from_slice(&len.to_be_bytes());
    area.extend_from_slice(&[kind, 0]);
    area.extend_from_slice(content);
    area.resize(area.len().next_multiple_of(4), 0);
}

/// AHSLength and AHSType.
const PREFIX_LEN: usize = 3;
/// The two high bits of AHSType are reserved.
const TYPE_MASK: u8 = 0x3f;
const EXTENDED_CDB: u8 = 1;
const BIDI_READ_LEN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(area: &[u8]) -> &'static str {
        match Ahs::decode(area) {
            Err(DecodeError::Ahs(reason)) => reason,
            other => panic!("{area:02x?} gave {other:?}"),
        }
    }

    #[test]
    fn a_long_cdb_and_a_read_length_have_the_layout_of_the_standard() {
        let ahs = Ahs {
            extended_cdb: Bytes::from_static(&[0xaa; 5]),
            bidi_read_len: Some(0x0102_0304),
        };
        let area = [
            0, 6, 1, 0, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0, 0,
            0, // five bytes, reserved byte counted, three of padding
            0, 5, 2, 0, 1, 2, 3, 4,
        ];
        assert_eq!(ahs.encode(), area);
        assert_eq!(Ahs::decode(&area), Ok(ahs));
    }

    #[test]
    fn no_area_means_nothing_additional() {
        assert_eq!(Ahs::decode(&[]), Ok(Ahs::default()));
        assert!(Ahs::default().encode().is_empty());
    }

    #[test]
    fn malformed_segments_are_refused_by_name() {
        assert_eq!(reason(&[0, 5]), "too short for a segment");
        assert_eq!(reason(&[0, 0, 1, 0]), "length 0");
        assert_eq!(reason(&[0, 1, 1, 0]), "an extended CDB without bytes");
        assert_eq!(reason(&[0, 9, 1, 0, 1, 2, 3, 4]), "longer than the area");
        assert_eq!(reason(&[0xff, 0xff, 1, 0, 1, 2, 3, 4]), "longer than the area");
        assert_eq!(
            reason(&[0, 4, 2, 0, 1, 2, 3, 0]),
            "a bidirectional read length that is not four bytes"
        );
        assert_eq!(reason(&[0, 5, 3, 0, 1, 2, 3, 4]), "reserved type");
        assert_eq!(
            reason(&[0, 2, 1, 0, 7, 0, 0, 0, 0, 2, 1, 0, 7, 0, 0, 0]),
            "a second extended CDB"
        );
        assert_eq!(
            reason(&[0, 5, 2, 0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0, 0]),
            "a second bidirectional read length"
        );
    }

    #[test]
    fn padding_that_is_cut_off_is_refused() {
        assert_eq!(reason(&[0, 2, 1, 0, 7]), "longer than the area");
    }
}
