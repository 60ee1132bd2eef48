//! The SCSI target device behind one iSCSI target node: LUN map, nexuses, the way into the engine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use bytes::Bytes;
use iscsi_proto::pdu::{Function, TmfResponse};
use iscsi_proto::{IscsiName, Lun, Tpgt};

pub use iscsi_proto::pdu::TaskAttribute;

use super::lu::same;
use super::{LogicalUnit, UnitAttention, engine};
use crate::nexus::NexusId;
use crate::transfer::Transfer;

/// A SCSI target device with one target port per portal group.
#[derive(Debug)]
pub struct TargetDevice {
    name: IscsiName,
    ports: Vec<Tpgt>,
    /// Logical units by number. Read by every command, for the time of one look-up.
    luns: RwLock<BTreeMap<u16, Arc<LogicalUnit>>>,
    /// Nexuses that exist; how many there may be, sessions are limited by.
    nexuses: Mutex<Vec<Arc<NexusId>>>,
}

/// A command as SAM-5 §5.1 sees it.
#[derive(Debug)]
pub struct ScsiTask {
    /// Addressed logical unit.
    pub lun: Lun,
    /// All CDB bytes (sixteen at least, zero-padded; more when an AHS extended it).
    pub cdb: Bytes,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command priority.
    pub priority: u8,
    /// Task tag, for QUERY TASK and the log.
    pub tag: u32,
}

impl TargetDevice {
    /// A device without logical units. `ports` are its portal groups; relative port identifiers are 1, 2, … in order.
    #[must_use]
    pub fn new(name: IscsiName, ports: &[Tpgt]) -> Arc<Self> {
        Arc::new(Self {
            name,
            ports: ports.to_vec(),
            luns: RwLock::default(),
            nexuses: Mutex::default(),
        })
    }

    /// Its name, which is the target node's.
    #[must_use]
    pub fn name(&self) -> &IscsiName {
        &self.name
    }

    /// Adds a LUN. Every attached nexus is told (3F/0E). `false` when the number is taken, or higher than
    /// [`Lun::MAX_NUMBER`].
    pub fn map(&self, number: u16, unit: Arc<LogicalUnit>) -> bool {
        // Held throughout, so that no nexus is missed or told twice.
        let nexuses = self.nexuses();
        let unit = match self.luns_mut().entry(number) {
            Entry::Vacant(place) if number <= Lun::MAX_NUMBER => Arc::clone(place.insert(unit)),
            Entry::Vacant(_) | Entry::Occupied(_) => return false,
        };
        for nexus in nexuses.iter() {
            unit.attach(nexus, UnitAttention::Reset);
            self.tell_of_luns(nexus, Some(&unit));
        }
        true
    }

    /// Takes a LUN away: new commands get LOGICAL UNIT NOT SUPPORTED, its tasks are aborted, every nexus is told.
    pub fn unmap(&self, number: u16) -> Option<Arc<LogicalUnit>> {
        let nexuses = self.nexuses();
        let unit = self.luns_mut().remove(&number)?;
        let still_mapped = self.units().iter().any(|other| Arc::ptr_eq(other, &unit));
        for nexus in nexuses.iter() {
            if !still_mapped {
                unit.detach(nexus);
            }
            self.tell_of_luns(nexus, None);
        }
        Some(unit)
    }

    /// Current map, by number.
    #[must_use]
    pub fn luns(&self) -> Vec<(u16, Arc<LogicalUnit>)> {
        let luns = self.luns.read().expect(UNPOISONED);
        luns.iter()
            .map(|(number, unit)| (*number, Arc::clone(unit)))
            .collect()
    }

    /// A session begins: the nexus exists and has a unit attention (29/00) on every unit.
    ///
    /// 29/00 stands for power on, any reset and the loss of the same nexus earlier, whichever came last (SAM-5 §5.14.5).
    /// A nexus of the same name that is still attached is lost thereby.
    pub fn attach(&self, nexus: &Arc<NexusId>) {
        let mut nexuses = self.nexuses();
        nexuses.retain(|known| !same(known, nexus));
        nexuses.push(Arc::clone(nexus));
        for unit in self.units() {
            unit.detach(nexus);
            unit.attach(nexus, UnitAttention::Reset);
        }
    }

