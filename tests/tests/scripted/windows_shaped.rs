//! A conversation in the shape of Windows' initiator: scripted after what it is known to send, not captured. It logs in
//! in two stages, asks for more than it gets, and looks at every page before it writes.

use iscsi_proto::pdu::{LoginStage, LoginStatus};
use tests::script::{Initiator, Keys, TARGET, Target, cdb};

use LoginStage::{FullFeature, Operational, Security};

const NAME: &str = "iqn.1991-05.com.microsoft:host.example.org";

#[tokio::test]
async fn discovery_login_inspection_and_use() {
    let target = Target::start().await;
    let mut discovery = Initiator::connect(&target).await;
    let keys = Keys::from([
        ("InitiatorName", NAME),
        ("SessionType", "Discovery"),
        ("AuthMethod", "None"),
    ]);
    let (response, _) = discovery.login_step((Security, Some(Operational)), keys).await;
    assert!(response.transit);
    let (response, pairs) = discovery
        .login_step((Operational, Some(FullFeature)), operational())
        .await;
    assert_eq!(response.status, LoginStatus::Success, "{pairs:?}");
    discovery.enter(&response, &pairs);
    let pairs = discovery.text(Keys::from([("SendTargets", "All")])).await;
    assert_eq!(pairs[0].value, TARGET);
    discovery.log_out().await;

    let mut initiator = Initiator::connect(&target).await;
    // An ISID of the random kind, and counters as it begins them.
    initiator.isid.0 = [0x40, 0x00, 0x01, 0x37, 0x00, 0x00];
    let keys = Keys::from([
        ("InitiatorName", NAME),
        ("SessionType", "Normal"),
        ("TargetName", TARGET),
        ("AuthMethod", "None"),
    ]);
    initiator.login_step((Security, Some(Operational)), keys).await;
    let (response, pairs) = initiator
        .login_step((Operational, Some(FullFeature)), operational())
        .await;
    assert!(response.transit, "{pairs:?}");
    let agreed = |key: &str| {
        let pair = pairs.iter().find(|pair| pair.key == key);
        pair.map(|pair| pair.value.as_str())
    };
    assert_eq!(agreed("MaxConnections"), Some("1"));
    assert_eq!(agreed("ErrorRecoveryLevel"), Some("0"));
    assert_eq!(agreed("InitialR2T"), Some("Yes"));
    initiator.enter(&response, &pairs);

    let end = initiator
        .command(cdb::report_luns(4096))
        .read(4096)
        .run()
        .await
        .good();
    assert_eq!(end.data, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let end = initiator.command(cdb::inquiry(36)).read(36).run().await.good();
    assert_eq!(end.data[0], 0x00, "a disk");
    // The first command that may hear it hears of power on.
    let end = initiator.command(cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x29, 0x00));
    initiator.clear_attentions().await;

    let pages = initiator
        .command(cdb::vpd(0x00, 255))
        .read(255)
        .run()
        .await
        .good();
    let listed = &pages.data[4..4 + usize::from(pages.data[3])];
    for page in [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        assert!(listed.contains(&page), "page {page:#04x}");
        let end = initiator
            .command(cdb::vpd(page, 255))
            .read(255)
            .run()
            .await
            .good();
        assert_eq!(end.data[1], page);
    }
    let end = initiator
        .command(cdb::read_capacity_10())
        .read(8)
        .run()
        .await
        .good();
    assert_eq!(end.data, [0, 0, 0x07, 0xff, 0, 0, 2, 0]);
    let end = initiator
        .command(cdb::read_capacity_16(32))
        .read(32)
        .run()
        .await
        .good();
    assert_eq!(end.data[..12], [0, 0, 0, 0, 0, 0, 0x07, 0xff, 0, 0, 2, 0]);
    // MODE SENSE of the caching page, and of all of them, as the write cache's switch is shown.
    let end = initiator
        .command(cdb::cdb(&[0x1a, 0, 0x08, 0, 192]))
        .read(192)
        .run()
        .await
        .good();
    assert_eq!(end.data[4 + usize::from(end.data[3])] & 0x3f, 0x08);
    initiator
        .command(cdb::mode_sense_6(192))
        .read(192)
        .run()
        .await
        .good();
    // A cluster's validation reads the keys, registers one, reserves for all registrants, and clears it away.
    let keys = cdb::cdb(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 24]);
    let end = initiator.command(keys).read(24).run().await.good();
    assert_eq!(end.data, [0; 8], "nobody is registered");
    let key = *b"cluster1";
    let mut registered = [0; 24];
    registered[8..16].copy_from_slice(&key);
    let mut held = [0; 24];
    held[..8].copy_from_slice(&key);
    for (action, kind, list) in [(0, 0, registered), (1, 5, held), (3, 0, held)] {
        let out = cdb::cdb(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24]);
        initiator.command(out).write(&list).run().await.good();
    }
    let end = initiator.command(keys).read(24).run().await.good();
    assert_eq!(end.data, [0, 0, 0, 2, 0, 0, 0, 0], "two changes, and nobody left");

    // A format: the first and the last blocks, then a flush.
    initiator
        .command(cdb::write_10(0, 128))
        .write(&[0x42; 65_536])
        .immediate_data(65_536)
        .run()
        .await
        .good();
    initiator.write(2047, &[0x43; 512]).await;
    initiator.command(cdb::synchronize_cache_10()).run().await.good();
    assert_eq!(initiator.read(0, 128).await, [0x42; 65_536]);
    assert_eq!(target.store(0).unflushed_blocks(), 0);
    initiator.log_out().await;
}

fn operational() -> Keys {
    Keys::from([
        ("HeaderDigest", "None,CRC32C"),
        ("DataDigest", "None,CRC32C"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("MaxConnections", "8"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("FirstBurstLength", "65536"),
        ("MaxBurstLength", "262144"),
        ("MaxOutstandingR2T", "16"),
        ("DefaultTime2Wait", "0"),
        ("DefaultTime2Retain", "60"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("ErrorRecoveryLevel", "2"),
    ])
}
