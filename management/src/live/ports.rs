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

use crate::model::{Model, Object, Portal, Problem, Transport};

/// Accepts connections from now on, until that is aborted.
#[derive(Clone)]
pub struct Accept {
    tcp: Arc<dyn Fn(TcpListener) -> AbortHandle + Send + Sync>,
    iser: Arc<dyn Fn(SocketAddr) -> AbortHandle + Send + Sync>,
    iser_status: Arc<dyn Fn() -> IserStatus + Send + Sync>,
}

/// Whether iSER can be had, and where.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct IserStatus {
    /// Whether this host can serve it now.
    pub available: bool,
    /// Why it cannot, and what would change that, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its portals, those of the start among them.
    pub portals: Vec<IserPortalStatus>,
}

/// How a portal over RDMA is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct IserPortalStatus {
    /// Its address and port.
    pub address: String,
    /// Whether it accepts connections. It waits for a device while it does not, and begins by itself.
    pub listening: bool,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

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
    transport: Transport,
    accepting: AbortHandle,
}

/// Ports opened for a change that is not saved yet.
pub(super) type PreparedPorts = Vec<(String, SocketAddr, TcpListener)>;

impl Accept {
    /// `tcp` is called on a thread of a runtime, and hands the listener to a task. There is no iSER.
    pub fn new(tcp: impl Fn(TcpListener) -> AbortHandle + Send + Sync + 'static) -> Self {
        Self {
            tcp: Arc::new(tcp),
            iser: Arc::new(|_| tokio::spawn(std::future::pending::<()>()).abort_handle()),
            iser_status: Arc::new(|| IserStatus {
                available: false,
                problem: Some("nobody serves it here".to_owned()),
                portals: Vec::new(),
            }),
        }
    }

    /// Beside TCP there is iSER: `iser` hands an address to a task that listens on it whenever there is a device for that, and
    /// `status` says how these are.
    #[must_use]
    pub fn with_iser(
        self,
        iser: impl Fn(SocketAddr) -> AbortHandle + Send + Sync + 'static,
        status: impl Fn() -> IserStatus + Send + Sync + 'static,
    ) -> Self {
        Self {
            iser: Arc::new(iser),
            iser_status: Arc::new(status),
            ..self
        }
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
            if portal.transport == Transport::Iser {
                self.begin_iser(id, portal.address);
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
        let tcp = self.all.values().filter(|port| port.transport == Transport::Tcp);
        let open = tcp.map(|port| port.address);
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
        let stays = |id: &str, port: &Port| {
            let portal = after.get::<Portal>(id);
            wants(id, port.address) && portal.is_some_and(|portal| portal.transport == port.transport)
        };
        let gone: Vec<_> = self
            .all
            .iter()
            .filter(|(id, port)| !stays(id, port))
            .map(|(id, _)| id.clone())
            .collect();
        let mut left: Vec<Port> = gone.iter().filter_map(|id| self.all.remove(id)).collect();
        self.problems.retain(|id, (address, _)| wants(id, *address));
        for (id, address, listener) in prepared {
            self.begin(id, address, listener);
        }
        // A portal that only got another name keeps its port.
        for portal in after.all::<Portal>().filter(|portal| portal.enabled) {
            let place = left
                .iter()
                .position(|port| port.address == portal.address && port.transport == portal.transport);
            if let Some(place) = place
                && !self.all.contains_key(&portal.key())
            {
                self.all.insert(portal.key(), left.swap_remove(place));
            }
        }
        for portal in wanted(after, &[]).filter(|portal| portal.transport == Transport::Iser) {
            if !self.all.contains_key(&portal.key()) {
                self.begin_iser(portal.key(), portal.address);
            }
        }
        for port in left {
            port.accepting.abort();
            info!(address = %port.address, "portal closed");
        }
    }

    pub(super) fn statuses(&self, model: &Model) -> Vec<PortStatus> {
        let iser = self.iser_status();
        let status = |portal: &Portal| {
            let id = portal.key();
            let address = portal.address.to_string();
            let over_rdma = iser.portals.iter().find(|known| known.address == address);
            match over_rdma.filter(|_| portal.transport == Transport::Iser) {
                Some(known) => PortStatus {
                    id,
                    listening: known.listening,
                    problem: known.problem.clone(),
                },
                None => PortStatus {
                    listening: portal.transport == Transport::Tcp && self.all.contains_key(&id),
                    problem: self.problems.get(&id).map(|(_, problem)| problem.clone()),
                    id,
                },
            }
        };
        model.all::<Portal>().map(status).collect()
    }

    /// Whether iSER can be had, and where.
    pub(super) fn iser_status(&self) -> IserStatus {
        (self.accept.iser_status)()
    }

    fn begin(&mut self, id: String, address: SocketAddr, listener: TcpListener) {
        self.problems.remove(&id);
        let port = Port {
            address,
            transport: Transport::Tcp,
            accepting: (self.accept.tcp)(listener),
        };
        self.all.insert(id, port);
    }

    fn begin_iser(&mut self, id: String, address: SocketAddr) {
        let port = Port {
            address,
            transport: Transport::Iser,
            accepting: (self.accept.iser)(address),
        };
        self.all.insert(id, port);
    }
}

/// Opens the ports that a model has and that are not known.
pub(super) fn prepare(after: &Model, known: &[SocketAddr]) -> Result<PreparedPorts, Vec<Problem>> {
    let (mut prepared, mut problems) = (Vec::new(), Vec::new());
    // A portal over RDMA waits for its device; there is nothing that a change could find out.
    let wanted = wanted(after, known).filter(|portal| portal.transport == Transport::Tcp);
    for portal in wanted {
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

/// The portals that should listen. Those over TCP that the start opened do already.
fn wanted<'a>(model: &'a Model, given: &'a [SocketAddr]) -> impl Iterator<Item = &'a Portal> {
    model.all::<Portal>().filter(|portal| {
        let is_open = portal.transport == Transport::Tcp && given.contains(&portal.address);
        portal.enabled && !is_open
    })
}
