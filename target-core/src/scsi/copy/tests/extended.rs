//! EXTENDED COPY and what is told of it.

use backstores::{StoreOptions, StoreSource};

use super::*;
use crate::scsi::testing::{Command, nexus};

async fn copy(device: &Arc<TargetDevice>, list: &[u8]) -> Outcome {
    send(device, 0, 0x00, 0, list).await
}

#[tokio::test]
async fn segments_are_copied_in_their_order_between_all_units() {
    let (device, [one, two]) = pair(8192);
    write(&device, 0, 0, &pattern(1, 0, 5000)).await;
    let list = extended_copy_list(
        1,
        &[&one, &two],
        &[
            block_segment(0, 1, 5000, 0, 100),
            block_segment(1, 0, 10, 100, 8000),
            block_segment(1, 1, 10, 105, 0),
        ],
    );
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    assert!(read(&device, 1, 100, 5000).await == pattern(1, 0, 5000));
    assert!(read(&device, 0, 8000, 10).await == pattern(1, 0, 10));
    assert!(read(&device, 1, 0, 10).await == pattern(1, 5, 10));
    assert_eq!(
        read(&device, 1, 5100, 1).await,
        [0; 512],
        "nothing behind the segment changed"
    );
}

#[tokio::test]
async fn runs_of_one_unit_that_overlap_are_copied_as_they_were() {
    for (from, to) in [(0, 700), (700, 0), (5, 5)] {
        let (device, [one, _]) = pair(8192);
        write(&device, 0, from, &pattern(1, 0, 3000)).await;
        let list = extended_copy_list(1, &[&one], &[block_segment(0, 0, 3000, from, to)]);
        assert_eq!(status(&copy(&device, &list).await), Status::Good);
        assert!(
            read(&device, 0, to, 3000).await == pattern(1, 0, 3000),
            "{from} {to}"
        );
    }
}

#[tokio::test]
async fn bytes_are_copied_from_and_to_the_middle_of_blocks() {
    let (device, [one, two]) = pair(8192);
    let source = pattern(1, 0, 2000);
    let around = pattern(2, 0, 2000);
    for (len, from, to) in [(1, 0, 511), (1000, 511, 3), (700_000, 100, 100), (513, 1, 2)] {
        write(&device, 0, 0, &source).await;
        write(&device, 1, 0, &around).await;
        let list = extended_copy_list(1, &[&one, &two], &[byte_segment(0, 1, len, (3, from), (7, to))]);
        assert_eq!(status(&copy(&device, &list).await), Status::Good);
        let mut expected = around.clone();
        let (len, from, to) = (
            len as usize,
            3 * 512 + usize::from(from),
            7 * 512 + usize::from(to),
        );
        expected[to..to + len].copy_from_slice(&source[from..from + len]);
        assert!(read(&device, 1, 0, 2000).await == expected, "{len} {from} {to}");
    }
    let list = extended_copy_list(1, &[&one], &[byte_segment(0, 0, 3000, (0, 5), (1, 9))]);
    write(&device, 0, 0, &source).await;
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    assert!(read(&device, 0, 0, 20).await[521..3521] == source[5..3005]);
}

