//! Reservations as clusters use them (SPC-4 §5.13): two hosts that fence each other off, with a disk that hangs, and
//! what is left of a reservation when its session is gone.

use backstores::{Matching, StoreOp};
use iscsi_proto::pdu::{R2t, Residual};
use tests::script::{End, Initiator, Keys, Target, cdb};

const CONFLICT: u8 = 0x18;
const BUSY: u8 = 0x08;

/// PERSISTENT RESERVE OUT with the basic parameter list.
async fn prout(initiator: &mut Initiator, action: u8, kind: u8, keys: (u64, u64)) -> End {
    let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes()].concat();
    list.extend([0; 8]);
    let cdb = cdb::cdb(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]);
    initiator.command(cdb).write(&list).immediate_data(24).run().await
}

async fn register(initiator: &mut Initiator, key: u64) {
    prout(initiator, 0, 0, (0, key)).await.good();
}

async fn test_unit_ready(initiator: &mut Initiator) -> End {
    initiator.command(cdb::test_unit_ready()).run().await
}

async fn two_hosts(target: &Target) -> (Initiator, Initiator) {
    let mut one = Initiator::log_in_with(target, 1, Keys::normal()).await;
    let mut two = Initiator::log_in_with(target, 2, Keys::normal()).await;
    register(&mut one, 1).await;
    register(&mut two, 2).await;
    (one, two)
}

#[tokio::test]
async fn two_hosts_fence_each_other_off_while_the_disk_hangs() {
    let target = Target::start().await;
    let (mut one, mut two) = two_hosts(&target).await;
    prout(&mut one, 1, 5, (1, 0)).await.good();
    let (mut fenced, mut fencing) = (&mut two, &mut one);
    for (mine, theirs) in [(1, 2), (2, 1), (1, 2)] {
        target
            .store(0)
            .hold(Matching::op(StoreOp::Write).touching(0..512));
        fenced
            .command(cdb::write_10(0, 1))
            .write(&[0xee; 512])
            .immediate_data(512)
            .start()
            .await;
        target.store(0).until_held(1).await;
        // The answer comes while the victim's write still hangs.
        prout(fencing, 5, 5, (mine, theirs)).await.good();
        // Whatever the victim sends from now on does not reach the disk. Nor does it hear of its lost write.
        let end = fenced
            .command(cdb::write_10(9, 1))
            .write(&[0xee; 512])
            .immediate_data(512)
            .run()
            .await;
        assert_eq!(end.status, CONFLICT);
        assert_eq!(test_unit_ready(fenced).await.sense(), (0x6, 0x2a, 0x05));
        assert_eq!(test_unit_ready(fenced).await.sense(), (0x6, 0x2f, 0x00));
        // The old write may still land on its block, and only that one has to be waited for.
        fencing.write(1, &[0x11; 512]).await;
        let end = fencing
            .command(cdb::write_10(0, 1))
            .write(&[0x22; 512])
            .run()
            .await;
        assert_eq!(end.status, BUSY);
        target.store(0).resume();
        fencing.write(0, &[0x22; 512]).await;
        assert_eq!(fencing.read(0, 1).await, [0x22; 512]);
        assert_eq!(fencing.read(9, 1).await, [0; 512]);
        register(fenced, theirs).await;
        std::mem::swap(&mut fenced, &mut fencing);
    }
}

#[tokio::test]
async fn a_conflict_moves_no_data() {
    let target = Target::start().await;
    let (mut one, mut two) = two_hosts(&target).await;
    prout(&mut one, 1, 3, (1, 0)).await.good();
    let end = two
        .command(cdb::write_10(0, 16))
        .write(&[7; 8192])
        .immediate_data(512)
        .run()
        .await;
    assert_eq!((end.status, end.r2ts.len()), (CONFLICT, 0));
    assert_eq!(end.residual, Residual::Underflow(8192));
    let end = two.command(cdb::read_10(0, 16)).read(8192).run().await;
    assert_eq!((end.status, end.data.len()), (CONFLICT, 0));
    assert_eq!(one.read(0, 16).await, [0; 8192]);
    two.ping().await;
}

#[tokio::test]
async fn a_preempted_write_that_waits_for_data_ends_without_a_word() {
    let target = Target::start().await;
    let (mut one, mut two) = two_hosts(&target).await;
    let data = [5; 4096];
    let (itt, _) = two.command(cdb::write_10(0, 8)).write(&data).start().await;
    let (r2t, _) = two.expect::<R2t>().await;
    prout(&mut one, 5, 1, (1, 2)).await.good();
    // It answers what it was asked, and its session goes on in step.
    two.data_out(itt, r2t.ttt, &data, 0..4096, 4096).await;
    two.ping().await;
    assert_eq!(test_unit_ready(&mut two).await.sense(), (0x6, 0x2a, 0x05));
    assert_eq!(one.read(0, 8).await, [0; 4096]);
}

#[tokio::test]
async fn a_registration_outlives_its_session_and_reserve_6_does_not() {
    let target = Target::start().await;
    let (mut one, mut two) = two_hosts(&target).await;
    prout(&mut one, 1, 3, (1, 0)).await.good();
    one.log_out().await;
    let end = two.command(cdb::read_10(0, 1)).read(512).run().await;
    assert_eq!(end.status, CONFLICT);
    // The same names come back, while the session they had before still stands, and then again.
    for _ in 0..2 {
        one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
        one.write(0, &[1; 512]).await;
    }
    prout(&mut one, 3, 0, (1, 0)).await.good();
    assert_eq!(test_unit_ready(&mut two).await.sense(), (0x6, 0x2a, 0x03));

    let reserve_6 = cdb::cdb(&[0x16]);
    one.command(reserve_6).run().await.good();
    assert_eq!(test_unit_ready(&mut two).await.status, CONFLICT);
    one.log_out().await;
    assert_eq!(test_unit_ready(&mut two).await.status, 0);
    let mut one = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    one.command(reserve_6).run().await.good();
    let mut again = Initiator::log_in_with(&target, 1, Keys::normal()).await;
    assert_eq!(test_unit_ready(&mut two).await.status, 0);
    again.ping().await;
}
