//! Segment descriptors (SPC-4): what is to be copied from which CSCD to which. From block device to block
//! device, in blocks (02h), and in bytes (0Ah).

use crate::scsi::cdb::Cdb;
use crate::scsi::{Failure, Sense};

/// One step of an EXTENDED COPY.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Segment {
    /// CSCD descriptor of the source, by place in its list.
    pub(super) source: u16,
    /// CSCD descriptor of the destination.
    pub(super) destination: u16,
    source_lba: u64,
    destination_lba: u64,
    amount: Amount,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Amount {
    /// Blocks of the destination if `of_destination`, else of the source.
    Blocks { count: u16, of_destination: bool },
    /// Bytes, from a byte of the first block to a byte of the first block.
    Bytes { count: u32, from: u16, to: u16 },
}

/// The same in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Segment {
    /// Reads the descriptor at byte `at` of the parameter list, which may go on behind it. Returns its length too.
    pub(super) fn parse(bytes: &[u8], at: u16) -> Result<(Self, usize), Failure> {
        let fields = Cdb::new(bytes);
        let kind = fields.u8_at(0);
        let expected = match kind {
            BLOCK_TO_BLOCK => BLOCK_TO_BLOCK_LEN,
            BLOCK_TO_BLOCK_OFFSET => BLOCK_TO_BLOCK_OFFSET_LEN,
            _ => {
                return Err(Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE
                    .in_parameters(at, None)
                    .into());
            }
        };
        // DESCRIPTOR LENGTH counts from behind itself.
        if usize::from(fields.u16_at(2)) + 4 != expected {
            let place = at.saturating_add(2);
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(place, None)
                .into());
        }
        if bytes.len() < expected {
            return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        let amount = if kind == BLOCK_TO_BLOCK {
            Amount::Blocks {
                count: fields.u16_at(10),
                of_destination: fields.bit(1, 1),
            }
        } else {
            Amount::Bytes {
                count: fields.u32_at(8),
                from: fields.u16_at(28),
                to: fields.u16_at(30),
            }
        };
        let segment = Self {
            source: fields.u16_at(4),
            destination: fields.u16_at(6),
            source_lba: fields.u64_at(12),
            destination_lba: fields.u64_at(20),
            amount,
        };
        Ok((segment, expected))
    }

    /// The bytes it means, with the block sizes and the sizes in bytes of both ends. The sense is that of a copy that
    /// ends here, with the field's place in the descriptor.
    pub(super) fn span(self, blocks: (u32, u32), sizes: (u64, u64)) -> Result<Span, (Sense, Option<u16>)> {
        let start = |lba: u64, block: u32, offset: u16| {
            let bytes = lba.checked_mul(u64::from(block))?;
            bytes.checked_add(u64::from(offset))
        };
        let (from, to, len) = match self.amount {
            Amount::Blocks {
                count,
                of_destination,
            } => {
                let block = if of_destination { blocks.1 } else { blocks.0 };
                (0, 0, u64::from(count) * u64::from(block))
            }
            Amount::Bytes { count, from, to } => (from, to, u64::from(count)),
        };
        for (offset, block, at) in [(from, blocks.0, 28), (to, blocks.1, 30)] {
            if u32::from(offset) >= block {
                return Err((Sense::COPY_ABORTED, Some(at)));
            }
        }
        // Part of a block would be left over, which PAD and CAT might deal with: they are not offered.
        if let Amount::Blocks { .. } = self.amount
            && len % u64::from(blocks.0.max(blocks.1)) != 0
        {
            return Err((Sense::UNEXPECTED_INEXACT_SEGMENT, None));
        }
        let inside = |start: Option<u64>, size| {
            start.filter(|start| start.checked_add(len) <= Some(size) && start.checked_add(len).is_some())
        };
        let from = inside(start(self.source_lba, blocks.0, from), sizes.0);
        let to = inside(start(self.destination_lba, blocks.1, to), sizes.1);
        Ok(Span {
            from: from.ok_or((Sense::COPY_ABORTED, Some(12)))?,
            to: to.ok_or((Sense::COPY_ABORTED, Some(20)))?,
            len,
        })
    }
}