#[tokio::test]
async fn a_segment_that_cannot_be_done_ends_the_copy_there() {
    let (device, [one, two]) = pair(64);
    let stranger = named(9, 64);
    write(&device, 0, 0, &pattern(1, 0, 8)).await;
    let good = block_segment(0, 1, 4, 0, 0);
    for (bad, expected, byte) in [
        (block_segment(0, 3, 1, 0, 0), (0x0a, 0x08, 0x04), Some(6)),
        (block_segment(7, 1, 1, 0, 0), (0x0a, 0x08, 0x04), Some(4)),
        (block_segment(0, 2, 1, 0, 0), (0x0a, 0x0d, 0x02), Some(6)),
        (block_segment(0, 1, 2, 63, 0), (0x0a, 0x00, 0x00), Some(12)),
        (block_segment(0, 1, 2, 0, 63), (0x0a, 0x00, 0x00), Some(20)),
    ] {
        let list = extended_copy_list(5, &[&one, &two, &stranger], &[good.clone(), bad, good.clone()]);
        let outcome = copy(&device, &list).await;
        assert_eq!(code(&outcome), expected);
        let sense = sense(&outcome);
        assert_eq!(sense.command_specific, Some(1));
        assert_eq!(sense.field.map(|field| field.byte), byte);
        let (_, told) = run(
            &device,
            0,
            &[0x84, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &[],
        )
        .await;
        assert_eq!(told, [0, 0, 0, 8, 2, 0, 1, 0, 0, 0, 8, 0]);
    }
    assert!(read(&device, 1, 0, 4).await == pattern(1, 0, 4));
}

#[tokio::test]
async fn both_units_are_checked_as_if_they_were_read_and_written() {
    let (device, [one, two]) = pair(64);
    let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
    let protect = |swp| [0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, swp, 0, 0, 0, 0, 0, 0, 0];
    let select = [0x15, 0x10, 0, 0, 16, 0];
    run(&device, 1, &select, &protect(8)).await;
    assert_eq!(code(&copy(&device, &list).await), (0x0a, 0x0d, 0x01));
    run(&device, 1, &select, &protect(0)).await;
    run(&device, 0, &select, &protect(8)).await;
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    let removable = LogicalUnit::new(
        UnitConfig {
            removable: true,
            ..name_config(3)
        },
        memory(64),
    );
    assert!(device.map(7, Arc::clone(&removable)));
    let list = extended_copy_list(1, &[&removable, &two], &[block_segment(0, 1, 1, 0, 0)]);
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    run(&device, 7, &[0x1b, 0, 0, 0, 2, 0], &[]).await;
    assert_eq!(code(&copy(&device, &list).await), (0x0a, 0x0d, 0x01));
}

#[tokio::test]
async fn a_reservation_of_another_nexus_holds_at_either_end() {
    let (device, [one, two]) = pair(64);
    let holder = nexus(2);
    device.attach(&holder);
    let keys = [&[0; 8][..], &[0, 0, 0, 0, 0, 0, 0, 9], &[0; 8]].concat();
    let with_key = [&[0, 0, 0, 0, 0, 0, 0, 9][..], &[0; 16]].concat();
    let clear_attention = Command::new(1, &[0; 6]);
    clear_attention.run(&device, &holder).await;
    let register = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let command = Command::new(1, &register).sending(&keys);
    assert_eq!(status(&command.run(&device, &holder).await.0), Status::Good);
    let to = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
    let from = extended_copy_list(1, &[&one, &two], &[block_segment(1, 0, 1, 0, 0)]);
    for (kind, reads) in [(1, true), (3, false)] {
        let reserve = [0x5f, 1, kind, 0, 0, 0, 0, 0, 24, 0];
        let command = Command::new(1, &reserve).sending(&with_key);
        assert_eq!(status(&command.run(&device, &holder).await.0), Status::Good);
        assert_eq!(code(&copy(&device, &to).await), (0x0a, 0x0d, 0x01), "{kind}");
        let outcome = copy(&device, &from).await;
        if reads {
            assert_eq!(status(&outcome), Status::Good);
        } else {
            assert_eq!(code(&outcome), (0x0a, 0x0d, 0x01));
        }
        let release = [0x5f, 2, kind, 0, 0, 0, 0, 0, 24, 0];
        let command = Command::new(1, &release).sending(&with_key);
        assert_eq!(status(&command.run(&device, &holder).await.0), Status::Good);
    }
    assert_eq!(status(&copy(&device, &to).await), Status::Good);
}

#[tokio::test]
async fn a_unit_that_another_nexus_reserved_is_neither_read_nor_written() {
    let (device, [one, two]) = pair(64);
    let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
    for reserved in [0, 1] {
        // The copy is sent to the unit that is not reserved: a reserved one would not even take it.
        let reserve = |opcode| Command::new(reserved, &[opcode, 0, 0, 0, 0, 0]);
        reserve(0x16).run(&device, &nexus(2)).await;
        let (outcome, _) = run(&device, 1 - reserved, &out_cdb(0, 0, list.len()), &list).await;
        assert_eq!(code(&outcome), (0x0a, 0x0d, 0x01));
        reserve(0x17).run(&device, &nexus(2)).await;
    }
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
}

#[tokio::test]
async fn units_are_found_by_each_of_their_names_and_by_no_other() {
    let (device, [one, two]) = pair(64);
    write(&device, 0, 0, &pattern(1, 0, 1)).await;
    let with_designator = |head: [u8; 4], name: &[u8]| {
        let mut list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
        list[16 + 4..16 + 28].fill(0);
        list[16 + 4..16 + 8].copy_from_slice(&head);
        list[16 + 8..16 + 8 + name.len()].copy_from_slice(name);
        list
    };
    let t10 = with_designator([2, 1, 0, 12], b"LUNAPORT0001");
    assert_eq!(status(&copy(&device, &t10).await), Status::Good);
    for wrong in [
        with_designator([1, 1, 0, 12], b"LUNAPORT0001"),
        with_designator([2, 1, 0, 11], b"LUNAPORT000"),
        with_designator([1, 3, 0, 15], &one.config().naa[..15]),
        with_designator([1, 0x14, 0, 4], &[0, 0, 0, 1]),
        with_designator([1, 3, 0, 0], &[]),
    ] {
        assert_eq!(code(&copy(&device, &wrong).await), (0x0a, 0x0d, 0x02));
    }
    let mut tape = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
    tape[17] = 0x01;
    assert_eq!(code(&copy(&device, &tape).await), (0x0a, 0x0d, 0x03));
    let mut other_blocks = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 1, 0, 0)]);
    other_blocks[16 + 30] = 0x10;
    assert_eq!(code(&copy(&device, &other_blocks).await), (0x05, 0x26, 0x00));
}

