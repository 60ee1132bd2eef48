//! What is reserved on a unit at one moment, for who administers it.

use super::Reservations;
use super::kept::KeptReservations;
use crate::nexus::NexusId;

/// Everything reserved on one unit.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReservationsView {
    /// PRGENERATION: counts changes since the start.
    pub generation: u32,
    /// APTPL: all of this outlives a loss of power.
    pub aptpl: bool,
    /// Registrations, and the persistent reservation.
    pub persistent: KeptReservations,
    /// Who holds the unit by RESERVE (SPC-2).
    pub reserved_by: Option<NexusId>,
}

impl ReservationsView {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.persistent.registrations.is_empty() && self.reserved_by.is_none()
    }
}

impl Reservations {
    /// As it is now.
    pub(in crate::scsi) fn view(&self) -> ReservationsView {
        let state = self.state();
        ReservationsView {
            generation: state.persistent.generation,
            aptpl: state.persistent.aptpl && !state.persistent.registrations.is_empty(),
            persistent: state.persistent.named(),
            reserved_by: state.legacy.as_deref().cloned(),
        }
    }
}
