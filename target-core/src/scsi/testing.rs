//! For unit tests: a device with one unit in memory, and a connection that answers `Get` and collects `Put`.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use backstores::{BlockStore, BufPool, CHUNK, FaultStore, IoBuf, StoreOptions, StoreSource};
use bytes::Bytes;
use iscsi_proto::{Isid, Lun, Tpgt};
use tokio::sync::{Semaphore, mpsc};

use super::{
    DeviceType, Keeping, LogicalUnit, NonVolatileMemory, Outcome, ScsiTask, Sense, Status, TargetDevice,
    TaskAttribute, UnitConfig,
};
use crate::metrics::{Slot, TurnClock};
use crate::nexus::{InitiatorPort, NexusId, TargetPort};
use crate::transfer::{AbortSignal, TaskEvent, TaskId, Transfer, TransferSetup};

/// A unit that answers to nothing special.
pub(crate) fn config() -> UnitConfig {
    UnitConfig {
        device_type: DeviceType::Disk,
        naa: vec![0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        serial: "0001".into(),
        vendor: "LUNAPORT".into(),
        product: "DISK".into(),
        revision: "0001".into(),
        thin: true,
        removable: false,
        soft_threshold: None,
    }
}

/// `blocks` blocks of 512 bytes in memory.
pub(crate) fn memory(blocks: u64) -> Arc<dyn BlockStore> {
    let source = StoreSource::Memory { size: blocks * 512 };
    backstores::open(&source, StoreOptions::default()).unwrap()
}

/// A unit over `blocks` blocks in memory.
pub(crate) fn unit(blocks: u64) -> Arc<LogicalUnit> {
    LogicalUnit::new(config(), memory(blocks))
}

/// A device with one unit over `blocks` blocks in memory, whose store misbehaves on demand.
pub(crate) fn faulty(blocks: u64) -> (Arc<TargetDevice>, Arc<FaultStore>) {
    let store = FaultStore::new(memory(blocks));
    let unit = LogicalUnit::new(config(), Arc::clone(&store) as Arc<dyn BlockStore>);
    (device(&[unit]), store)
}

/// What units and devices keep, for as long as the test.
#[derive(Debug, Default)]
pub(crate) struct TestMemory {
    kept: Mutex<HashMap<(String, String), String>>,
    /// From now on nothing can be kept.
    pub(crate) is_full: AtomicBool,
}

impl TestMemory {
    pub(crate) fn shared() -> Arc<dyn NonVolatileMemory> {
        Arc::new(Self::default())
    }
}

impl NonVolatileMemory for TestMemory {
    fn recall(&self, owner: &str, what: &str) -> io::Result<Option<String>> {
        let kept = self.kept.lock().unwrap();
        Ok(kept.get(&(owner.to_owned(), what.to_owned())).cloned())
    }

    fn keep(&self, owner: &str, what: &'static str, text: String) -> Keeping {
        if self.is_full.load(Ordering::Relaxed) {
            return Box::pin(async { Err(io::Error::other("full")) });
        }
        let key = (owner.to_owned(), what.to_owned());
        self.kept.lock().unwrap().insert(key, text);
        Box::pin(async { Ok(()) })
    }
}

/// A nexus of an initiator port that `isid` tells apart.
pub(crate) fn nexus(isid: u8) -> Arc<NexusId> {
    Arc::new(NexusId {
        initiator: InitiatorPort {
            name: "iqn.2024-01.org.example:host".parse().unwrap(),
            isid: Isid([0x80, 0, 0, 0, 0, isid]),
        },
        target: TargetPort {
            name: "iqn.2024-01.org.example:disk".parse().unwrap(),
            tpgt: Tpgt(1),
        },
    })
}

/// A device with these units as LUN 0, 1, …
pub(crate) fn device(units: &[Arc<LogicalUnit>]) -> Arc<TargetDevice> {
    let device = TargetDevice::new("iqn.2024-01.org.example:disk".parse().unwrap(), &[Tpgt(1)]);
    device.seed(counted);
    for (number, unit) in (0..).zip(units) {
        assert!(device.map(number, Arc::clone(unit)));
    }
    device
}

/// Bytes that never come again, in place of random ones.
pub(crate) fn counted(bytes: &mut [u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for chunk in bytes.chunks_mut(8) {
        let next = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        chunk.copy_from_slice(&next[..chunk.len()]);
    }
}

/// One command to be run.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) lun: u16,
    pub(crate) cdb: Vec<u8>,
    pub(crate) attribute: TaskAttribute,
    /// All Data-Out that the initiator has.
    pub(crate) data_out: Vec<u8>,
    /// How much of it comes with the command.
    pub(crate) immediate: usize,
    /// Expected Data Transfer Length of Data-In.
    pub(crate) expected_in: u32,
    /// Expected Data Transfer Length of Data-Out.
    pub(crate) expected_out: u32,
    pub(crate) abort: AbortSignal,
}

impl Command {
    /// A command without data.
    pub(crate) fn new(lun: u16, cdb: &[u8]) -> Self {
        let mut cdb = cdb.to_vec();
        cdb.resize(cdb.len().max(16), 0);
        Self {
            lun,
            cdb,
            attribute: TaskAttribute::Simple,
            data_out: Vec::new(),
            immediate: 0,
            expected_in: 0,
            expected_out: 0,
            abort: AbortSignal::default(),
        }
    }

    /// The initiator has room for so many bytes.
    pub(crate) fn expecting(self, len: u32) -> Self {
        Self {
            expected_in: len,
            ..self
        }
    }

    /// The initiator sends these bytes.
    pub(crate) fn sending(self, data: &[u8]) -> Self {
        Self {
            expected_out: u32::try_from(data.len()).unwrap(),
            data_out: data.to_vec(),
            ..self
        }
    }

    /// The same with another task attribute.
    pub(crate) fn with(self, attribute: TaskAttribute) -> Self {
        Self { attribute, ..self }
    }

    /// Hands it to the device, in whose task set it is when this returns. The future runs it to its end: how it ended,
    /// and its Data-In.
    pub(crate) fn begin(
        self,
        device: &Arc<TargetDevice>,
        nexus: &Arc<NexusId>,
    ) -> impl Future<Output = (Outcome, Vec<u8>)> + Send + use<> {
        let (setup, connection) =
            connection(self.expected_in, self.expected_out, self.data_out, self.immediate);
        let data = Transfer::new(TransferSetup {
            abort: self.abort,
            ..setup
        });
        let task = ScsiTask {
            lun: Lun::from_number(self.lun).unwrap(),
            cdb: Bytes::from(self.cdb),
            attribute: self.attribute,
            priority: 0,
            tag: 7,
        };
        let command = device.execute(nexus, task, data);
        async {
            let (_, ended) = tokio::join!(command, connection.serve());
            ended
        }
    }

    /// Runs it to its end.
    pub(crate) async fn run(self, device: &Arc<TargetDevice>, nexus: &Arc<NexusId>) -> (Outcome, Vec<u8>) {
        self.begin(device, nexus).await
    }
}

/// Runs one command of a nexus that has been told all it had to be told.
pub(crate) async fn run(
    device: &Arc<TargetDevice>,
    lun: u16,
    cdb: &[u8],
    data_out: &[u8],
) -> (Outcome, Vec<u8>) {
    let command = Command::new(lun, cdb);
    let command = if data_out.is_empty() {
        command.expecting(1 << 24)
    } else {
        command.sending(data_out)
    };
    command.run(device, &nexus(1)).await
}

/// The sense of a command that ended with CHECK CONDITION.
pub(crate) fn sense(outcome: &Outcome) -> Sense {
    match outcome {
        Outcome::Status {
            status: Status::CheckCondition,
            sense: Some(sense),
            ..
        } => *sense,
        other => panic!("no CHECK CONDITION: {other:?}"),
    }
}

/// The status of a command.
pub(crate) fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Status { status, .. } => *status,
        Outcome::Aborted => panic!("the command was aborted"),
    }
}

