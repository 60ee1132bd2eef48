//! What one target process shares between its connections: the directory, every connection and session alive, and
//! who may come in next. Locks are held for map operations and calls that return at once, never across a wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use iscsi_proto::pdu::LoginStatus;
use iscsi_proto::{IscsiName, Tpgt, Tsih};
use tokio::sync::{broadcast, mpsc, watch};

use super::observed::Watchers;
use super::params::QUERIES_SINCE;
use super::place::{Entrance, Joining, SessionPlace};
use super::{Admission, CloseReason, LinkInfo, NodeEvent, Order, SessionParams};
use crate::control::{Directory, Target};
use crate::metrics::{Gathered, Metrics};
use crate::nexus::{InitiatorPort, NexusId, TargetPort};
use crate::trace::{Tap, Trace, TraceLimits, TraceRefusal, TraceSubject, Traces};

/// One target process as its connections see it.
#[derive(Debug)]
pub struct Node {
    directory: RwLock<Arc<Directory>>,
    entropy: fn(&mut [u8]),
    interfaces: fn() -> Vec<IpAddr>,
    registry: Mutex<Registry>,
    abandoned: AtomicUsize,
    watchers: Watchers,
    metrics: Metrics,
    traces: Traces,
}

/// A session as a listing shows it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// TSIH.
    pub tsih: Tsih,
    /// Initiator name and ISID.
    pub initiator: InitiatorPort,
    /// Target name; `None` for discovery.
    pub target: Option<IscsiName>,
    /// The portal group it came in by; `None` for discovery.
    pub portal_group: Option<Tpgt>,
    /// CHAP name proved, if any.
    pub authenticated_as: Option<String>,
    /// Connections it has now.
    pub connections: usize,
    /// The initiator's address, on the connection that the session began with.
    pub peer: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// Transport name.
    pub transport: &'static str,
    /// What was agreed.
    pub params: SessionParams,
}

/// A session let in.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Its handle.
    pub tsih: Tsih,
    /// Its nexus and target; `None` for discovery.
    pub nexus: Option<(Arc<NexusId>, Arc<Target>)>,
}

/// Why a session was not let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// Status for the initiator.
    pub status: LoginStatus,
    /// What happened.
    pub reason: String,
    /// What would change it.
    pub fix: String,
}

/// A connection's place in the registry, which dropping it gives up.
#[derive(Debug)]
pub(crate) struct Membership {
    node: Arc<Node>,
    id: u64,
    peer: IpAddr,
    tap: Arc<Tap>,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    next_id: u64,
    last_tsih: u16,
    connections: BTreeMap<u64, Entry>,
    sessions: BTreeMap<u16, Session>,
}

/// A connection.
#[derive(Debug)]
struct Entry {
    link: LinkInfo,
    orders: Orders,
    session: Option<Tsih>,
    tap: Arc<Tap>,
}

/// A session. It may outlive the connection that it began with, and for a while even its last one.
#[derive(Debug)]
struct Session {
    tsih: Tsih,
    /// The connection that it began with.
    link: LinkInfo,
    initiator: InitiatorPort,
    nexus: Option<(Arc<NexusId>, Arc<Target>)>,
    authenticated_as: Option<String>,
    params: SessionParams,
    orders: Orders,
    /// `false` from the moment it has been taken over.
    alive: Arc<AtomicBool>,
    /// Unbounded in type; what waits behind it are connections, which are counted.
    door: mpsc::UnboundedSender<Joining>,
}

/// Where the loop that serves a session hears what is wanted of it.
type Orders = Arc<watch::Sender<Option<Order>>>;

impl Node {
    /// A node that serves `directory`. `entropy` fills buffers with random bytes; `interfaces` lists the machine's
    /// own addresses, which discovery shows in place of an unspecified portal address.
    #[must_use]
    pub fn new(directory: Directory, entropy: fn(&mut [u8]), interfaces: fn() -> Vec<IpAddr>) -> Arc<Self> {
        Arc::new(Self {
            directory: RwLock::new(Arc::new(directory)),
            entropy,
            interfaces,
            registry: Mutex::default(),
            abandoned: AtomicUsize::new(0),
            watchers: Watchers::default(),
            metrics: Metrics::default(),
            traces: Traces::default(),
        })
    }

