//! FORMAT UNIT (SBC-4): everything on the medium is gone afterwards and reads as zeroes, or as the initialization pattern that
//! was sent. Nothing else changes: neither block length nor size can be chosen, and there are no defects to be listed.
//!
//! The CDB does not say how long the parameter list is; its header does, and the initialization pattern descriptor behind
//! it. A list of defects is refused.

use super::erase::{self, Work};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::erasure::ErasureKind;
use crate::scsi::self_test::SelfTestEnd;
use crate::scsi::table::{CommandSpec, ErasureRule, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x04,
    service_action: None,
    name: "FORMAT UNIT",
    // FMTPINFO must be 0, since there is no protection information, and so must be FFMT: there is one way to format.
    usage: &[0x04, LONGLIST | FMTDATA | CMPLST | DEFECT_LIST_FORMAT, 0, 0, 0, 0],
    offer: Offer::Always,
    needs: Needs {
        erasure: ErasureRule::Restart,
        ..Needs::exclusive(erase::whole_medium)
    },
    timeout_s: 0,
    operation: Operation::FormatUnit,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    if let Some(ErasureKind::Sanitize { .. }) = context.unit().erasure().failed() {
        // Nothing but another SANITIZE helps then.
        return Err(Sense::SANITIZE_COMMAND_FAILED.into());
    }
    context.unit().self_tests().abort(SelfTestEnd::AbortedOtherwise);
    let flags = cdb.u8_at(1);
    let options = if flags & FMTDATA == 0 {
        Options::default()
    } else {
        let header_len = if flags & LONGLIST == 0 {
            SHORT_LEN
        } else {
            LONG_LEN
        };
        let block_size = context.unit().store().geometry().block_size as usize;
        let longest = header_len + DESCRIPTOR_LEN + block_size;
        let sent = usize::try_from(data.offered_out()).unwrap_or(usize::MAX);
        let list = data.get_parameters(sent.clamp(header_len, longest)).await?;
        parse(&list, header_len, block_size)?
    };
    let Options { immediate, pattern } = options;
    erase::start(context, Work::Format { pattern }, immediate, data).await
}

/// What a parameter list asks for.
#[derive(Debug, Default, Eq, PartialEq)]
struct Options {
    /// IMMED.
    immediate: bool,
    /// What blocks are to be filled with; `None` for zeroes that need no space.
    pattern: Option<Vec<u8>>,
}

/// Understands a parameter list with a header of `len` bytes.
fn parse(list: &[u8], len: usize, block_size: usize) -> Result<Options, Failure> {
    let invalid = |byte, bit| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, bit));
    let (header, rest) = list
        .split_at_checked(len)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    // PROTECTION FIELD USAGE, and the reserved bits before it.
    if header[0] != 0 {
        return Err(invalid(0, first_bit(header[0])));
    }
    let flags = header[1];
    // Without FOV the other options are not valid; with it, those without a meaning here may have either value.
    let allowed = if flags & FOV == 0 {
        IMMED | VENDOR_SPECIFIC
    } else {
        FOV | DPRY | DCRT | STPF | IP | IMMED | VENDOR_SPECIFIC
    };
    if flags & !allowed != 0 {
        return Err(invalid(1, first_bit(flags & !allowed)));
    }
    // The long header has two bytes more before the length of the defect list: a reserved one, and one about protection
    // information.
    let fields = (2_u16..).zip(&header[2..len]);
    if let Some((byte, _)) = fields.into_iter().find(|(_, value)| **value != 0) {
        let first_of_length = if len == LONG_LEN { 4 } else { 2 };
        return Err(invalid(byte.min(first_of_length), None));
    }
    let pattern = if flags & IP == 0 {
        None
    } else {
        let at = if len == LONG_LEN { 8 } else { 4 };
        parse_pattern(rest, at, block_size)?
    };
    Ok(Options {
        immediate: flags & IMMED != 0,
        pattern,
    })
}

/// The initialization pattern descriptor, which begins at byte `at` of the list.
fn parse_pattern(descriptor: &[u8], at: u16, block_size: usize) -> Result<Option<Vec<u8>>, Failure> {
    let invalid =
        |byte, bit| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(at + byte, bit));
    let (header, rest) = descriptor
        .split_first_chunk::<DESCRIPTOR_LEN>()
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    // The first byte would ask for a pattern that changes from block to block, or for blocks out of reach (SI).
    if header[0] != 0 {
        return Err(invalid(0, first_bit(header[0])));
    }
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    match header[1] {
        DEFAULT_PATTERN if len == 0 => Ok(None),
        REPEAT_PATTERN if (1..=block_size).contains(&len) => {
            let pattern = rest.get(..len).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
            Ok(Some(pattern.to_vec()))
        }
        DEFAULT_PATTERN | REPEAT_PATTERN => Err(invalid(2, None)),
        _ => Err(invalid(1, None)),
    }
}

/// The most significant bit that is set.
fn first_bit(byte: u8) -> Option<u8> {
    byte.checked_ilog2().and_then(|bit| u8::try_from(bit).ok())
}

