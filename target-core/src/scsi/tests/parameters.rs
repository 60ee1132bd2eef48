//! Parameters that outlive the program, and parameter data of every command in every length.

use std::sync::Arc;

use crate::scsi::table::COMMANDS;
use crate::scsi::testing::{
    Command, TestMemory, config, device, faulty, memory, nexus, run, sense, status, unit,
};
use crate::scsi::{LogicalUnit, SoftThreshold, Status, TargetDevice, UnitConfig};

/// MODE SELECT (6) of the Caching page.
fn caching(flags: u8, write_cache: u8) -> ([u8; 6], [u8; 24]) {
    let mut list = [0; 24];
    (list[4], list[5], list[6]) = (0x08, 0x12, write_cache);
    ([0x15, 0x10 | flags, 0, 0, 24, 0], list)
}

async fn mode_page(device: &Arc<TargetDevice>, control: u8, page: u8) -> Vec<u8> {
    let cdb = [0x1a, 0x08, control << 6 | page, 0, 0xff, 0];
    run(device, 0, &cdb, &[]).await.1
}

#[tokio::test]
async fn a_saved_page_is_there_again_in_the_next_life_and_after_a_reset() {
    let memory = TestMemory::shared();
    let first = unit(64);
    first.remember(&memory).unwrap();
    let device_now = device(&[first]);
    let (cdb, list) = caching(1, 0);
    assert_eq!(status(&run(&device_now, 0, &cdb, &list).await.0), Status::Good);
    assert_eq!(mode_page(&device_now, 3, 0x08).await[4..7], [0x88, 0x12, 0]);

    // Changed without being saved: a reset brings the saved values back.
    let (cdb, list) = caching(0, 4);
    run(&device_now, 0, &cdb, &list).await;
    assert_eq!(mode_page(&device_now, 0, 0x08).await[4..7], [0x88, 0x12, 4]);
    assert_eq!(mode_page(&device_now, 3, 0x08).await[4..7], [0x88, 0x12, 0]);
    let lun = iscsi_proto::Lun::ZERO;
    device_now.manage(&nexus(1), iscsi_proto::pdu::Function::LogicalUnitReset, lun);
    assert_eq!(mode_page(&device_now, 0, 0x08).await[4..7], [0x88, 0x12, 0]);

    let again = unit(64);
    again.remember(&memory).unwrap();
    let device_then = device(&[again]);
    assert_eq!(mode_page(&device_then, 0, 0x08).await[4..7], [0x88, 0x12, 0]);
    assert_eq!(
        mode_page(&device_then, 2, 0x08).await[4..7],
        [0x88, 0x12, 4],
        "the default"
    );
}

#[tokio::test]
async fn what_cannot_be_saved_is_not_changed_either() {
    let full = Arc::new(TestMemory::default());
    full.is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let full: Arc<dyn crate::scsi::NonVolatileMemory> = full;
    let kept = unit(64);
    kept.remember(&full).unwrap();
    let device = device(&[kept]);
    let (cdb, list) = caching(1, 0);
    let (outcome, _) = run(&device, 0, &cdb, &list).await;
    assert_eq!(sense(&outcome).code, (0x44, 0x00));
    assert_eq!(mode_page(&device, 0, 0x08).await[4..7], [0x88, 0x12, 4]);
}

#[tokio::test]
async fn nothing_is_saved_where_nothing_can_be() {
    let device = device(&[unit(64)]);
    let (cdb, list) = caching(1, 0);
    let (outcome, _) = run(&device, 0, &cdb, &list).await;
    let field = sense(&outcome).field.unwrap();
    assert_eq!(
        (sense(&outcome).code, field.byte, field.bit),
        ((0x24, 0), 1, Some(0))
    );
    let (outcome, _) = run(&device, 0, &[0x1a, 0, 0xc8, 0, 0xff, 0], &[]).await;
    assert_eq!(sense(&outcome).code, (0x39, 0x00));
    assert_eq!(mode_page(&device, 0, 0x08).await[4], 0x08, "PS");
}

