//! Listening ports of the model's portals. A port that cannot be opened at a start is tried again; a change that brings
//! one is refused when it cannot be had.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tracing::{info, warn};
use utoipa::ToSchema;

use crate::model::{Model, Object, Portal, Problem};

/// Accepts connections of a listener from now on, until it is aborted.
#[derive(Clone)]
pub struct Accept(Arc<dyn Fn(TcpListener) -> AbortHandle + Send + Sync>);

/// How a portal is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct PortStatus {
    /// The portal's id.
    pub id: String,
    /// Whether it accepts connections.
    pub listening: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Ports {
    accept: Accept,
    all: BTreeMap<String, Port>,
    problems: BTreeMap<String, (SocketAddr, String)>,
}

#[derive(Debug)]
struct Port {
    address: SocketAddr,
    accepting: AbortHandle,
}

/// Ports opened for a change that is not saved yet.
pub(super) type PreparedPorts = Vec<(String, SocketAddr, TcpListener)>;

impl Accept {
    /// `accept` is called on a thread of a runtime, and hands the listener to a task.
    pub fn new(accept: impl Fn(TcpListener) -> AbortHandle + Send + Sync + 'static) -> Self {
        Self(Arc::new(accept))
    }
}

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accept(…)")
    }
}

impl Ports {
    pub(super) const fn new(accept: Accept) -> Self {
        Self {
            accept,
            all: BTreeMap::new(),
            problems: BTreeMap::new(),
        }
    }

    /// Opens what is not open yet; what cannot be opened is told once, and tried again with the next call.
    pub(super) fn open_all(&mut self, model: &Model, given: &[SocketAddr]) {
        for portal in wanted(model, given) {
            let id = portal.key();
            if self.all.contains_key(&id) {
                continue;
            }
            match tcp_transport::bind(portal.address) {
                Ok(listener) => self.begin(id, portal.address, listener),
                Err(error) => {
                    let problem = error.to_string();
                    let told = self
                        .problems
                        .insert(id.clone(), (portal.address, problem.clone()));
                    if told.is_none_or(|(_, told)| told != problem) {
                        warn!(portal = id, "{problem}");
                    }
                }
            }
        }
    }

    /// Addresses that a change need not open: they are open, or known not to be there now.
    pub(super) fn known(&self, given: &[SocketAddr]) -> Vec<SocketAddr> {
        let open = self.all.values().map(|port| port.address);
        open.chain(self.problems.values().map(|(address, _)| *address))
            .chain(given.iter().copied())
            .collect()
    }

    pub(super) fn follow(&mut self, after: &Model, prepared: PreparedPorts) {
        let wants = |id: &str, address: SocketAddr| {
            after
                .get::<Portal>(id)
                .is_some_and(|portal| portal.enabled && portal.address == address)
        };
        let gone: Vec<_> = self
            .all
            .iter()
            .filter(|(id, port)| !wants(id, port.address))
            .map(|(id, _)| id.clone())
            .collect();
        let mut left: Vec<Port> = gone.iter().filter_map(|id| self.all.remove(id)).collect();
        self.problems.retain(|id, (address, _)| wants(id, *address));
        for (id, address, listener) in prepared {
            self.begin(id, address, listener);
        }
        // A portal that only got another name keeps its port.
        for portal in after.all::<Portal>().filter(|portal| portal.enabled) {
            let place = left.iter().position(|port| port.address == portal.address);
            if let Some(place) = place
                && !self.all.contains_key(&portal.key())
            {
                self.all.insert(portal.key(), left.swap_remove(place));
            }
        }
        for port in left {
            port.accepting.abort();
            info!(address = %port.address, "portal closed");
        }
    }

    pub(super) fn statuses(&self, model: &Model) -> Vec<PortStatus> {
        let status = |portal: &Portal| {
            let id = portal.key();
            PortStatus {
                listening: self.all.contains_key(&id),
                problem: self.problems.get(&id).map(|(_, problem)| problem.clone()),
                id,
            }
        };
        model.all::<Portal>().map(status).collect()
    }

    fn begin(&mut self, id: String, address: SocketAddr, listener: TcpListener) {
        self.problems.remove(&id);
        let accepting = (self.accept.0)(listener);
        self.all.insert(id, Port { address, accepting });
    }
}

/// Opens the ports that a model has and that are not known.
pub(super) fn prepare(after: &Model, known: &[SocketAddr]) -> Result<PreparedPorts, Vec<Problem>> {
    let (mut prepared, mut problems) = (Vec::new(), Vec::new());
    for portal in wanted(after, known) {
        let id = portal.key();
        match tcp_transport::bind(portal.address) {
            Ok(listener) => prepared.push((id, portal.address, listener)),
            Err(error) => {
                let fix = "choose another address or port, or free this one";
                problems.push(Problem::new(
                    format!("portals/{id}/address"),
                    error.to_string(),
                    fix,
                ));
            }
        }
    }
    if problems.is_empty() {
        Ok(prepared)
    } else {
        Err(problems)
    }
}

/// The portals that should listen. Those that the start opened do already.
fn wanted<'a>(model: &'a Model, given: &'a [SocketAddr]) -> impl Iterator<Item = &'a Portal> {
    model
        .all::<Portal>()
        .filter(|portal| portal.enabled && !given.contains(&portal.address))
}
