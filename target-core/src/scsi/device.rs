//! The SCSI target device behind one iSCSI target node: LUN map, nexuses, the way into the engine.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockWriteGuard};

use bytes::Bytes;
use iscsi_proto::pdu::{Function, TmfResponse};
use iscsi_proto::{IscsiName, Lun, Tpgt};
use tokio::sync::Semaphore;

pub use iscsi_proto::pdu::TaskAttribute;

use super::access_state::{AccessState, GroupView, PortGroups, StateCause};
use super::copy::CopyService;
use super::kept_states::KeptState;
use super::lu::same;
use super::{Failure, LogicalUnit, NonVolatileMemory, Sense, UnitAttention, engine, kept_states};
use crate::metrics::Ended;
use crate::nexus::{InitiatorPort, NexusId, TargetPort};
use crate::transfer::{AbortSignal, Transfer};

/// A SCSI target device with one target port per portal group, each alone in a target port group.
#[derive(Debug)]
pub struct TargetDevice {
    name: IscsiName,
    ports: PortGroups,
    /// Where states that initiators set outlive the program.
    memory: OnceLock<Arc<dyn NonVolatileMemory>>,
    /// One permit: of two changes of states one is kept and made before the other.
    turn: Semaphore,
    management_url: OnceLock<String>,
    /// Logical units by number. Read by every command, for the time of one look-up.
    luns: RwLock<BTreeMap<u16, Arc<LogicalUnit>>>,
    /// Nexuses that exist; how many there may be, sessions are limited by.
    nexuses: Mutex<Vec<Arc<NexusId>>>,
    /// Those of them that agreed on the functions of RFC 7144.
    querying: Mutex<Vec<Arc<NexusId>>>,
    copies: CopyService,
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

/// How a task management function ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TmfOutcome {
    /// Service response.
    pub response: TmfResponse,
    /// ADDITIONAL RESPONSE INFORMATION, 24 bits: what QUERY ASYNCHRONOUS EVENT found; 0 otherwise.
    pub additional: u32,
}

impl TargetDevice {
    /// A device without logical units. `ports` are its portal groups, whose tags are also its relative
    /// target port identifiers and the numbers of its target port groups.
    #[must_use]
    pub fn new(name: IscsiName, ports: &[Tpgt]) -> Arc<Self> {
        Arc::new(Self {
            name,
            ports: PortGroups::new(ports),
            memory: OnceLock::new(),
            turn: Semaphore::new(1),
            management_url: OnceLock::new(),
            luns: RwLock::default(),
            nexuses: Mutex::default(),
            querying: Mutex::default(),
            copies: CopyService::default(),
        })
    }

    /// Its name, which is the target node's.
    #[must_use]
    pub fn name(&self) -> &IscsiName {
        &self.name
    }

    /// Gives the device a source of random bytes, which the names of its tokens are made of; without one it makes no
    /// tokens. The first one stays.
    pub fn seed(&self, entropy: fn(&mut [u8])) {
        self.copies.seed(entropy);
    }

    /// What the copies of all its units share.
    pub(crate) fn copies(&self) -> &CopyService {
        &self.copies
    }