/// The other end of a [`Transfer`].
#[derive(Debug)]
pub(crate) struct Connection {
    events: mpsc::UnboundedReceiver<TaskEvent>,
    data_out: Vec<u8>,
}

/// One for each thread: to make one takes longer than most commands.
fn pool() -> Arc<BufPool> {
    thread_local! {
        static POOL: Arc<BufPool> = BufPool::new(16 << 20);
    }
    POOL.with(Arc::clone)
}

/// A transfer's setup and the connection behind it.
pub(crate) fn connection(
    expected_in: u32,
    expected_out: u32,
    data_out: Vec<u8>,
    immediate: usize,
) -> (TransferSetup, Connection) {
    let (to_connection, events) = mpsc::unbounded_channel();
    let setup = TransferSetup {
        task: TaskId(1),
        expected_in,
        expected_out,
        immediate: (immediate > 0).then(|| {
            let mut buf = IoBuf::from_heap(CHUNK);
            buf.set_len(immediate);
            buf.copy_from_slice(&data_out[..immediate]);
            buf
        }),
        events: to_connection,
        budget: Arc::new(Semaphore::new(4 << 20)),
        out_budget: Arc::new(Semaphore::new(8 << 20)),
        pool: pool(),
        abort: AbortSignal::default(),
        clock: TurnClock::new(std::time::Instant::now()),
        slot: Slot::default(),
    };
    (setup, Connection { events, data_out })
}

impl Connection {
    /// The next thing that the task says.
    pub(crate) async fn event(&mut self) -> Option<TaskEvent> {
        self.events.recv().await
    }

    /// Serves one task until it ends. `Outcome::Aborted` also when its transfer went away without an end.
    pub(crate) async fn serve(mut self) -> (Outcome, Vec<u8>) {
        let mut data_in = Vec::new();
        while let Some(event) = self.event().await {
            match event {
                TaskEvent::Get {
                    offset,
                    mut buf,
                    filled,
                    reply,
                    ..
                } => {
                    let from = offset as usize + filled;
                    let len = buf.len() - filled;
                    buf[filled..].copy_from_slice(&self.data_out[from..from + len]);
                    // A task that was aborted meanwhile does not want it any more.
                    let _ = reply.send(Ok(buf));
                }
                TaskEvent::Put { offset, buf, .. } => {
                    assert_eq!(offset as usize, data_in.len(), "Data-In has a gap");
                    data_in.extend_from_slice(&buf);
                }
                TaskEvent::Done { outcome, .. } => return (outcome, data_in),
            }
        }
        (Outcome::Aborted, data_in)
    }
}
