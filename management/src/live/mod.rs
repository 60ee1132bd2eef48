//! The running node follows the model: stores are opened, units made, LUNs mapped, targets listed, ports opened.
//!
//! Everything that can fail happens before a change is saved (`prepare`); what follows the save (`follow`) cannot. Live
//! sessions notice only what concerns them: a target keeps its device and a LUN its unit as long as neither changes.

mod ports;
mod quarantine;
mod reservations;
mod sanitizing;
mod stores;
mod targets;
mod usage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstores::BlockStore;
use iscsi_proto::{IscsiName, Tpgt};
use target_core::control::{ChapPolicy, Parameters, Portal};
use target_core::iscsi::{Node, Order};
use target_core::scsi::{AccessState, LogicalUnit, NonVolatileMemory, TargetDevice};
use tracing::warn;

pub use ports::{Accept, IserPortalStatus, IserStatus, PortStatus};
pub use reservations::ReservationStore;
pub use sanitizing::SanitizeStore;
pub use stores::{Condition, StoreStatus};
pub(crate) use stores::{open_known, open_one};
pub use targets::ISER;
pub use usage::{InUse, UsingSession};

use crate::model::{Model, Problem, Unit};
use crate::state::{ReservationFiles, SanitizeMarks, StateError, UnitMemory};
use ports::Ports;
use quarantine::Quarantine;
use stores::Stores;

/// What options of the start add to the model; [`Default`] is nothing.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Folder of relative paths: the state directory.
    pub base: PathBuf,
    /// Portals that the start opened.
    pub portals: Vec<Portal>,
    /// Those of other transports than TCP, by its name.
    pub other_portals: BTreeMap<&'static str, Vec<Portal>>,
    /// Their portal groups, and the access state each is in at first.
    pub groups: Vec<(Tpgt, Option<AccessState>)>,
    /// Where the program says over HTTP how it is.
    pub management_url: Option<String>,
    /// Addresses to tell in place of the portals', from the start's options.
    pub advertised: Vec<target_core::control::Advertised>,
    /// What targets without authentication of their own ask for.
    pub chap: ChapPolicy,
    /// What limits begin from.
    pub parameters: Parameters,
}

/// The running node, as far as the model decides.
#[derive(Debug)]
pub(crate) struct Live {
    node: Arc<Node>,
    defaults: Defaults,
    stores: Stores,
    units: BTreeMap<String, LiveUnit>,
    devices: BTreeMap<IscsiName, LiveDevice>,
    ports: Ports,
    quarantine: Quarantine,
    keeping: UnitKeeping,
    /// Units that are not served although their store is there, and why.
    refused: BTreeMap<String, String>,
}

#[derive(Debug)]
struct LiveUnit {
    definition: Unit,
    store: Arc<dyn BlockStore>,
    unit: Arc<LogicalUnit>,
}

#[derive(Debug)]
struct LiveDevice {
    device: Arc<TargetDevice>,
}

impl LiveDevice {
    /// A device without units.
    fn new(
        target: &crate::model::Target,
        groups: &[Tpgt],
        defaults: &Defaults,
        memory: &Arc<dyn NonVolatileMemory>,
    ) -> Self {
        let device = TargetDevice::new(target.name.0.clone(), groups);
        for (group, state) in &defaults.groups {
            if let Some(state) = state {
                device.set_access_state(*group, *state);
            }
        }
        if let Some(url) = &defaults.management_url {
            device.set_management_url(url.clone());
        }
        // Disks are as safe by a path that initiators wanted otherwise; they find out and say it again.
        if let Err(error) = device.remember(memory) {
            warn!(target = %target.name, "portal groups are in the states of the start: {error}");
        }
        Self { device }
    }
}

/// What units and targets keep over restarts, and where.
#[derive(Debug)]
pub(crate) struct UnitKeeping {
    memory: Arc<dyn NonVolatileMemory>,
    reservations: ReservationStore,
    marks: SanitizeStore,
}

impl UnitKeeping {
    /// What is kept in a state directory.
    pub(crate) fn start(state_directory: &Path) -> Result<Self, StateError> {
        Ok(Self {
            memory: Arc::new(UnitMemory::new(state_directory)),
            reservations: ReservationStore::start(ReservationFiles::new(state_directory))?,
            marks: SanitizeStore::start(SanitizeMarks::new(state_directory))?,
        })
    }