    /// The session is gone (I_T nexus loss, SAM-5 §6.3.4): its tasks are aborted, what it held is released. Never waits.
    /// Nothing happens when a younger session has taken the nexus over.
    pub fn detach(&self, nexus: &Arc<NexusId>) {
        let mut nexuses = self.nexuses();
        let Some(place) = nexuses.iter().position(|known| Arc::ptr_eq(known, nexus)) else {
            return;
        };
        nexuses.swap_remove(place);
        for unit in self.units() {
            unit.detach(nexus);
        }
    }

    /// Runs a command to its end and calls [`Transfer::finish`]. Owns everything it needs. The command enters its task
    /// set in this call, before the future is polled. The future may outlive its connection (a store operation is never
    /// dropped): then somebody polls it until it is done.
    pub fn execute(
        self: &Arc<Self>,
        nexus: &Arc<NexusId>,
        task: ScsiTask,
        data: Transfer,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        engine::start(Arc::clone(self), Arc::clone(nexus), task, data)
    }

    /// ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM and COLD RESET, CLEAR ACA: fires the signals of
    /// the tasks concerned (of all nexuses, as the function says), raises unit attentions for the others, and returns
    /// at once. ABORT TASK, TASK REASSIGN and the queries are the connection's business.
    pub fn manage(&self, nexus: &Arc<NexusId>, function: Function, lun: Lun) -> TmfResponse {
        let addressed = lun.number().and_then(|number| self.unit(number));
        match (function, addressed) {
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
                return TmfResponse::LunDoesNotExist;
            }
            (Function::AbortTaskSet, Some(unit)) => {
                unit.tasks().abort(|owner| same(owner, nexus));
            }
            (Function::ClearTaskSet, Some(unit)) => {
                // Others lose their tasks without a status (TAS is 0) and are told with their next command
                // (SAM-5 §5.6).
                for loser in unit.tasks().abort(|_| true) {
                    if !same(&loser, nexus) {
                        unit.raise_for(&loser, UnitAttention::CommandsCleared);
                    }
                }
            }
            (Function::LogicalUnitReset, Some(unit)) => unit.reset(UnitAttention::LogicalUnitReset),
            (Function::TargetWarmReset | Function::TargetColdReset, _) => {
                for unit in self.units() {
                    unit.reset(UnitAttention::Reset);
                }
            }
            (
                Function::AbortTask
                | Function::ClearAca
                | Function::ITNexusReset
                | Function::QueryAsyncEvent
                | Function::QueryTask
                | Function::QueryTaskSet
                | Function::TaskReassign
                | Function::Unknown(_),
                _,
            ) => return TmfResponse::NotSupported,
        }
        tracing::info!(nexus = %nexus.initiator, ?function, %lun, "task management");
        TmfResponse::Complete
    }

    /// Raises a unit attention on one unit for every nexus but `except`.
    pub fn raise(&self, number: u16, attention: UnitAttention, except: Option<&Arc<NexusId>>) {
        if let Some(unit) = self.unit(number) {
            unit.raise(attention, except);
        }
    }

    /// The unit of a number.
    pub(crate) fn unit(&self, number: u16) -> Option<Arc<LogicalUnit>> {
        self.luns.read().expect(UNPOISONED).get(&number).cloned()
    }

    /// All numbers in use, ascending.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.luns.read().expect(UNPOISONED).keys().copied().collect()
    }

    /// RELATIVE TARGET PORT IDENTIFIER of a portal group; 0, which names no port, for one that is not ours.
    pub(crate) fn relative_port(&self, tpgt: Tpgt) -> u16 {
        let place = self.ports.iter().position(|port| *port == tpgt);
        place.and_then(|place| u16::try_from(place + 1).ok()).unwrap_or(0)
    }

    /// A nexus has read the LUN map: on no unit has it to be told any more that it changed (SPC-4 §6.33).
    pub(crate) fn clear_reported_luns(&self, nexus: &Arc<NexusId>) {
        for unit in self.units() {
            unit.clear_attention(nexus, UnitAttention::ReportedLunsChanged);
        }
    }

    /// Tells a nexus on every unit but a new one that the LUN map changed.
    fn tell_of_luns(&self, nexus: &Arc<NexusId>, new: Option<&Arc<LogicalUnit>>) {
        for unit in self.units() {
            if new.is_none_or(|new| !Arc::ptr_eq(new, &unit)) {
                unit.raise_for(nexus, UnitAttention::ReportedLunsChanged);
            }
        }
    }

    /// The units as they are mapped; twice when two numbers lead to one.
    fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.luns.read().expect(UNPOISONED).values().cloned().collect()
    }

    fn luns_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u16, Arc<LogicalUnit>>> {
        self.luns.write().expect(UNPOISONED)
    }

    fn nexuses(&self) -> MutexGuard<'_, Vec<Arc<NexusId>>> {
        self.nexuses.lock().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "nothing panics while it is held";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::testing::{Command, connection, device, nexus, sense, status, unit};
    use crate::scsi::{Outcome, Status};
    use crate::transfer::TaskEvent;

    /// TEST UNIT READY: the code it is told, or `None` when all is well.
    async fn told(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, lun: u16) -> Option<(u8, u8)> {
        let (outcome, _) = Command::new(lun, &[0x00]).run(device, nexus).await;
        match outcome {
            Outcome::Status {
                status: Status::Good, ..
            } => None,
            _ => Some(sense(&outcome).code),
        }
    }

    /// A device with two units, on which two nexuses have been told all there was.
    async fn settled() -> (Arc<TargetDevice>, Arc<NexusId>, Arc<NexusId>) {
        let device = device(&[unit(64), unit(64)]);
        let (one, two) = (nexus(1), nexus(2));
        for nexus in [&one, &two] {
            device.attach(nexus);
            for lun in [0, 1] {
                assert_eq!(told(&device, nexus, lun).await, Some((0x29, 0x00)));
            }
        }
        (device, one, two)
    }

    /// A write that waits for its Data-Out, and the other end of its transfer.
    fn pending_write(
        device: &Arc<TargetDevice>,
        nexus: &Arc<NexusId>,
    ) -> (
        impl Future<Output = ()> + use<>,
        crate::scsi::testing::Connection,
        crate::transfer::AbortSignal,
    ) {
        let (setup, connection) = connection(0, 512, vec![0; 512], 0);
        let abort = setup.abort.clone();
        let task = ScsiTask {
            lun: Lun::ZERO,
            cdb: Bytes::from_static(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            attribute: TaskAttribute::Simple,
            priority: 0,
            tag: 1,
        };
        (
            device.execute(nexus, task, Transfer::new(setup)),
            connection,
            abort,
        )
    }

    #[tokio::test]
    async fn a_new_nexus_is_told_once_on_every_unit() {
        let (device, one, two) = settled().await;
        for (nexus, lun) in [(&one, 0), (&one, 1), (&two, 0), (&two, 1)] {
            assert_eq!(told(&device, nexus, lun).await, None);
        }
    }

    #[tokio::test]
    async fn inquiry_runs_past_an_attention_and_leaves_it() {
        let device = device(&[unit(64)]);
        let one = nexus(1);
        device.attach(&one);
        let (outcome, _) = Command::new(0, &[0x12, 0, 0, 0, 36, 0])
            .expecting(36)
            .run(&device, &one)
            .await;
        assert_eq!(status(&outcome), Status::Good);
        assert_eq!(told(&device, &one, 0).await, Some((0x29, 0x00)));
    }

    #[tokio::test]
    async fn a_changed_map_is_told_until_it_was_read() {
        let (device, one, two) = settled().await;
        assert!(device.map(2, unit(64)));
        assert!(!device.map(2, unit(64)));
        assert!(!device.map(0x4000, unit(64)));
        assert_eq!(told(&device, &one, 0).await, Some((0x3f, 0x0e)));
        let report_luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let (outcome, luns) = Command::new(1, &report_luns)
            .expecting(256)
            .run(&device, &two)
            .await;
        assert_eq!((status(&outcome), luns.len()), (Status::Good, 32));
        assert_eq!(told(&device, &two, 0).await, None);
        assert_eq!(told(&device, &two, 1).await, None);
        assert_eq!(told(&device, &two, 2).await, Some((0x29, 0x00)));
    }

    #[tokio::test]
    async fn an_unmapped_unit_is_gone_and_its_tasks_with_it() {
        let (device, one, _) = settled().await;
        let (_write, _connection, abort) = pending_write(&device, &one);
        assert!(device.unmap(0).is_some());
        assert!(abort.is_fired());
        assert_eq!(told(&device, &one, 0).await, Some((0x25, 0x00)));
        assert_eq!(told(&device, &one, 1).await, Some((0x3f, 0x0e)));
        assert!(device.unmap(0).is_none());
    }

    #[tokio::test]
    async fn a_task_that_was_handed_over_can_be_aborted_before_it_is_polled() {
        let (device, one, two) = settled().await;
        let (write, connection, abort) = pending_write(&device, &one);
        assert_eq!(
            device.manage(&two, Function::AbortTaskSet, Lun::ZERO),
            TmfResponse::Complete
        );
        assert!(!abort.is_fired(), "the tasks of another nexus");
        assert_eq!(
            device.manage(&one, Function::AbortTaskSet, Lun::ZERO),
            TmfResponse::Complete
        );
        let ((), ended) = tokio::join!(write, connection.serve());
        assert_eq!(ended.0, Outcome::Aborted);
        assert_eq!(told(&device, &one, 0).await, None);
    }

    #[tokio::test]
    async fn a_cleared_task_set_is_told_to_those_who_lost_tasks() {
        let (device, one, two) = settled().await;
        let (_write, _connection, abort) = pending_write(&device, &one);
        let (_own, _own_connection, own_abort) = pending_write(&device, &two);
        device.manage(&two, Function::ClearTaskSet, Lun::ZERO);
        assert!(abort.is_fired() && own_abort.is_fired());
        assert_eq!(told(&device, &one, 0).await, Some((0x2f, 0x00)));
        assert_eq!(told(&device, &two, 0).await, None);
    }

    #[tokio::test]
    async fn a_reset_is_told_to_every_nexus_of_the_unit() {
        let (device, one, two) = settled().await;
        let (_write, _connection, abort) = pending_write(&device, &two);
        device.manage(&one, Function::LogicalUnitReset, Lun::ZERO);
        assert!(abort.is_fired());
        for nexus in [&one, &two] {
            assert_eq!(told(&device, nexus, 0).await, Some((0x29, 0x03)));
            assert_eq!(told(&device, nexus, 1).await, None);
        }
        device.manage(&one, Function::TargetWarmReset, Lun::ZERO);
        assert_eq!(told(&device, &two, 1).await, Some((0x29, 0x00)));
    }

    #[tokio::test]
    async fn functions_that_cannot_be_done_say_so() {
        let (device, one, _) = settled().await;
        let absent = Lun::from_number(9).unwrap();
        assert_eq!(
            device.manage(&one, Function::LogicalUnitReset, absent),
            TmfResponse::LunDoesNotExist
        );
        assert_eq!(
            device.manage(&one, Function::ClearAca, Lun::ZERO),
            TmfResponse::NotSupported
        );
    }

    #[tokio::test]
    async fn a_lost_nexus_loses_its_tasks_and_nothing_else() {
        let (device, one, two) = settled().await;
        let (_write, _connection, abort) = pending_write(&device, &one);
        let (_other, _other_connection, other_abort) = pending_write(&device, &two);
        device.detach(&one);
        assert!(abort.is_fired() && !other_abort.is_fired());
        assert_eq!(told(&device, &two, 0).await, None);
    }

    #[tokio::test]
    async fn a_late_detach_does_not_touch_the_session_that_took_over() {
        let (device, old, _) = settled().await;
        let young = nexus(1);
        device.attach(&young);
        let (mut write, mut connection, abort) = {
            assert_eq!(told(&device, &young, 0).await, Some((0x29, 0x00)));
            let (write, connection, abort) = pending_write(&device, &young);
            (Box::pin(write), connection, abort)
        };
        device.detach(&old);
        assert!(!abort.is_fired());
        tokio::select! {
            () = &mut write => panic!("it waits for data"),
            event = connection.event() => assert!(matches!(event, Some(TaskEvent::Get { .. }))),
        }
    }
}
