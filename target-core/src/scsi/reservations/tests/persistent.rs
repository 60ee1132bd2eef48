//! Persistent reservations by example; what all of them do together is in `walk.rs`.

use super::*;
use crate::scsi::reservations::TransportId;
use crate::scsi::reservations::state::MAX_REGISTRATIONS;
use crate::scsi::testing::{device, faulty, sense, unit};
use backstores::{Matching, StoreOp};

async fn register(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, key: u64) {
    assert_eq!(run(device, nexus, prout(REGISTER, 0, 0, key, 0)).await, Good);
}

async fn reply(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, action: u8) -> Vec<u8> {
    prin(action).run(device, nexus).await.1
}

fn isids(ports: &[u8]) -> Vec<u8> {
    let ids: Vec<u8> = ports
        .iter()
        .flat_map(|isid| TransportId::encode(&nexus(*isid).initiator))
        .collect();
    [
        &basic(0, 9, SPEC_I_PT)[..],
        &u32::try_from(ids.len()).unwrap().to_be_bytes(),
        &ids,
    ]
    .concat()
}

#[tokio::test]
async fn every_type_keeps_out_whom_it_says() {
    // Whether an unregistered nexus reads, a registered one reads, a registered one writes.
    const CASES: [(u8, bool, bool, bool); 6] = [
        (1, true, true, false),
        (3, false, false, false),
        (5, true, true, true),
        (6, false, true, true),
        (7, true, true, true),
        (8, false, true, true),
    ];
    for (kind, stranger_reads, registrant_reads, registrant_writes) in CASES {
        let device = device(&[unit(64)]);
        let [holder, registrant, stranger] = [
            session(&device, 1).await,
            session(&device, 2).await,
            session(&device, 3).await,
        ];
        register(&device, &holder, 1).await;
        register(&device, &registrant, 2).await;
        assert_eq!(run(&device, &holder, prout(RESERVE, kind, 1, 0, 0)).await, Good);
        let allowed = |is_allowed| if is_allowed { Good } else { Conflict };
        assert_eq!(run(&device, &holder, write(9)).await, Good);
        assert_eq!(run(&device, &stranger, write(1)).await, Conflict);
        assert_eq!(run(&device, &stranger, read()).await, allowed(stranger_reads));
        assert_eq!(run(&device, &registrant, read()).await, allowed(registrant_reads));
        assert_eq!(
            run(&device, &registrant, write(2)).await,
            allowed(registrant_writes)
        );
        for nexus in [&registrant, &stranger] {
            assert_eq!(run(&device, nexus, test_unit_ready()).await, Good);
            assert_eq!(
                run(&device, nexus, Command::new(0, &[0x25]).expecting(8)).await,
                Good
            );
            assert_eq!(run(&device, nexus, prin(0)).await, Good);
        }
        let (_, data) = read().run(&device, &holder).await;
        let last = if registrant_writes { 2 } else { 9 };
        assert_eq!(data, [last; 512], "a conflict moves no data");
    }
}

#[tokio::test]
async fn commands_that_change_the_unit_conflict_by_what_their_cdb_asks() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    assert_eq!(run(&device, &one, prout(RESERVE, 1, 1, 0, 0)).await, Good);
    let cases = [
        (vec![0x1b, 0, 0, 0, 1, 0], Good),
        (vec![0x1b, 0, 0, 0, 0, 0], Conflict),
        (vec![0x1b, 0, 0, 0, 0x11, 0], Conflict),
        (vec![0x35], Conflict),
        (vec![0x2f, 0, 0, 0, 0, 0, 0, 0, 1, 0], Good),
        (vec![0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Good),
    ];
    for (cdb, expected) in cases {
        assert_eq!(
            run(&device, &two, Command::new(0, &cdb)).await,
            expected,
            "{cdb:02x?}"
        );
    }
}

#[tokio::test]
async fn what_is_registered_and_reserved_can_be_read() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 0x0102_0304_0506_0708).await;
    register(&device, &two, 9).await;
    let keys = reply(&device, &two, 0).await;
    assert_eq!(
        keys,
        [
            0, 0, 0, 2, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9
        ]
    );
    assert_eq!(reply(&device, &one, 1).await, [0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(run(&device, &two, prout(RESERVE, 6, 9, 0, 0)).await, Good);
    assert_eq!(
        reply(&device, &one, 1).await,
        [
            0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 6, 0, 0
        ]
    );
    let full = reply(&device, &one, 3).await;
    assert_eq!(full[..8], [0, 0, 0, 2, 0, 0, 0, 152]);
    let second = &full[8 + 76..];
    assert_eq!(
        second[..24],
        [
            0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 52
        ]
    );
    assert_eq!(
        &second[24..],
        b"\x45\0\0\x30iqn.2024-01.org.example:host,i,0x800000000002\0\0\0"
    );
    assert_eq!(full[8 + 12], 0, "the first holds nothing");
    // An allocation length cuts what is sent and not what is said.
    let (_, cut) = Command::new(0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 10, 0])
        .expecting(64)
        .run(&device, &one)
        .await;
    assert_eq!(cut, [0, 0, 0, 2, 0, 0, 0, 16, 1, 2]);
}

