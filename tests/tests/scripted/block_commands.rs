//! Block commands where the transport or a second session matters: CDBs of 32 bytes, Data-Out in two halves, and erasing a
//! disk while others use it.

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::Function;
use tests::script::{Initiator, Keys, Target, cdb};

/// COMPARE AND WRITE.
fn compare_and_write(lba: u8, blocks: u8) -> [u8; 16] {
    cdb::cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks])
}

/// A session beside others.
async fn session(target: &Target, isid: u8) -> Initiator {
    let mut initiator = Initiator::log_in_with(target, isid, Keys::normal()).await;
    initiator.clear_attentions().await;
    initiator
}

#[tokio::test]
async fn commands_of_32_bytes_are_refused_with_their_data_unasked() {
    let target = Target::start().await;
    let mut initiator = session(&target, 1).await;
    // The bytes of the CDB from the seventeenth on: LBA 0, one block.
    let ahs = [0, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for (action, writes) in [
        (0x09, false),
        (0x0a, true),
        (0x0b, true),
        (0x0c, true),
        (0x0d, true),
    ] {
        let start = cdb::cdb(&[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0, action]);
        let command = initiator.command(start).ahs(&ahs);
        let command = if writes {
            command.write(&[7; 512])
        } else {
            command.read(512)
        };
        let end = command.run().await;
        assert_eq!(end.sense(), (0x5, 0x20, 0x00), "{action:#04x}");
        assert!(end.r2ts.is_empty() && end.data.is_empty());
    }
    assert_eq!(initiator.read(0, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_lock_of_compare_and_write_is_taken_by_one_session() {
    let target = Target::start().await;
    let mut one = session(&target, 1).await;
    let mut other = session(&target, 2).await;
    let take = |mark| [vec![0; 512], vec![mark; 512]].concat();
    let command = one.command(compare_and_write(9, 1)).write(&take(1));
    command.immediate_data(512).run().await.good();
    let end = other
        .command(compare_and_write(9, 1))
        .write(&take(2))
        .immediate_data(1024)
        .run()
        .await;
    assert_eq!(end.sense(), (0xe, 0x1d, 0x00));
    // VALID, and INFORMATION: the first byte differs.
    assert_eq!((end.sense[0], &end.sense[3..7]), (0xf0, &[0; 4][..]));
    assert_eq!(other.read(9, 1).await, [1; 512]);
    // Given back, it can be taken.
    let give_back = [[1; 512], [0; 512]].concat();
    one.command(compare_and_write(9, 1))
        .write(&give_back)
        .run()
        .await
        .good();
    other
        .command(compare_and_write(9, 1))
        .write(&take(2))
        .run()
        .await
        .good();
    assert_eq!(one.read(9, 1).await, [2; 512]);
}

#[tokio::test]
async fn the_largest_compare_and_write_comes_in_pieces() {
    let target = Target::start().await;
    let keys = Keys::normal().with("MaxBurstLength", "4096");
    let mut initiator = Initiator::log_in_with(&target, 1, keys).await;
    let data = [vec![0; 255 * 512], vec![0x5a; 255 * 512]].concat();
    let end = initiator
        .command(compare_and_write(3, 255))
        .write(&data)
        .in_pieces_of(1000)
        .run()
        .await
        .good();
    assert_eq!(end.r2ts.len(), 64, "bursts of 4096 bytes");
    assert_eq!(initiator.read(3, 255).await, vec![0x5a; 255 * 512]);
}

#[tokio::test]
async fn sanitizing_outlives_its_session_and_is_told_to_the_next() {
    let target = Target::start().await;
    let mut asker = session(&target, 1).await;
    let mut other = session(&target, 2).await;
    other.write(5, &[5; 512]).await;
    target.store(0).hold(Matching::op(StoreOp::Write));
    let overwrite = cdb::cdb(&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 5]);
    asker
        .command(overwrite)
        .write(&[1, 0, 0, 1, 0xee])
        .immediate_data(5)
        .start()
        .await;
    target.store(0).until_held(1).await;
    drop(asker.socket);
    target.ended(1).await;

    let reset = other.manage(Function::LogicalUnitReset, None).await;
    other.managed(reset).await;
    let mut next = session_that_hears(&target, 1).await;
    for initiator in [&mut next, &mut other] {
        let told = initiator.command(cdb::test_unit_ready()).run().await;
        let told = if told.sense().0 == 0x6 {
            initiator.command(cdb::test_unit_ready()).run().await
        } else {
            told
        };
        assert_eq!(told.sense(), (0x2, 0x04, 0x1b));
        assert_eq!(told.sense[15] & 0x80, 0x80, "with its progress");
        let read = initiator.command(cdb::read_10(5, 1)).read(512).run().await;
        assert_eq!(read.sense(), (0x2, 0x04, 0x1b));
        initiator.command(cdb::inquiry(96)).read(96).run().await.good();
    }
    target.store(0).resume();
    while next.command(cdb::test_unit_ready()).run().await.status != 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(next.read(5, 1).await, [0xee; 512]);
}

/// A session that has not asked for anything yet, so that it has still to hear of power on.
async fn session_that_hears(target: &Target, isid: u8) -> Initiator {
    let mut initiator = Initiator::connect(target).await;
    initiator.isid.0[5] = isid;
    initiator.login(Keys::normal()).await;
    initiator
}
