//! Bytes that nobody would send, as properties that always run: the ways in are those of the fuzz targets, the bytes a
//! little better aimed, since there is less time.

use proptest::collection::vec;
use proptest::prelude::*;
use tests::entry;
use tests::script::{INITIATOR, Initiator, Keys, TARGET, Target};
use tokio::io::AsyncWriteExt;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_header_is_understood_or_refused(mut bytes in vec(any::<u8>(), 48..120), opcode in 0_u8..0x40) {
        entry::pdu(&bytes);
        bytes[0] = opcode;
        entry::pdu(&bytes);
        // Few bits are set in most headers that mean anything.
        for byte in &mut bytes[1..48] {
            *byte &= byte.rotate_left(3) & 0x81;
        }
        entry::pdu(&bytes);
    }

    #[test]
    fn any_text_is_understood_or_refused(bytes in vec(any::<u8>(), 0..300), text in "([A-Za-z#.-]{1,8}=[ -~]{0,20}\u{0}){0,9}") {
        entry::text(&bytes);
        entry::text(text.as_bytes());
    }

    #[test]
    fn any_login_ends(steps in vec(step(), 0..80)) {
        let mut bytes = Vec::new();
        for (flags, text) in steps {
            bytes.push(flags);
            bytes.push(u8::try_from(text.len()).expect("short text"));
            bytes.extend(text);
        }
        entry::login(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_end_and_leave_what_the_model_expects(commands in vec(command(), 1..8)) {
        entry::cdb(&commands.concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_on_a_connection_cost_that_connection_alone(
        logged_in in any::<bool>(),
        pieces in vec(vec(any::<u8>(), 1..200), 1..20),
        opcodes in vec(0_u8..0x40, 20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let target = Target::start().await;
            let mut healthy = Initiator::log_in(&target).await;
            let mut rubbish = Initiator::connect(&target).await;
            rubbish.isid.0[5] = 2;
            if logged_in {
                rubbish.login(Keys::normal()).await;
            }
            for (piece, opcode) in pieces.iter().zip(opcodes) {
                let mut bhs = [0; 48];
                let len = piece.len().min(48);
                bhs[..len].copy_from_slice(&piece[..len]);
                bhs[0] = opcode | 0x40;
                rubbish.send_bhs(bhs, &[], &piece[len..]).await;
            }
            rubbish.send_raw(&pieces.concat()).await;
            healthy.ping().await;
            // It may have closed by itself.
            drop(rubbish.socket.shutdown().await);
            drop(rubbish);
            target.ended(1).await;
            healthy.ping().await;
            assert_eq!(target.node().connections(), 1);
        });
    }
}

/// A request of a login: flags, and text that is often to the point.
fn step() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let names = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    let text = prop_oneof![
        Just(names.into_bytes()),
        Just(b"AuthMethod=CHAP,None\0".to_vec()),
        Just(b"AuthMethod=None\0".to_vec()),
        Just(b"CHAP_A=5,6,7,8\0".to_vec()),
        Just(b"CHAP_N=alice\0CHAP_R=0x00\0".to_vec()),
        Just(b"SessionType=Discovery\0".to_vec()),
        Just(Vec::new()),
        "([A-Z][A-Za-z]{1,9}=[!-~]{0,9}\u{0}){1,4}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..40),
    ];
    let flags = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0x00_u8, 0x40, 0x81, 0x83, 0x87, 0x04, 0x44])
    ];
    (flags, text)
}

/// A command as `entry::cdb` reads it.
fn command() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![2 => rubbish(), 6 => transfer(), 2 => erasure(), 2 => unmap(), 2 => copy(), 1 => zeroes_by_token()]
}

/// Any CDB, with few bits set in most bytes, and any data.
fn rubbish() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![any::<u8>(), prop::sample::select(OPCODES.to_vec())];
    let bits = vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>(), 1 => 0_u8..4], 15);
    let data = vec(any::<u8>(), 0..255);
    (opcode, bits, any::<u8>(), any::<u16>(), data).prop_map(|(opcode, bits, shape, len, data)| {
        encode(&[&[opcode], &bits[..]].concat(), shape, len, &data)
    })
}

