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
    fn any_command_ends(
        opcode in prop_oneof![any::<u8>(), prop::sample::select(OPCODES.to_vec())],
        bits in vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>(), 1 => 0_u8..4], 15),
        shape in any::<u8>(),
        out in vec(any::<u8>(), 0..4096),
    ) {
        let mut bytes = vec![opcode];
        bytes.extend(bits);
        bytes.push(shape);
        bytes.extend(out);
        entry::cdb(&bytes);
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

/// Operation codes of commands that there are.
const OPCODES: [u8; 33] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x35, 0x41, 0x42,
    0x55, 0x5a, 0x5e, 0x5f, 0x7f, 0x88, 0x89, 0x8a, 0x8f, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa,
];