#[tokio::test]
async fn lists_and_cdbs_that_are_wrong_are_pointed_at() {
    let device = device(&[unit(64)]);
    let one = session(&device, 1).await;
    register(&device, &one, 1).await;
    let cases = [
        (prout_list(REGISTER, 0, &basic(1, 2, 0)[..23]), (0x1a, 0x00), None),
        (prout_list(REGISTER, 0, &[]), (0x1a, 0x00), None),
        (prout(RESERVE, 0x11, 1, 0, 0), (0x24, 0x00), Some((2, Some(7)))),
        (prout(RESERVE, 2, 1, 0, 0), (0x24, 0x00), Some((2, Some(3)))),
        (prout(9, 1, 1, 0, 0), (0x24, 0x00), Some((1, Some(4)))),
        (
            prout(REGISTER_AND_IGNORE, 0, 0, 1, SPEC_I_PT),
            (0x26, 0x00),
            Some((20, Some(3))),
        ),
        (prout(REGISTER, 0, 1, 1, APTPL), (0x26, 0x00), Some((20, Some(0)))),
        (prout(REPLACE_LOST, 1, 1, 2, 0), (0x26, 0x04), None),
        (
            prout_list(REGISTER_AND_MOVE, 0, &basic(1, 2, 0)),
            (0x24, 0x00),
            Some((1, Some(4))),
        ),
    ];
    for (command, code, field) in cases {
        let cdb = command.cdb.clone();
        let told = sense(&command.run(&device, &one).await.0);
        assert_eq!(told.code, code, "{cdb:02x?}");
        assert_eq!(
            told.field.map(|field| (field.byte, field.bit)),
            field,
            "{cdb:02x?}"
        );
    }
    // A list that is shorter than the CDB says, and one that no command has.
    let short = Command::new(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]).sending(&[0; 20]);
    assert_eq!(run(&device, &one, short).await, Check(0x1a, 0x00));
    let long = Command::new(0, &[0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]).sending(&[0; 24]);
    assert_eq!(run(&device, &one, long).await, Check(0x1a, 0x00));
}

#[tokio::test]
async fn a_release_must_name_the_type() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    register(&device, &two, 2).await;
    assert_eq!(run(&device, &one, prout(RESERVE, 1, 1, 0, 0)).await, Good);
    assert_eq!(
        run(&device, &one, prout(RELEASE, 3, 1, 0, 0)).await,
        Check(0x26, 0x04)
    );
    assert_eq!(
        run(&device, &two, prout(RELEASE, 3, 2, 0, 0)).await,
        Good,
        "it holds nothing"
    );
    assert_eq!(run(&device, &two, write(1)).await, Conflict);
}

#[tokio::test]
async fn a_registrant_is_known_by_its_names_when_it_comes_back() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    assert_eq!(run(&device, &one, prout(RESERVE, 3, 1, 0, 0)).await, Good);
    device.detach(&one);
    assert_eq!(run(&device, &two, read()).await, Conflict);
    let one = session(&device, 1).await;
    assert_eq!(run(&device, &one, write(1)).await, Good);
    device.manage(
        &two,
        iscsi_proto::pdu::Function::LogicalUnitReset,
        iscsi_proto::Lun::ZERO,
    );
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x29, 0x03));
    assert_eq!(
        run(&device, &two, read()).await,
        Conflict,
        "a reset leaves it alone"
    );
}

#[tokio::test]
async fn whoever_was_preempted_while_away_is_told_when_it_comes_back() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    register(&device, &two, 2).await;
    device.detach(&two);
    assert_eq!(run(&device, &one, prout(PREEMPT, 1, 1, 2, 0)).await, Good);
    let two = session(&device, 2).await;
    // It leaves again before it has heard it all.
    device.detach(&two);
    let two = session(&device, 2).await;
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x2a, 0x05));
    assert_eq!(run(&device, &two, test_unit_ready()).await, Good);
}

