//! The counters of all sessions together: living ones as they are, ended ones in the totals they left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_proto::{IscsiName, Tsih};

use super::logins::LoginRow;
use super::session::{LinkCounts, LunCounts, SessionCounters};
use crate::control::Directory;
use crate::nexus::NexusId;

/// Everything that was counted, at one moment. All lists are in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Logical units that were ever used and are still there.
    pub luns: Vec<LunRow>,
    /// The same by initiator, of those that have a session.
    pub initiators: Vec<InitiatorRow>,
    /// Sessions with a target that are alive.
    pub sessions: Vec<SessionRow>,
    /// Everything, by the way that it came.
    pub transports: Vec<TransportRow>,
    /// Logins by their end.
    pub logins: Vec<LoginRow>,
}

/// A logical unit by its number at a target.
#[derive(Clone, Debug)]
pub struct LunRow {
    /// Target.
    pub target: IscsiName,
    /// Number.
    pub lun: u16,
    /// What was done there.
    pub counts: LunCounts,
}

/// An initiator at a logical unit.
#[derive(Clone, Debug)]
pub struct InitiatorRow {
    /// Target.
    pub target: IscsiName,
    /// Number of the unit.
    pub lun: u16,
    /// Initiator.
    pub initiator: IscsiName,
    /// What it did there.
    pub counts: LunCounts,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Its handle.
    pub tsih: Tsih,
    /// Whose.
    pub nexus: Arc<NexusId>,
    /// What it did, on all units.
    pub counts: LunCounts,
    /// What its connections came to.
    pub link: LinkCounts,
}

/// A transport.
#[derive(Clone, Debug)]
pub struct TransportRow {
    /// Its name.
    pub transport: &'static str,
    /// What was done by it, on all units, LUNs that name none included.
    pub counts: LunCounts,
    /// What its connections came to.
    pub link: LinkCounts,
}

/// Where sessions leave what they counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    /// As many as there are sessions, and those whose last commands still run.
    alive: Vec<Arc<SessionCounters>>,
    /// What ended sessions did, by unit. Forgotten with the unit.
    luns: BTreeMap<(IscsiName, u16), LunCounts>,
    /// The part of it of initiators that still have a session.
    initiators: BTreeMap<(IscsiName, u16, IscsiName), LunCounts>,
    transports: BTreeMap<&'static str, (LunCounts, LinkCounts)>,
}

impl Metrics {
    pub(super) fn open(&self, session: &Arc<SessionCounters>) {
        self.totals().alive.push(Arc::clone(session));
    }

    /// A session has counted its last.
    pub(super) fn close(&self, session: &Arc<SessionCounters>) {
        let mut totals = self.totals();
        totals.alive.retain(|other| !Arc::ptr_eq(other, session));
        let (target, initiator) = (&session.nexus.target.name, &session.nexus.initiator.name);
        let goes_on = totals.has_session(target, initiator);
        for (number, counts) in session.lun_counts() {
            let counts = LunCounts {
                in_flight: 0,
                ..counts
            };
            totals.transports.entry(session.transport).or_default().0 += &counts;
            let Some(lun) = number else { continue };
            *totals.luns.entry((target.clone(), lun)).or_default() += &counts;
            if goes_on {
                let key = (target.clone(), lun, initiator.clone());
                *totals.initiators.entry(key).or_default() += &counts;
            }
        }
        totals.transports.entry(session.transport).or_default().1 += &session.link_counts();
        if !goes_on {
            totals
                .initiators
                .retain(|(at, _, who), _| (at, who) != (target, initiator));
        }
    }

    /// Everything; units that `directory` does not have are forgotten.
    pub(crate) fn gather(&self, directory: &Directory, logins: Vec<LoginRow>) -> Gathered {
        let exists = existing(directory);
        let mut totals = self.totals();
        totals.luns.retain(|key, _| exists.contains(key));
        totals
            .initiators
            .retain(|(target, lun, _), _| exists.contains(&(target.clone(), *lun)));
        let (mut luns, mut initiators) = (totals.luns.clone(), totals.initiators.clone());
        let mut transports = totals.transports.clone();
        let alive = totals.alive.clone();
        drop(totals);
        let mut sessions = Vec::with_capacity(alive.len());
        for session in alive {
            let (mut all, link) = (LunCounts::default(), session.link_counts());
            let (target, initiator) = (&session.nexus.target.name, &session.nexus.initiator.name);
            for (number, counts) in session.lun_counts() {
                all += &counts;
                let Some(key) = number.map(|lun| (target.clone(), lun)) else {
                    continue;
                };
                if exists.contains(&key) {
                    *initiators
                        .entry((key.0.clone(), key.1, initiator.clone()))
                        .or_default() += &counts;
                    *luns.entry(key).or_default() += &counts;
                }
            }
            let transport = transports.entry(session.transport).or_default();
            transport.0 += &all;
            transport.1 += &link;
            sessions.push(SessionRow {
                tsih: session.tsih,
                nexus: Arc::clone(&session.nexus),
                counts: all,
                link,
            });
        }
        sessions.sort_by_key(|session| session.tsih.0);
        Gathered {
            luns: luns
                .into_iter()
                .map(|((target, lun), counts)| LunRow { target, lun, counts })
                .collect(),
            initiators: initiators
                .into_iter()
                .map(|((target, lun, initiator), counts)| InitiatorRow {
                    target,
                    lun,
                    initiator,
                    counts,
                })
                .collect(),
            sessions,
            transports: transports
                .into_iter()
                .map(|(transport, (counts, link))| TransportRow {
                    transport,
                    counts,
                    link,
                })
                .collect(),
            logins,
        }
    }

    /// Sums stay usable whatever happened while one was added up.
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn has_session(&self, target: &IscsiName, initiator: &IscsiName) -> bool {
        self.alive
            .iter()
            .any(|session| session.nexus.target.name == *target && session.nexus.initiator.name == *initiator)
    }
}

fn existing(directory: &Directory) -> BTreeSet<(IscsiName, u16)> {
    let units = directory.targets.values().flat_map(|target| {
        let luns = target.device.numbers();
        luns.into_iter().map(|lun| (target.name.clone(), lun))
    });
    units.collect()
}
