//! RESERVE and RELEASE of SPC-2, and how they get along with persistent reservations.

use super::*;
use crate::scsi::testing::{device, unit};
use iscsi_proto::Lun;
use iscsi_proto::pdu::Function;

fn reserve() -> Command {
    Command::new(0, &[0x16])
}

fn release() -> Command {
    Command::new(0, &[0x17])
}

fn reserve_10() -> Command {
    Command::new(0, &[0x56])
}

fn release_10() -> Command {
    Command::new(0, &[0x57])
}

#[tokio::test]
async fn a_reserved_unit_is_its_holders_alone() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    assert_eq!(run(&device, &one, reserve()).await, Good);
    assert_eq!(run(&device, &one, reserve_10()).await, Good, "again");
    for theirs in [
        test_unit_ready(),
        read(),
        write(1),
        reserve(),
        reserve_10(),
        Command::new(0, &[0x25]).expecting(8),
        Command::new(0, &[0x1a, 0, 0x3f, 0, 255, 0]).expecting(255),
        prin(0),
        prout(REGISTER, 0, 0, 7, 0),
    ] {
        let cdb = theirs.cdb.clone();
        assert_eq!(run(&device, &two, theirs).await, Conflict, "{cdb:02x?}");
    }
    for theirs in [
        Command::new(0, &[0x12, 0, 0, 0, 96, 0]).expecting(96),
        Command::new(0, &[0x03, 0, 0, 0, 18, 0]).expecting(18),
        Command::new(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).expecting(256),
        release(),
        release_10(),
    ] {
        let cdb = theirs.cdb.clone();
        assert_eq!(run(&device, &two, theirs).await, Good, "{cdb:02x?}");
    }
    // The other's RELEASE did nothing, and the holder's own persistent commands conflict too.
    assert_eq!(run(&device, &two, read()).await, Conflict);
    assert_eq!(run(&device, &one, prin(0)).await, Conflict);
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 0, 7, 0)).await, Conflict);
    assert_eq!(run(&device, &one, write(1)).await, Good);
    assert_eq!(run(&device, &one, release_10()).await, Good);
    assert_eq!(run(&device, &two, write(2)).await, Good);
}

#[tokio::test]
async fn it_ends_with_the_nexus_and_with_each_reset() {
    let device = device(&[unit(64)]);
    let two = session(&device, 2).await;
    let one = session(&device, 1).await;
    assert_eq!(run(&device, &one, reserve()).await, Good);
    device.detach(&one);
    assert_eq!(run(&device, &two, write(1)).await, Good, "logout");

    let one = session(&device, 1).await;
    assert_eq!(run(&device, &one, reserve()).await, Good);
    let one = session(&device, 1).await;
    assert_eq!(run(&device, &two, write(1)).await, Good, "reinstatement");

    for function in [
        Function::LogicalUnitReset,
        Function::TargetWarmReset,
        Function::TargetColdReset,
    ] {
        assert_eq!(run(&device, &one, reserve()).await, Good);
        device.manage(&two, function, Lun::ZERO);
        for nexus in [&one, &two] {
            assert!(matches!(
                run(&device, nexus, test_unit_ready()).await,
                Check(0x29, _)
            ));
        }
        assert_eq!(run(&device, &two, write(1)).await, Good, "{function:?}");
    }
}

#[tokio::test]
async fn registrations_keep_it_out_but_registrants_that_may_write_hear_good() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 0, 7, 0)).await, Good);
    for nexus in [&one, &two] {
        assert_eq!(run(&device, nexus, reserve()).await, Conflict);
        assert_eq!(run(&device, nexus, release()).await, Conflict);
    }
    assert_eq!(run(&device, &two, prout(REGISTER, 0, 0, 8, 0)).await, Good);
    assert_eq!(run(&device, &one, prout(RESERVE, 5, 7, 0, 0)).await, Good);
    for nexus in [&one, &two] {
        assert_eq!(run(&device, nexus, reserve()).await, Good);
        assert_eq!(run(&device, nexus, release()).await, Good);
    }
    // Nothing was reserved or released by that.
    let (_, data) = prin(1).run(&device, &two).await;
    assert_eq!(data.len(), 24);
    assert_eq!(run(&device, &one, prout(RELEASE, 5, 7, 0, 0)).await, Good);
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x2a, 0x04));
    assert_eq!(run(&device, &one, prout(RESERVE, 1, 7, 0, 0)).await, Good);
    assert_eq!(run(&device, &one, reserve()).await, Good);
    assert_eq!(run(&device, &two, reserve()).await, Conflict);
}

#[tokio::test]
async fn third_parties_and_extents_are_refused() {
    let device = device(&[unit(64)]);
    let one = session(&device, 1).await;
    for (cdb, byte) in [
        ([0x16, 0x10, 0, 0, 0, 0, 0, 0, 0, 0], 1),
        ([0x16, 0x01, 0, 0, 0, 0, 0, 0, 0, 0], 1),
        ([0x56, 0x12, 0, 0, 0, 0, 0, 0, 0, 0], 1),
        ([0x56, 0, 0, 1, 0, 0, 0, 0, 0, 0], 3),
        ([0x57, 0, 0, 0, 0, 0, 0, 0, 8, 0], 8),
    ] {
        let (outcome, _) = Command::new(0, &cdb).run(&device, &one).await;
        let sense = crate::scsi::testing::sense(&outcome);
        assert_eq!(sense.code, (0x24, 0x00));
        assert_eq!(sense.field.unwrap().byte, byte, "{cdb:02x?}");
    }
}
