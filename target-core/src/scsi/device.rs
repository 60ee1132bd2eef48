//! The SCSI target device behind one iSCSI target node: LUN map, nexuses, the way into the engine.

use std::sync::Arc;

use bytes::Bytes;
use iscsi_proto::pdu::{Function, TmfResponse};
use iscsi_proto::{IscsiName, Lun, Tpgt};

pub use iscsi_proto::pdu::TaskAttribute;

use super::{LogicalUnit, UnitAttention};
use crate::nexus::NexusId;
use crate::transfer::Transfer;

/// A SCSI target device with one target port per portal group.
#[derive(Debug)]
pub struct TargetDevice {}

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
        let _ = (name, ports);
        todo!()
    }

    /// Adds a LUN. Every attached nexus is told (3F/0E). `false` when the number is taken.
    pub fn map(&self, number: u16, unit: Arc<LogicalUnit>) -> bool {
        let _ = (number, unit);
        todo!()
    }

    /// Takes a LUN away: new commands get LOGICAL UNIT NOT SUPPORTED, its tasks are aborted, every nexus is told.
    pub fn unmap(&self, number: u16) -> Option<Arc<LogicalUnit>> {
        let _ = number;
        todo!()
    }

    /// Current map, by number.
    #[must_use]
    pub fn luns(&self) -> Vec<(u16, Arc<LogicalUnit>)> {
        todo!()
    }

    /// A session begins: the nexus exists and has a unit attention (29/xx) on every unit.
    pub fn attach(&self, nexus: &Arc<NexusId>) {
        let _ = nexus;
        todo!()
    }

    /// The session is gone (I_T nexus loss, SAM-5 §6.3.4): its tasks are aborted, what it held is released. Never waits.
    pub fn detach(&self, nexus: &Arc<NexusId>) {
        let _ = nexus;
        todo!()
    }

    /// Runs a command to its end and calls [`Transfer::finish`]. Owns everything it needs. The future may outlive its
    /// connection (a store operation is never dropped): then somebody polls it until it is done.
    pub fn execute(
        self: &Arc<Self>,
        nexus: &Arc<NexusId>,
        task: ScsiTask,
        data: Transfer,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        let _ = (nexus, task, data);
        async { todo!() }
    }

    /// ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM and COLD RESET, CLEAR ACA: fires the signals of
    /// the tasks concerned (of all nexuses, as the function says), raises unit attentions for the others, and returns
    /// at once. ABORT TASK, TASK REASSIGN and the queries are the connection's business.
    pub fn manage(&self, nexus: &Arc<NexusId>, function: Function, lun: Lun) -> TmfResponse {
        let _ = (nexus, function, lun);
        todo!()
    }

    /// Raises a unit attention on one unit for every nexus but `except`.
    pub fn raise(&self, number: u16, attention: UnitAttention, except: Option<&Arc<NexusId>>) {
        let _ = (number, attention, except);
        todo!()
    }
}
