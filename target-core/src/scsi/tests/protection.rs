//! Protection information by raw commands, as an initiator that knows it sends them: written, kept, checked, damaged.

use backstores::{StoreOptions, StoreSource};

use super::*;

/// 2048 blocks of 512 bytes with protection information.
fn protected() -> Arc<TargetDevice> {
    let options = StoreOptions {
        protection: true,
        ..StoreOptions::default()
    };
    let store = backstores::open(&StoreSource::Memory { size: 1 << 20 }, options).unwrap();
    device(&[LogicalUnit::new(config(), store)])
}

/// A block of zeroes, whose guard is 0, for an address.
fn zeroes(reference: u32) -> Vec<u8> {
    [&[0; 512][..], &[0, 0, 0x12, 0x34], &reference.to_be_bytes()].concat()
}

fn changed(mut block: Vec<u8>, byte: usize) -> Vec<u8> {
    block[byte] ^= 1;
    block
}

async fn good(device: &Arc<TargetDevice>, cdb: &[u8], data: &[u8]) -> Vec<u8> {
    let (outcome, read) = run(device, 0, cdb, data).await;
    assert_eq!(status(&outcome), Status::Good, "{cdb:02x?}");
    read
}

/// Code and INFORMATION.
async fn failed(device: &Arc<TargetDevice>, cdb: &[u8], data: &[u8]) -> (u8, (u8, u8), Option<u64>) {
    let sense = sense(&run(device, 0, cdb, data).await.0);
    (sense.key as u8, sense.code, sense.information)
}

const GUARD: (u8, (u8, u8), Option<u64>) = (0xb, (0x10, 0x01), Some(7));
const REFERENCE: (u8, (u8, u8), Option<u64>) = (0xb, (0x10, 0x03), Some(7));
const INVALID: (u8, u8) = (0x24, 0x00);

/// READ, WRITE or VERIFY in each length, of one block at 7.
fn each(codes: [u8; 3], flags: u8) -> [Vec<u8>; 3] {
    [
        ten(codes[0], flags, 7, 1),
        twelve(codes[1], flags, 7, 1),
        sixteen(codes[2], flags, 7, 1),
    ]
}

const READ: [u8; 3] = [0x28, 0xa8, 0x88];
const WRITE: [u8; 3] = [0x2a, 0xaa, 0x8a];
const VERIFY: [u8; 3] = [0x2f, 0xaf, 0x8f];

