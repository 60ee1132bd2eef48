//! Copies inside the target, over a socket: the data never pass through the initiator.

use backstores::{Matching, StoreOp};
use iscsi_proto::Lun;
use iscsi_proto::pdu::{Function, TmfResponse};
use tests::script::{Disk, Initiator, Keys, Target, cdb, unit_config};

/// Two disks of 4 MiB.
async fn two_disks() -> Target {
    let disk = Disk {
        size: 4 << 20,
        ..Disk::default()
    };
    Target::builder().disk(disk).disk(disk).start().await
}

/// An initiator that uses this LUN, and has nothing to be told on either.
async fn on_lun(target: &Target, isid: u8, lun: u16) -> Initiator {
    let mut initiator = Initiator::log_in_with(target, isid, Keys::normal()).await;
    for lun in [1 - lun, lun] {
        initiator.lun = Lun::from_number(lun).unwrap();
        initiator.clear_attentions().await;
    }
    initiator
}

fn pattern(blocks: u16) -> Vec<u8> {
    (0..blocks)
        .flat_map(|block| block.to_be_bytes().repeat(256))
        .collect()
}

/// Names a unit as EXTENDED COPY wants it: an identification descriptor.
fn cscd(lun: u16) -> Vec<u8> {
    let naa = unit_config(lun, false).naa;
    let mut descriptor = vec![0xe4, 0, 0, 0, 1, 3, 0, 8];
    descriptor.extend(naa);
    descriptor.resize(29, 0);
    descriptor.extend([0, 2, 0]);
    descriptor
}

