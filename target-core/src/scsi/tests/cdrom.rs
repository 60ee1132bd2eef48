//! A CD-ROM drive, as drivers and installers look at it.

use backstores::{Durability, IoBuf, StoreOptions, StoreSource};

use super::*;
use crate::scsi::DeviceType;
use crate::scsi::table::{COMMANDS, Devices};

/// A drive whose disc has `blocks` blocks; the first 32 are filled with their numbers.
async fn drive(blocks: u64) -> Arc<TargetDevice> {
    let source = StoreSource::Memory { size: blocks * 2048 };
    let options = StoreOptions {
        block_size: Some(2048),
        ..StoreOptions::default()
    };
    let store = backstores::open(&source, options).unwrap();
    for number in 0..32 {
        let mut block = IoBuf::from_heap(2048);
        block.fill(u8::try_from(number).unwrap());
        store
            .write(number * 2048, block, Durability::Cached)
            .await
            .unwrap();
    }
    let config = UnitConfig {
        device_type: DeviceType::Cdrom,
        removable: true,
        ..config()
    };
    device(&[LogicalUnit::new(config, store)])
}

async fn good(device: &Arc<TargetDevice>, cdb: &[u8]) -> Vec<u8> {
    let (outcome, data) = run(device, 0, cdb, &[]).await;
    assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
    data
}

async fn code(device: &Arc<TargetDevice>, cdb: &[u8]) -> (u8, u8) {
    sense(&run(device, 0, cdb, &[]).await.0).code
}

const READ_TOC: [u8; 10] = [0x43, 0, 0, 0, 0, 0, 0, 0, 0xff, 0];
const GET_CONFIGURATION: [u8; 10] = [0x46, 0, 0, 0, 0, 0, 0, 0, 0xff, 0];
const MEDIA_EVENT: [u8; 10] = [0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0];
const MECHANISM_STATUS: [u8; 12] = [0xbd, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 2, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 3, 0];