#[tokio::test]
async fn a_conflict_comes_before_news_and_after_a_reset() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    register(&device, &two, 2).await;
    assert_eq!(run(&device, &one, prout(PREEMPT, 1, 1, 2, 0)).await, Good);
    assert_eq!(run(&device, &one, prout(RESERVE, 3, 1, 0, 0)).await, Good);
    assert_eq!(run(&device, &two, write(1)).await, Conflict);
    device.manage(
        &one,
        iscsi_proto::pdu::Function::LogicalUnitReset,
        iscsi_proto::Lun::ZERO,
    );
    assert_eq!(run(&device, &two, write(1)).await, Check(0x29, 0x03));
    assert_eq!(run(&device, &two, write(1)).await, Conflict);
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x2a, 0x05));
}

#[tokio::test]
async fn preempt_and_abort_ends_their_tasks_and_waits_for_no_disk() {
    let (device, store) = faulty(64);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    register(&device, &two, 2).await;
    store.hold(Matching::op(StoreOp::Write));
    let theirs = write(2);
    let aborted = theirs.abort.clone();
    let mut theirs = Box::pin(theirs.begin(&device, &two));
    assert!(advance(&mut theirs).is_none());
    let mut fence = Box::pin(prout(PREEMPT_AND_ABORT, 1, 1, 2, 0).run(&device, &one));
    let (outcome, _) = advance(&mut fence).expect("it waits for nothing");
    assert_eq!(ended(&outcome), Good);
    assert!(aborted.is_fired());
    store.resume();
    assert_eq!(theirs.await.0, Outcome::Aborted);
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x2a, 0x05));
    assert_eq!(run(&device, &two, test_unit_ready()).await, Check(0x2f, 0x00));
    assert_eq!(run(&device, &two, test_unit_ready()).await, Good);
}

#[tokio::test]
async fn preempt_and_abort_waits_for_no_ordered_task() {
    let (device, store) = faulty(64);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    register(&device, &two, 2).await;
    store.hold(Matching::op(StoreOp::Write));
    let ordered = write(2).with(crate::scsi::TaskAttribute::Ordered);
    let mut theirs = Box::pin(ordered.begin(&device, &two));
    assert!(advance(&mut theirs).is_none());
    let mut fence = Box::pin(prout(PREEMPT_AND_ABORT, 1, 1, 2, 0).run(&device, &one));
    let (outcome, _) = advance(&mut fence).expect("it waits for nothing");
    assert_eq!(ended(&outcome), Good);
    store.resume();
    assert_eq!(theirs.await.0, Outcome::Aborted);
}

#[tokio::test]
async fn a_task_that_waits_is_checked_when_its_turn_comes() {
    let (device, store) = faulty(64);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    store.hold(Matching::op(StoreOp::Read));
    let mut first = Box::pin(read().begin(&device, &two));
    assert!(advance(&mut first).is_none());
    let ordered = write(2).with(crate::scsi::TaskAttribute::Ordered);
    let mut waits = Box::pin(ordered.begin(&device, &two));
    assert!(advance(&mut waits).is_none());
    let reserve = prout(RESERVE, 1, 1, 0, 0).with(crate::scsi::TaskAttribute::HeadOfQueue);
    assert_eq!(run(&device, &one, reserve).await, Good);
    store.resume();
    assert_eq!(ended(&first.await.0), Good, "it had begun");
    assert_eq!(ended(&waits.await.0), Conflict);
}

#[tokio::test]
async fn register_names_other_initiator_ports() {
    let device = device(&[unit(64)]);
    let one = session(&device, 1).await;
    // Port 3 has no session yet; port 1, named twice, is the one that asks.
    assert_eq!(
        run(&device, &one, prout_list(REGISTER, 0, &isids(&[1, 3, 1, 3]))).await,
        Good
    );
    let keys = reply(&device, &one, 0).await;
    assert_eq!(keys[..8], [0, 0, 0, 1, 0, 0, 0, 16]);
    let three = session(&device, 3).await;
    assert_eq!(run(&device, &three, prout(RESERVE, 3, 9, 0, 0)).await, Good);
    // Registered already: the asking nexus, or the one that is named.
    let again = prout_list(REGISTER, 0, &isids(&[2]));
    assert_eq!(run(&device, &one, again).await, Conflict, "its key is not 0");
    let two = session(&device, 2).await;
    let taken = prout_list(REGISTER, 0, &isids(&[4, 3]));
    let told = sense(&taken.run(&device, &two).await.0);
    assert_eq!((told.code, told.field.unwrap().byte), ((0x26, 0x00), 28 + 52));
    assert_eq!(reply(&device, &one, 0).await.len(), 24, "nobody was registered");
}

