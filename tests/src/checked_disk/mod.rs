//! A small memory disk behind a whole target device, and a model beside it that knows what every block command does: after
//! each command the two have to be the same.

mod model;

use std::sync::Arc;

use backstores::{BlockStore, BufPool, IoBuf, StoreOptions, StoreSource};
use bytes::Bytes;
use iscsi_proto::pdu::TaskAttribute;
use iscsi_proto::{Isid, Lun, Tpgt};
use target_core::metrics::{Slot, TurnClock};
use target_core::nexus::{InitiatorPort, NexusId, TargetPort};
use target_core::scsi::{LogicalUnit, Outcome, ScsiTask, SenseKey, Status, TargetDevice};
use target_core::transfer::{AbortSignal, TaskEvent, TaskId, Transfer, TransferSetup};
use tokio::sync::{Semaphore, mpsc};

use crate::script::{INITIATOR, TARGET, unit_config};
use model::Model;

/// The disk and its model.
#[derive(Debug)]
pub(crate) struct CheckedDisk {
    device: Arc<TargetDevice>,
    nexus: Arc<NexusId>,
    store: Arc<dyn BlockStore>,
    pool: Arc<BufPool>,
    model: Model,
}

impl CheckedDisk {
    /// Zeroes, and a nexus that has not heard of power on yet.
    pub(crate) fn new() -> Self {
        let size = model::BLOCKS * model::BLOCK as u64;
        let store = backstores::open(&StoreSource::Memory { size }, StoreOptions::default())
            .expect("memory can be opened");
        let device = TargetDevice::new(TARGET.parse().expect("a valid name"), &[Tpgt(1)]);
        assert!(device.map(0, LogicalUnit::new(unit_config(0, false), Arc::clone(&store))));
        let nexus = Arc::new(NexusId {
            initiator: InitiatorPort {
                name: INITIATOR.parse().expect("a valid name"),
                isid: Isid([0x80, 0, 0, 0, 0, 1]),
            },
            target: TargetPort {
                name: TARGET.parse().expect("a valid name"),
                tpgt: Tpgt(1),
            },
        });
        device.attach(&nexus);
        Self {
            device,
            nexus,
            store,
            pool: BufPool::new(1 << 20),
            model: Model::new(),
        }
    }

    /// Runs TEST UNIT READY until it has nothing to tell: no attention, and no erasure that goes on.
    pub(crate) async fn hear_news(&mut self) {
        loop {
            let (outcome, _) = self.command(&[0; 16], 0, &[]).await;
            match outcome {
                Outcome::Status {
                    sense: Some(sense), ..
                } if sense.key == SenseKey::UnitAttention || sense.progress.is_some() => {
                    tokio::task::yield_now().await;
                }
                Outcome::Status { .. } | Outcome::Aborted => return,
            }
        }
    }

    /// Runs a command, of which the initiator has room for `room` bytes and sends `out`, and compares everything with the
    /// model.
    ///
    /// # Panics
    /// When something differs.
    pub(crate) async fn run(&mut self, cdb: &[u8; 16], room: u32, out: Vec<u8>) {
        let (outcome, data_in) = self.command(cdb, room, &out).await;
        let Outcome::Status { status, sense, .. } = outcome else {
            panic!("nobody aborted it");
        };
        if status == Status::Good {
            self.model.did(cdb, &out, &data_in);
        } else if let Some(sense) = sense
            && sense.key == SenseKey::Miscompare
        {
            self.model.miscompared(cdb, &out, sense.information);
        } else if let Some(sense) = sense
            && sense.key == SenseKey::CopyAborted
        {
            let done = sense.command_specific.expect("the segment is told");
            self.model
                .copied(&out, usize::try_from(done).expect("few segments"));
        }
        self.let_erasure_end().await;
        self.let_copy_end(cdb).await;
        self.compare().await;
    }

