//! Residual counts (RFC 7143 §11.4.5): what was announced against what the CDB calls for.

use iscsi_proto::pdu::Residual;
use tests::script::{Initiator, Target, cdb};

#[tokio::test]
async fn reads() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.write(0, &[0x77; 2048]).await;
    for (expected, blocks, moved, residual) in [
        (1024, 2, 1024, Residual::None),
        (4096, 2, 1024, Residual::Underflow(3072)),
        (512, 2, 512, Residual::Overflow(512)),
        (1000, 2, 1000, Residual::Overflow(24)),
        (0, 2, 0, Residual::Overflow(1024)),
        (512, 0, 0, Residual::Underflow(512)),
        (0, 0, 0, Residual::None),
    ] {
        let end = initiator
            .command(cdb::read_10(0, blocks))
            .read(expected)
            .run()
            .await
            .good();
        let case = format!("{blocks} blocks, {expected} bytes expected");
        assert_eq!(end.data, vec![0x77; moved], "{case}");
        assert_eq!(end.residual, residual, "{case}");
    }
}

#[tokio::test]
async fn writes() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for (offered, blocks, residual) in [
        (1024, 2, Residual::None),
        (4096, 2, Residual::Underflow(3072)),
        (512, 2, Residual::Overflow(512)),
        (512, 0, Residual::Underflow(512)),
        (0, 0, Residual::None),
    ] {
        for immediate in [0, offered] {
            initiator.write(0, &[0; 4096]).await;
            let end = initiator
                .command(cdb::write_10(0, blocks))
                .write(&vec![0x88; offered])
                .immediate_data(immediate)
                .run()
                .await;
            let case = format!("{blocks} blocks, {offered} bytes offered, {immediate} immediate");
            assert_eq!(end.status, 0, "{case}: {end:?}");
            assert_eq!(end.residual, residual, "{case}");
            let written = offered.min(usize::from(blocks) * 512);
            let mut disk = vec![0x88; written];
            disk.resize(4096, 0);
            assert_eq!(initiator.read(0, 8).await, disk, "{case}");
        }
    }
}

#[tokio::test]
async fn parameter_data() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    for (allocation, expected, moved, residual) in [
        (96, 96, 96, Residual::None),
        (96, 255, 96, Residual::Underflow(159)),
        (255, 255, 96, Residual::Underflow(159)),
        (36, 36, 36, Residual::None),
        (96, 36, 36, Residual::Overflow(60)),
        (5, 5, 5, Residual::None),
        (0, 0, 0, Residual::None),
    ] {
        let end = initiator
            .command(cdb::inquiry(allocation))
            .read(expected)
            .run()
            .await
            .good();
        let case = format!("allocation length {allocation}, {expected} bytes expected");
        assert_eq!(end.data.len(), moved, "{case}");
        assert_eq!(end.residual, residual, "{case}");
    }
}

#[tokio::test]
async fn a_command_that_moves_nothing_leaves_all_that_was_announced() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    let end = initiator
        .command(cdb::test_unit_ready())
        .read(512)
        .run()
        .await
        .good();
    assert_eq!(end.residual, Residual::Underflow(512));
    let end = initiator
        .command(cdb::test_unit_ready())
        .write(&[0; 512])
        .run()
        .await
        .good();
    assert_eq!(end.residual, Residual::Underflow(512));
    assert_eq!(end.r2ts.len(), 0);
    let end = initiator.command(cdb::cdb(&[0xff])).read(512).run().await;
    assert_eq!(end.sense(), (0x5, 0x20, 0x00));
    assert_eq!(end.residual, Residual::Underflow(512));
}