    /// Gives a unit back what it kept, before any nexus uses it.
    fn adopt(&self, unit: &Arc<LogicalUnit>) -> Result<(), String> {
        unit.remember(&self.memory).map_err(|error| error.to_string())?;
        self.reservations.adopt(unit).map_err(|error| error.to_string())?;
        self.marks.adopt(unit).map_err(|error| error.to_string())
    }
}

/// What a change needs and was had before it is saved. Dropped unused, it takes back what it made.
#[derive(Debug)]
pub(crate) struct Prepared {
    stores: stores::PreparedStores,
    ports: ports::PreparedPorts,
}

/// What it takes to prepare a step.
#[derive(Debug)]
pub(crate) struct Preparation {
    stores: Stores,
    known_ports: Vec<std::net::SocketAddr>,
}

impl Preparation {
    /// Opens and makes what a step needs. Blocks.
    pub(crate) fn prepare(&self, before: &Model, after: &Model) -> Result<Prepared, Vec<Problem>> {
        let ports = ports::prepare(after, &self.known_ports)?;
        let stores = self.stores.prepare(before, after)?;
        Ok(Prepared { stores, ports })
    }
}

impl Live {
    pub(crate) fn new(node: Arc<Node>, defaults: Defaults, accept: Accept, keeping: UnitKeeping) -> Self {
        Self {
            node,
            stores: Stores::new(defaults.base.clone()),
            defaults,
            units: BTreeMap::new(),
            devices: BTreeMap::new(),
            ports: Ports::new(accept),
            quarantine: Quarantine::default(),
            keeping,
            refused: BTreeMap::new(),
        }
    }

    /// Everything of the model that can be had; what cannot is missing and comes later. Blocks.
    pub(crate) fn start(&mut self, model: &Model) {
        self.stores.open_all(model);
        let given = self.given();
        self.ports.open_all(model, &given);
        self.reconcile(model);
    }

    /// Whether sessions or earlier sessions stand against a step.
    pub(crate) fn usage(&self, before: &Model, after: &Model) -> Vec<InUse> {
        let sessions = self.node.sessions();
        let mut uses = usage::of_step(before, after, &sessions);
        uses.extend(self.quarantine.uses(after, &sessions));
        uses
    }

    /// What it takes to prepare a step while others look at the live picture.
    pub(crate) fn preparation(&self) -> Preparation {
        Preparation {
            stores: Stores::new(self.defaults.base.clone()),
            known_ports: self.ports.known(&self.given()),
        }
    }

    /// Follows a step that is saved.
    pub(crate) fn follow(&mut self, after: &Model, prepared: Prepared) {
        self.ports.follow(after, prepared.ports);
        // Units let go of their stores before those are opened otherwise.
        let reopened = self.stores.reopened(after);
        self.units
            .retain(|_, live| !reopened.contains(&live.definition.store.to_string()));
        self.unmap_what_is_not_wanted(after);
        self.stores.follow(after, prepared.stores);
        self.reconcile(after);
    }

    /// Stores that were missing and can be had now. `true` when there was one: then its LUNs are back.
    pub(crate) fn return_stores(
        &mut self,
        model: &Model,
        found: Vec<(String, Arc<dyn BlockStore>)>,
    ) -> Vec<String> {
        let returned = self.stores.take_back(model, found);
        if !returned.is_empty() {
            self.reconcile(model);
        }
        returned
    }

    /// Ports that could not be opened, tried again.
    pub(crate) fn retry_ports(&mut self, model: &Model) {
        let given = self.given();
        self.ports.open_all(model, &given);
    }

    pub(crate) const fn stores(&self) -> &Stores {
        &self.stores
    }

    pub(crate) fn iser_status(&self) -> IserStatus {
        self.ports.iser_status()
    }

    pub(crate) fn port_statuses(&self, model: &Model) -> Vec<PortStatus> {
        self.ports.statuses(model)
    }

    /// Units that are not served although their store is there, and why.
    pub(crate) const fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// What is reserved on units, as it is kept.
    pub(crate) fn reservation_files(&self) -> ReservationFiles {
        self.keeping.reservations.files().clone()
    }

    /// The open stores, to be flushed at the end.
    pub(crate) fn open_stores(&self) -> Vec<(String, Arc<dyn BlockStore>)> {
        self.stores.open()
    }

    /// Addresses that the start opened.
    fn given(&self) -> Vec<std::net::SocketAddr> {
        self.defaults
            .portals
            .iter()
            .map(|portal| portal.address)
            .collect()
    }