    /// The snapshot in force. Sessions that began under an older one keep it.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Swaps the snapshot. Sessions of targets that are gone are not closed by this: give them an [`Order`].
    pub fn set_directory(&self, directory: Directory) {
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(directory);
    }

    /// The source of random bytes.
    #[must_use]
    pub fn entropy(&self) -> fn(&mut [u8]) {
        self.entropy
    }

    /// The machine's own addresses, now.
    #[must_use]
    pub fn interfaces(&self) -> Vec<IpAddr> {
        (self.interfaces)()
    }

    /// Every session alive, by TSIH.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionView> {
        let registry = self.registry();
        let sessions = registry.sessions.values();
        sessions
            .map(|session| session.view(registry.connections_of(session.tsih)))
            .collect()
    }

    /// Connections alive, those still in login included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.registry().connections.len()
    }

    /// Those of them that one transport carries.
    #[must_use]
    pub fn connections_over(&self, transport: &str) -> usize {
        let registry = self.registry();
        let entries = registry.connections.values();
        entries.filter(|entry| entry.link.transport == transport).count()
    }

    /// Connections that have not come to a session yet.
    #[must_use]
    pub fn logins(&self) -> Vec<LinkInfo> {
        let registry = self.registry();
        let entries = registry.connections.values();
        entries
            .filter(|entry| entry.session.is_none())
            .map(|entry| entry.link.clone())
            .collect()
    }

    /// Sessions that begin and end and logins that fail, from now on.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<Arc<NodeEvent>> {
        self.watchers.subscribe()
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn counts(&self) -> Gathered {
        self.metrics
            .gather(&self.directory(), self.watchers.logins().rows())
    }

    /// Where sessions count.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Traces of connections.
    #[must_use]
    pub const fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Begins to trace.
    pub fn trace(&self, subject: TraceSubject, limits: TraceLimits) -> Result<Arc<Trace>, TraceRefusal> {
        let TraceSubject::Session(tsih) = subject else {
            return self.traces.begin(subject, limits, None);
        };
        let registry = self.registry();
        let session = registry.sessions.get(&tsih.0);
        let session = session.ok_or(TraceRefusal::NoSuchSession(tsih.0))?;
        let trace = self
            .traces
            .begin(subject, limits, Some(Arc::clone(&session.alive)))?;
        let connections = registry.connections.values();
        connections
            .filter(|entry| entry.session == Some(tsih))
            .for_each(|entry| entry.tap.open_to(&trace));
        Ok(trace)
    }

    /// Commands whose connection is gone and whose store operation still runs.
    #[must_use]
    pub fn abandoned_commands(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Gives every connection an order, and every session, be it without a connection just now.
    pub fn order_all(&self, order: Order) {
        let registry = self.registry();
        let connections = registry.connections.values().map(|entry| &entry.orders);
        let sessions = registry.sessions.values().map(|session| &session.orders);
        connections.chain(sessions).for_each(|orders| give(orders, order));
    }

    /// Gives the sessions of one target an order. Returns how many there were.
    pub fn order_target(&self, target: &IscsiName, order: Order) -> usize {
        let registry = self.registry();
        let sessions = registry.sessions.values();
        let of_target = sessions.filter(|session| session.target() == Some(target));
        of_target.inspect(|session| give(&session.orders, order)).count()
    }

    /// Gives one session an order; `false` when there is none with this TSIH.
    pub fn order_session(&self, tsih: Tsih, order: Order) -> bool {
        let registry = self.registry();
        let session = registry.sessions.get(&tsih.0);
        session.inspect(|session| give(&session.orders, order)).is_some()
    }

    /// Enters a connection that has just been accepted.
    pub(crate) fn join(self: &Arc<Self>, link: LinkInfo) -> (Membership, watch::Receiver<Option<Order>>) {
        let (orders, receiver) = watch::channel(None);
        let mut registry = self.registry();
        registry.next_id += 1;
        let id = registry.next_id;
        let peer = link.peer;
        let tap = Arc::new(Tap::new(id, link.clone()));
        self.traces.accepted(&tap, peer);
        let entry = Entry {
            link,
            orders: Arc::new(orders),
            session: None,
            tap: Arc::clone(&tap),
        };
        registry.connections.insert(id, entry);
        let membership = Membership {
            node: Arc::clone(self),
            id,
            peer: peer.ip(),
            tap,
        };
        (membership, receiver)
    }

    /// A session has ended. Nothing happens when another has taken its place.
    pub(super) fn leave(&self, tsih: Tsih, alive: &Arc<AtomicBool>) {
        let mut registry = self.registry();
        let is_ours = |session: &Session| Arc::ptr_eq(&session.alive, alive);
        if registry.sessions.get(&tsih.0).is_some_and(is_ours)
            && let Some(session) = registry.sessions.remove(&tsih.0)
        {
            session.leave();
        }
    }

    /// A session comes to its end, for this reason; it goes when it leaves. That it was taken over was told before.
    pub(super) fn tell_end(&self, tsih: Tsih, alive: &Arc<AtomicBool>, reason: &CloseReason) {
        let registry = self.registry();
        let session = registry.sessions.get(&tsih.0);
        if let Some(session) = session.filter(|session| Arc::ptr_eq(&session.alive, alive)) {
            registry.tell_end(session, &self.watchers, reason);
        }
    }

    pub(crate) fn abandon(&self, commands: usize) {
        self.abandoned.fetch_add(commands, Ordering::Relaxed);
    }

    pub(crate) fn abandoned_ended(&self, commands: usize) {
        self.abandoned.fetch_sub(commands, Ordering::Relaxed);
    }

    /// A panic under the lock would leave single map entries, never half a one: the map stays usable.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target may have gone, or the initiator lost its right, since the login began.
    fn still_allowed(&self, admission: &Admission, peer: IpAddr) -> Result<(), Refusal> {
        let Some(target) = &admission.target else {
            return Ok(());
        };
        let directory = self.directory();
        let Some(current) = directory.targets.get(&target.name) else {
            return Err(Refusal {
                status: LoginStatus::TargetRemoved,
                reason: format!("target {} was removed during the login", target.name),
                fix: "create the target again".into(),
            });
        };
        if !current.access.admits(&admission.initiator.name, peer) {
            return Err(Refusal {
                status: LoginStatus::AuthorizationFailure,
                reason: format!(
                    "{} lost access to {} during the login",
                    admission.initiator.name, target.name
                ),
                fix: "add the initiator's name to the target's access list".into(),
            });
        }
        Ok(())
    }
}

