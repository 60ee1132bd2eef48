//! What is refused, and how it is said: commands that are not there, and options that would need protection information,
//! anchored blocks or zones.

use super::*;

#[tokio::test]
async fn commands_for_protection_information_of_type_2_are_not_there() {
    let device = disk();
    // READ, VERIFY, WRITE, WRITE AND VERIFY, WRITE SAME, ORWRITE, WRITE ATOMIC of 32 bytes.
    for action in [0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f] {
        let mut cdb = vec![0; 32];
        (cdb[0], cdb[7], cdb[9]) = (0x7f, 0x18, action);
        let (outcome, _) = run(&device, 0, &cdb, &[]).await;
        let told = sense(&outcome);
        assert_eq!((told.key as u8, told.code), (0x05, (0x20, 0x00)), "{action:#04x}");
    }
}

#[tokio::test]
async fn long_blocks_are_neither_read_nor_written() {
    let device = disk();
    for (cdb, code) in [
        (ten(0x3e, 0, 0, 512), (0x20, 0x00)),
        (ten(0x3f, 0, 0, 512), (0x20, 0x00)),
        (sixteen(0x9f, 0x11, 0, 512), (0x20, 0x00)),
        // The operation code has other service actions.
        (sixteen(0x9e, 0x11, 0, 512), (0x24, 0x00)),
    ] {
        let (outcome, _) = run(&device, 0, &cdb, &[]).await;
        assert_eq!(sense(&outcome).code, code, "{cdb:02x?}");
    }
}

#[tokio::test]
async fn no_command_takes_protection_information() {
    let device = disk();
    for opcode in [
        0x28, 0x2a, 0x2e, 0x2f, 0x41, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0x9c, 0xa8, 0xaa, 0xae, 0xaf,
    ] {
        for protect in [0x20, 0x40, 0x60, 0x80, 0xa0] {
            let mut cdb = vec![0; 16];
            (cdb[0], cdb[1]) = (opcode, protect);
            let (outcome, _) = run(&device, 0, &cdb, &[]).await;
            let told = sense(&outcome);
            let field = told.field.unwrap();
            assert_eq!((told.code, field.byte), ((0x24, 0x00), 1), "{opcode:#04x}");
            assert!(field.bit.unwrap() >= 5);
        }
    }
}

#[tokio::test]
async fn blocks_are_not_anchored() {
    let device = disk();
    let (_, page) = run(&device, 0, &[0x12, 1, 0xb2, 0, 8, 0], &[]).await;
    assert_eq!(page[5] & 0x02, 0, "ANC_SUP");
    for (cdb, bit) in [
        (ten(0x41, 0x18, 0, 1), 4),
        (sixteen(0x93, 0x18, 0, 1), 4),
        (sixteen(0x93, 0x10, 0, 1), 4),
        (vec![0x42, 0x01, 0, 0, 0, 0, 0, 0, 24, 0], 0),
    ] {
        let (outcome, _) = run(&device, 0, &cdb, &[0; 512]).await;
        let told = sense(&outcome);
        let field = told.field.unwrap();
        assert_eq!(
            (told.code, field.byte, field.bit),
            ((0x24, 0x00), 1, Some(bit)),
            "{cdb:02x?}"
        );
    }
}