    /// The first unit like this, by number.
    pub(crate) fn find_unit(&self, wanted: impl Fn(&LogicalUnit) -> bool) -> Option<Arc<LogicalUnit>> {
        let luns = self.luns.read().expect(UNPOISONED);
        luns.values().find(|unit| wanted(unit)).cloned()
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
    /// 29/00 stands for power on, any reset and the loss of the same nexus earlier, whichever came last (SAM-5 §5.14).
    /// A nexus of the same name that is still attached is lost thereby.
    pub fn attach(&self, nexus: &Arc<NexusId>) {
        let mut nexuses = self.nexuses();
        nexuses.retain(|known| !same(known, nexus));
        self.querying().retain(|known| !same(known, nexus));
        nexuses.push(Arc::clone(nexus));
        for unit in self.units() {
            unit.detach(nexus);
            unit.attach(nexus, UnitAttention::Reset);
        }
    }

    /// A nexus agreed on iSCSIProtocolLevel 2: it may use QUERY TASK, QUERY TASK SET, QUERY ASYNCHRONOUS EVENT and I_T
    /// NEXUS RESET (RFC 7144 §6.2), and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS tells it so.
    pub fn offer_queries(&self, nexus: &Arc<NexusId>) {
        self.querying().push(Arc::clone(nexus));
    }

    /// Whether [`offer_queries`](Self::offer_queries) was said of a nexus.
    pub(crate) fn offers_queries(&self, nexus: &Arc<NexusId>) -> bool {
        self.querying().iter().any(|known| same(known, nexus))
    }

    /// The session is gone (I_T nexus loss, SAM-5 §6.3.4): its tasks are aborted, what it held is released. Never waits.
    /// Nothing happens when a younger session has taken the nexus over.
    pub fn detach(&self, nexus: &Arc<NexusId>) {
        let mut nexuses = self.nexuses();
        let Some(place) = nexuses.iter().position(|known| Arc::ptr_eq(known, nexus)) else {
            return;
        };
        nexuses.swap_remove(place);
        self.querying().retain(|known| !Arc::ptr_eq(known, nexus));
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
    ) -> impl Future<Output = Ended> + Send + 'static + use<> {
        engine::start(Arc::clone(self), Arc::clone(nexus), task, data)
    }

    /// What concerns more than one task: fires the signals of the tasks concerned (of all nexuses, as the function
    /// says), raises unit attentions for the others, and returns at once. ABORT TASK, QUERY TASK and TASK REASSIGN are
    /// the connection's business.
    pub fn manage(&self, nexus: &Arc<NexusId>, function: Function, lun: Lun) -> TmfOutcome {
        let addressed = lun.number().and_then(|number| self.unit(number));
        match (function, addressed) {
            (
                Function::AbortTaskSet
                | Function::ClearTaskSet
                | Function::LogicalUnitReset
                | Function::QueryTaskSet
                | Function::QueryAsyncEvent,
                None,
            ) => {
                return TmfResponse::LunDoesNotExist.into();
            }
            (Function::QueryTaskSet, Some(unit)) => {
                return if unit.tasks().holds_task_of(|owner| same(owner, nexus)) {
                    TmfResponse::Succeeded.into()
                } else {
                    TmfResponse::Complete.into()
                };
            }
            (Function::QueryAsyncEvent, Some(unit)) => {
                return match unit.pending_attention(nexus) {
                    Some((next, count)) => TmfOutcome::event(next, count),
                    None => TmfResponse::Complete.into(),
                };
            }
            (Function::ITNexusReset, _) => {
                for unit in self.units() {
                    unit.lose_nexus(nexus);
                    unit.raise_for(nexus, UnitAttention::NexusLoss);
                }
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
                | Function::QueryTask
                | Function::TaskReassign
                | Function::Unknown(_),
                _,
            ) => return TmfResponse::NotSupported.into(),
        }
        tracing::info!(nexus = %nexus.initiator, ?function, %lun, "task management");
        TmfResponse::Complete.into()
    }

    /// Raises a unit attention on one unit for every nexus but `except`.
    pub fn raise(&self, number: u16, attention: UnitAttention, except: Option<&Arc<NexusId>>) {
        if let Some(unit) = self.unit(number) {
            unit.raise(attention, except);
        }
    }

