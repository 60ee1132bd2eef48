//! PREEMPT (SPC-4 §5.13.11.2.4, §5.13.11.2.5), which PREEMPT AND ABORT adds the end of tasks to (§5.13.11.2.6).

use std::sync::Arc;

use super::ReservationType;
use super::state::{Consequences, Holder, PersistentReservations, Registration, Reservation};
use crate::nexus::NexusId;
use crate::scsi::lu::same;
use crate::scsi::{Failure, Sense, UnitAttention};

impl PersistentReservations {
    /// Ends the registrations with the key `victim`; when that is the holder's key, or 0 and each registrant is the
    /// holder, a reservation of type `kind` takes the place of the old one (table 72).
    pub(crate) fn preempt(
        &mut self,
        nexus: &Arc<NexusId>,
        key: u64,
        victim: u64,
        kind: ReservationType,
    ) -> Result<Consequences, Failure> {
        self.check_key(nexus, key)?;
        let old = self.reservation.clone();
        let consequences = match (old, victim) {
            (Some(old), 0) if old.holder == Holder::AllRegistrants => {
                self.replace(nexus, &old, kind, |_| true)
            }
            (Some(_), 0) => {
                return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                    .in_parameters(8, None)
                    .into());
            }
            (Some(old), victim) if self.holder_key() == Some(victim) => {
                self.replace(nexus, &old, kind, |registration| registration.key == victim)
            }
            (_, victim) => self.expel(nexus, victim)?,
        };
        self.generation = self.generation.wrapping_add(1);
        Ok(consequences)
    }

    /// The reservation is preempted: who asks stays registered and becomes the holder.
    fn replace(
        &mut self,
        nexus: &Arc<NexusId>,
        old: &Reservation,
        kind: ReservationType,
        concerned: impl Fn(&Registration) -> bool,
    ) -> Consequences {
        let preempted = self.nexuses(&concerned);
        let removed =
            self.remove(|registration| concerned(registration) && !same(&registration.nexus, nexus));
        self.reservation = Some(Reservation::new(kind, nexus));
        let mut told = preemption(nexus, removed);
        if old.kind != kind {
            told.extend(self.tell_others(nexus, UnitAttention::ReservationsReleased));
        }
        Consequences { told, preempted }
    }

    /// Only registrations go, the one of who asks too when it has that key. No such registration is a conflict.
    fn expel(&mut self, nexus: &Arc<NexusId>, victim: u64) -> Result<Consequences, Failure> {
        let removed = self.remove(|registration| registration.key == victim);
        if removed.is_empty() {
            return Err(Failure::ReservationConflict);
        }
        Ok(Consequences {
            preempted: removed.clone(),
            told: preemption(nexus, removed),
        })
    }

    fn nexuses(&self, concerned: impl Fn(&Registration) -> bool) -> Vec<Arc<NexusId>> {
        let concerned = self.registrations.iter().filter(|entry| concerned(entry));
        concerned.map(|entry| Arc::clone(&entry.nexus)).collect()
    }
}

/// Whoever lost a registration is told, but for the one that asked.
fn preemption(nexus: &Arc<NexusId>, removed: Vec<Arc<NexusId>>) -> Vec<(Arc<NexusId>, UnitAttention)> {
    removed
        .into_iter()
        .filter(|loser| !same(loser, nexus))
        .map(|loser| (loser, UnitAttention::RegistrationsPreempted))
        .collect()
}