impl Membership {
    /// Lets a session in, or a connection into its session, or says why not. An older session of the same nexus ends
    /// here and now (§6.3.5): it is ordered to close, the device hears of the loss before it hears of the new session,
    /// and nobody waits for the old session's commands.
    pub(crate) fn admit(&self, admission: &Admission) -> Result<Entrance, Refusal> {
        self.node.still_allowed(admission, self.peer)?;
        let mut registry = self.node.registry();
        if admission.tsih != Tsih::NEW {
            return registry.door(self.id, admission).map(Entrance::Door);
        }
        let directory = self.node.directory();
        let local = registry
            .connections
            .get(&self.id)
            .expect("a membership is in the registry")
            .link
            .local;
        let nexus = match &admission.target {
            None => None,
            Some(target) => {
                let target_port = TargetPort {
                    name: target.name.clone(),
                    tpgt: directory.portal_group(target, local).ok_or_else(|| Refusal {
                        status: LoginStatus::NotFound,
                        reason: format!("{} left the portal {local} during the login", target.name),
                        fix: "use an address that discovery shows for this target".into(),
                    })?,
                };
                let nexus = NexusId {
                    initiator: admission.initiator.clone(),
                    target: target_port,
                };
                Some((Arc::new(nexus), Arc::clone(target)))
            }
        };
        if let Some((nexus, _)) = &nexus {
            registry.end_older(nexus, &self.node.watchers);
        }
        registry.check_limit(admission, &directory)?;
        let tsih = registry.free_tsih()?;
        if let Some((nexus, target)) = &nexus {
            target.device.seed(self.node.entropy());
            target.device.attach(nexus);
            if admission.params.protocol_level >= QUERIES_SINCE {
                target.device.offer_queries(nexus);
            }
        }
        let entry = registry.entry(self.id);
        entry.session = Some(tsih);
        let (door, arrivals) = mpsc::unbounded_channel();
        let alive = Arc::new(AtomicBool::new(true));
        let session = Session {
            tsih,
            link: entry.link.clone(),
            initiator: admission.initiator.clone(),
            nexus: nexus.clone(),
            authenticated_as: admission.authenticated_as.clone(),
            params: admission.params.clone(),
            orders: Arc::clone(&entry.orders),
            alive: Arc::clone(&alive),
            door,
        };
        self.node
            .watchers
            .tell(NodeEvent::LoggedIn(Box::new(session.view(1))));
        registry.sessions.insert(tsih.0, session);
        Ok(Entrance::Session {
            admitted: Admitted { tsih, nexus },
            place: SessionPlace::new(Arc::clone(&self.node), tsih, alive),
            arrivals,
        })
    }