    /// A token may still be written when its command has ended.
    async fn let_copy_end(&self, cdb: &[u8; 16]) {
        if !matches!((cdb[0], cdb[1]), (0x83, 0x11)) {
            return;
        }
        let mut ask = [0; 16];
        (ask[0], ask[1], ask[13]) = (0x84, 0x05, 32);
        ask[2..6].copy_from_slice(&cdb[6..10]);
        loop {
            let (_, data) = self.command(&ask, 32, &[]).await;
            if data.get(5) != Some(&IN_BACKGROUND) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// What was begun in the background is done when the unit is ready again.
    async fn let_erasure_end(&mut self) {
        loop {
            let (_, data) = self.command(&REQUEST_SENSE, 18, &[]).await;
            if !matches!((data[2] & 0x0f, data[12], data[13]), (0x02, 0x04, 0x04 | 0x1b)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn compare(&self) {
        let len = self.model.bytes().len();
        let found = self
            .store
            .read(0, IoBuf::from_heap(len))
            .await
            .expect("memory does not fail");
        let expected = self.model.bytes();
        if found[..] == *expected {
            return;
        }
        let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        panic!(
            "byte {at} is {:#04x}, the model has {:#04x}",
            found[at], expected[at]
        );
    }

    async fn command(&self, cdb: &[u8; 16], room: u32, out: &[u8]) -> (Outcome, Vec<u8>) {
        let (events, mut received) = mpsc::unbounded_channel();
        let setup = TransferSetup {
            task: TaskId(1),
            expected_in: room,
            expected_out: u32::try_from(out.len()).expect("short data"),
            immediate: None,
            events,
            budget: Arc::new(Semaphore::new(4 << 20)),
            out_budget: Arc::new(Semaphore::new(4 << 20)),
            pool: Arc::clone(&self.pool),
            abort: AbortSignal::default(),
            clock: TurnClock::new(std::time::Instant::now()),
            slot: Slot::default(),
        };
        let task = ScsiTask {
            lun: Lun::ZERO,
            cdb: Bytes::copy_from_slice(cdb),
            attribute: TaskAttribute::Simple,
            priority: 0,
            tag: 1,
        };
        let command = self.device.execute(&self.nexus, task, Transfer::new(setup));
        let answering = async {
            let mut data_in = Vec::new();
            while let Some(event) = received.recv().await {
                match event {
                    TaskEvent::Get {
                        offset,
                        mut buf,
                        filled,
                        reply,
                        ..
                    } => {
                        let start = usize::try_from(offset).expect("32 bits fit") + filled;
                        let end = start + buf.len() - filled;
                        assert!(end <= out.len(), "more is asked for than there is");
                        buf[filled..].copy_from_slice(&out[start..end]);
                        let _ = reply.send(Ok(buf));
                    }
                    TaskEvent::Put { offset, buf, .. } => {
                        assert_eq!(usize::try_from(offset), Ok(data_in.len()), "data come in order");
                        data_in.extend_from_slice(&buf);
                    }
                    TaskEvent::Done { outcome, .. } => return (outcome, data_in),
                }
            }
            panic!("the command does not end");
        };
        let (_, (outcome, data_in)) = futures_util::future::join(command, answering).await;
        assert!(data_in.len() <= usize::try_from(room).expect("32 bits fit"));
        assert!(received.recv().await.is_none(), "nothing follows its end");
        (outcome, data_in)
    }
}

/// COPY OPERATION STATUS.
const IN_BACKGROUND: u8 = 0x12;
const REQUEST_SENSE: [u8; 16] = [0x03, 0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    fn write_10(lba: u8, blocks: u8) -> [u8; 16] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[5], cdb[8]) = (0x2a, lba, blocks);
        cdb
    }

    async fn ready() -> CheckedDisk {
        let mut disk = CheckedDisk::new();
        disk.hear_news().await;
        disk
    }

    #[tokio::test]
    async fn what_a_write_leaves_is_what_the_model_expects() {
        let mut disk = ready().await;
        disk.run(&write_10(3, 2), 0, vec![7; 1024]).await;
        assert_eq!(disk.model.bytes()[3 * 512 - 1..3 * 512 + 1], [0, 7]);
    }

    #[tokio::test]
    #[should_panic(expected = "byte 1535 is 0x01, the model has 0x00")]
    async fn a_wrong_byte_is_noticed_by_the_next_command() {
        let mut disk = ready().await;
        let mut block = IoBuf::from_heap(512);
        block[511] = 1;
        let behind_its_back = disk.store.write(1024, block, backstores::Durability::Cached);
        behind_its_back.await.unwrap();
        disk.run(&[0; 16], 0, Vec::new()).await;
    }

    #[tokio::test]
    async fn a_list_that_the_cdb_does_not_speak_of_is_none() {
        let mut disk = ready().await;
        disk.run(&write_10(3, 1), 0, vec![7; 512]).await;
        let mut copy = [0; 16];
        copy[0] = 0x83;
        disk.run(&copy, 0, vec![1; 64]).await;
        copy[1] = 0x11;
        disk.run(&copy, 0, vec![1; 64]).await;
    }

    #[tokio::test]
    async fn a_path_that_stays_unavailable_is_not_waited_for() {
        let mut disk = ready().await;
        let mut set_states = [0; 16];
        (set_states[0], set_states[1], set_states[9]) = (0xa4, 0x0a, 8);
        disk.run(&set_states, 0, vec![0, 0, 0, 0, 3, 0, 0, 1]).await;
        disk.hear_news().await;
        let (told, _) = disk.command(&[0; 16], 0, &[]).await;
        let Outcome::Status {
            sense: Some(sense), ..
        } = told
        else {
            panic!("{told:?}")
        };
        assert_eq!((sense.key, sense.code), (SenseKey::NotReady, (0x04, 0x0c)));
    }

    #[tokio::test]
    async fn formatting_leaves_the_pattern_that_was_sent() {
        let mut disk = ready().await;
        let mut format = [0; 16];
        (format[0], format[1]) = (0x04, 0x10);
        disk.run(&format, 0, vec![0, 0x88, 0, 0, 0, 1, 0, 2, 7, 8]).await;
        assert_eq!(disk.model.bytes()[510..514], [7, 8, 7, 8]);
        disk.run(&format, 0, vec![0, 0x88, 0, 0, 0, 0, 0, 0]).await;
        assert_eq!(disk.model.bytes()[510..514], [0; 4]);
    }

    #[tokio::test]
    #[should_panic(expected = "what was read")]
    async fn a_wrong_answer_is_noticed() {
        let mut disk = ready().await;
        disk.run(&write_10(3, 1), 0, vec![7; 512]).await;
        let mut read = write_10(3, 1);
        read[0] = 0x28;
        disk.model.did(&read, &[], &[8; 512]);
    }
}