const LONGLIST: u8 = 0x20;
const FMTDATA: u8 = 0x10;
/// Complete list: the defects are all that there are.
const CMPLST: u8 = 0x08;
const DEFECT_LIST_FORMAT: u8 = 0x07;

/// Lengths of the short and the long parameter list header.
const SHORT_LEN: usize = 4;
const LONG_LEN: usize = 8;

/// Format options valid.
const FOV: u8 = 0x80;
/// Disable primary list, disable certification, stop format when a list is missing.
const DPRY: u8 = 0x40;
const DCRT: u8 = 0x20;
const STPF: u8 = 0x10;
/// An initialization pattern descriptor follows the header.
const IP: u8 = 0x08;
const IMMED: u8 = 0x02;
const VENDOR_SPECIFIC: u8 = 0x01;

/// Length of an initialization pattern descriptor without the pattern; the pattern's types.
const DESCRIPTOR_LEN: usize = 4;
const DEFAULT_PATTERN: u8 = 0x00;
const REPEAT_PATTERN: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_without_anything_behind_them_are_understood() {
        for (header, immediate) in [
            (&[0, 0, 0, 0][..], false),
            (&[0, 0x02, 0, 0], true),
            (&[0, 0xf2, 0, 0], true),
            (&[0, 0x80, 0, 0, 0, 0, 0, 0], false),
            (&[0, 0x02, 0, 0, 0, 0, 0, 0], true),
        ] {
            let options = parse(header, header.len(), 512).unwrap();
            assert_eq!(options.immediate, immediate, "{header:02x?}");
            assert_eq!(options.pattern, None, "{header:02x?}");
        }
    }

    #[test]
    fn an_initialization_pattern_is_repeated_or_the_default_one() {
        for (list, pattern) in [
            (&[0, 0x88, 0, 0, 0, 0, 0, 0][..], None),
            (&[0, 0x88, 0, 0, 0, 1, 0, 2, 7, 8, 9], Some(vec![7, 8])),
        ] {
            assert_eq!(parse(list, 4, 8).unwrap().pattern, pattern, "{list:02x?}");
        }
        let cases: [(&[u8], u16, Option<u8>); 6] = [
            (&[0, 0x88, 0, 0, 0x20, 1, 0, 1, 7], 4, Some(5)),
            (&[0, 0x88, 0, 0, 0x40, 1, 0, 1, 7], 4, Some(6)),
            (&[0, 0x88, 0, 0, 0, 2, 0, 1, 7], 5, None),
            (&[0, 0x88, 0, 0, 0, 0, 0, 1, 7], 6, None),
            (&[0, 0x88, 0, 0, 0, 1, 0, 0], 6, None),
            (&[0, 0x88, 0, 0, 0, 1, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], 6, None),
        ];
        for (list, byte, bit) in cases {
            let Err(Failure::Check(sense)) = parse(list, 4, 8) else {
                panic!("{list:02x?}");
            };
            let field = sense.field.unwrap();
            assert_eq!((field.byte, field.bit), (byte, bit), "{list:02x?}");
        }
        for cut in [&[0, 0x88, 0, 0, 0, 0, 0][..], &[0, 0x88, 0, 0, 0, 1, 0, 2, 7]] {
            let Err(Failure::Check(sense)) = parse(cut, 4, 8) else {
                panic!("{cut:02x?}");
            };
            assert_eq!(sense.code, (0x1a, 0x00));
        }
    }

    #[test]
    fn everything_else_is_pointed_at() {
        let cases: [(&[u8], u16, Option<u8>); 9] = [
            (&[0x02, 0, 0, 0], 0, Some(1)),
            (&[0x80, 0, 0, 0], 0, Some(7)),
            (&[0, 0x42, 0, 0], 1, Some(6)),
            (&[0, 0x08, 0, 0], 1, Some(3)),
            (&[0, 0x84, 0, 0], 1, Some(2)),
            (&[0, 0, 0, 8], 2, None),
            (&[0, 0, 0, 0, 0, 0, 0, 8], 4, None),
            (&[0, 0, 1, 0, 0, 0, 0, 0], 2, None),
            (&[0, 0, 0, 0x30, 0, 0, 0, 0], 3, None),
        ];
        for (header, byte, bit) in cases {
            let Err(Failure::Check(sense)) = parse(header, header.len(), 512) else {
                panic!("{header:02x?}");
            };
            let field = sense.field.unwrap();
            assert_eq!((sense.code, field.in_cdb), ((0x26, 0x00), false));
            assert_eq!((field.byte, field.bit), (byte, bit), "{header:02x?}");
        }
    }

    #[test]
    fn a_cut_header_is_a_length_error() {
        for (header, len) in [(&[][..], 4), (&[0, 0, 0], 4), (&[0, 0, 0, 0], 8)] {
            let Err(Failure::Check(sense)) = parse(header, len, 512) else {
                panic!("{header:02x?}");
            };
            assert_eq!(sense.code, (0x1a, 0x00));
        }
    }
}
