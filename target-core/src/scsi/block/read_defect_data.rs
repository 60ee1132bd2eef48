//! READ DEFECT DATA (10) and (12) (SBC-4): lists without an entry. The store replaces bad blocks, if anybody does, and tells
//! nobody.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const READ_DEFECT_DATA_10: CommandSpec = CommandSpec {
    opcode: 0x37,
    service_action: None,
    name: "READ DEFECT DATA (10)",
    usage: &[0x37, 0, LISTS_AND_FORMAT, 0, 0, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs::MEDIUM,
    timeout_s: 10,
    operation: Operation::ReadDefectData,
};

pub(crate) const READ_DEFECT_DATA_12: CommandSpec = CommandSpec {
    opcode: 0xb7,
    name: "READ DEFECT DATA (12)",
    usage: &[
        0xb7,
        LISTS_AND_FORMAT,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
    ],
    ..READ_DEFECT_DATA_10
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let ten = cdb.opcode() == READ_DEFECT_DATA_10.opcode;
    let at = if ten { 2 } else { 1 };
    let asked = cdb.u8_at(at) & LISTS_AND_FORMAT;
    if asked & FORMAT == RESERVED_FORMAT {
        return Err(Cdb::invalid_bit(if ten { 2 } else { 1 }, 2));
    }
    // Both lists are valid, being empty, and an empty list is the same in every format.
    let header = [0, asked, 0, 0, 0, 0, 0, 0];
    if ten {
        data.put_parameters(&header[..4], usize::from(cdb.u16_at(7)))
            .await
    } else {
        data.put_parameters(&header, cdb.u32_at(6) as usize).await
    }
}

/// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT.
const LISTS_AND_FORMAT: u8 = 0x1f;
const FORMAT: u8 = 0x07;
const RESERVED_FORMAT: u8 = 0x07;