#[tokio::test]
async fn a_device_name_stands_for_every_port_that_is_known() {
    let device = device(&[unit(64)]);
    let (one, _two) = (session(&device, 1).await, session(&device, 2).await);
    let list = |name: &[u8]| {
        let len = u8::try_from(name.len()).unwrap();
        let id = [&[0x05, 0, 0, len], name].concat();
        [&basic(0, 9, SPEC_I_PT)[..], &[0, 0, 0, len + 4], &id].concat()
    };
    let nobody = list(b"iqn.2024-01.org.example:else\0\0\0\0");
    assert_eq!(
        run(&device, &one, prout_list(REGISTER, 0, &nobody)).await,
        Check(0x26, 0x00)
    );
    let host = list(b"iqn.2024-01.org.example:host\0\0\0\0");
    assert_eq!(run(&device, &one, prout_list(REGISTER, 0, &host)).await, Good);
    assert_eq!(reply(&device, &one, 0).await[..8], [0, 0, 0, 1, 0, 0, 0, 16]);
}

#[tokio::test]
async fn a_registration_for_all_target_ports_is_one_for_each() {
    let device = two_ports();
    let one = session(&device, 1).await;
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 0, 5, 0x04)).await, Good);
    let full = reply(&device, &one, 3).await;
    assert_eq!(full.len(), 8 + 2 * 76);
    assert_eq!((full[8 + 19], full[8 + 76 + 19]), (1, 7), "relative target ports");
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 5, 0, 0x04)).await, Good);
    assert_eq!(reply(&device, &one, 0).await, [0, 0, 0, 2, 0, 0, 0, 0]);
    // Registered by one port alone: the request would conflict on the other.
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 0, 5, 0)).await, Good);
    assert_eq!(run(&device, &one, prout(REGISTER, 0, 5, 6, 0x04)).await, Conflict);
    assert_eq!(
        run(&device, &one, prout(REGISTER_AND_IGNORE, 0, 5, 6, 0x04)).await,
        Good
    );
    assert_eq!(reply(&device, &one, 0).await.len(), 24);
}

fn two_ports() -> Arc<TargetDevice> {
    use iscsi_proto::Tpgt;
    let device = TargetDevice::new(
        "iqn.2024-01.org.example:disk".parse().unwrap(),
        &[Tpgt(1), Tpgt(7)],
    );
    assert!(device.map(0, unit(64)));
    device
}

fn moving(isid: u8, port: u8, key: u64, action_key: u64, unregister: bool) -> Vec<u8> {
    let id = TransportId::encode(&nexus(isid).initiator);
    let mut list = basic(key, action_key, 0);
    list[17] = u8::from(unregister) << 1;
    list[19] = port;
    list[23] = u8::try_from(id.len()).unwrap();
    list.extend(id);
    list
}

#[tokio::test]
async fn a_reservation_moves_to_another_initiator_port() {
    let device = device(&[unit(64)]);
    let (one, two) = (session(&device, 1).await, session(&device, 2).await);
    register(&device, &one, 1).await;
    let go = |list: &[u8]| prout_list(REGISTER_AND_MOVE, 0, list);
    assert_eq!(
        run(&device, &one, go(&moving(2, 1, 1, 2, false))).await,
        Check(0x24, 0x00)
    );
    assert_eq!(run(&device, &one, prout(RESERVE, 1, 1, 0, 0)).await, Good);
    assert_eq!(run(&device, &two, go(&moving(1, 1, 0, 2, false))).await, Conflict);
    let wrong = [
        (moving(2, 1, 1, 0, false), 8),
        (moving(2, 2, 1, 2, false), 18),
        (moving(1, 1, 1, 2, false), 24),
    ];
    for (list, byte) in wrong {
        let told = sense(&go(&list).run(&device, &one).await.0);
        assert_eq!((told.code, told.field.unwrap().byte), ((0x26, 0x00), byte));
    }
    assert_eq!(run(&device, &one, go(&moving(2, 1, 1, 2, true))).await, Good);
    assert_eq!(run(&device, &one, write(1)).await, Conflict);
    assert_eq!(run(&device, &two, write(2)).await, Good);
    assert_eq!(
        reply(&device, &two, 0).await,
        [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]
    );
}

#[tokio::test]
async fn registrations_are_bounded() {
    let device = device(&[unit(64)]);
    for number in 0..MAX_REGISTRATIONS {
        let [_, _, _, _, _, _, high, low] = u64::try_from(number).unwrap().to_be_bytes();
        let mut id = NexusId::clone(&nexus(0));
        id.initiator.isid.0[3..5].copy_from_slice(&[high, low]);
        register(&device, &Arc::new(id), 1).await;
    }
    let one = session(&device, 1).await;
    let (outcome, _) = prout(REGISTER, 0, 0, 1, 0).run(&device, &one).await;
    assert_eq!(sense(&outcome).code, (0x55, 0x04));
    assert_eq!(reply(&device, &one, 0).await[..8], [0, 0, 4, 0, 0, 0, 0x20, 0]);
}
