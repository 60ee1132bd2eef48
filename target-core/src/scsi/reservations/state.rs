//! Registrations and the persistent reservation of one logical unit as a plain value (SPC-4 §5.13). What the service
//! actions do to it is in the files beside this one; each either succeeds or leaves a value that nobody uses.

use std::sync::Arc;

use super::ReservationType;
use crate::nexus::NexusId;
use crate::scsi::lu::same;
use crate::scsi::{Failure, Sense, UnitAttention};

/// Who is registered, and what is reserved.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PersistentReservations {
    /// PRGENERATION; begins with 0 at power on, whatever was kept, and wraps.
    pub(crate) generation: u32,
    /// In the order in which they were made; each nexus at most once, at most [`MAX_REGISTRATIONS`].
    pub(crate) registrations: Vec<Registration>,
    /// The reservation.
    pub(crate) reservation: Option<Reservation>,
    /// The last APTPL that was accepted: all of this outlives a loss of power.
    pub(crate) aptpl: bool,
}

/// A registered nexus. It stays registered when its session ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Registration {
    /// Initiator port and target port.
    pub(crate) nexus: Arc<NexusId>,
    /// Its reservation key, which is not 0.
    pub(crate) key: u64,
}

/// A persistent reservation, which always has a holder that is registered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reservation {
    /// Its type.
    pub(crate) kind: ReservationType,
    /// Who holds it.
    pub(crate) holder: Holder,
}

/// The holder of a persistent reservation (SPC-4 §5.13.10).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Holder {
    /// Whoever is registered.
    AllRegistrants,
    /// This nexus.
    Nexus(Arc<NexusId>),
}

/// What a service action means to others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Consequences {
    /// Unit attentions, connected or not.
    pub(crate) told: Vec<(Arc<NexusId>, UnitAttention)>,
    /// Nexuses that were preempted, whose tasks PREEMPT AND ABORT ends.
    pub(crate) preempted: Vec<Arc<NexusId>>,
}

impl Reservation {
    /// A reservation that `nexus` makes.
    pub(crate) fn new(kind: ReservationType, nexus: &Arc<NexusId>) -> Self {
        let holder = if kind.is_all_registrants() {
            Holder::AllRegistrants
        } else {
            Holder::Nexus(Arc::clone(nexus))
        };
        Self { kind, holder }
    }
}

impl PersistentReservations {
    /// The key that a nexus is registered with.
    pub(crate) fn key_of(&self, nexus: &Arc<NexusId>) -> Option<u64> {
        self.registrations
            .iter()
            .find(|registration| same(&registration.nexus, nexus))
            .map(|registration| registration.key)
    }

    /// Whether a nexus holds the reservation.
    pub(crate) fn is_holder(&self, nexus: &Arc<NexusId>) -> bool {
        match self.reservation.as_ref().map(|reservation| &reservation.holder) {
            None => false,
            Some(Holder::AllRegistrants) => self.key_of(nexus).is_some(),
            Some(Holder::Nexus(holder)) => same(holder, nexus),
        }
    }

    /// Key of the one nexus that holds the reservation; `None` when there is no reservation, or each registrant holds
    /// it.
    pub(crate) fn holder_key(&self) -> Option<u64> {
        match &self.reservation.as_ref()?.holder {
            Holder::AllRegistrants => None,
            Holder::Nexus(holder) => self.key_of(holder),
        }
    }

    /// RESERVATION CONFLICT unless the nexus is registered with this key (§6.16.3).
    pub(crate) fn check_key(&self, nexus: &Arc<NexusId>, key: u64) -> Result<(), Failure> {
        if self.key_of(nexus) == Some(key) {
            return Ok(());
        }
        Err(Failure::ReservationConflict)
    }

    /// Registers a nexus, or gives it another key. 05/55/04 when there is no room.
    pub(super) fn enter(&mut self, nexus: &Arc<NexusId>, key: u64) -> Result<(), Failure> {
        let known = self
            .registrations
            .iter_mut()
            .find(|registration| same(&registration.nexus, nexus));
        if let Some(registration) = known {
            registration.key = key;
            return Ok(());
        }
        if self.registrations.len() >= MAX_REGISTRATIONS {
            return Err(Sense::INSUFFICIENT_REGISTRATION_RESOURCES.into());
        }
        self.registrations.push(Registration {
            nexus: Arc::clone(nexus),
            key,
        });
        Ok(())
    }

    /// Ends registrations. A reservation goes with its holder, one of all registrants with the last of them
    /// (§5.13.11.2.1, table 71). Returns the nexuses that are registered no more.
    pub(super) fn remove(&mut self, gone: impl Fn(&Registration) -> bool) -> Vec<Arc<NexusId>> {
        let (removed, rest) = std::mem::take(&mut self.registrations)
            .into_iter()
            .partition::<Vec<_>, _>(gone);
        self.registrations = rest;
        let is_held = match self.reservation.as_ref().map(|reservation| &reservation.holder) {
            None => true,
            Some(Holder::AllRegistrants) => !self.registrations.is_empty(),
            Some(Holder::Nexus(holder)) => self.key_of(holder).is_some(),
        };
        if !is_held {
            self.reservation = None;
        }
        removed
            .into_iter()
            .map(|registration| registration.nexus)
            .collect()
    }

    /// Every registered nexus but one is to be told something.
    pub(super) fn tell_others(
        &self,
        nexus: &Arc<NexusId>,
        attention: UnitAttention,
    ) -> Vec<(Arc<NexusId>, UnitAttention)> {
        self.registrations
            .iter()
            .filter(|registration| !same(&registration.nexus, nexus))
            .map(|registration| (Arc::clone(&registration.nexus), attention))
            .collect()
    }
}

/// Registrations that a unit has room for. Beyond them: 05/55/04.
pub(crate) const MAX_REGISTRATIONS: usize = 1024;