#[tokio::test]
async fn no_list_is_no_copy_and_wrong_lists_copy_nothing() {
    let (device, [one, two]) = pair(64);
    write(&device, 0, 0, &pattern(1, 0, 8)).await;
    assert_eq!(status(&copy(&device, &[]).await), Status::Good);
    let whole = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 8, 0, 0)]);
    for len in 1..whole.len() {
        assert_eq!(code(&copy(&device, &whole[..len]).await), (5, 0x1a, 0), "{len}");
        // The CDB says more than comes.
        let (outcome, _) = run(&device, 0, &out_cdb(0, 0, whole.len()), &whole[..len]).await;
        assert_eq!(code(&outcome), (5, 0x1a, 0), "{len}");
    }
    let (outcome, _) = run(&device, 0, &out_cdb(0, 0, 0xffff_ffff), &whole).await;
    assert_eq!(code(&outcome), (5, 0x1a, 0));
    assert_eq!(read(&device, 1, 0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn results_are_told_to_the_nexus_of_the_copy_until_it_goes() {
    let (device, [one, two]) = pair(64);
    let ask = |action: u8, list: u8, allocation: u8| {
        vec![0x84, action, list, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, allocation, 0, 0]
    };
    let (outcome, _) = run(&device, 0, &ask(0, 7, 255), &[]).await;
    assert_eq!(code(&outcome), (5, 0x24, 0));
    let list = extended_copy_list(7, &[&one, &two], &[block_segment(0, 1, 8, 0, 0)]);
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    for allocation in [0, 1, 4, 255] {
        let (_, told) = run(&device, 0, &ask(0, 7, allocation), &[]).await;
        let whole = [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 0x10, 0];
        assert_eq!(told, whole[..whole.len().min(allocation.into())]);
    }
    let (_, none) = run(&device, 0, &ask(4, 7, 255), &[]).await;
    assert_eq!(none, [0, 0, 0, 0]);
    let other = Command::new(0, &ask(0, 7, 255));
    assert_eq!(code(&other.run(&device, &nexus(2)).await.0), (5, 0x24, 0));
    let held = ask(1, 7, 255);
    assert_eq!(
        code(&run(&device, 0, &held, &[]).await.0),
        (5, 0x24, 0),
        "nothing is ever held"
    );
    one.detach(&nexus(1));
    assert_eq!(code(&run(&device, 0, &ask(0, 7, 255), &[]).await.0), (5, 0x24, 0));
}

#[tokio::test]
async fn failure_details_are_told_once() {
    let (device, [one, _]) = pair(64);
    let list = extended_copy_list(7, &[&one], &[block_segment(0, 1, 8, 0, 0)]);
    assert_eq!(code(&copy(&device, &list).await), (0x0a, 0x08, 0x04));
    let ask = [0x84, 4, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let (_, told) = run(&device, 0, &ask, &[]).await;
    assert_eq!((told.len(), told[3], told[56], told[59]), (78, 74, 0x02, 18));
    assert_eq!((told[62], told[72], told[73]), (0x0a, 0x08, 0x04));
    assert_eq!(code(&run(&device, 0, &ask, &[]).await.0), (5, 0x24, 0));
}

#[tokio::test]
async fn two_units_copied_onto_each_other_at_once_do_not_wait_for_each_other_without_end() {
    let (device, [one, two]) = pair(8192);
    write(&device, 0, 0, &pattern(1, 0, 8192)).await;
    write(&device, 1, 0, &pattern(2, 0, 8192)).await;
    let bytes = |source, destination| byte_segment(source, destination, 3_000_001, (0, 0), (0, 1));
    let lists = [(0, 1, 1_u8), (1, 0, 2), (0, 1, 3), (1, 0, 4)];
    let copies = lists.map(|(source, destination, list)| {
        let list = extended_copy_list(list, &[&one, &two], &[bytes(source, destination)]);
        let device = Arc::clone(&device);
        tokio::spawn(async move { copy(&device, &list).await })
    });
    for copy in copies {
        assert_eq!(status(&copy.await.unwrap()), Status::Good);
    }
    for unit in [one, two] {
        assert_eq!(unit.tasks().len(), 0);
    }
}

#[tokio::test]
async fn what_takes_no_space_takes_none_where_a_buffer_carries_the_copy() {
    // A store with protection information lets no other copy from it directly.
    let options = StoreOptions {
        protection: true,
        ..StoreOptions::default()
    };
    let source = backstores::open(&StoreSource::Memory { size: 4 << 20 }, options).unwrap();
    assert!(source.copy_source().is_none());
    let one = LogicalUnit::new(name_config(1), source);
    let two = named(2, 8192);
    let device = device(&[Arc::clone(&one), Arc::clone(&two)]);
    write(&device, 0, 1024, &pattern(1, 0, 3)).await;
    write(&device, 1, 0, &pattern(2, 0, 8192)).await;
    let full = two.store().space().await.unwrap().unwrap().used;
    let list = extended_copy_list(1, &[&one, &two], &[block_segment(0, 1, 8000, 0, 0)]);
    assert_eq!(status(&copy(&device, &list).await), Status::Good);
    assert!(read(&device, 1, 0, 1024).await == [0; 1024 * 512]);
    assert!(read(&device, 1, 1024, 3).await == pattern(1, 0, 3));
    assert!(read(&device, 1, 1027, 6973).await == [0; 6973 * 512]);
    assert!(read(&device, 1, 8000, 192).await == pattern(2, 8000, 192));
    let left = two.store().space().await.unwrap().unwrap().used;
    assert_eq!((full, left), (8192 * 512, 3 * 65536), "pages of 64 KiB");
}