#[tokio::test]
async fn the_unit_says_that_it_has_it() {
    let device = protected();
    assert_eq!(good(&device, &[0x12, 0, 0, 0, 96, 0], &[]).await[5] & 1, 1);
    let capacity = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    assert_eq!(good(&device, &capacity, &[]).await[12], 0x01);
    let ask = |code| [0xa3, 0x0c, 1, code, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(good(&device, &ask(0x28), &[]).await[5], 0xf8);
    assert_eq!(good(&disk(), &ask(0x28), &[]).await[5], 0x18);
}

#[tokio::test]
async fn what_was_written_with_it_is_read_with_it() {
    let device = protected();
    for ((write, read), verify) in each(WRITE, 0x20)
        .iter()
        .zip(each(READ, 0x20))
        .zip(each(VERIFY, 0x22))
    {
        good(&device, &ten(0x41, 0, 7, 1), &[0xa6; 512]).await;
        good(&device, write, &zeroes(7)).await;
        assert_eq!(good(&device, &read, &[]).await, zeroes(7));
        good(&device, &verify, &zeroes(7)).await;
    }
    // Many blocks, more than a buffer takes.
    let many: Vec<u8> = (0..1200).flat_map(zeroes).collect();
    good(&device, &sixteen(0x8a, 0x20, 0, 1200), &many).await;
    assert!(good(&device, &sixteen(0x88, 0x20, 0, 1200), &[]).await == many);
    assert_eq!(
        good(&device, &sixteen(0x88, 0, 0, 1200), &[]).await,
        vec![0; 1200 * 512]
    );
}

#[tokio::test]
async fn what_does_not_fit_is_refused_as_the_field_says_and_changes_nothing() {
    let device = protected();
    good(&device, &ten(0x2a, 0x20, 7, 1), &zeroes(7)).await;
    let (guard, reference) = (changed(zeroes(7), 513), changed(zeroes(7), 519));
    for flags in [0x20, 0xa0] {
        for write in each(WRITE, flags) {
            assert_eq!(failed(&device, &write, &guard).await, GUARD);
            assert_eq!(failed(&device, &write, &reference).await, REFERENCE);
        }
    }
    assert_eq!(
        failed(&device, &ten(0x2a, 0x40, 7, 1), &reference).await,
        REFERENCE
    );
    assert_eq!(failed(&device, &ten(0x2a, 0x80, 7, 1), &guard).await, GUARD);
    assert_eq!(good(&device, &ten(0x28, 0x20, 7, 1), &[]).await, zeroes(7));

    for (damaged, told, blind) in [(guard, GUARD, 0x40), (reference, REFERENCE, 0x80)] {
        good(&device, &ten(0x2a, 0x60, 7, 1), &damaged).await;
        for flags in [0, 0x20, 0xa0] {
            for read in each(READ, flags).into_iter().chain(each(VERIFY, flags)) {
                assert_eq!(failed(&device, &read, &[]).await, told, "{read:02x?}");
            }
        }
        for flags in [0x60, blind] {
            assert_eq!(good(&device, &ten(0x28, flags, 7, 1), &[]).await, damaged);
            good(&device, &ten(0x2f, flags, 7, 1), &[]).await;
            good(&device, &ten(0x2f, flags | 2, 7, 1), &damaged).await;
        }
    }
}

#[tokio::test]
async fn verify_compares_what_the_field_says() {
    let device = protected();
    good(&device, &ten(0x2a, 0x20, 7, 1), &zeroes(7)).await;
    let (guard, tag) = (changed(zeroes(7), 513), changed(zeroes(7), 515));
    for (flags, expected, at) in [
        (0x22, &guard, Some(513)),
        (0x42, &guard, None),
        (0x62, &guard, Some(513)),
        (0x82, &guard, Some(513)),
        (0x22, &tag, Some(515)),
        (0x82, &tag, None),
    ] {
        let (outcome, _) = run(&device, 0, &ten(0x2f, flags, 7, 1), expected).await;
        match at {
            None => assert_eq!(status(&outcome), Status::Good, "{flags:#04x}"),
            Some(_) => {
                let told = sense(&outcome);
                assert_eq!((told.code, told.information), ((0x1d, 0), at), "{flags:#04x}");
            }
        }
    }
    assert_eq!(
        failed(&device, &ten(0x2f, 0x26, 7, 1), &zeroes(7)).await.1,
        INVALID
    );
}

#[tokio::test]
async fn blocks_without_contents_have_tags_of_ff() {
    let device = protected();
    let nothing = [vec![0; 512], vec![0xff; 8]].concat();
    assert_eq!(good(&device, &ten(0x28, 0x20, 7, 1), &[]).await, nothing);
    good(&device, &ten(0x2a, 0x20, 7, 1), &zeroes(7)).await;
    let list = [
        &[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..],
        &[0, 0, 0, 1, 0, 0, 0, 0],
    ]
    .concat();
    good(&device, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).await;
    assert_eq!(good(&device, &ten(0x28, 0x20, 7, 1), &[]).await, nothing);
    // No Data-Out: zeroes that nobody vouches for.
    good(&device, &ten(0x2a, 0x20, 7, 1), &zeroes(7)).await;
    good(&device, &sixteen(0x93, 0x01, 7, 1), &[]).await;
    assert_eq!(good(&device, &ten(0x28, 0x20, 7, 1), &[]).await, nothing);
    // A block of zeroes that was sent is one of the initiator's.
    good(&device, &sixteen(0x93, 0x00, 7, 1), &[0; 512]).await;
    assert_eq!(
        good(&device, &ten(0x28, 0x20, 7, 1), &[]).await[512..],
        [0, 0, 0, 0, 0, 0, 0, 7]
    );
}

#[tokio::test]
async fn write_same_counts_the_reference_tag_up() {
    let device = protected();
    for write in [ten(0x41, 0x20, 7, 600), sixteen(0x93, 0x20, 7, 600)] {
        good(&device, &write, &zeroes(7)).await;
        let expected: Vec<u8> = (7..607).flat_map(zeroes).collect();
        assert!(good(&device, &sixteen(0x88, 0x20, 7, 600), &[]).await == expected);
        assert_eq!(failed(&device, &write, &zeroes(8)).await, REFERENCE);
        assert_eq!(failed(&device, &write, &[0; 512]).await.1, INVALID);
    }
    assert_eq!(failed(&device, &sixteen(0x93, 0x21, 7, 1), &[]).await.1, INVALID);
}

#[tokio::test]
async fn what_writes_in_one_step_checks_and_keeps_the_tags_too() {
    let device = protected();
    let ones = |guard: u16, tag: u8| {
        [
            &[0xff; 512][..],
            &guard.to_be_bytes(),
            &[0x56, tag],
            &7_u32.to_be_bytes(),
        ]
        .concat()
    };
    let guard_of_ones = backstores::guard(&[0xff; 512]);
    let read = ten(0x28, 0x20, 7, 1);

    // WRITE ATOMIC, of whole physical blocks, also of more than one piece.
    let many: Vec<u8> = (0..512).flat_map(zeroes).collect();
    for blocks in [8, 512] {
        let cdb = sixteen(0x9c, 0x20, 0, blocks);
        let sent = &many[..blocks as usize * 520];
        let damaged = changed(sent.to_vec(), 7 * 520 + 513);
        assert_eq!(failed(&device, &cdb, &damaged).await, GUARD);
        good(&device, &cdb, sent).await;
        assert!(good(&device, &sixteen(0x88, 0x20, 0, blocks), &[]).await == sent);
        assert_eq!(
            failed(&device, &cdb, &sent[..blocks as usize * 512]).await.1,
            INVALID
        );
    }

    // WRITE AND VERIFY.
    for cdb in each([0x2e, 0xae, 0x8e], 0x20)
        .into_iter()
        .chain(each([0x2e, 0xae, 0x8e], 0x22))
    {
        assert_eq!(failed(&device, &cdb, &changed(zeroes(7), 519)).await, REFERENCE);
        good(&device, &cdb, &zeroes(7)).await;
        assert_eq!(good(&device, &read, &[]).await, zeroes(7));
    }

    // ORWRITE: a guard of the result, the application tag that was sent.
    assert_eq!(
        failed(&device, &sixteen(0x8b, 0x20, 7, 1), &ones(0, 0x78)).await,
        GUARD
    );
    good(&device, &sixteen(0x8b, 0x20, 7, 1), &zeroes(7)).await;
    good(&device, &sixteen(0x8b, 0x20, 7, 1), &ones(guard_of_ones, 0x78)).await;
    assert_eq!(good(&device, &read, &[]).await, ones(guard_of_ones, 0x78));
    let with_zeroes = [zeroes(7)[..512].to_vec(), vec![0, 0, 0x56, 0x79, 0, 0, 0, 7]].concat();
    good(&device, &sixteen(0x8b, 0x20, 7, 1), &with_zeroes).await;
    assert_eq!(good(&device, &read, &[]).await, ones(guard_of_ones, 0x79));

    // COMPARE AND WRITE: both halves are checked, contents compared.
    let caw = sixteen(0x89, 0x20, 7, 0).into_iter().enumerate();
    let caw: Vec<u8> = caw.map(|(at, byte)| if at == 13 { 1 } else { byte }).collect();
    let now = ones(guard_of_ones, 0x11);
    for (first, second, told) in [
        (changed(now.clone(), 513), zeroes(7), GUARD),
        (now.clone(), changed(zeroes(7), 519), REFERENCE),
    ] {
        assert_eq!(failed(&device, &caw, &[first, second].concat()).await, told);
    }
    assert_eq!(good(&device, &read, &[]).await, ones(guard_of_ones, 0x79));
    let (outcome, _) = run(&device, 0, &caw, &[zeroes(7), now.clone()].concat()).await;
    assert_eq!(
        (sense(&outcome).code, sense(&outcome).information),
        ((0x1d, 0), Some(0))
    );
    good(&device, &caw, &[now.clone(), zeroes(7)].concat()).await;
    assert_eq!(good(&device, &read, &[]).await, zeroes(7));
    let halves = [[now.clone(), now.clone()].concat(), vec![0; 1024]];
    for wrong in halves {
        let flags = if wrong.len() == 1024 { 0x20 } else { 0x00 };
        let mut cdb = caw.clone();
        cdb[1] = flags;
        assert_eq!(failed(&device, &cdb, &wrong).await.1, INVALID);
    }
    // As many blocks as Block Limits says fit with their tags.
    let limits = good(&device, &[0x12, 1, 0xb0, 0, 64, 0], &[]).await;
    assert_eq!(limits[5], 252);
    let nothing: Vec<u8> = (0..252).flat_map(zeroes).collect();
    good(&device, &sixteen(0x93, 0x20, 0, 252), &zeroes(0)).await;
    let mut most = sixteen(0x89, 0x20, 0, 0);
    most[13] = 252;
    good(&device, &most, &[nothing.clone(), nothing].concat()).await;
}

#[tokio::test]
async fn without_it_the_field_must_be_zero() {
    let (plain, protected) = (disk(), protected());
    for value in 1..8 {
        for cdb in [READ, WRITE, VERIFY]
            .into_iter()
            .flat_map(|codes| each(codes, value << 5))
        {
            assert_eq!(failed(&plain, &cdb, &[0; 512]).await.1, INVALID, "{cdb:02x?}");
            if value > 5 {
                assert_eq!(failed(&protected, &cdb, &[0; 520]).await.1, INVALID, "{cdb:02x?}");
            }
        }
    }
}

#[tokio::test]
async fn short_data_out_writes_whole_blocks_with_their_tags() {
    let device = protected();
    let two: Vec<u8> = (7..9).flat_map(zeroes).collect();
    let cdb = ten(0x2a, 0x20, 7, 2);
    let command = Command::new(0, &cdb).sending(&two[..1030]);
    command.run(&device, &nexus(1)).await;
    let read = good(&device, &ten(0x28, 0x20, 7, 2), &[]).await;
    assert_eq!(read[..520], zeroes(7));
    assert_eq!(read[520 + 512..], [0xff; 8]);
}