    /// The devices of the targets that are served, by name.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Arc<TargetDevice>> {
        self.devices.values().map(|live| Arc::clone(&live.device))
    }

    /// The units that are served, by id.
    pub(crate) fn units(&self) -> Vec<(String, Arc<LogicalUnit>)> {
        self.units
            .iter()
            .map(|(id, live)| (id.clone(), Arc::clone(&live.unit)))
            .collect()
    }

    fn reconcile(&mut self, model: &Model) {
        self.make_units(model);
        self.unmap_what_is_not_wanted(model);
        self.map_what_is_wanted(model);
        self.node
            .set_directory(targets::directory(model, &self.defaults, &self.devices));
        self.close_whom_nobody_admits();
        let sessions = self.node.sessions();
        self.quarantine.forget_ended(&sessions);
    }

    /// Units whose definition and store are as they were stay the same ones.
    fn make_units(&mut self, model: &Model) {
        let mut units = std::mem::take(&mut self.units);
        self.refused.clear();
        for unit in model.all::<Unit>().filter(|unit| unit.enabled) {
            let key = unit.id.to_string();
            let Some(store) = self.stores.get(unit.store.as_str()) else {
                continue;
            };
            let kept = units
                .remove(&key)
                .filter(|live| live.definition == *unit && Arc::ptr_eq(&live.store, &store));
            match kept.map_or_else(|| self.make_unit(unit, store), |live| Ok(Some(live))) {
                Ok(Some(live)) => drop(self.units.insert(key, live)),
                Ok(None) => {}
                Err(problem) => {
                    warn!(unit = key, "not served: {problem}");
                    self.refused.insert(key, problem);
                }
            }
        }
    }

    /// A unit that does not know who reserved it is not served: a host that was fenced off might write.
    fn make_unit(&self, unit: &Unit, store: Arc<dyn BlockStore>) -> Result<Option<LiveUnit>, String> {
        let Some(config) = targets::unit_config(unit) else {
            return Ok(None);
        };
        let live = LogicalUnit::new(config, Arc::clone(&store));
        self.keeping.adopt(&live)?;
        Ok(Some(LiveUnit {
            definition: unit.clone(),
            store,
            unit: live,
        }))
    }

    fn unmap_what_is_not_wanted(&mut self, model: &Model) {
        let mut devices = std::mem::take(&mut self.devices);
        devices.retain(|name, live| {
            let target = model.get::<crate::model::Target>(name.as_str());
            let stays = target.is_some_and(|target| target.enabled);
            if target.is_none() {
                // Another one of that name begins anew.
                let gone = Arc::clone(&live.device);
                tokio::spawn(async move { gone.reset_access_states().await });
            }
            let wanted = if stays {
                targets::wanted_luns(model, name, &self.units)
            } else {
                BTreeMap::new()
            };
            for (number, unit) in live.device.luns() {
                if !wanted
                    .get(&number)
                    .is_some_and(|wanted| Arc::ptr_eq(wanted, &unit))
                {
                    live.device.unmap(number);
                    self.quarantine.add(name, number, &unit, &self.node.sessions());
                }
            }
            stays
        });
        self.devices = devices;
    }

    fn map_what_is_wanted(&mut self, model: &Model) {
        let sessions = self.node.sessions();
        let memory = &self.keeping.memory;
        for target in model
            .all::<crate::model::Target>()
            .filter(|target| target.enabled)
        {
            let name = &target.name.0;
            let groups = targets::portal_groups(model, target, &self.defaults, &sessions);
            let live = self
                .devices
                .entry(name.clone())
                .or_insert_with(|| LiveDevice::new(target, &groups, &self.defaults, memory));
            live.device.set_portal_groups(&groups);
            let there: BTreeMap<_, _> = live.device.luns().into_iter().collect();
            for (number, unit) in targets::wanted_luns(model, name, &self.units) {
                if !there.contains_key(&number) {
                    live.device.map(number, unit);
                }
            }
        }
    }

    /// Sessions of targets that are gone, or that no rule admits any more. Nobody waits for them.
    fn close_whom_nobody_admits(&self) {
        let directory = self.node.directory();
        for session in self.node.sessions() {
            let Some(name) = &session.target else { continue };
            let admitted = directory.targets.get(name).is_some_and(|target| {
                target.access.admits(&session.initiator.name, session.peer.ip())
                    && session
                        .portal_group
                        .is_some_and(|group| target.device.has_port(group))
                    && self
                        .devices
                        .get(name)
                        .is_some_and(|live| Arc::ptr_eq(&live.device, &target.device))
            });
            if !admitted {
                self.node.order_session(session.tsih, Order::Close);
            }
        }
    }
}
