//! READ TOC/PMA/ATIP (MMC-6 §6.26): the table of contents, in its three forms that a pressed disc has.

use super::disc::{ADR_CONTROL, Disc, LEAD_OUT, address, minutes};
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x43,
    service_action: None,
    name: "READ TOC/PMA/ATIP",
    usage: &[0x43, MSF, FORMAT, 0, 0, 0, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadToc,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let disc = Disc::of(context.unit());
    let msf = cdb.u8_at(1) & MSF != 0;
    let first = cdb.u8_at(6);
    let reply = match cdb.u8_at(2) & FORMAT {
        0 => tracks(disc, msf, first),
        1 => Some(sessions(msf)),
        2 => full(disc, first),
        // There is neither a program memory area nor ATIP nor CD-TEXT on it.
        _ => return Err(Cdb::invalid_bit(2, 3)),
    };
    let reply = reply.ok_or_else(|| Cdb::invalid_field(6))?;
    data.put_parameters(&reply, usize::from(cdb.u16_at(7))).await
}

/// Format 0: the tracks from `first` on, and the lead-out. `None` when there are none so high.
fn tracks(disc: Disc, msf: bool, first: u8) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    for (number, lba) in [(1, 0), (LEAD_OUT, disc.blocks)] {
        if number >= first {
            list.extend([0, ADR_CONTROL, number, 0]);
            list.extend(address(lba, msf));
        }
    }
    // Between the last track and the lead-out there is nothing to start from.
    let known = matches!(first, 0 | 1 | LEAD_OUT);
    known.then(|| with_header(&list))
}

/// Format 1: the first track of the last session.
fn sessions(msf: bool) -> Vec<u8> {
    let mut list = vec![0, ADR_CONTROL, 1, 0];
    list.extend(address(0, msf));
    with_header(&list)
}

/// Format 2: the sub-channel of the lead-in of sessions from `first` on. Always in minutes.
fn full(disc: Disc, first: u8) -> Option<Vec<u8>> {
    // First and last track stand where others have minutes.
    let points = [
        (0xa0, [1, 0, 0]),
        (0xa1, [1, 0, 0]),
        (0xa2, minutes(disc.blocks)),
        (0x01, minutes(0)),
    ];
    let list: Vec<u8> = points
        .into_iter()
        .flat_map(|(point, [a, b, c])| [1, ADR_CONTROL, 0, point, 0, 0, 0, 0, a, b, c])
        .collect();
    (first <= 1).then(|| with_header(&list))
}

/// TOC DATA LENGTH, which counts from behind itself, then first and last track or session: 1.
fn with_header(list: &[u8]) -> Vec<u8> {
    let length = u16::try_from(list.len() + 2).expect("there are four descriptors at most");
    [&length.to_be_bytes()[..], &[1, 1], list].concat()
}

/// Addresses as minutes, seconds and frames.
const MSF: u8 = 0x02;
const FORMAT: u8 = 0x0f;

#[cfg(test)]
mod tests {
    use super::*;

    const DISC: Disc = Disc { blocks: 0x1234 };

    #[test]
    fn the_track_and_the_lead_out_are_listed_from_where_it_is_asked() {
        let track = [0, 0x14, 1, 0, 0, 0, 0, 0];
        let lead_out = [0, 0x14, 0xaa, 0, 0, 0, 0x12, 0x34];
        for first in [0, 1] {
            let toc = tracks(DISC, false, first).unwrap();
            assert_eq!(toc, [&[0, 18, 1, 1][..], &track, &lead_out].concat());
        }
        assert_eq!(
            tracks(DISC, false, 0xaa).unwrap(),
            [&[0, 10, 1, 1][..], &lead_out].concat()
        );
        assert_eq!(tracks(DISC, true, 1).unwrap()[8..12], [0, 0, 2, 0]);
        for none in [2, 0xa9, 0xab, 0xff] {
            assert_eq!(tracks(DISC, false, none), None);
        }
    }

    #[test]
    fn one_session_begins_with_track_one() {
        assert_eq!(sessions(false), [0, 10, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0]);
        assert_eq!(sessions(true)[8..], [0, 0, 2, 0]);
    }

    #[test]
    fn the_full_form_has_first_last_lead_out_and_the_track() {
        let toc = full(Disc { blocks: 300 }, 1).unwrap();
        assert_eq!(toc[..4], [0, 46, 1, 1]);
        assert_eq!(toc[4..15], [1, 0x14, 0, 0xa0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(toc[15..26], [1, 0x14, 0, 0xa1, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(toc[26..37], [1, 0x14, 0, 0xa2, 0, 0, 0, 0, 0, 6, 0]);
        assert_eq!(toc[37..], [1, 0x14, 0, 0x01, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(full(DISC, 2), None);
    }
}