    /// Where the connection is listened in on.
    pub(crate) const fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// The connection belongs to this session from now on.
    pub(crate) fn belongs_to(&self, tsih: Tsih) {
        let mut registry = self.node.registry();
        registry.entry(self.id).session = Some(tsih);
        self.node.traces.joined(&self.tap, tsih);
    }

    /// The connection's login came to nothing, for this reason.
    pub(crate) fn tell_end(&self, reason: &CloseReason) {
        let registry = self.node.registry();
        let entry = registry.connections.get(&self.id);
        if let Some(event) = entry.and_then(|entry| NodeEvent::of_end(&entry.link, None, reason)) {
            self.node.watchers.tell(event);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.node.registry().connections.remove(&self.id);
    }
}

impl Registry {
    fn connections_of(&self, tsih: Tsih) -> usize {
        let connections = self.connections.values();
        connections.filter(|entry| entry.session == Some(tsih)).count()
    }

    fn tell_end(&self, session: &Session, watchers: &Watchers, reason: &CloseReason) {
        let view = session.view(self.connections_of(session.tsih));
        if let Some(event) = NodeEvent::of_end(&session.link, Some(view), reason) {
            watchers.tell(event);
        }
    }

    fn entry(&mut self, id: u64) -> &mut Entry {
        let entry = self.connections.get_mut(&id);
        entry.expect("a membership is in the registry")
    }

    /// §6.3.1, §6.3.4: a TSIH other than 0 adds a connection to a session or replaces one. Which of both, and whether
    /// there is room, the session itself decides; here it is found, and only its own initiator port finds it.
    fn door(&self, id: u64, admission: &Admission) -> Result<mpsc::UnboundedSender<Joining>, Refusal> {
        let wanted = admission.target.as_ref().map(|target| &target.name);
        let session = self.sessions.get(&admission.tsih.0).filter(|session| {
            session.initiator == admission.initiator
                && session.target() == wanted
                && !session.door.is_closed()
        });
        let Some(session) = session else {
            return Err(Refusal {
                status: LoginStatus::SessionDoesNotExist,
                reason: format!(
                    "there is no session {:#06x} of this initiator port here",
                    admission.tsih.0
                ),
                fix: "log in with TSIH 0".into(),
            });
        };
        if session.authenticated_as != admission.authenticated_as {
            return Err(Refusal {
                status: LoginStatus::AuthorizationFailure,
                reason: format!(
                    "session {:#06x} was opened under another CHAP name",
                    admission.tsih.0
                ),
                fix: "use one CHAP name for all connections of a session".into(),
            });
        }
        let transport = self.connections.get(&id).map(|entry| entry.link.transport);
        if transport != Some(session.link.transport) {
            return Err(Refusal {
                status: LoginStatus::InitiatorError,
                reason: format!(
                    "session {:#06x} runs over {}, and all its connections must",
                    admission.tsih.0, session.link.transport
                ),
                fix: "connect over the same transport".into(),
            });
        }
        Ok(session.door.clone())
    }