#[tokio::test]
async fn a_disc_is_found_measured_and_read() {
    let device = drive(32).await;
    assert_eq!(good(&device, &[0x12, 0, 0, 0, 96, 0]).await[..2], [0x05, 0x80]);
    assert_eq!(
        good(&device, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await,
        [0, 0, 0, 31, 0, 0, 8, 0]
    );
    assert_eq!(good(&device, &READ_TOC).await[..8], [0, 18, 1, 1, 0, 0x14, 1, 0]);
    for cdb in [ten(0x28, 0, 16, 2), twelve(0xa8, 0, 16, 2)] {
        let data = good(&device, &cdb).await;
        assert_eq!(data, [[16; 2048], [17; 2048]].concat());
    }
    let read_cd = [0xbe, 0, 0, 0, 0, 30, 0, 0, 2, 0x10, 0, 0];
    assert_eq!(good(&device, &read_cd).await, [[30; 2048], [31; 2048]].concat());
    assert_eq!(code(&device, &ten(0x28, 0, 31, 2)).await, (0x21, 0));
    for (byte, value, refused) in [(9, 0xf8, (0x24, 0)), (10, 1, (0x24, 0)), (1, 0x04, (0x64, 0))] {
        let mut cdb = read_cd;
        cdb[byte] = value;
        assert_eq!(code(&device, &cdb).await, refused);
    }
}

#[tokio::test]
async fn pages_tell_a_drive_without_block_descriptor() {
    let device = drive(32).await;
    let page = good(&device, &[0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 0xff, 0]).await;
    assert_eq!(page[..8], [0, 28, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page[8..15], [0x2a, 0x14, 0x0b, 0, 0, 0, 0x29]);
    let six = good(&device, &[0x1a, 0, 0x3f, 0, 0xff, 0]).await;
    assert_eq!((six[2], six[3], six[4]), (0, 0, 0x01));
    assert_eq!(code(&device, &[0x1a, 0, 0x08, 0, 0xff, 0]).await, (0x24, 0));
}

#[tokio::test]
async fn the_tray_opens_and_closes_and_everybody_is_told() {
    let device = drive(32).await;
    let other = nexus(2);
    device.attach(&other);
    let as_other = async |cdb: &[u8]| Command::new(0, cdb).expecting(64).run(&device, &other).await;
    assert_eq!(sense(&as_other(&TEST_UNIT_READY).await.0).code, (0x29, 0));
    assert_eq!(good(&device, &MEDIA_EVENT).await, [0, 6, 4, 0x56, 2, 2, 0, 0]);
    assert_eq!(good(&device, &MEDIA_EVENT).await, [0, 6, 4, 0x56, 0, 2, 0, 0]);

    assert_eq!(status(&as_other(&[0x1e, 0, 0, 0, 1, 0]).await.0), Status::Good);
    assert_eq!(code(&device, &EJECT).await, (0x53, 2));
    let capabilities = [0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 0xff, 0];
    assert_eq!(good(&device, &capabilities).await[14], 0x2b, "locked");
    assert_eq!(status(&as_other(&[0x1e, 0, 0, 0, 0, 0]).await.0), Status::Good);
    good(&device, &EJECT).await;
    for cdb in [&TEST_UNIT_READY[..], &READ_TOC, &ten(0x28, 0, 0, 1)] {
        assert_eq!(code(&device, cdb).await, (0x3a, 2), "{cdb:02x?}");
        assert_eq!(sense(&as_other(cdb).await.0).code, (0x3a, 2), "{cdb:02x?}");
    }
    assert_eq!(good(&device, &GET_CONFIGURATION).await[6..8], [0, 0]);
    assert_eq!(good(&device, &MECHANISM_STATUS).await[1], 0x10);
    assert_eq!(good(&device, &MEDIA_EVENT).await[4..6], [3, 1]);

    good(&device, &LOAD).await;
    assert_eq!(good(&device, &MECHANISM_STATUS).await[1], 0);
    assert_eq!(
        as_other(&MEDIA_EVENT).await.1[4..6],
        [2, 2],
        "asking for events reports no attention"
    );
    assert_eq!(sense(&as_other(&TEST_UNIT_READY).await.0).code, (0x28, 0));
    assert_eq!(status(&as_other(&TEST_UNIT_READY).await.0), Status::Good);
}

#[tokio::test]
async fn a_large_image_is_a_dvd() {
    let structure = [0xad, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    let cd = drive(32).await;
    assert_eq!(good(&cd, &GET_CONFIGURATION).await[6..8], [0, 0x08]);
    assert_eq!(code(&cd, &structure).await, (0x30, 2));
    let dvd = drive(400_000).await;
    assert_eq!(good(&dvd, &GET_CONFIGURATION).await[6..8], [0, 0x10]);
    assert_eq!(good(&dvd, &structure).await.len(), 2052);
}

#[tokio::test]
async fn every_question_of_a_drive_is_answered_with_its_length() {
    let device = drive(32).await;
    for (cdb, len) in [
        (vec![0x51, 0, 0, 0, 0, 0, 0, 0, 0xff, 0], 34),
        (vec![0x52, 1, 0, 0, 0, 1, 0, 0, 0xff, 0], 36),
        (vec![0x52, 0, 0, 0, 0, 31, 0, 0, 0xff, 0], 36),
        (vec![0x42, 2, 0x40, 1, 0, 0, 0, 0, 0xff, 0], 16),
        (vec![0x42, 2, 0, 1, 0, 0, 0, 0, 0xff, 0], 4),
        (vec![0x46, 2, 0, 0x10, 0, 0, 0, 0, 0xff, 0], 20),
        (vec![0x46, 1, 0, 0, 0, 0, 0, 0, 0xff, 0], 72),
        (vec![0xbb, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0], 0),
        (vec![0x43, 0, 0, 0, 0, 0, 0, 0, 4, 0], 4),
    ] {
        assert_eq!(good(&device, &cdb).await.len(), len, "{cdb:02x?}");
    }
    for cdb in [
        &[0x4a, 0, 0, 0, 0x10, 0, 0, 0, 8, 0][..],
        &[0x52, 1, 0, 0, 0, 2, 0, 0, 0xff, 0],
        &[0x43, 0, 3, 0, 0, 0, 0, 0, 0xff, 0],
        &[0x46, 3, 0, 0, 0, 0, 0, 0, 0xff, 0],
    ] {
        assert_eq!(code(&device, cdb).await, (0x24, 0), "{cdb:02x?}");
    }
}

/// What a drive has in common with a disk is written out, so that a new command of disks is not offered by drives
/// because nobody thought of them.
#[tokio::test]
async fn drives_and_disks_offer_their_own_commands() {
    let mut shared: Vec<u8> = COMMANDS
        .iter()
        .filter(|command| command.needs.devices == Devices::All && command.opcode < 0xa0)
        .map(|command| command.opcode)
        .collect();
    shared.dedup();
    assert_eq!(
        shared,
        [
            0x00, 0x03, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x25, 0x28, 0x4c, 0x4d, 0x55,
            0x56, 0x57, 0x5a, 0x5e, 0x5f
        ]
    );
    let drive = drive(32).await;
    let disk = disk();
    for command in COMMANDS {
        for (device, has) in [(&drive, Devices::Cdrom), (&disk, Devices::Disk)] {
            if ![Devices::All, has].contains(&command.needs.devices) && command.opcode != 0x42 {
                let (outcome, _) = run(device, 0, &[command.opcode; 1], &[]).await;
                assert_eq!(sense(&outcome).code, (0x20, 0), "{}", command.name);
            }
        }
    }
    // One code, two commands.
    assert_eq!(
        good(&drive, &[0x42, 0, 0, 0, 0, 0, 0, 0, 4, 0]).await,
        [0, 0x15, 0, 0]
    );
    assert_eq!(good(&disk, &[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await, []);
}
