//! READ SUB-CHANNEL (MMC-6 §6.25), as far as a disc without audio has one: the position, and that no catalogue number was
//! recorded.

use super::disc::{ADR_CONTROL, address};
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x42,
    service_action: None,
    name: "READ SUB-CHANNEL",
    usage: &[0x42, MSF, SUBQ, 0xff, 0, 0, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadSubChannel,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let content = if cdb.u8_at(2) & SUBQ == 0 {
        Vec::new()
    } else {
        let msf = cdb.u8_at(1) & MSF != 0;
        sub_q(cdb.u8_at(3), msf).ok_or_else(|| Cdb::invalid_field(3))?
    };
    let length = u16::try_from(content.len()).expect("formats are short");
    let reply = [&[0, NO_AUDIO_STATUS][..], &length.to_be_bytes(), &content].concat();
    data.put_parameters(&reply, usize::from(cdb.u16_at(7))).await
}

fn sub_q(format: u8, msf: bool) -> Option<Vec<u8>> {
    match format {
        // Nothing plays, so that the position is the beginning: of the disc, and within the track.
        CURRENT_POSITION => Some([&[format, ADR_CONTROL, 1, 1][..], &address(0, msf), &[0; 4]].concat()),
        CATALOGUE_NUMBER => Some([&[format, 0, 0, 0][..], &[0; 16]].concat()),
        RECORDING_CODE => Some([&[format, ADR_CONTROL, 1, 0][..], &[0; 16]].concat()),
        _ => None,
    }
}

/// Addresses as minutes, seconds and frames.
const MSF: u8 = 0x02;
/// The Q sub-channel is wanted, not only the header.
const SUBQ: u8 = 0x40;
/// AUDIO STATUS.
const NO_AUDIO_STATUS: u8 = 0x15;

/// SUB-CHANNEL PARAMETER LIST.
const CURRENT_POSITION: u8 = 1;
const CATALOGUE_NUMBER: u8 = 2;
const RECORDING_CODE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_length() {
        assert_eq!(sub_q(1, true).unwrap(), [1, 0x14, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(sub_q(2, false).unwrap().len(), 20);
        assert_eq!(sub_q(3, false).unwrap().len(), 20);
        assert_eq!(sub_q(0, false), None);
    }
}