    fn end_older(&mut self, nexus: &NexusId, watchers: &Watchers) {
        let of_nexus = |session: &Session| session.nexus().is_some_and(|theirs| **theirs == *nexus);
        let of_nexus = self.sessions.values().filter(|session| of_nexus(session));
        let older: Vec<u16> = of_nexus.map(|session| session.tsih.0).collect();
        for session in older
            .iter()
            .filter_map(|tsih| self.sessions.remove(tsih))
            .collect::<Vec<_>>()
        {
            session.leave();
            self.tell_end(&session, watchers, &CloseReason::Ordered(Order::Reinstated));
            give(&session.orders, Order::Reinstated);
        }
    }

    fn check_limit(&self, admission: &Admission, directory: &Directory) -> Result<(), Refusal> {
        let wanted = admission.target.as_ref().map(|target| &target.name);
        let sessions = self.sessions.values();
        let count = sessions.filter(|session| session.target() == wanted).count();
        let limit = match &admission.target {
            Some(target) => target.parameters.max_sessions,
            None => directory.discovery_parameters.max_sessions,
        };
        if u32::try_from(count).is_ok_and(|count| count < limit) {
            return Ok(());
        }
        Err(Refusal {
            status: LoginStatus::OutOfResources,
            reason: format!("{count} sessions are open, and max-sessions is {limit}"),
            fix: "log out unused sessions or raise max-sessions".into(),
        })
    }

    /// Handles go round, so that a stale one is not soon mistaken for a living session's.
    fn free_tsih(&mut self) -> Result<Tsih, Refusal> {
        for _ in 0..u16::MAX {
            self.last_tsih = self.last_tsih.checked_add(1).unwrap_or(1);
            if !self.sessions.contains_key(&self.last_tsih) {
                return Ok(Tsih(self.last_tsih));
            }
        }
        Err(Refusal {
            status: LoginStatus::OutOfResources,
            reason: "all 65535 session handles are in use".into(),
            fix: "log out unused sessions".into(),
        })
    }
}

impl Session {
    fn nexus(&self) -> Option<&Arc<NexusId>> {
        self.nexus.as_ref().map(|(nexus, _)| nexus)
    }

    fn target(&self) -> Option<&IscsiName> {
        self.nexus.as_ref().map(|(_, target)| &target.name)
    }

    /// Its end, as the device sees it.
    fn leave(&self) {
        // Before the device is told: see `SessionPlace::is_alive`.
        self.alive.store(false, Ordering::Release);
        if let Some((nexus, target)) = &self.nexus {
            target.device.detach(nexus);
        }
    }

    fn view(&self, connections: usize) -> SessionView {
        SessionView {
            tsih: self.tsih,
            initiator: self.initiator.clone(),
            target: self.target().cloned(),
            portal_group: self.nexus.as_ref().map(|(nexus, _)| nexus.target.tpgt),
            authenticated_as: self.authenticated_as.clone(),
            connections,
            peer: self.link.peer,
            local: self.link.local,
            transport: self.link.transport,
            params: self.params.clone(),
        }
    }
}

/// Gives an order, unless a stronger one was given before.
fn give(orders: &Orders, order: Order) {
    orders.send_if_modified(|current| {
        let stronger = current.is_none_or(|current| current < order);
        if stronger {
            *current = Some(order);
        }
        stronger
    });
}