/// A command with LBA and length near what there is, and Data-Out that often fit.
fn transfer() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![4 => Just(0_u8), 2 => (0_u8..4).prop_map(|bits| bits << 1), 1 => any::<u8>()];
    let lba = prop_oneof![6 => 0_u16..24, 2 => 0_u16..400, 1 => any::<u16>()];
    let blocks = prop_oneof![6 => 0_u8..9, 1 => any::<u8>()];
    let data = prop_oneof![
        Just(Vec::new()),
        vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 1..3),
        vec(any::<u8>(), 1..255),
    ];
    let off_by = prop_oneof![8 => Just(0_i32), 1 => -600_i32..600];
    let opcode = prop::sample::select(TRANSFERS.to_vec());
    (opcode, flags, lba, blocks, data, off_by).prop_map(|(opcode, flags, lba, blocks, data, off_by)| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, flags);
        let [high, low] = lba.to_be_bytes();
        match opcode >> 5 {
            0 => (cdb[1], cdb[2], cdb[3], cdb[4]) = (0, high, low, blocks),
            1 | 2 => (cdb[4], cdb[5], cdb[8]) = (high, low, blocks),
            5 => (cdb[4], cdb[5], cdb[9]) = (high, low, blocks),
            _ => (cdb[8], cdb[9], cdb[13]) = (high, low, blocks),
        }
        let blocks = match opcode {
            0x41 | 0x93 => 1,
            0x89 => 2 * i32::from(blocks),
            _ => i32::from(blocks),
        };
        let len = u16::try_from((blocks * 512 + off_by).clamp(0, 0xffff)).expect("clamped");
        // Data-In too, of 64 KiB.
        encode(&cdb, 0x80 | 0x07, len, &data)
    })
}

/// FORMAT UNIT or SANITIZE.
fn erasure() -> impl Strategy<Value = Vec<u8>> {
    let head = prop_oneof![Just(0x01_u8), Just(0x82), Just(0x83), Just(0x80), any::<u8>()];
    let list = (head, 0_u8..2, 0_u8..8, vec(any::<u8>(), 1..8))
        .prop_map(|(head, reserved, len, pattern)| [&[head, reserved, 0, len][..], &pattern].concat());
    let flags = prop::sample::select(vec![0x00_u8, 0x10, 0x20, 0x30, 0x80, 0xa0]);
    let kind = prop::sample::select(vec![
        (0x04_u8, 0x00_u8),
        (0x04, 0x10),
        (0x48, 0x01),
        (0x48, 0x02),
        (0x48, 0x03),
        (0x48, 0x1f),
    ]);
    (kind, flags, list).prop_map(|((opcode, action), flags, list)| {
        let len = u8::try_from(list.len()).expect("a short list");
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, action | flags);
        if opcode == 0x48 && action == 0x01 {
            cdb[8] = len;
        }
        let list = if opcode == 0x04 {
            std::vec![0, flags >> 6, 0, 0]
        } else {
            list
        };
        encode(&cdb, 0x06, u16::from(len), &list)
    })
}

/// UNMAP of a few runs, with lengths that often agree.
fn unmap() -> impl Strategy<Value = Vec<u8>> {
    let run = (0_u16..400, 0_u16..64);
    let off_by = prop_oneof![4 => Just(0_u8), 1 => 0_u8..20];
    (vec(run, 0..4), off_by.clone(), off_by).prop_map(|(runs, more, less)| {
        let mut list = std::vec![0; 8];
        for (lba, blocks) in runs {
            list.extend([0; 6]);
            list.extend(lba.to_be_bytes());
            list.extend([0; 2]);
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        let len = u8::try_from(list.len()).expect("a short list");
        (list[1], list[3]) = (len - 2, (len - 8).wrapping_add(more));
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x42, len);
        encode(&cdb, 0x06, u16::from(len.saturating_sub(less)), &list)
    })
}

