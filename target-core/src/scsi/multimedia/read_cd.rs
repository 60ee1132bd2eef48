//! READ CD and READ CD MSF (MMC-6 §6.19, §6.20), of the user data of a data track: an image has nothing else. Requests
//! for headers, error correction or the sub-channel are refused.

use super::disc::{BLOCK_LEN, block_of};
use crate::scsi::block::chunks::{chunks, turn};
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const READ_CD: CommandSpec = CommandSpec {
    opcode: 0xbe,
    service_action: None,
    name: "READ CD",
    usage: &[
        0xbe,
        SECTOR_TYPE | DAP,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        MAIN_CHANNEL,
        SUB_CHANNEL,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::read(range)
    },
    timeout_s: 30,
    operation: Operation::ReadCd,
};

pub(crate) const READ_CD_MSF: CommandSpec = CommandSpec {
    opcode: 0xb9,
    name: "READ CD MSF",
    usage: &[
        0xb9,
        SECTOR_TYPE | DAP,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        MAIN_CHANNEL,
        SUB_CHANNEL,
        0,
    ],
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::read(range_of_times)
    },
    ..READ_CD
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    match cdb.u8_at(1) & SECTOR_TYPE {
        ANY_SECTOR | MODE_1 => {}
        _ => return Err(Sense::ILLEGAL_MODE_FOR_THIS_TRACK.into()),
    }
    if cdb.u8_at(10) & SUB_CHANNEL != 0 {
        return Err(Cdb::invalid_bit(10, 2));
    }
    let range = context.range();
    match cdb.u8_at(9) & MAIN_CHANNEL {
        0 => Ok(()),
        USER_DATA => read(context, range, data).await,
        _ => Err(Cdb::invalid_bit(9, 7)),
    }
}

async fn read(context: &CommandContext<'_>, range: LbaRange, data: &mut Transfer) -> Result<(), Failure> {
    let block = u64::from(BLOCK_LEN);
    let room = data.want_in(range.blocks * block);
    for chunk in chunks(range.lba * block, room.next_multiple_of(block)) {
        turn(chunk.at != range.lba * block).await;
        let buf = data.in_buffer(chunk.len).await?;
        data.check()?;
        let buf = context.unit().store().read(chunk.at, buf).await?;
        data.put(buf).await?;
    }
    Ok(())
}

fn range(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    LbaRange {
        lba: u64::from(cdb.u32_at(2)),
        blocks: u64::from(cdb.u24_at(6)),
    }
}

/// From a first time to one behind the last. A time in the pregap is a block that is not there.
fn range_of_times(cdb: Cdb<'_>, _capacity: u64) -> LbaRange {
    let time = |byte| block_of([cdb.u8_at(byte), cdb.u8_at(byte + 1), cdb.u8_at(byte + 2)]);
    match (time(3), time(6)) {
        (Some(first), Some(end)) if first <= end => LbaRange {
            lba: u64::from(first),
            blocks: u64::from(end - first),
        },
        _ => LbaRange {
            lba: u64::from(u32::MAX),
            blocks: 1,
        },
    }
}

/// EXPECTED SECTOR TYPE, and the values that a data track satisfies.
const SECTOR_TYPE: u8 = 0x1c;
const ANY_SECTOR: u8 = 0;
const MODE_1: u8 = 2 << 2;
/// Of audio sectors alone: play what cannot be read.
const DAP: u8 = 0x02;
/// SYNC, HEADER CODES, USER DATA, EDC & ECC, C2 ERROR INFORMATION.
const MAIN_CHANNEL: u8 = 0xfe;
const USER_DATA: u8 = 0x10;
const SUB_CHANNEL: u8 = 0x07;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_commands_name_blocks() {
        let cd = [0xbe, 0, 0, 0, 1, 2, 0, 3, 4, 0x10, 0, 0];
        assert_eq!(
            range(Cdb::new(&cd), 0),
            LbaRange {
                lba: 0x102,
                blocks: 0x304
            }
        );
        let msf = [0xb9, 0, 0, 0, 2, 5, 0, 3, 0, 0x10, 0, 0];
        assert_eq!(range_of_times(Cdb::new(&msf), 0), LbaRange { lba: 5, blocks: 70 });
        for backwards_or_pregap in [[0, 3, 0, 0, 2, 5], [0, 1, 0, 0, 2, 5]] {
            let cdb = [&[0xb9, 0, 0][..], &backwards_or_pregap, &[0x10, 0, 0]].concat();
            assert!(!range_of_times(Cdb::new(&cdb), 1 << 31).fits(1 << 31));
        }
    }
}
