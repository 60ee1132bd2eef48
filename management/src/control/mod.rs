//! Every administrative operation, in one place: who asks for it has been found out before, how it is asked for and
//! answered (HTTP, command line) is somebody else's.
//!
//! Readers take a snapshot of the model and wait for nobody. Changes queue for the one writer; each is validated whole,
//! saved, and followed by the running node, and goes through to its end even when whoever asked for it goes away.

mod access_states;
mod change;
mod config;
mod duplicate;
mod jobs;
mod log_filter;
mod making;
mod reservations;
mod sessions;
mod tend;
mod traces;
mod zeroed;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use target_core::iscsi::Node;

pub use access_states::{GroupState, PathState, SetBy, TargetStates};
pub use change::{Change, ChangeError, Edit, Outcome, Precondition, Preview};
pub use duplicate::CloneRequest;
pub use jobs::{Job, JobKind, JobState};
pub use log_filter::LogFilter;
pub use reservations::{Port, Registrant, ReservationKind, ReservedLun, UnitReservations};
pub use sessions::{HalfOpenLogin, Negotiated, SessionStatus};
pub use traces::{TraceError, TraceState, TraceStatus, TraceWish};
pub use zeroed::StoreRoot;

use crate::events::{Event, EventKind, EventLog};
use crate::live::{Accept, Defaults, IserStatus, Live, PortStatus, StoreStatus, UnitKeeping};
use crate::model::{Model, Problem};
use crate::rates::RateLog;
use crate::state::State;

/// The administration of one node.
#[derive(Debug)]
pub struct Control {
    node: Arc<Node>,
    /// The model that is saved and followed.
    model: RwLock<Arc<Model>>,
    /// Whoever holds it changes things. Held over the whole of a change.
    writer: Arc<tokio::sync::Mutex<State>>,
    /// Locked for as long as it takes to look, or to follow a change; never while something is saved.
    live: Mutex<Live>,
    events: Arc<EventLog>,
    rates: RateLog,
    log_filter: LogFilter,
    entropy: fn(&mut [u8]),
    directory: PathBuf,
    /// Long work of this run.
    jobs: jobs::Jobs,
    /// Units that are being looked at; one that is stuck is not asked again.
    looking: Mutex<BTreeSet<String>>,
}

impl Control {
    /// Makes the node serve the model of a state directory. Blocks while stores are opened. Those that cannot be opened
    /// are missing, and tried again by [`tend`](Self::tend).
    ///
    /// # Errors
    /// Problems that a model from elsewhere may have; one that was saved by a change has none.
    pub fn start(
        state: State,
        model: Model,
        node: Arc<Node>,
        defaults: Defaults,
        accept: Accept,
        entropy: fn(&mut [u8]),
    ) -> Result<Arc<Self>, Vec<Problem>> {
        let problems = crate::model::validate(&model, &defaults.base);
        if !problems.is_empty() {
            return Err(problems);
        }
        let events = EventLog::open(state.directory());
        let directory = state.directory().to_owned();
        let keeping = UnitKeeping::start(state.directory())
            .map_err(|error| vec![Problem::new("units", error.problem, error.fix)])?;
        let mut live = Live::new(Arc::clone(&node), defaults, accept, keeping);
        live.start(&model);
        events.record(Event::new(
            EventKind::Started,
            format!("started, generation {}", model.generation),
        ));
        for store in live.stores().statuses() {
            if let Some(problem) = store.problem {
                let text = format!("store {} is missing, and its LUNs with it: {problem}", store.id);
                let data = serde_json::json!({"store": store.id, "problem": problem});
                events.record(Event::new(EventKind::StoreMissing, text).with(data));
            }
        }
        Ok(Arc::new(Self {
            rates: RateLog::new(Arc::clone(&node)),
            log_filter: LogFilter::default(),
            node,
            model: RwLock::new(Arc::new(model)),
            writer: Arc::new(tokio::sync::Mutex::new(state)),
            live: Mutex::new(live),
            events,
            entropy,
            directory,
            jobs: jobs::Jobs::default(),
            looking: Mutex::default(),
        }))
    }

    /// The model as it is now.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        Arc::clone(&self.model.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has happened, and what happens.
    #[must_use]
    pub const fn events(&self) -> &Arc<EventLog> {
        &self.events
    }

    /// How much is done, and how fast.
    #[must_use]
    pub const fn rates(&self) -> &RateLog {
        &self.rates
    }

    /// The node that follows.
    #[must_use]
    pub const fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The state directory.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// The source of random bytes.
    #[must_use]
    pub const fn entropy(&self) -> fn(&mut [u8]) {
        self.entropy
    }

    /// How every store is.
    #[must_use]
    pub fn store_statuses(&self) -> Vec<StoreStatus> {
        self.live().stores().statuses()
    }

    /// Units that are not served although their store is there, and why.
    #[must_use]
    pub fn refused_units(&self) -> Vec<(String, String)> {
        self.live().refused().clone().into_iter().collect()
    }

    /// Targets that no portal leads to.
    #[must_use]
    pub fn unreached_targets(&self) -> Vec<String> {
        let directory = self.node.directory();
        let leads = |target: &target_core::control::Target| {
            let portals = directory
                .portals
                .iter()
                .chain(directory.other_portals.values().flatten());
            portals
                .into_iter()
                .any(|portal| target.device.has_port(portal.tpgt))
        };
        let targets = directory.targets.values();
        targets
            .filter(|target| !leads(target))
            .map(|target| target.name.to_string())
            .collect()
    }

    /// How every portal is.
    #[must_use]
    pub fn port_statuses(&self) -> Vec<PortStatus> {
        self.live().port_statuses(&self.model())
    }

    /// Whether iSER can be had, and where.
    #[must_use]
    pub fn iser_status(&self) -> IserStatus {
        self.live().iser_status()
    }

    /// The open stores by id, to be flushed at the end.
    #[must_use]
    pub fn open_stores(&self) -> Vec<(String, Arc<dyn backstores::BlockStore>)> {
        self.live().open_stores()
    }

    /// A panic while it was held is a bug that was logged; every step of following is repeated by the next.
    fn live(&self) -> std::sync::MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The logical units that are served, by id.
    #[must_use]
    pub fn units(&self) -> Vec<(String, Arc<target_core::scsi::LogicalUnit>)> {
        self.live().units()
    }

    fn set_model(&self, model: Arc<Model>) {
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = model;
    }
}

#[cfg(test)]
mod tests;
