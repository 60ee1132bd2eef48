//! FORMAT UNIT (SBC-4): everything on the medium is gone afterwards and reads as zeroes. Nothing else changes: neither block
//! length nor size can be chosen, and there are no defects to be listed.
//!
//! The CDB does not say how long the parameter list is; its header does. A list with anything behind the header, defects
//! or an initialization pattern, is refused.

use super::erase::{self, Work};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::erasure::ErasureKind;
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
    let flags = cdb.u8_at(1);
    let immediate = if flags & FMTDATA == 0 {
        false
    } else {
        let header_len = if flags & LONGLIST == 0 {
            SHORT_LEN
        } else {
            LONG_LEN
        };
        let list = data.get_parameters(header_len).await?;
        parse(&list, header_len)?
    };
    erase::start(context, ErasureKind::Format, Work::Clear, immediate, data).await
}

/// Checks a parameter list header; whether it has IMMED.
fn parse(header: &[u8], len: usize) -> Result<bool, Failure> {
    let invalid = |byte, bit| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, bit));
    if header.len() < len {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    // PROTECTION FIELD USAGE, and the reserved bits before it.
    if header[0] != 0 {
        return Err(invalid(0, first_bit(header[0])));
    }
    let flags = header[1];
    // Without FOV the other options are not valid; with it, those without a meaning here may have either value.
    let allowed = if flags & FOV == 0 {
        IMMED | VENDOR_SPECIFIC
    } else {
        FOV | DPRY | DCRT | STPF | IMMED | VENDOR_SPECIFIC
    };
    if flags & !allowed != 0 {
        return Err(invalid(1, first_bit(flags & !allowed)));
    }
    // The long header has two bytes more before the length of the defect list: a reserved one, and one about protection
    // information.
    let rest = (2_u16..).zip(&header[2..len]);
    if let Some((byte, _)) = rest.into_iter().find(|(_, value)| **value != 0) {
        let first_of_length = if len == LONG_LEN { 4 } else { 2 };
        return Err(invalid(byte.min(first_of_length), None));
    }
    Ok(flags & IMMED != 0)
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
const IMMED: u8 = 0x02;
const VENDOR_SPECIFIC: u8 = 0x01;

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
            assert_eq!(parse(header, header.len()).unwrap(), immediate, "{header:02x?}");
        }
    }

    #[test]
    fn everything_else_is_pointed_at() {
        let cases: [(&[u8], u16, Option<u8>); 9] = [
            (&[0x02, 0, 0, 0], 0, Some(1)),
            (&[0x80, 0, 0, 0], 0, Some(7)),
            (&[0, 0x42, 0, 0], 1, Some(6)),
            (&[0, 0x88, 0, 0], 1, Some(3)),
            (&[0, 0x84, 0, 0], 1, Some(2)),
            (&[0, 0, 0, 8], 2, None),
            (&[0, 0, 0, 0, 0, 0, 0, 8], 4, None),
            (&[0, 0, 1, 0, 0, 0, 0, 0], 2, None),
            (&[0, 0, 0, 0x30, 0, 0, 0, 0], 3, None),
        ];
        for (header, byte, bit) in cases {
            let Err(Failure::Check(sense)) = parse(header, header.len()) else {
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
            let Err(Failure::Check(sense)) = parse(header, len) else {
                panic!("{header:02x?}");
            };
            assert_eq!(sense.code, (0x1a, 0x00));
        }
    }
}
