//! Two portal groups as two paths to one disk (SPC-4 §5.15.2, ALUA): how good each is, and who is told when that changes.

use tests::script::{Initiator, Keys, Target};

/// REPORT TARGET PORT GROUPS.
fn report() -> [u8; 16] {
    [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
}

/// SET TARGET PORT GROUPS with one descriptor.
fn set() -> [u8; 16] {
    [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0]
}

fn state(state: u8, group: u8) -> [u8; 8] {
    [0, 0, 0, 0, state, 0, 0, group]
}

async fn two_paths() -> (Target, Initiator, Initiator) {
    let target = Target::builder().portal_groups(2).start().await;
    let first = Initiator::log_in_by(&target, 1).await;
    let second = Initiator::log_in_by(&target, 2).await;
    (target, first, second)
}

#[tokio::test]
async fn each_portal_is_a_port_of_its_own_with_the_same_disk_behind_it() {
    let (_target, mut first, mut second) = two_paths().await;
    for (path, group) in [(&mut first, 1), (&mut second, 2)] {
        let page = path
            .command(tests::script::cdb::vpd(0x83, 0x400))
            .read(0x400)
            .run()
            .await;
        let has = |designator: &[u8]| {
            page.data
                .windows(designator.len())
                .any(|window| window == designator)
        };
        assert!(has(&[0x51, 0x94, 0, 4, 0, 0, 0, group]), "the port's number");
        assert!(has(&[0x51, 0x95, 0, 4, 0, 0, 0, group]), "the group's number");
        assert!(has(format!(",t,0x000{group}").as_bytes()), "the port's name");
        assert!(
            has(&[0x01, 0x03, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 0]),
            "the disk's name"
        );
        let groups = path.command(report()).read(1024).run().await.data;
        assert_eq!(
            groups,
            [
                0, 0, 0, 24, 0, 0x0f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x0f, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2
            ]
        );
    }
    first.write(3, &[7; 512]).await;
    assert_eq!(second.read(3, 1).await, [7; 512]);
}

#[tokio::test]
async fn the_login_tells_the_group_of_its_portal() {
    let target = Target::builder().portal_groups(2).start().await;
    for group in [1, 2] {
        let pairs = Initiator::connect_by(&target, group)
            .await
            .login(Keys::normal())
            .await;
        let tag = pairs.iter().find(|pair| pair.key == "TargetPortalGroupTag");
        assert_eq!(tag.map(|pair| pair.value.clone()), Some(group.to_string()));
    }
}

#[tokio::test]
async fn a_path_in_standby_moves_no_data_and_comes_back() {
    let (_target, mut first, mut second) = two_paths().await;
    let end = first.command(set()).write(&state(2, 2)).run().await;
    assert_eq!(end.status, 0);
    let end = second
        .command(tests::script::cdb::read_10(0, 1))
        .read(512)
        .run()
        .await;
    assert_eq!(end.sense(), (0x6, 0x2a, 0x06), "the other path is told");
    let end = second
        .command(tests::script::cdb::read_10(0, 1))
        .read(512)
        .run()
        .await;
    assert_eq!((end.sense(), end.data.len()), ((0x2, 0x04, 0x0b), 0));
    let groups = second.command(report()).read(1024).run().await;
    assert_eq!(groups.data[16..22], [2, 0x0f, 0, 2, 0, 1], "standby, by command");
    first.read(0, 1).await;

    // The path that does not serve can be told to.
    let end = second.command(set()).write(&state(0, 2)).run().await;
    assert_eq!(end.status, 0);
    second.read(0, 1).await;
    let end = first.command(tests::script::cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x2a, 0x06));
}

#[tokio::test]
async fn a_path_that_is_unavailable_tells_of_itself_and_nothing_else() {
    let (_target, mut first, mut second) = two_paths().await;
    first.command(set()).write(&state(3, 2)).run().await;
    let end = second.command(tests::script::cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x6, 0x2a, 0x06));
    let end = second.command(tests::script::cdb::test_unit_ready()).run().await;
    assert_eq!(end.sense(), (0x2, 0x04, 0x0c));
    assert_eq!(
        second
            .command(tests::script::cdb::inquiry(96))
            .read(96)
            .run()
            .await
            .status,
        0
    );
    assert_eq!(second.command(report()).read(1024).run().await.status, 0);
    // MODE SENSE is answered in standby at best.
    let end = second
        .command([0x1a, 0, 0x3f, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .read(255)
        .run()
        .await;
    assert_eq!(end.sense(), (0x2, 0x04, 0x0c));
}
