//! GET CONFIGURATION (MMC-6 §6.6): the features of the drive, and which of them the disc makes current.

use super::disc::{BLOCK_LEN, Disc, Profile};
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{AttentionRule, CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x46,
    service_action: None,
    name: "GET CONFIGURATION",
    usage: &[0x46, RT, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        attention: AttentionRule::Keep,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::GetConfiguration,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let current = unit.medium().is_loaded().then(|| Disc::of(unit).profile());
    let first = cdb.u16_at(2);
    let wanted: fn(&Feature, u16) -> bool = match cdb.u8_at(1) & RT {
        0 => |feature, first| feature.code >= first,
        1 => |feature, first| feature.code >= first && feature.current,
        2 => |feature, first| feature.code == first,
        _ => return Err(Cdb::invalid_bit(1, 1)),
    };
    let features = features(current);
    let reply = assemble(current, features.iter().filter(|feature| wanted(feature, first)));
    data.put_parameters(&reply, usize::from(cdb.u16_at(7))).await
}

/// One feature descriptor (MMC-6 §5.2.2).
struct Feature {
    code: u16,
    version: u8,
    /// It is current whatever is in the drive.
    persistent: bool,
    current: bool,
    content: Vec<u8>,
}

/// All features, ascending. `current` is what the disc is, if there is one.
fn features(current: Option<Profile>) -> Vec<Feature> {
    let always = |code, version, content: &[u8]| Feature {
        code,
        version,
        persistent: true,
        current: true,
        content: content.to_vec(),
    };
    let with_disc = |code, version, current, content: &[u8]| Feature {
        code,
        version,
        persistent: false,
        current,
        content: content.to_vec(),
    };
    let profiles: Vec<u8> = [Profile::DvdRom, Profile::CdRom]
        .into_iter()
        .flat_map(|profile| {
            let [high, low] = profile.number().to_be_bytes();
            [high, low, u8::from(current == Some(profile)), 0]
        })
        .collect();
    // BLOCKING: what is read at once for the sake of error correction.
    let blocking = if current == Some(Profile::DvdRom) { 16 } else { 1 };
    let random_readable = [&BLOCK_LEN.to_be_bytes()[..], &[0, blocking, PAGE_PRESENT, 0]].concat();
    vec![
        always(0x0000, 0, &profiles),
        always(0x0001, 2, &[0, 0, 0, SCSI_FAMILY, DEVICE_BUSY_EVENT, 0, 0, 0]),
        always(0x0002, 1, &[OPERATIONAL_CHANGE_EVENT, 0, 0, 0]),
        always(0x0003, 2, &[TRAY | LOAD | EJECT | LOCK, 0, 0, 0]),
        with_disc(0x0010, 0, current.is_some(), &random_readable),
        with_disc(0x001e, 2, current == Some(Profile::CdRom), &[0; 4]),
        with_disc(0x001f, 1, current == Some(Profile::DvdRom), &[0; 4]),
        always(0x0100, 0, &[]),
    ]
}

fn assemble<'a>(current: Option<Profile>, features: impl Iterator<Item = &'a Feature>) -> Vec<u8> {
    let mut list = vec![0, 0];
    list.extend(current.map_or(0, Profile::number).to_be_bytes());
    for feature in features {
        let length = u8::try_from(feature.content.len()).expect("features are short");
        let flags = feature.version << 2 | u8::from(feature.persistent) << 1 | u8::from(feature.current);
        list.extend(feature.code.to_be_bytes());
        list.extend([flags, length]);
        list.extend(&feature.content);
    }
    // DATA LENGTH counts from behind itself.
    let length = u32::try_from(list.len()).expect("there are a few features");
    [&length.to_be_bytes()[..], &list].concat()
}

/// REQUESTED TYPE: all, the current ones, one.
const RT: u8 = 0x03;

/// Core: PHYSICAL INTERFACE STANDARD, and DBE.
const SCSI_FAMILY: u8 = 1;
const DEVICE_BUSY_EVENT: u8 = 0x01;
/// Morphing: OCEVENT.
const OPERATIONAL_CHANGE_EVENT: u8 = 0x02;
/// Removable Medium: LOADING MECHANISM TYPE, and what START STOP UNIT and PREVENT ALLOW MEDIUM REMOVAL do.
const TRAY: u8 = 1 << 5;
const LOAD: u8 = 0x10;
const EJECT: u8 = 0x08;
const LOCK: u8 = 0x01;
/// Random Readable: PP, there is a mode page Read/Write Error Recovery.
const PAGE_PRESENT: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(current: Option<Profile>) -> Vec<u8> {
        assemble(current, features(current).iter())
    }

    #[test]
    fn the_disc_decides_the_profile_and_what_is_current() {
        for (current, profile, dvd, cd) in [
            (None, 0x00, 0, 0),
            (Some(Profile::CdRom), 0x08, 0, 1),
            (Some(Profile::DvdRom), 0x10, 1, 0),
        ] {
            let reply = reply(current);
            assert_eq!(reply[..8], [0, 0, 0, 76, 0, 0, 0, profile]);
            assert_eq!(reply[8..20], [0, 0, 3, 8, 0, 0x10, dvd, 0, 0, 8, cd, 0]);
            let disc = cd | dvd;
            assert_eq!(
                reply[48..60],
                [0, 0x10, disc, 8, 0, 0, 8, 0, 0, 1 + 15 * dvd, 1, 0]
            );
            assert_eq!(reply[60..68], [0, 0x1e, 8 | cd, 4, 0, 0, 0, 0]);
            assert_eq!(reply[68..76], [0, 0x1f, 4 | dvd, 4, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn core_morphing_removable_medium_and_power_are_always_there() {
        let reply = reply(None);
        assert_eq!(reply[20..32], [0, 1, 0x0b, 8, 0, 0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(reply[32..40], [0, 2, 0x07, 4, 2, 0, 0, 0]);
        assert_eq!(reply[40..48], [0, 3, 0x0b, 4, 0x39, 0, 0, 0]);
        assert_eq!(reply[76..], [1, 0, 3, 0]);
    }
}
