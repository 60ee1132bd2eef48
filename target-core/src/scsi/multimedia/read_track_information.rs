//! READ TRACK INFORMATION (MMC-6 §6.27): the one track, by a block on it, by its number or by its session.

use super::disc::Disc;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x52,
    service_action: None,
    name: "READ TRACK INFORMATION",
    // OPEN asks for a track that can be written.
    usage: &[0x52, ADDRESS_TYPE, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadTrackInformation,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let disc = Disc::of(context.unit());
    let address = cdb.u32_at(2);
    match cdb.u8_at(1) & ADDRESS_TYPE {
        0 if address >= disc.blocks => {
            return Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE
                .at(address.into())
                .into());
        }
        1 | 2 if address != 1 => return Err(Cdb::invalid_field(2)),
        0..=2 => {}
        _ => return Err(Cdb::invalid_bit(1, 1)),
    }
    data.put_parameters(&track(disc), usize::from(cdb.u16_at(7)))
        .await
}

fn track(disc: Disc) -> [u8; TRACK_LEN] {
    let mut reply = [0; TRACK_LEN];
    reply[1] = DATA_LENGTH;
    // LOGICAL TRACK NUMBER and SESSION NUMBER.
    reply[2..4].fill(1);
    reply[5] = DATA_TRACK;
    reply[6] = MODE_1;
    reply[24..28].copy_from_slice(&disc.blocks.to_be_bytes());
    reply
}

const ADDRESS_TYPE: u8 = 0x03;
const TRACK_LEN: usize = 36;
const DATA_LENGTH: u8 = 34;
/// TRACK MODE: data, recorded without interruption.
const DATA_TRACK: u8 = 4;
/// DATA MODE.
const MODE_1: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_track_is_as_long_as_the_disc() {
        let reply = track(Disc { blocks: 0x1234 });
        assert_eq!(reply[..8], [0, 34, 1, 1, 0, 4, 1, 0]);
        assert_eq!(reply[8..24], [0; 16]);
        assert_eq!(reply[24..28], [0, 0, 0x12, 0x34]);
    }
}
