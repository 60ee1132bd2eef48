//! What one target process shares between its connections: the directory, every connection and session alive, and
//! who may come in next. Locks are held for map operations and calls that return at once, never across a wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use iscsi_proto::pdu::LoginStatus;
use iscsi_proto::{IscsiName, Tsih};
use tokio::sync::{broadcast, watch};

use super::observed::Watchers;
use super::params::QUERIES_SINCE;
use super::{Admission, CloseReason, LinkInfo, NodeEvent, Order, SessionParams};
use crate::control::{Directory, Target};
use crate::nexus::{InitiatorPort, NexusId, TargetPort};

/// One target process as its connections see it.
#[derive(Debug)]
pub struct Node {
    directory: RwLock<Arc<Directory>>,
    entropy: fn(&mut [u8]),
    interfaces: fn() -> Vec<IpAddr>,
    registry: Mutex<Registry>,
    abandoned: AtomicUsize,
    watchers: Watchers,
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
    /// CHAP name proved, if any.
    pub authenticated_as: Option<String>,
    /// The initiator's address.
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

/// A connection's place in the registry. Dropping it, for whatever cause, ends its session: the entry goes and the
/// device is told.
#[derive(Debug)]
pub(crate) struct Membership {
    node: Arc<Node>,
    id: u64,
    peer: IpAddr,
    /// `false` from the moment its session has been taken over.
    alive: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    last_tsih: u16,
    connections: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    link: LinkInfo,
    orders: watch::Sender<Option<Order>>,
    alive: Arc<AtomicBool>,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    tsih: Tsih,
    initiator: InitiatorPort,
    nexus: Option<(Arc<NexusId>, Arc<Target>)>,
    authenticated_as: Option<String>,
    params: SessionParams,
}

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
        let mut views: Vec<_> = self
            .registry()
            .connections
            .values()
            .filter_map(|entry| Some(entry.session.as_ref()?.view(&entry.link)))
            .collect();
        views.sort_by_key(|view| view.tsih.0);
        views
    }

    /// Connections alive, those still in login included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.registry().connections.len()
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

    /// Commands whose connection is gone and whose store operation still runs.
    #[must_use]
    pub fn abandoned_commands(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Gives every connection an order.
    pub fn order_all(&self, order: Order) {
        self.registry()
            .connections
            .values()
            .for_each(|entry| entry.order(order));
    }

    /// Gives the sessions of one target an order. Returns how many there were.
    pub fn order_target(&self, target: &IscsiName, order: Order) -> usize {
        let registry = self.registry();
        let of_target = registry.connections.values().filter(|entry| entry.serves(target));
        of_target.inspect(|entry| entry.order(order)).count()
    }

    /// Gives one session an order; `false` when there is none with this TSIH.
    pub fn order_session(&self, tsih: Tsih, order: Order) -> bool {
        let registry = self.registry();
        let entry = registry
            .connections
            .values()
            .find(|entry| entry.tsih() == Some(tsih));
        entry.inspect(|entry| entry.order(order)).is_some()
    }

    /// Enters a connection that has just been accepted.
    pub(crate) fn join(self: &Arc<Self>, link: LinkInfo) -> (Membership, watch::Receiver<Option<Order>>) {
        let (orders, receiver) = watch::channel(None);
        let alive = Arc::new(AtomicBool::new(true));
        let mut registry = self.registry();
        registry.next_id += 1;
        let id = registry.next_id;
        let peer = link.peer.ip();
        let entry = Entry {
            link,
            orders,
            alive: Arc::clone(&alive),
            session: None,
        };
        registry.connections.insert(id, entry);
        (
            Membership {
                node: Arc::clone(self),
                id,
                peer,
                alive,
            },
            receiver,
        )
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
    /// Lets a session in, or says why not. An older session of the same nexus ends here and now (§6.3.5): its
    /// connection is ordered to close, the device hears of the loss before it hears of the new session, and nobody
    /// waits for the old session's commands.
    pub(crate) fn admit(&self, admission: &Admission) -> Result<Admitted, Refusal> {
        self.node.still_allowed(admission, self.peer)?;
        let mut registry = self.node.registry();
        if admission.tsih != Tsih::NEW {
            return Err(registry.join_refusal(admission));
        }
        let directory = self.node.directory();
        let local = registry
            .connections
            .get(&self.id)
            .expect("a membership is in the registry")
            .link
            .local;
        let nexus = admission.target.as_ref().map(|target| {
            let target_port = TargetPort {
                name: target.name.clone(),
                tpgt: directory.portal_group(target, local),
            };
            let nexus = NexusId {
                initiator: admission.initiator.clone(),
                target: target_port,
            };
            (Arc::new(nexus), Arc::clone(target))
        });
        if let Some((nexus, _)) = &nexus {
            registry.end_older(nexus, &self.node.watchers);
        }
        registry.check_limit(admission, &directory)?;
        let tsih = registry.free_tsih()?;
        let entry = registry
            .connections
            .get_mut(&self.id)
            .expect("a membership is in the registry");
        if let Some((nexus, target)) = &nexus {
            target.device.seed(self.node.entropy());
            target.device.attach(nexus);
            if admission.params.protocol_level >= QUERIES_SINCE {
                target.device.offer_queries(nexus);
            }
        }
        entry.session = Some(Session {
            tsih,
            initiator: admission.initiator.clone(),
            nexus: nexus.clone(),
            authenticated_as: admission.authenticated_as.clone(),
            params: admission.params.clone(),
        });
        let view = entry.session.as_ref().map(|session| session.view(&entry.link));
        if let Some(view) = view {
            self.node.watchers.tell(NodeEvent::LoggedIn(Box::new(view)));
        }
        Ok(Admitted { tsih, nexus })
    }

    /// The connection has come to its end, for this reason; the session goes when `self` is dropped.
    pub(crate) fn tell_end(&self, reason: &CloseReason) {
        let registry = self.node.registry();
        let Some(entry) = registry.connections.get(&self.id) else {
            return;
        };
        let session = entry.session.as_ref().map(|session| session.view(&entry.link));
        if let Some(event) = NodeEvent::of_end(&entry.link, session, reason) {
            self.node.watchers.tell(event);
        }
    }

    /// Whether this connection's session still is the one of its nexus. A command that entered its task set before
    /// this was asked, and got `true`, is found by the device when the session ends.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The node this is a place in.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut registry = self.node.registry();
        if let Some(entry) = registry.connections.remove(&self.id) {
            entry.leave();
        }
    }
}