#[tokio::test]
async fn the_write_cache_is_emptied_before_its_end_is_saved() {
    let (device, store) = faulty(64);
    let kept = TestMemory::shared();
    device.luns()[0].1.remember(&kept).unwrap();
    run(&device, 0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 512]).await;
    let (cdb, list) = caching(1, 0);
    assert_eq!(status(&run(&device, 0, &cdb, &list).await.0), Status::Good);
    store.power_cut(1);
    store.power_on();
    let (_, read) = run(&device, 0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).await;
    assert_eq!(read, [7; 512]);
}

#[tokio::test]
async fn the_soft_threshold_is_told_to_every_nexus_at_each_crossing() {
    let thin = LogicalUnit::new(
        UnitConfig {
            soft_threshold: Some(SoftThreshold::Percent(50)),
            ..config()
        },
        memory(4096),
    );
    let device = device(&[Arc::clone(&thin)]);
    let nexuses = [nexus(1), nexus(2)];
    for nexus in &nexuses {
        device.attach(nexus);
    }
    let told = async |nexus| {
        let (outcome, _) = Command::new(0, &[0; 6]).run(&device, nexus).await;
        (status(&outcome) != Status::Good).then(|| sense(&outcome).code)
    };
    for nexus in &nexuses {
        assert_eq!(told(nexus).await, Some((0x29, 0)));
    }
    for round in 0..2 {
        thin.refresh().await.unwrap();
        assert_eq!(told(&nexuses[0]).await, None, "round {round}");
        // Half of 2 MiB, as pages of 64 KiB.
        for page in 0..16_u16 {
            let [high, low] = (page * 128).to_be_bytes();
            run(&device, 0, &[0x2a, 0, 0, 0, high, low, 0, 0, 1, 0], &[1; 512]).await;
        }
        for _ in 0..2 {
            thin.refresh().await.unwrap();
        }
        for nexus in &nexuses {
            assert_eq!(told(nexus).await, Some((0x38, 0x07)));
            assert_eq!(told(nexus).await, None, "once");
        }
        // WRITE SAME with UNMAP of everything; the next round crosses the threshold again.
        run(&device, 0, &[0x41, 0x08, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 512]).await;
    }
}

/// Where the allocation length of an operation code is: byte and width.
fn allocation(opcode: u8) -> Option<(usize, usize)> {
    match opcode {
        0x03 | 0x1a => Some((4, 1)),
        0x12 | 0x1c => Some((3, 2)),
        0x37 | 0x4d | 0x5a | 0x5e => Some((7, 2)),
        0x84 | 0x9e => Some((10, 4)),
        0xa0 | 0xa3 | 0xb7 => Some((6, 4)),
        _ => None,
    }
}

#[tokio::test]
async fn parameter_data_of_every_command_are_cut_to_every_allocation_length() {
    let kept = LogicalUnit::new(
        UnitConfig {
            removable: true,
            ..config()
        },
        memory(4096),
    );
    kept.remember(&TestMemory::shared()).unwrap();
    let device = device(&[kept]);
    for spec in COMMANDS {
        let Some((at, width)) = allocation(spec.opcode) else {
            continue;
        };
        let with_allocation = |allocation: u32| {
            let mut cdb = vec![0; spec.usage.len()];
            cdb[0] = spec.opcode;
            if let Some(action) = spec.service_action {
                cdb[1] = u8::try_from(action).unwrap();
            }
            match spec.opcode {
                // All mode pages; the supported log pages.
                0x1a | 0x5a => cdb[2] = 0x3f,
                0x4d => cdb[2] = 0x40,
                _ => {}
            }
            cdb[at..at + width].copy_from_slice(&allocation.to_be_bytes()[4 - width..]);
            cdb
        };
        let most = if width == 1 { 0xff } else { 0xffff };
        let (outcome, whole) = run(&device, 0, &with_allocation(most), &[]).await;
        let is_good = status(&outcome) == Status::Good;
        for allocation in [0, 1, 4, most] {
            let (outcome, data) = run(&device, 0, &with_allocation(allocation), &[]).await;
            let expected = &whole[..whole.len().min(allocation as usize)];
            // Some commands refuse what is too short for their header, and then give nothing.
            if status(&outcome) == Status::Good {
                assert!(is_good && data == expected, "{} {allocation}", spec.name);
            } else {
                let sense = sense(&outcome);
                assert_eq!(
                    (sense.code.0, data.len()),
                    (0x24, 0),
                    "{} {allocation}",
                    spec.name
                );
            }
        }
    }
}
