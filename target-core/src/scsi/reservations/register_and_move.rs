//! REGISTER AND MOVE (SPC-4 §5.13.8, table 70): the holder hands its reservation to a nexus of another initiator port.

use std::sync::Arc;

use super::state::{Consequences, Holder, PersistentReservations, Reservation};
use crate::nexus::NexusId;
use crate::scsi::lu::same;
use crate::scsi::{Failure, Sense};

/// A request to move the reservation.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    /// Where it goes: another initiator port's nexus.
    pub(crate) to: Arc<NexusId>,
    /// RESERVATION KEY.
    pub(crate) key: u64,
    /// SERVICE ACTION RESERVATION KEY: the destination's.
    pub(crate) new_key: u64,
    /// UNREG: who asks is registered no more.
    pub(crate) unregister: bool,
    /// APTPL.
    pub(crate) aptpl: bool,
}

impl PersistentReservations {
    /// What REGISTER AND MOVE must meet, before the destination is looked at (§5.13.8, table 70).
    pub(crate) fn check_move(&self, nexus: &Arc<NexusId>, key: u64, new_key: u64) -> Result<(), Failure> {
        self.check_key(nexus, key)?;
        match &self.reservation {
            None => return Err(Sense::INVALID_FIELD_IN_CDB.in_cdb(1, Some(4)).into()),
            Some(reservation) if reservation.holder == Holder::AllRegistrants => {
                return Err(Failure::ReservationConflict);
            }
            Some(_) if !self.is_holder(nexus) => return Err(Failure::ReservationConflict),
            Some(_) => {}
        }
        if new_key == 0 {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(8, None)
                .into());
        }
        Ok(())
    }

    /// REGISTER AND MOVE (§5.13.8).
    pub(crate) fn register_and_move(
        &mut self,
        nexus: &Arc<NexusId>,
        request: &Moving,
    ) -> Result<Consequences, Failure> {
        self.check_move(nexus, request.key, request.new_key)?;
        if request.to.initiator == nexus.initiator {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(24, None)
                .into());
        }
        self.enter(&request.to, request.new_key)?;
        self.reservation = self
            .reservation
            .take()
            .map(|reservation| Reservation::new(reservation.kind, &request.to));
        if request.unregister {
            self.remove(|registration| same(&registration.nexus, nexus));
        }
        self.aptpl = request.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(Consequences::default())
    }
}
