//! RESERVE, RELEASE and CLEAR (SPC-4 §5.13.9, §5.13.11.2.2, §5.13.11.2.7).

use std::sync::Arc;

use super::ReservationType;
use super::state::{Consequences, PersistentReservations, Reservation};
use crate::nexus::NexusId;
use crate::scsi::{Failure, Sense, UnitAttention};

impl PersistentReservations {
    /// RESERVE. Nobody changes a reservation by it, not even its holder.
    pub(crate) fn reserve(
        &mut self,
        nexus: &Arc<NexusId>,
        key: u64,
        kind: ReservationType,
    ) -> Result<Consequences, Failure> {
        self.check_key(nexus, key)?;
        match &self.reservation {
            None => self.reservation = Some(Reservation::new(kind, nexus)),
            Some(reservation) if reservation.kind == kind && self.is_holder(nexus) => {}
            Some(_) => return Err(Failure::ReservationConflict),
        }
        Ok(Consequences::default())
    }

    /// RELEASE. From a registrant that holds nothing it is no error, and does nothing.
    pub(crate) fn release(
        &mut self,
        nexus: &Arc<NexusId>,
        key: u64,
        kind: ReservationType,
    ) -> Result<Consequences, Failure> {
        self.check_key(nexus, key)?;
        let mut consequences = Consequences::default();
        if !self.is_holder(nexus) {
            return Ok(consequences);
        }
        if self
            .reservation
            .take_if(|reservation| reservation.kind == kind)
            .is_none()
        {
            return Err(Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION.into());
        }
        if kind.admits_registrants() {
            consequences.told = self.tell_others(nexus, UnitAttention::ReservationsReleased);
        }
        Ok(consequences)
    }

    /// CLEAR: nothing is left.
    pub(crate) fn clear(&mut self, nexus: &Arc<NexusId>, key: u64) -> Result<Consequences, Failure> {
        self.check_key(nexus, key)?;
        let told = self.tell_others(nexus, UnitAttention::ReservationsPreempted);
        self.remove(|_| true);
        self.generation = self.generation.wrapping_add(1);
        Ok(Consequences {
            told,
            preempted: Vec::new(),
        })
    }
    /// The same by the administrator, who is none of the registrants: each of them is told.
    pub(super) fn clear_by_administrator(&mut self) -> Consequences {
        let removed = self.remove(|_| true);
        self.generation = self.generation.wrapping_add(1);
        let told = removed
            .into_iter()
            .map(|nexus| (nexus, UnitAttention::ReservationsPreempted));
        Consequences {
            told: told.collect(),
            preempted: Vec::new(),
        }
    }
}
