//! A conversation in the shape of VMware ESXi's initiator: scripted after what it is known to send, not captured. It
//! probes for every offload there is, and must be told politely what there is not; it comes in over several paths.

use iscsi_proto::pdu::Function;
use iscsi_proto::pdu::{LoginStage, TaskAttribute, TmfResponse};
use tests::script::{Initiator, Keys, TARGET, Target, cdb};

const NAME: &str = "iqn.1998-01.com.vmware:esx-1-4f2a";

#[tokio::test]
async fn two_paths_with_probes_for_offloads() {
    let target = Target::start().await;
    let mut paths = Vec::new();
    for path in 1..=2 {
        let mut initiator = Initiator::connect(&target).await;
        initiator.isid.0 = [0x00, 0x02, 0x3d, 0x00, 0x00, path];
        let keys = Keys::from([
            ("InitiatorName", NAME),
            ("InitiatorAlias", "esx-1"),
            ("TargetName", TARGET),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("MaxRecvDataSegmentLength", "131072"),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("FirstBurstLength", "262144"),
            ("MaxBurstLength", "262144"),
            ("MaxOutstandingR2T", "1"),
            ("ErrorRecoveryLevel", "0"),
        ]);
        let stages = (LoginStage::Operational, Some(LoginStage::FullFeature));
        let (response, pairs) = initiator.login_step(stages, keys).await;
        assert!(response.transit, "{pairs:?}");
        initiator.enter(&response, &pairs);
        initiator.clear_attentions().await;
        paths.push(initiator);
    }
    let [first, second] = &mut paths[..] else {
        unreachable!("two paths")
    };

    // Both paths lead to the same disk: that is what page 83h is for.
    let mut names = Vec::new();
    for path in [&mut *first, &mut *second] {
        let page = path.command(cdb::vpd(0x83, 252)).read(252).run().await.good();
        names.push(page.data);
    }
    assert_eq!(names[0], names[1]);

    // What it looks for before it uses an offload, and what it warns about where it is missing.
    for page in [0x00, 0x80, 0x86, 0x8f, 0xb0, 0xb1, 0xb2] {
        let end = first.command(cdb::vpd(page, 255)).read(255).run().await.good();
        assert_eq!(end.data[1], page);
    }
    for page in [0x08, 0x0a, 0x1c] {
        let sense = cdb::cdb(&[0x1a, 0, page, 0, 192]);
        let end = first.command(sense).read(192).run().await.good();
        assert_eq!(end.data[4 + usize::from(end.data[3])] & 0x3f, page);
    }

    // REPORT TARGET PORT GROUPS: one group, active and optimized.
    let report = cdb::cdb(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 2]);
    let groups = first.command(report).read(512).run().await.good().data;
    assert_eq!(groups[..8], [0, 0, 0, 12, 0, 0x0f, 0, 1]);
    // ATS: a heartbeat block is taken by whoever knows what is in it. The loser learns where it differs.
    let mut take = cdb::cdb(&[0x89]);
    take[13] = 1;
    let (free, ours, theirs) = ([0; 512], [0x11; 512], [0x22; 512]);
    let heartbeat = first.command(take).write(&[free, ours].concat());
    heartbeat.run().await.good();
    let heartbeat = second.command(take).write(&[free, theirs].concat()).run().await;
    assert_eq!(heartbeat.sense(), (0xe, 0x1d, 0x00), "miscompare");
    assert_eq!(second.read(0, 1).await, ours);

    // RECEIVE COPY RESULTS: which copies there are. EXTENDED COPY is tried without a list.
    let probe = cdb::cdb(&[0x84, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    let end = first.command(probe).read(512).run().await.good();
    assert_eq!((end.data[43], &end.data[44..]), (3, &[0x02, 0x0a, 0xe4][..]));
    first.command(cdb::cdb(&[0x83])).run().await.good();
    // WRITE SAME (16) with UNMAP and UNMAP: there, and they give zeroes.
    first.write(0, &[0x31; 65_536]).await;
    let mut write_same = cdb::cdb(&[0x93, 0x08]);
    write_same[13] = 64;
    first.command(write_same).write(&[0; 512]).run().await.good();
    assert_eq!(second.read(0, 64).await, [0; 32_768]);
    assert_eq!(second.read(64, 64).await, [0x31; 32_768]);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend([0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0, 0]);
    first
        .command(cdb::cdb(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24]))
        .write(&list)
        .immediate_data(24)
        .run()
        .await
        .good();
    assert_eq!(second.read(64, 64).await, [0; 32_768]);

    // What it does when a path is slow: it aborts there, and resets the unit by the other path.
    target
        .store(0)
        .hold(backstores::Matching::op(backstores::StoreOp::Read));
    let command = first
        .command(cdb::read_10(0, 8))
        .read(4096)
        .with(|pdu| pdu.attribute = TaskAttribute::HeadOfQueue)
        .start()
        .await;
    target.store(0).until_held(1).await;
    let itt = first.manage(Function::AbortTask, Some(command)).await;
    assert_eq!(first.managed(itt).await, TmfResponse::Complete);
    let itt = second.manage(Function::LogicalUnitReset, None).await;
    assert_eq!(second.managed(itt).await, TmfResponse::Complete);
    target.store(0).resume();
    for path in &mut paths {
        let end = path.command(cdb::test_unit_ready()).run().await;
        assert_eq!(end.sense(), (0x6, 0x29, 0x03));
        assert_eq!(path.read(0, 8).await, [0; 4096]);
        path.log_out().await;
    }
}