impl Registry {
    /// §6.3.1, §6.3.4: a TSIH other than 0 adds a connection to a session or replaces one. We keep to one connection
    /// for a session, at ErrorRecoveryLevel 0, where a replacement would rescue no task: the initiator is told to
    /// start a new session (which takes the old one's place).
    fn join_refusal(&self, admission: &Admission) -> Refusal {
        let wanted = admission.target.as_ref().map(|target| &target.name);
        let exists = self
            .connections
            .values()
            .filter_map(|entry| entry.session.as_ref())
            .any(|session| {
                session.tsih == admission.tsih
                    && session.initiator == admission.initiator
                    && session.target().as_ref() == wanted
            });
        if exists {
            Refusal {
                status: LoginStatus::TooManyConnections,
                reason: format!(
                    "session {:#06x} already has the one connection it may have",
                    admission.tsih.0
                ),
                fix: "log in with TSIH 0; that replaces the session".into(),
            }
        } else {
            Refusal {
                status: LoginStatus::SessionDoesNotExist,
                reason: format!(
                    "there is no session {:#06x} of this initiator port here",
                    admission.tsih.0
                ),
                fix: "log in with TSIH 0".into(),
            }
        }
    }

    fn end_older(&mut self, nexus: &NexusId, watchers: &Watchers) {
        for entry in self.connections.values_mut() {
            if entry.nexus().is_some_and(|theirs| **theirs == *nexus) {
                entry.leave();
                let session = entry.session.take().map(|session| session.view(&entry.link));
                let reason = CloseReason::Ordered(Order::Reinstated);
                if let Some(event) = NodeEvent::of_end(&entry.link, session, &reason) {
                    watchers.tell(event);
                }
                entry.order(Order::Reinstated);
            }
        }
    }

    fn check_limit(&self, admission: &Admission, directory: &Directory) -> Result<(), Refusal> {
        let wanted = admission.target.as_ref().map(|target| &target.name);
        let sessions = self
            .connections
            .values()
            .filter_map(|entry| entry.session.as_ref());
        let count = sessions
            .filter(|session| session.target().as_ref() == wanted)
            .count();
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
            let candidate = Tsih(self.last_tsih);
            if !self
                .connections
                .values()
                .any(|entry| entry.tsih() == Some(candidate))
            {
                return Ok(candidate);
            }
        }
        Err(Refusal {
            status: LoginStatus::OutOfResources,
            reason: "all 65535 session handles are in use".into(),
            fix: "log out unused sessions".into(),
        })
    }
}

impl Entry {
    fn order(&self, order: Order) {
        self.orders.send_if_modified(|current| {
            let stronger = current.is_none_or(|current| current < order);
            if stronger {
                *current = Some(order);
            }
            stronger
        });
    }

    fn tsih(&self) -> Option<Tsih> {
        self.session.as_ref().map(|session| session.tsih)
    }

    fn nexus(&self) -> Option<&Arc<NexusId>> {
        self.session.as_ref()?.nexus.as_ref().map(|(nexus, _)| nexus)
    }

    fn serves(&self, target: &IscsiName) -> bool {
        self.session.as_ref().and_then(Session::target).as_ref() == Some(target)
    }

    /// The session's end, as the device sees it.
    fn leave(&self) {
        // Before the device is told: see `Membership::is_alive`.
        self.alive.store(false, Ordering::Release);
        if let Some((nexus, target)) = self.session.as_ref().and_then(|session| session.nexus.as_ref()) {
            target.device.detach(nexus);
        }
    }
}

impl Session {
    fn target(&self) -> Option<IscsiName> {
        self.nexus.as_ref().map(|(_, target)| target.name.clone())
    }

    fn view(&self, link: &LinkInfo) -> SessionView {
        SessionView {
            tsih: self.tsih,
            initiator: self.initiator.clone(),
            target: self.target(),
            authenticated_as: self.authenticated_as.clone(),
            peer: link.peer,
            local: link.local,
            transport: link.transport,
            params: self.params.clone(),
        }
    }
}