/// EXTENDED COPY of a few segments within the disk, whose list may have another length than it says.
fn copy() -> impl Strategy<Value = Vec<u8>> {
    let place = prop_oneof![6 => 0_u8..24, 1 => any::<u8>()];
    let offset = prop_oneof![2 => Just(0_u16), 1 => 0_u16..513];
    let count = prop_oneof![6 => 0_u16..12, 1 => any::<u16>()];
    let segment = (any::<bool>(), count, place.clone(), place, offset.clone(), offset).prop_map(
        |(in_bytes, count, from, to, skip, at)| {
            let mut bytes = std::vec![0; if in_bytes { 32 } else { 28 }];
            (bytes[0], bytes[3]) = if in_bytes { (0x0a, 0x1c) } else { (0x02, 0x18) };
            bytes[10..12].copy_from_slice(&count.to_be_bytes());
            (bytes[19], bytes[27]) = (from, to);
            if in_bytes {
                bytes[28..30].copy_from_slice(&skip.to_be_bytes());
                bytes[30..].copy_from_slice(&at.to_be_bytes());
            }
            bytes
        },
    );
    let off_by = prop_oneof![8 => Just(0_i32), 1 => -100_i32..100];
    (vec(segment, 0..5), off_by).prop_map(|(segments, off_by)| {
        let mut list = std::vec![0; 48];
        (list[0], list[3]) = (1, 32);
        (list[16], list[20], list[21], list[23]) = (0xe4, 1, 3, 8);
        list[24] = 0x30;
        list[46] = 2;
        let segments = segments.concat();
        list[11] = u8::try_from(segments.len()).expect("short lists");
        list.extend(segments);
        let len = i32::try_from(list.len()).expect("short lists") + off_by;
        let len = u16::try_from(len.max(0)).expect("short lists");
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[12..14].copy_from_slice(&len.to_be_bytes());
        encode(&cdb, 0x06, len, &list)
    })
}

/// WRITE USING TOKEN with the token for zeroes. The list has no more than 255 bytes that differ.
fn zeroes_by_token() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![8 => Just(552_u16), 1 => 0_u16..600];
    (0_u8..4, 0_u16..400, 0_u8..40, any::<u8>(), len).prop_map(|(flags, lba, blocks, id, len)| {
        let mut list = std::vec![0; 255];
        (list[0], list[1], list[2]) = (0x02, 0x26, flags);
        list[16..24].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 0x01, 0xf8]);
        // What follows is what comes 510 bytes later.
        list[25] = 16;
        list[32..34].copy_from_slice(&lba.to_be_bytes());
        list[37] = blocks;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[9]) = (0x83, 0x11, id);
        cdb[12..14].copy_from_slice(&len.to_be_bytes());
        encode(&cdb, 0x06, len, &list)
    })
}

/// Sixteen bytes of CDB, shape, length of Data-Out, and the bytes that it repeats.
fn encode(cdb: &[u8], shape: u8, len: u16, data: &[u8]) -> Vec<u8> {
    let given = u8::try_from(data.len()).expect("at most 255 bytes");
    [cdb, &[shape], &len.to_be_bytes(), &[given], data].concat()
}

/// Operation codes of commands that there are.
const OPCODES: [u8; 50] = [
    0x00, 0x03, 0x04, 0x08, 0x0a, 0x12, 0x15, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35,
    0x37, 0x41, 0x42, 0x48, 0x55, 0x5a, 0x5e, 0x5f, 0x7f, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91,
    0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae, 0xaf, 0xb7, 0x16, 0x17, 0x56, 0x57, 0x83, 0x84,
];

/// Those of them that have an LBA and a number of blocks.
const TRANSFERS: [u8; 21] = [
    0x08, 0x0a, 0x28, 0x2a, 0x2e, 0x2f, 0x41, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0x9c, 0xa8, 0xaa,
    0xae, 0xaf, 0x34, 0x90,
];