/// DESCRIPTOR TYPE CODE: block device to block device; the same with offsets.
pub(super) const BLOCK_TO_BLOCK: u8 = 0x02;
pub(super) const BLOCK_TO_BLOCK_OFFSET: u8 = 0x0a;
const BLOCK_TO_BLOCK_LEN: usize = 28;
const BLOCK_TO_BLOCK_OFFSET_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A 02h descriptor.
    fn blocks(flags: u8, count: u16, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0x02, flags, 0, 0x18, 0, 1, 0, 2, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        bytes
    }

    /// A 0Ah descriptor.
    fn bytes(count: u32, from: (u64, u16), to: (u64, u16)) -> Vec<u8> {
        let mut bytes = vec![0x0a, 0, 0, 0x1c, 0, 0, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(from.0.to_be_bytes());
        bytes.extend(to.0.to_be_bytes());
        bytes.extend(from.1.to_be_bytes());
        bytes.extend(to.1.to_be_bytes());
        bytes
    }

    fn span(descriptor: &[u8], blocks: (u32, u32)) -> Result<Span, (Sense, Option<u16>)> {
        let (segment, _) = Segment::parse(descriptor, 0).unwrap();
        segment.span(blocks, (1 << 20, 1 << 20))
    }

    fn code(descriptor: &[u8]) -> (u8, u8) {
        match Segment::parse(descriptor, 0) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn blocks_are_counted_in_the_source_or_the_destination() {
        let (segment, len) = Segment::parse(&blocks(0, 16, 8, 1), 0).unwrap();
        assert_eq!((segment.source, segment.destination, len), (1, 2, 28));
        let expected = |len| Span {
            from: 4096,
            to: 4096,
            len,
        };
        assert_eq!(span(&blocks(0, 16, 8, 1), (512, 4096)), Ok(expected(8192)));
        assert_eq!(span(&blocks(2, 2, 8, 1), (512, 4096)), Ok(expected(8192)));
        let inexact = span(&blocks(0, 9, 8, 1), (512, 4096)).unwrap_err();
        assert_eq!(inexact, (Sense::UNEXPECTED_INEXACT_SEGMENT, None));
    }

    #[test]
    fn bytes_begin_inside_the_first_block() {
        let moved = span(&bytes(1000, (2, 511), (3, 1)), (512, 512)).unwrap();
        assert_eq!((moved.from, moved.to, moved.len), (1535, 1537, 1000));
        for (from, to, at) in [(512, 0, 28), (0, 512, 30)] {
            let wrong = span(&bytes(1000, (2, from), (3, to)), (512, 512)).unwrap_err();
            assert_eq!(wrong, (Sense::COPY_ABORTED, Some(at)));
        }
    }

    #[test]
    fn segments_beyond_an_end_point_at_the_address() {
        for (from, to, at) in [
            (2047, 0, 12),
            (0, 2047, 20),
            (u64::MAX, 0, 12),
            (0, u64::MAX, 20),
            (u64::MAX / 512, 0, 12),
        ] {
            let wrong = span(&blocks(0, 2, from, to), (512, 512)).unwrap_err();
            assert_eq!(wrong, (Sense::COPY_ABORTED, Some(at)), "{from} {to}");
        }
        assert!(span(&blocks(0, 2, 2046, 0), (512, 512)).is_ok());
        assert!(span(&blocks(0, 0, 2048, 0), (512, 512)).is_ok());
    }

    #[test]
    fn descriptors_of_other_kinds_and_lengths_are_refused() {
        let good = blocks(0, 1, 0, 0);
        for len in 4..28 {
            assert_eq!(code(&good[..len]), (0x1a, 0x00), "{len}");
        }
        let mut wrong = good;
        wrong[3] = 0x1c;
        assert_eq!(code(&wrong), (0x26, 0x00));
        for kind in [0x00, 0x01, 0x03, 0x07, 0x0b, 0xbe, 0xff] {
            wrong[0] = kind;
            assert_eq!(code(&wrong), (0x26, 0x09), "{kind:#x}");
        }
        assert_eq!(code(&[]), (0x26, 0x09));
    }
}
