//! Listening ports of the model's portals, and how they and those of the start are. A port that cannot be opened at a start
//! is tried again; a change that brings one is refused when it cannot be had.

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
    iser_view: Arc<dyn Fn() -> IserView + Send + Sync>,
}

/// What is served over RDMA, as whoever serves it tells.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IserView {
    /// Why this host cannot serve it now, and what would change that, in one line.
    pub problem: Option<String>,
    /// Its portals, those of the start among them, and what each waits for; nothing while it listens.
    pub portals: BTreeMap<SocketAddr, Option<String>>,
}

/// Whether iSER can be had.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct IserStatus {
    /// Whether this host can serve it now.
    pub available: bool,
    /// Why it cannot, and what would change that, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How a portal is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct PortStatus {
    /// The portal's id; one of the command line has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Address and port.
    pub address: String,
    /// Who asked for it.
    pub source: PortSource,
    /// How data are moved.
    pub transport: Transport,
    /// Tag of the portal group it belongs to.
    pub portal_group: u16,
    /// Whether it is to accept connections.
    pub enabled: bool,
    /// Whether it accepts connections.
    pub listening: bool,
    /// Why it does not although it is to. Over RDMA it may wait for a device, and begins by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Who asked for a portal.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortSource {
    /// `--portal`, or what is listened on when nothing else is said. Another start can change it.
    CommandLine,
    /// The configuration.
    Configuration,
}

impl PortStatus {
    /// Its id, or its address where it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.address)
    }
}

/// A portal that the start opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenPort {
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
    pub(super) portal_group: u16,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Ports {
    accept: Accept,
    given: Vec<GivenPort>,
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
            iser_view: Arc::new(|| IserView {
                problem: Some("nobody serves it here".to_owned()),
                portals: BTreeMap::new(),
            }),
        }
    }

    /// Beside TCP there is iSER: `iser` hands an address to a task that listens on it whenever there is a device for that, and
    /// `view` says how these are.
    #[must_use]
    pub fn with_iser(
        self,
        iser: impl Fn(SocketAddr) -> AbortHandle + Send + Sync + 'static,
        view: impl Fn() -> IserView + Send + Sync + 'static,
    ) -> Self {
        Self {
            iser: Arc::new(iser),
            iser_view: Arc::new(view),
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
    pub(super) const fn new(accept: Accept, given: Vec<GivenPort>) -> Self {
        Self {
            accept,
            given,
            all: BTreeMap::new(),
            problems: BTreeMap::new(),
        }
    }

    /// Opens what is not open yet; what cannot be opened is told once, and tried again with the next call.
    pub(super) fn open_all(&mut self, model: &Model) {
        self.begin_iser(model);
        for portal in wanted(model, Transport::Tcp, &self.given_over(Transport::Tcp)) {
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
    pub(super) fn known(&self) -> Vec<SocketAddr> {
        let tcp = self.all.values().filter(|port| port.transport == Transport::Tcp);
        let open = tcp.map(|port| port.address);
        open.chain(self.problems.values().map(|(address, _)| *address))
            .chain(self.given_over(Transport::Tcp))
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
        self.begin_iser(after);
        for port in left {
            port.accepting.abort();
            info!(address = %port.address, "portal closed");
        }
    }

    /// How every portal is, those of the start first.
    pub(super) fn statuses(&self, model: &Model) -> Vec<PortStatus> {
        let (iser, given_tcp) = ((self.accept.iser_view)(), self.given_over(Transport::Tcp));
        let state = |address, transport, id: &str| match transport {
            Transport::Iser => {
                let waits_for = iser.portals.get(&address).cloned();
                (waits_for == Some(None), waits_for.flatten())
            }
            // The start ends when it cannot have one over TCP.
            Transport::Tcp => (
                given_tcp.contains(&address) || self.all.contains_key(id),
                self.problems.get(id).map(|(_, problem)| problem.clone()),
            ),
        };
        let given = self.given.iter().map(|port| {
            let (listening, problem) = state(port.address, port.transport, "");
            PortStatus {
                id: None,
                address: port.address.to_string(),
                source: PortSource::CommandLine,
                transport: port.transport,
                portal_group: port.portal_group,
                enabled: true,
                listening,
                problem,
            }
        });
        let configured = model.all::<Portal>().map(|portal| {
            let id = portal.key();
            let (listening, problem) = state(portal.address, portal.transport, &id);
            PortStatus {
                id: Some(id),
                address: portal.address.to_string(),
                source: PortSource::Configuration,
                transport: portal.transport,
                portal_group: portal.portal_group,
                enabled: portal.enabled,
                listening: listening && portal.enabled,
                problem: problem.filter(|_| portal.enabled),
            }
        });
        given.chain(configured).collect()
    }

    /// Whether iSER can be had.
    pub(super) fn iser_status(&self) -> IserStatus {
        let problem = (self.accept.iser_view)().problem;
        IserStatus {
            available: problem.is_none(),
            problem,
        }
    }

    fn given_over(&self, transport: Transport) -> Vec<SocketAddr> {
        let given = self.given.iter().filter(|port| port.transport == transport);
        given.map(|port| port.address).collect()
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

    /// What is over RDMA waits for its device by itself.
    fn begin_iser(&mut self, model: &Model) {
        for portal in wanted(model, Transport::Iser, &self.given_over(Transport::Iser)) {
            let begun = || Port {
                address: portal.address,
                transport: Transport::Iser,
                accepting: (self.accept.iser)(portal.address),
            };
            self.all.entry(portal.key()).or_insert_with(begun);
        }
    }
}

/// Opens the ports that a model has and that are not known.
pub(super) fn prepare(after: &Model, known: &[SocketAddr]) -> Result<PreparedPorts, Vec<Problem>> {
    let (mut prepared, mut problems) = (Vec::new(), Vec::new());
    // A portal over RDMA waits for its device; there is nothing that a change could find out.
    for portal in wanted(after, Transport::Tcp, known) {
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

/// The portals that should listen, except those that the start opened.
fn wanted<'a>(
    model: &'a Model,
    transport: Transport,
    given: &'a [SocketAddr],
) -> impl Iterator<Item = &'a Portal> {
    model.all::<Portal>().filter(move |portal| {
        portal.enabled && portal.transport == transport && !given.contains(&portal.address)
    })
}
