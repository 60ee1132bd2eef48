//! Disks whose medium changes its size while they are used (SBC-4 §4.5): who is told, and what can be reached.

use std::fs::{File, OpenOptions};
use std::sync::Arc;

use backstores::{Fault, Matching, Measured, StoreErrorKind, StoreOp, StoreOptions, StoreSource};
use iscsi_proto::Lun;
use target_core::scsi::LogicalUnit;
use tests::script::{Initiator, Keys, Target, cdb};

/// A disk of 1 MiB over a file, as LUN 1.
struct Disk {
    target: Target,
    unit: Arc<LogicalUnit>,
    file: File,
    _directory: tempfile::TempDir,
}

impl Disk {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let source = StoreSource::File {
            path: path.clone(),
            size: Some(1 << 20),
        };
        let store = backstores::open(&source, StoreOptions::default()).unwrap();
        let target = Target::builder().store(store).start().await;
        let luns = target.device().luns();
        Self {
            unit: Arc::clone(&luns[1].1),
            target,
            file: OpenOptions::new().write(true).open(path).unwrap(),
            _directory: directory,
        }
    }

    async fn log_in(&self, isid: u8) -> Initiator {
        let mut initiator = Initiator::log_in_with(&self.target, isid, Keys::normal()).await;
        initiator.lun = Lun::from_number(1).unwrap();
        initiator.clear_attentions().await;
        initiator
    }
}

async fn last_lba(initiator: &mut Initiator) -> u64 {
    let end = initiator
        .command(cdb::read_capacity_16(32))
        .read(32)
        .run()
        .await
        .good();
    u64::from_be_bytes(end.data[..8].try_into().unwrap())
}

#[tokio::test]
async fn a_disk_that_grew_is_told_once_to_every_nexus_and_can_be_used_at_once() {
    let disk = Disk::start().await;
    let mut one = disk.log_in(1).await;
    let mut two = disk.log_in(2).await;
    assert_eq!(last_lba(&mut one).await, 2047);
    disk.file.set_len(2 << 20).unwrap();
    assert_eq!(last_lba(&mut one).await, 2047, "nobody has looked yet");
    assert_eq!(
        disk.unit.refresh().await.unwrap(),
        Measured::Grown { size: 2 << 20 }
    );
    for _ in 0..2 {
        assert_eq!(disk.unit.refresh().await.unwrap(), Measured::Unchanged);
    }
    for initiator in [&mut one, &mut two] {
        let end = initiator.command(cdb::test_unit_ready()).run().await;
        assert_eq!(end.sense(), (0x6, 0x2a, 0x09));
        initiator.command(cdb::test_unit_ready()).run().await.good();
        assert_eq!(last_lba(initiator).await, 4095);
    }
    one.write(4095, &[7; 512]).await;
    assert_eq!(two.read(4095, 1).await, [7; 512]);
}

#[tokio::test]
async fn a_disk_that_was_cut_keeps_its_size_and_what_is_gone_is_a_medium_error() {
    let disk = Disk::start().await;
    let mut initiator = disk.log_in(1).await;
    initiator.write(0, &[7; 512]).await;
    disk.file.set_len(1 << 19).unwrap();
    assert_eq!(
        disk.unit.refresh().await.unwrap(),
        Measured::Shrunk { end: 1 << 19 }
    );
    assert_eq!(last_lba(&mut initiator).await, 2047);
    let end = initiator.command(cdb::read_10(1024, 1)).read(512).run().await;
    assert_eq!((end.sense(), end.data.len()), ((0x3, 0x11, 0x00), 0));
    let end = initiator
        .command(cdb::write_10(1024, 1))
        .write(&[7; 512])
        .run()
        .await;
    assert_eq!(end.sense(), (0x3, 0x0c, 0x00));
    assert_eq!(initiator.read(0, 1).await, [7; 512]);
    let beyond = initiator.command(cdb::read_10(2048, 1)).read(512).run().await;
    assert_eq!(beyond.sense(), (0x5, 0x21, 0x00), "that was never there");
    // The file is as long again, and so the disk is whole.
    disk.file.set_len(1 << 20).unwrap();
    assert_eq!(disk.unit.refresh().await.unwrap(), Measured::Unchanged);
    assert_eq!(initiator.read(1024, 1).await, [0; 512]);
}

#[tokio::test]
async fn a_store_without_space_stops_writes_alone_and_goes_on_when_there_is_space() {
    let target = Target::start().await;
    let mut initiator = Initiator::log_in(&target).await;
    initiator.write(0, &[1; 512]).await;
    for op in [StoreOp::Write, StoreOp::WriteZeroes, StoreOp::Flush] {
        let full = Fault::Fail(StoreErrorKind::NoSpace);
        target.store(0).inject(Matching::op(op), 0, u64::MAX, full);
    }
    let no_space = (0x7, 0x27, 0x07);
    let end = initiator
        .command(cdb::write_10(0, 1))
        .write(&[2; 512])
        .run()
        .await;
    assert_eq!(end.sense(), no_space);
    // WRITE SAME (10) of zeroes, SYNCHRONIZE CACHE (10).
    let end = initiator
        .command(cdb::cdb(&[0x41, 0, 0, 0, 0, 0, 0, 0, 1]))
        .write(&[0; 512])
        .run()
        .await;
    assert_eq!(end.sense(), no_space);
    let end = initiator.command(cdb::cdb(&[0x35])).run().await;
    assert_eq!(end.sense(), no_space);
    assert_eq!(initiator.read(0, 1).await, [1; 512]);
    target.store(0).heal();
    initiator.write(0, &[2; 512]).await;
    assert_eq!(initiator.read(0, 1).await, [2; 512]);
}
