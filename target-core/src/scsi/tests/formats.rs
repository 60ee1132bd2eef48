//! Disks with 512-byte blocks, with such blocks on a medium of larger ones (512e), with blocks of 4096 bytes (4Kn); and
//! disks that may not be written.

use backstores::{StoreOptions, StoreSource};

use super::*;

fn formatted(options: StoreOptions) -> Arc<TargetDevice> {
    let store = backstores::open(&StoreSource::Memory { size: 1 << 30 }, options).unwrap();
    device(&[LogicalUnit::new(config(), store)])
}

async fn good(device: &Arc<TargetDevice>, cdb: &[u8]) -> Vec<u8> {
    let (outcome, data) = run(device, 0, cdb, &[]).await;
    assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
    data
}

const CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPACITY_16: [u8; 16] = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
const BLOCK_LIMITS: [u8; 6] = [0x12, 1, 0xb0, 0, 64, 0];
const CHARACTERISTICS: [u8; 6] = [0x12, 1, 0xb1, 0, 64, 0];
const MODE_SENSE: [u8; 6] = [0x1a, 0, 0x3f, 0, 0xff, 0];

#[tokio::test]
async fn every_answer_agrees_on_the_blocks() {
    for (block, physical, last, exponent, granularity, optimal) in [
        (512, 512, [0x00, 0x1f, 0xff, 0xff], 0, 1, 2048),
        (512, 4096, [0x00, 0x1f, 0xff, 0xff], 3, 8, 2048),
        (4096, 4096, [0x00, 0x03, 0xff, 0xff], 0, 1, 256),
        (4096, 16_384, [0x00, 0x03, 0xff, 0xff], 2, 4, 256),
    ] {
        let device = formatted(StoreOptions {
            block_size: Some(block),
            physical_block_size: Some(physical),
            ..StoreOptions::default()
        });
        let length = block.to_be_bytes();
        assert_eq!(good(&device, &CAPACITY_10).await, [last, length].concat());
        let capacity = good(&device, &CAPACITY_16).await;
        assert_eq!(capacity[..12], [[0; 4], last, length].concat());
        // Exponent; thin, with zeroes; the first block is aligned.
        assert_eq!(capacity[12..16], [0, exponent, 0xc0, 0], "{block}/{physical}");
        let limits = good(&device, &BLOCK_LIMITS).await;
        assert_eq!(u16::from_be_bytes([limits[6], limits[7]]), granularity);
        assert_eq!(limits[12..16], u32::to_be_bytes(optimal));
        // UNMAP GRANULARITY: pages of 64 KiB, from block 0 on.
        assert_eq!(limits[28..32], u32::to_be_bytes(65_536 / block));
        assert_eq!(limits[32..36], [0x80, 0, 0, 0]);
        assert_eq!(good(&device, &CHARACTERISTICS).await[4..6], [0, 1]);
        let [a, b, c, d] = last.map(u32::from);
        let blocks = (a << 24 | b << 16 | c << 8 | d) + 1;
        let descriptor = [blocks.to_be_bytes(), length].concat();
        assert_eq!(good(&device, &MODE_SENSE).await[4..12], descriptor);
        assert_eq!(good(&device, &sixteen(0x88, 0, 0, 1)).await.len(), block as usize);
    }
}

#[tokio::test]
async fn a_write_protected_disk_says_so_and_is_read_only() {
    let device = formatted(StoreOptions {
        read_only: true,
        ..StoreOptions::default()
    });
    assert_eq!(good(&device, &MODE_SENSE).await[2] & 0x80, 0x80);
    assert_eq!(good(&device, &sixteen(0x88, 0, 5, 1)).await, [0; 512]);
    good(&device, &[0; 6]).await;
    good(&device, &ten(0x35, 0, 0, 0)).await;
    let unmap_one = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 11], &[1, 0, 0, 0, 0]].concat();
    let commands: [(Vec<u8>, &[u8]); 4] = [
        (ten(0x2a, 0, 0, 1), &[1; 512]),
        (sixteen(0x93, 0, 0, 1), &[1; 512]),
        (sixteen(0x93, 0x09, 0, 1), &[]),
        (ten(0x42, 0, 0, 24), &unmap_one),
    ];
    for (cdb, data) in commands {
        let (outcome, _) = run(&device, 0, &cdb, data).await;
        assert_eq!(sense(&outcome).code, (0x27, 0x00), "{cdb:02x?}");
    }
}

#[tokio::test]
async fn a_removable_disk_that_came_back_is_new_to_all_others() {
    let removable = UnitConfig {
        removable: true,
        ..config()
    };
    let device = device(&[LogicalUnit::new(removable, memory(16))]);
    let other = nexus(2);
    device.attach(&other);
    let as_other = async |cdb: &[u8]| Command::new(0, cdb).run(&device, &other).await.0;
    assert_eq!(sense(&as_other(&[0; 6]).await).code, (0x29, 0));
    good(&device, &[0x1b, 0, 0, 0, 2, 0]).await;
    for cdb in [
        &[0; 6][..],
        &ten(0x28, 0, 0, 1),
        &ten(0x2a, 0, 0, 1),
        &CAPACITY_10,
    ] {
        assert_eq!(sense(&as_other(cdb).await).code, (0x3a, 0), "{cdb:02x?}");
    }
    // What tells of the unit and not of the medium is answered all the same.
    assert_eq!(status(&as_other(&[0x12, 0, 0, 0, 96, 0]).await), Status::Good);
    assert_eq!(status(&as_other(&[0x1b, 0, 0, 0, 3, 0]).await), Status::Good);
    let (outcome, _) = run(&device, 0, &[0; 6], &[]).await;
    assert_eq!(
        status(&outcome),
        Status::Good,
        "nobody is attached there to be told"
    );
    good(&device, &[0x1b, 0, 0, 0, 2, 0]).await;
    good(&device, &[0x1b, 0, 0, 0, 3, 0]).await;
    assert_eq!(sense(&as_other(&[0; 6]).await).code, (0x28, 0));
    assert_eq!(status(&as_other(&[0; 6]).await), Status::Good);
}
