//! READ DISC STRUCTURE (MMC-6 §6.22), called READ DVD STRUCTURE before MMC-5: what the lead-in of a DVD-ROM says.

use super::disc::{Disc, Profile};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0xad,
    service_action: None,
    name: "READ DISC STRUCTURE",
    // The address and the AGID mean nothing to the structures that there are.
    usage: &[
        0xad, MEDIA_TYPE, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, AGID, 0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadDiscStructure,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let disc = Disc::of(context.unit());
    if cdb.u8_at(1) & MEDIA_TYPE != 0 {
        return Err(Cdb::invalid_bit(1, 3));
    }
    if disc.profile() != Profile::DvdRom {
        return Err(Sense::CANNOT_READ_MEDIUM_INCOMPATIBLE_FORMAT.into());
    }
    if cdb.u8_at(6) != 0 {
        // There is one layer.
        return Err(Cdb::invalid_field(6));
    }
    let structure = structure(cdb.u8_at(7), disc).ok_or_else(|| Cdb::invalid_field(7))?;
    let length = u16::try_from(structure.len() + 2).expect("structures have a block at most");
    let reply = [&length.to_be_bytes()[..], &[0, 0], &structure].concat();
    data.put_parameters(&reply, usize::from(cdb.u16_at(8))).await
}

/// A structure without its header.
fn structure(format: u8, disc: Disc) -> Option<Vec<u8>> {
    match format {
        PHYSICAL => Some(physical(disc)),
        // COPYRIGHT PROTECTION SYSTEM TYPE 0: none. REGION MANAGEMENT INFORMATION 0: to be played everywhere.
        COPYRIGHT => Some(vec![0; COPYRIGHT_LEN]),
        MANUFACTURING => Some(vec![0; LEAD_IN_LEN]),
        LIST => {
            let known = [
                (PHYSICAL, LEAD_IN_LEN),
                (COPYRIGHT, COPYRIGHT_LEN),
                (MANUFACTURING, LEAD_IN_LEN),
            ];
            let entries = known.into_iter().flat_map(|(format, len)| {
                let [high, low] = u16::try_from(len + 4).expect("a block at most").to_be_bytes();
                [format, READABLE, high, low]
            });
            Some(entries.collect())
        }
        _ => None,
    }
}

fn physical(disc: Disc) -> Vec<u8> {
    let end = FIRST_SECTOR
        .saturating_add(disc.blocks.saturating_sub(1))
        .min(SECTOR_MAX);
    let mut structure = vec![0; LEAD_IN_LEN];
    // DISK CATEGORY 0 (DVD-ROM) with PART VERSION 1; 120 mm, no maximum rate; one embossed layer.
    structure[..3].copy_from_slice(&[0x01, 0x0f, 0x01]);
    structure[4..8].copy_from_slice(&FIRST_SECTOR.to_be_bytes());
    structure[8..12].copy_from_slice(&end.to_be_bytes());
    structure
}

const MEDIA_TYPE: u8 = 0x0f;
const AGID: u8 = 0xc0;

/// FORMAT CODE.
const PHYSICAL: u8 = 0x00;
const COPYRIGHT: u8 = 0x01;
const MANUFACTURING: u8 = 0x04;
const LIST: u8 = 0xff;

const LEAD_IN_LEN: usize = 2048;
const COPYRIGHT_LEN: usize = 4;
/// RDS: the structure can be read.
const READABLE: u8 = 0x40;
/// Where the data area of a DVD begins, and how far its addresses reach.
const FIRST_SECTOR: u32 = 0x03_0000;
const SECTOR_MAX: u32 = 0xff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_physical_structure_tells_where_the_data_lie() {
        let structure = structure(0x00, Disc { blocks: 0x10_0000 }).unwrap();
        assert_eq!(structure.len(), 2048);
        assert_eq!(structure[..12], [1, 0x0f, 1, 0, 0, 3, 0, 0, 0, 0x12, 0xff, 0xff]);
        assert_eq!(physical(Disc { blocks: u32::MAX })[8..12], [0, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn every_structure_that_is_listed_is_there() {
        let disc = Disc { blocks: 400_000 };
        let list = structure(0xff, disc).unwrap();
        assert_eq!(list[..4], [0x00, 0x40, 0x08, 0x04]);
        for entry in list.chunks(4) {
            let len = usize::from(u16::from_be_bytes([entry[2], entry[3]]));
            assert_eq!(structure(entry[0], disc).unwrap().len() + 4, len);
        }
        assert_eq!(structure(0x02, disc), None);
    }
}