/// A parameter list that copies blocks from the beginning of LUN 0 to the beginning of LUN 1.
fn extended_copy(blocks: u16) -> Vec<u8> {
    let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend(cscd(0));
    list.extend(cscd(1));
    list.extend([0x02, 0, 0, 0x18, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend([0; 16]);
    list
}

fn out_cdb(action: u8, list: u32, len: usize) -> [u8; 16] {
    let mut cdb = cdb::cdb(&[0x83, action]);
    cdb[6..10].copy_from_slice(&list.to_be_bytes());
    cdb[10..14].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
    cdb
}

fn in_cdb(action: u8, list: u32, allocation: u32) -> [u8; 16] {
    let mut cdb = cdb::cdb(&[0x84, action]);
    cdb[2..6].copy_from_slice(&list.to_be_bytes());
    cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

fn populate(lba: u64, blocks: u32) -> Vec<u8> {
    let mut list = vec![0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16];
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    list
}

fn write_using(flags: u8, token: &[u8], lba: u64, blocks: u32) -> Vec<u8> {
    let mut list = vec![0x02, 0x26, flags];
    list.resize(16, 0);
    list.extend(token);
    list.resize(534, 0);
    list.extend([0, 16]);
    list.extend(lba.to_be_bytes());
    list.extend(blocks.to_be_bytes());
    list.extend([0; 4]);
    list
}

#[tokio::test]
async fn the_disk_says_that_it_copies_and_extended_copy_does() {
    let target = two_disks().await;
    let mut initiator = on_lun(&target, 1, 0).await;
    let inquiry = initiator.command(cdb::inquiry(96)).read(96).run().await.good();
    assert_eq!(inquiry.data[5] & 0x08, 0x08, "3PC");
    let page = initiator
        .command(cdb::vpd(0x8f, 1024))
        .read(1024)
        .run()
        .await
        .good();
    assert_eq!(page.data[1], 0x8f);
    let data = pattern(4000);
    for (at, piece) in data.chunks(400 * 512).enumerate() {
        initiator.write(u32::try_from(at).unwrap() * 400, piece).await;
    }
    let list = extended_copy(4000);
    let end = initiator
        .command(out_cdb(0x00, 0, list.len()))
        .write(&list)
        .run()
        .await
        .good();
    assert!(end.data.is_empty());
    let status = initiator
        .command(cdb::cdb(&[0x84, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255]))
        .read(255)
        .run()
        .await
        .good();
    assert_eq!(status.data, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0x1f, 0x40, 0]);
    initiator.lun = Lun::from_number(1).unwrap();
    assert!(initiator.read(0, 4000).await == data);
}

#[tokio::test]
async fn a_token_is_made_by_one_host_and_used_by_another() {
    let target = two_disks().await;
    let mut reader = on_lun(&target, 1, 0).await;
    let mut writer = on_lun(&target, 2, 1).await;
    reader.write(100, &pattern(50)).await;
    let list = populate(100, 50);
    let command = reader.command(out_cdb(0x10, 9, list.len()));
    command.write(&list).run().await.good();
    let told = reader
        .command(in_cdb(0x07, 9, 1024))
        .read(1024)
        .run()
        .await
        .good()
        .data;
    assert_eq!((told[4], told[5], told[15], told[23]), (0x10, 1, 0xf1, 50));
    let token = &told[38..550];
    let list = write_using(0, token, 7, 50);
    let command = writer.command(out_cdb(0x11, 10, list.len()));
    command.write(&list).immediate_data(100).run().await.good();
    assert!(writer.read(7, 50).await == pattern(50));
    // The next write to the source ends what the token stands for.
    reader.write(149, &[1; 512]).await;
    let again = writer
        .command(out_cdb(0x11, 11, list.len()))
        .write(&list)
        .run()
        .await;
    assert_eq!(again.sense(), (0x05, 0x23, 0x06));
}

#[tokio::test]
async fn wrong_parameter_lists_of_every_length_are_answered_and_copy_nothing() {
    let target = two_disks().await;
    let mut initiator = on_lun(&target, 1, 0).await;
    initiator.write(0, &[7; 512]).await;
    for (action, id, whole) in [
        (0x00, 0, extended_copy(1)),
        (0x10, 3, populate(0, 1)),
        (0x11, 3, write_using(0, &[0; 512], 0, 1)),
    ] {
        for len in 1..whole.len() {
            let end = initiator
                .command(out_cdb(action, id, len))
                .write(&whole[..len])
                .run()
                .await;
            assert_eq!(end.sense(), (0x05, 0x1a, 0x00), "{action:#x} {len}");
        }
        // More is announced than comes.
        let end = initiator
            .command(out_cdb(action, id, 60_000))
            .write(&whole[..whole.len() - 1])
            .run()
            .await;
        assert_eq!(end.sense(), (0x05, 0x1a, 0x00), "{action:#x}");
    }
    initiator.lun = Lun::from_number(1).unwrap();
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn an_abort_of_a_copy_is_answered_while_the_disk_hangs() {
    let target = two_disks().await;
    let mut initiator = on_lun(&target, 1, 0).await;
    target.store(1).hold(Matching::op(StoreOp::Write));
    let list = extended_copy(4000);
    let command = initiator
        .command(out_cdb(0x00, 0, list.len()))
        .write(&list)
        .immediate_data(list.len())
        .start()
        .await;
    target.store(1).until_held(1).await;
    let itt = initiator.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(initiator.managed(itt).await, TmfResponse::Complete);
    initiator.ping().await;
    // What the store has is a fence on the disk that it is written to.
    initiator.lun = Lun::from_number(1).unwrap();
    let end = initiator
        .command(cdb::write_10(0, 1))
        .write(&[3; 512])
        .run()
        .await;
    assert_eq!(end.status, 0x08, "BUSY");
    target.store(1).resume();
    initiator.write(0, &[3; 512]).await;
    assert_eq!(initiator.read(0, 1).await, [3; 512]);
}

#[tokio::test]
async fn a_copy_in_the_background_ends_with_its_session() {
    let target = two_disks().await;
    let mut initiator = on_lun(&target, 1, 1).await;
    let mut zeroes = vec![0xff, 0xff, 0x00, 0x01, 0, 0, 0x01, 0xf8];
    zeroes.resize(512, 0);
    target.store(1).hold(Matching::op(StoreOp::Unmap));
    let list = write_using(1, &zeroes, 0, 8000);
    let command = initiator.command(out_cdb(0x11, 5, list.len()));
    command.write(&list).run().await.good();
    target.store(1).until_held(1).await;
    let told = initiator
        .command(in_cdb(0x05, 5, 64))
        .read(64)
        .run()
        .await
        .good()
        .data;
    assert_eq!((told[4], told[5]), (0x11, 0x12), "in progress, in the background");
    let end = initiator
        .command(out_cdb(0x11, 5, list.len()))
        .write(&list)
        .run()
        .await;
    assert_eq!(end.sense(), (0x05, 0x00, 0x16));
    initiator.log_out().await;
    target.store(1).resume();
    let mut other = on_lun(&target, 2, 1).await;
    let end = other.command(in_cdb(0x05, 5, 64)).read(64).run().await;
    assert_eq!(end.sense(), (0x05, 0x24, 0x00));
    other.write(0, &[1; 512]).await;
    assert_eq!(other.read(0, 1).await, [1; 512]);
}