    /// Raises a unit attention on one unit for one nexus.
    pub(crate) fn raise_for(&self, nexus: &Arc<NexusId>, lun: Lun, attention: UnitAttention) {
        if let Some(unit) = lun.number().and_then(|number| self.unit(number)) {
            unit.raise_for(nexus, attention);
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

    /// Names the address (a URL) of the service that tells how the device is; the first one stays.
    pub fn set_management_url(&self, url: String) {
        self.management_url.get_or_init(|| url);
    }

    /// That address, if it is known.
    pub(crate) fn management_url(&self) -> Option<&str> {
        self.management_url.get().map(String::as_str)
    }

    /// Whether it can be reached by the portals of this group.
    #[must_use]
    pub fn has_port(&self, tpgt: Tpgt) -> bool {
        self.ports.contains(tpgt)
    }

    /// Its portal groups, ascending.
    #[must_use]
    pub fn portal_groups(&self) -> Vec<Tpgt> {
        self.ports.tags()
    }

    /// Makes these its portal groups, at most 64; every nexus is told when that changes them (2A/06). The ones that stay keep
    /// their states. Sessions of a group that goes are the caller's business.
    pub fn set_portal_groups(&self, groups: &[Tpgt]) {
        if self.ports.replace(groups) {
            self.raise_everywhere(UnitAttention::AccessStateChanged, None);
        }
    }

    /// The administrator puts a portal group into an asymmetric access state; every nexus is told (2A/06).
    pub fn set_access_state(&self, tpgt: Tpgt, state: AccessState) {
        if self.ports.set(&[(tpgt.0, state)], StateCause::Implicit) {
            self.raise_everywhere(UnitAttention::AccessStateChanged, None);
        }
    }

    /// Gives it a memory that outlives the program, and puts its portal groups back into the states that initiators had set
    /// by SET TARGET PORT GROUPS. To be called when it has its portal groups and their first states, and before it is used;
    /// only the first memory counts.
    ///
    /// # Errors
    /// What is there cannot be read or understood. The states are the administrator's then.
    pub fn remember(&self, memory: &Arc<dyn NonVolatileMemory>) -> io::Result<()> {
        self.memory.get_or_init(|| Arc::clone(memory));
        let Some(text) = memory.recall(self.name.as_str(), ACCESS_STATES)? else {
            return Ok(());
        };
        let kept = kept_states::from_text(&text).ok_or_else(|| {
            io::Error::other(format!(
                "what was kept as {ACCESS_STATES} of {} is unknown here",
                self.name
            ))
        })?;
        self.ports.restore(&kept);
        Ok(())
    }

    /// The same by command of a nexus, which need not be told, for several groups. Durable when this returns; on an error
    /// nothing was changed. `Aborted` only while it waits for its turn.
    pub(crate) async fn set_access_states(
        &self,
        wanted: &[(u16, AccessState)],
        by: &Arc<NexusId>,
        abort: &AbortSignal,
    ) -> Result<(), Failure> {
        let turn = tokio::select! {
            biased;
            () = abort.fired() => return Err(Failure::Aborted),
            turn = self.turn.acquire() => turn,
        };
        let _turn = turn.expect("nobody closes it");
        let kept = self.ports.kept_after(wanted);
        if kept != self.ports.kept_after(&[]) {
            self.keep_access_states(&kept).await?;
        }
        if self.ports.set(wanted, StateCause::Explicit) {
            tracing::info!(nexus = %by.initiator, ?wanted, "target port groups changed their states");
            self.raise_everywhere(UnitAttention::AccessStateChanged, Some(by));
        }
        Ok(())
    }

    /// The administrator takes back what initiators set: each of these groups is in the state again that it was given at
    /// first, and every nexus is told when that changed any (2A/06). Durable when this returns.
    ///
    /// # Errors
    /// It could not be made durable, and nothing was changed.
    pub async fn reset_access_states(&self) -> Result<(), Failure> {
        let _turn = self.turn.acquire().await.expect("nobody closes it");
        self.keep_access_states(&[]).await?;
        if self.ports.reset() {
            self.raise_everywhere(UnitAttention::AccessStateChanged, None);
        }
        Ok(())
    }

    async fn keep_access_states(&self, states: &[KeptState]) -> Result<(), Failure> {
        let Some(memory) = self.memory.get() else {
            return Ok(());
        };
        let text = kept_states::to_text(states);
        let kept = memory.keep(self.name.as_str(), ACCESS_STATES, text).await;
        kept.map_err(|error| {
            tracing::error!(target = %self.name, %error, "states of target port groups could not be saved");
            Sense::INTERNAL_TARGET_FAILURE.into()
        })
    }

    /// Target port groups and their states.
    #[must_use]
    pub fn port_groups(&self) -> Vec<GroupView> {
        self.ports.view()
    }

    /// How well commands that come by this portal group reach the units.
    pub(crate) fn access_state(&self, tpgt: Tpgt) -> AccessState {
        self.ports.state(tpgt)
    }

    /// RELATIVE TARGET PORT IDENTIFIER of a portal group; 0, which names no port, for one that is not ours.
    pub(crate) fn relative_port(&self, tpgt: Tpgt) -> u16 {
        if self.has_port(tpgt) { tpgt.0 } else { 0 }
    }

    /// Raises a unit attention on all units for every nexus but `except`.
    fn raise_everywhere(&self, attention: UnitAttention, except: Option<&Arc<NexusId>>) {
        for unit in self.units() {
            unit.raise(attention, except);
        }
    }

    /// [`relative_port`](Self::relative_port) of a target port; 0 for another device's.
    pub(crate) fn relative_port_of(&self, port: &TargetPort) -> u16 {
        if port.name == self.name {
            self.relative_port(port.tpgt)
        } else {
            0
        }
    }

    /// The target port of a RELATIVE TARGET PORT IDENTIFIER.
    pub(crate) fn target_port(&self, relative: u16) -> Option<TargetPort> {
        let tpgt = Tpgt(relative);
        self.has_port(tpgt).then(|| self.port(tpgt))
    }

    /// All target ports, in the order of their relative identifiers.
    pub(crate) fn target_ports(&self) -> Vec<TargetPort> {
        self.ports
            .tags()
            .into_iter()
            .map(|tpgt| self.port(tpgt))
            .collect()
    }

    /// The ports of an initiator device that have a session, each once.
    pub(crate) fn initiator_ports(&self, name: &IscsiName) -> Vec<InitiatorPort> {
        let nexuses = self.nexuses();
        let of_device = nexuses.iter().filter(|nexus| nexus.initiator.name == *name);
        let ports: BTreeSet<_> = of_device.map(|nexus| nexus.initiator.clone()).collect();
        ports.into_iter().collect()
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

    fn port(&self, tpgt: Tpgt) -> TargetPort {
        TargetPort {
            name: self.name.clone(),
            tpgt,
        }
    }

    fn luns_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u16, Arc<LogicalUnit>>> {
        self.luns.write().expect(UNPOISONED)
    }

    fn querying(&self) -> MutexGuard<'_, Vec<Arc<NexusId>>> {
        self.querying.lock().expect(UNPOISONED)
    }

    fn nexuses(&self) -> MutexGuard<'_, Vec<Arc<NexusId>>> {
        self.nexuses.lock().expect(UNPOISONED)
    }
}

impl TmfOutcome {
    /// The answer to QUERY ASYNCHRONOUS EVENT when a unit attention waits (SAM-5 §7.10): how many there are, and the
    /// sense of the one that is told next.
    fn event(next: UnitAttention, count: usize) -> Self {
        let sense = next.sense();
        let (code, qualifier) = sense.code;
        let depth = if count == 1 { 1 } else { 2 };
        let event = [0, depth << 4 | sense.key as u8, code, qualifier];
        Self {
            response: TmfResponse::Succeeded,
            additional: u32::from_be_bytes(event),
        }
    }
}

impl From<TmfResponse> for TmfOutcome {
    fn from(response: TmfResponse) -> Self {
        Self {
            response,
            additional: 0,
        }
    }
}

/// The name that states of target port groups are kept by.
const ACCESS_STATES: &str = "access-states";

const UNPOISONED: &str = "nothing panics while it is held";

#[cfg(test)]
mod tests;
