//! The traces of a node: a few, by number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_proto::Tsih;

use super::{Tap, Trace, TraceLimits};
use crate::control::{NamePattern, Network};

/// What a trace follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TraceSubject {
    /// Connections that are accepted from now on, from their first PDU to their end; of all conditions that are there.
    Logins {
        /// What the initiator's name must look like.
        initiator: Option<NamePattern>,
        /// Where it must come from.
        network: Option<Network>,
    },
    /// All connections of this session, those to come included.
    Session(Tsih),
}

/// Why a trace does not begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TraceRefusal {
    /// There is no such session.
    #[error("there is no session {0:#06x}")]
    NoSuchSession(u16),
    /// There are as many as there may be.
    #[error("there are {TRACES_MAX} traces, and no more are kept at once")]
    TooMany,
}

/// All traces of a node.
#[derive(Debug, Default)]
pub struct Traces(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: u32,
    traces: BTreeMap<u32, Arc<Trace>>,
}

impl Traces {
    /// All there are, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Trace>> {
        self.inner().traces.values().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<Arc<Trace>> {
        self.inner().traces.get(&number).cloned()
    }

    /// Ends one and forgets what was kept. `false` when there is none.
    pub fn remove(&self, number: u32) -> bool {
        let removed = self.inner().traces.remove(&number);
        removed.inspect(|trace| trace.discard()).is_some()
    }

    /// Begins one. `session` is a flag that goes `false` with the session that it follows.
    pub(crate) fn begin(
        &self,
        subject: TraceSubject,
        limits: TraceLimits,
        session: Option<Arc<AtomicBool>>,
    ) -> Result<Arc<Trace>, TraceRefusal> {
        let mut inner = self.inner();
        if inner.traces.len() >= TRACES_MAX {
            return Err(TraceRefusal::TooMany);
        }
        inner.last = inner.last.wrapping_add(1);
        let number = inner.last;
        let trace = Arc::new(Trace::new(number, subject, limits, session));
        inner.traces.insert(number, Arc::clone(&trace));
        Ok(trace)
    }

    /// A connection was accepted: whoever waits for one like it, listens.
    pub(crate) fn accepted(&self, tap: &Tap, peer: SocketAddr) {
        for trace in self.running() {
            if let TraceSubject::Logins { initiator, network } = trace.subject()
                && network.is_none_or(|network| network.contains(peer.ip()))
            {
                tap.open_from_the_start_to(&trace, initiator.as_ref());
            }
        }
    }

    /// A connection joins a session: whoever listens to that, listens to it.
    pub(crate) fn joined(&self, tap: &Tap, tsih: Tsih) {
        let of_session = |trace: &Arc<Trace>| *trace.subject() == TraceSubject::Session(tsih);
        self.running()
            .iter()
            .filter(|trace| of_session(trace))
            .for_each(|trace| tap.open_to(trace));
    }

    fn running(&self) -> Vec<Arc<Trace>> {
        let inner = self.inner();
        let running = inner.traces.values().filter(|trace| trace.end().is_none());
        running.cloned().collect()
    }

    /// A panic under the lock would leave the map as it was before or after.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Traces at once, ended ones included: together they take 32 MiB at most.
const TRACES_MAX: usize = 4;
