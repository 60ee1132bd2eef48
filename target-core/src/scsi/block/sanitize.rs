//! SANITIZE (SBC-4): makes what the medium holds unreadable, in the background.
//!
//! OVERWRITE writes a pattern over every block. BLOCK ERASE, for units that can give space back, overwrites what is mapped
//! and gives it back. CRYPTOGRAPHIC ERASE replaces the key of a store that has one. EXIT FAILURE MODE allows to use a
//! medium whose sanitizing failed, if that was asked for beforehand (AUSE). There are no zones that ZNR could reset.

use super::erase::{self, Work};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::erasure::ErasureKind;
use crate::scsi::table::{CommandSpec, ErasureRule, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, SanitizeWork, Sense};
use crate::transfer::Transfer;

pub(crate) const OVERWRITE: CommandSpec = CommandSpec {
    opcode: 0x48,
    service_action: Some(0x01),
    name: "SANITIZE OVERWRITE",
    usage: &usage(0x01),
    offer: Offer::Always,
    needs: Needs {
        erasure: ErasureRule::Restart,
        ..Needs::exclusive(erase::whole_medium)
    },
    timeout_s: 0,
    operation: Operation::Sanitize,
};

pub(crate) const BLOCK_ERASE: CommandSpec = CommandSpec {
    service_action: Some(0x02),
    name: "SANITIZE BLOCK ERASE",
    usage: &usage(0x02),
    offer: Offer::Thin,
    ..OVERWRITE
};

pub(crate) const CRYPTOGRAPHIC_ERASE: CommandSpec = CommandSpec {
    service_action: Some(0x03),
    name: "SANITIZE CRYPTOGRAPHIC ERASE",
    usage: &usage(0x03),
    offer: Offer::KeyErase,
    ..OVERWRITE
};

pub(crate) const EXIT_FAILURE_MODE: CommandSpec = CommandSpec {
    service_action: Some(0x1f),
    name: "SANITIZE EXIT FAILURE MODE",
    usage: &usage(0x1f),
    needs: Needs {
        erasure: ErasureRule::Restart,
        reservation: ReservationClass::Writes,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    ..OVERWRITE
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let flags = cdb.u8_at(1);
    let unrestricted = flags & AUSE != 0;
    let erasure = context.unit().erasure();
    let list_len = usize::from(cdb.u16_at(7));
    let work = match cdb.service_action() {
        0x01 => overwrite(context, list_len, data).await?,
        _ if list_len != 0 => return Err(Cdb::invalid_field(PARAMETER_LIST_LENGTH)),
        0x02 => SanitizeWork::EraseBlocks,
        0x03 => SanitizeWork::EraseKey,
        _ => return erasure.exit_failure_mode().await,
    };
    if let (Some(ErasureKind::Sanitize { unrestricted: false }), true) = (erasure.failed(), unrestricted) {
        // What failed forbade a way out, and that is not to be had by the next attempt.
        return Err(Cdb::invalid_bit(1, 5));
    }
    let work = Work::Sanitize { unrestricted, work };
    erase::start(context, work, flags & IMMED != 0, data).await
}

async fn overwrite(
    context: &CommandContext<'_>,
    list_len: usize,
    data: &mut Transfer,
) -> Result<SanitizeWork, Failure> {
    let block_size = context.unit().store().geometry().block_size as usize;
    if !(HEADER_LEN + 1..=HEADER_LEN + block_size).contains(&list_len) {
        return Err(Cdb::invalid_field(PARAMETER_LIST_LENGTH));
    }
    let list = data.get_parameters(list_len).await?;
    parse(&list, block_size)
}

/// The parameter list of OVERWRITE.
fn parse(list: &[u8], block_size: usize) -> Result<SanitizeWork, Failure> {
    let invalid = |byte, bit| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, bit));
    let (header, rest) = list
        .split_at_checked(HEADER_LEN)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let passes = header[0] & OVERWRITE_COUNT;
    let pattern_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] & TEST != 0 {
        return Err(invalid(0, Some(6)));
    }
    if passes == 0 {
        return Err(invalid(0, Some(4)));
    }
    if header[1] != 0 {
        return Err(invalid(1, None));
    }
    if pattern_len == 0 || pattern_len > block_size {
        return Err(invalid(2, None));
    }
    let pattern = rest
        .get(..pattern_len)
        .ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    Ok(SanitizeWork::Overwrite {
        pattern: pattern.to_vec(),
        passes,
        invert: header[0] & INVERT != 0,
    })
}

const fn usage(service_action: u8) -> [u8; 10] {
    [0x48, IMMED | AUSE | service_action, 0, 0, 0, 0, 0, 0xff, 0xff, 0]
}

const IMMED: u8 = 0x80;
/// Allow unrestricted sanitize exit.
const AUSE: u8 = 0x20;
/// Place of PARAMETER LIST LENGTH.
const PARAMETER_LIST_LENGTH: u16 = 7;

const HEADER_LEN: usize = 4;
const INVERT: u8 = 0x80;
const TEST: u8 = 0x60;
const OVERWRITE_COUNT: u8 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(list: &[u8]) -> (Vec<u8>, u8, bool) {
        match parse(list, 8) {
            Ok(SanitizeWork::Overwrite {
                pattern,
                passes,
                invert,
            }) => (pattern, passes, invert),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_behind_the_pattern_is_not_looked_at() {
        assert_eq!(pattern(&[0x83, 0, 0, 3, 1, 2, 3]), (vec![1, 2, 3], 3, true));
        assert_eq!(pattern(&[31, 0, 0, 1, 7, 9]), (vec![7], 31, false));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let cases: [(&[u8], u16, Option<u8>); 6] = [
            (&[0x00, 0, 0, 1, 1], 0, Some(4)),
            (&[0x21, 0, 0, 1, 1], 0, Some(6)),
            (&[0x01, 1, 0, 1, 1], 1, None),
            (&[0x01, 0, 0, 0, 1], 2, None),
            (&[0x01, 0, 0, 9, 1], 2, None),
            (&[0x01, 0, 1, 1, 1], 2, None),
        ];
        for (list, byte, bit) in cases {
            let Err(Failure::Check(sense)) = parse(list, 8) else {
                panic!("{list:02x?}");
            };
            let field = sense.field.unwrap();
            assert_eq!((sense.code, field.in_cdb), ((0x26, 0x00), false));
            assert_eq!((field.byte, field.bit), (byte, bit), "{list:02x?}");
        }
        for cut in [&[][..], &[1, 0, 0], &[1, 0, 0, 2, 1]] {
            let Err(Failure::Check(sense)) = parse(cut, 8) else {
                panic!("{cut:02x?}");
            };
            assert_eq!(sense.code, (0x1a, 0x00));
        }
    }
}
