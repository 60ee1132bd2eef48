//! REGISTER and REGISTER AND IGNORE EXISTING KEY (SPC-4 §5.13.7, tables 67 to 69), unregistering included
//! (§5.13.11.2.3).

use std::sync::Arc;

use super::state::{Consequences, Holder, PersistentReservations};
use crate::nexus::NexusId;
use crate::scsi::lu::same;
use crate::scsi::{Failure, Sense, UnitAttention};

/// A request to register.
#[derive(Clone, Debug)]
pub(crate) struct Registering {
    /// The nexuses of the initiator port that asks: first the one it asks on, then, with ALL_TG_PT, those to the
    /// device's other target ports.
    pub(crate) own: Vec<Arc<NexusId>>,
    /// With SPEC_I_PT the nexuses of other initiator ports, each with the place of its TransportID.
    pub(crate) specified: Option<Vec<(Arc<NexusId>, u16)>>,
    /// RESERVATION KEY; `None` when it is to be ignored.
    pub(crate) key: Option<u64>,
    /// SERVICE ACTION RESERVATION KEY: the new one; 0 unregisters.
    pub(crate) new_key: u64,
    /// APTPL.
    pub(crate) aptpl: bool,
}

impl PersistentReservations {
    /// Does all of it, or fails.
    pub(crate) fn register(&mut self, request: &Registering) -> Result<Consequences, Failure> {
        let nexus = &request.own[0];
        let was_registered = self.key_of(nexus).is_some();
        self.check_register_key(nexus, request.key)?;
        if was_registered && request.specified.is_some() {
            return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                .in_parameters(20, Some(3))
                .into());
        }
        if !was_registered && request.new_key == 0 {
            return Ok(Consequences::default());
        }
        // Tested before anybody is entered: a list may name one nexus twice, or the one that asks.
        for (specified, at) in request.specified.iter().flatten() {
            if self.key_of(specified).is_some() {
                return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
                    .in_parameters(*at, None)
                    .into());
            }
        }
        let mut consequences = Consequences::default();
        // As if the same request had come in by each target port (§6.16.3).
        for own in &request.own {
            self.check_register_key(own, request.key)?;
            if request.new_key == 0 {
                consequences.told.extend(self.unregister(own));
            } else {
                self.enter(own, request.new_key)?;
            }
        }
        for (specified, _) in request.specified.iter().flatten() {
            self.enter(specified, request.new_key)?;
        }
        // Whoever asked by another of its ports lost nothing that it does not know of.
        consequences
            .told
            .retain(|(told, _)| !request.own.iter().any(|own| same(own, told)));
        self.aptpl = request.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(consequences)
    }

    /// A registered nexus gives its key, any other 0.
    fn check_register_key(&self, nexus: &Arc<NexusId>, key: Option<u64>) -> Result<(), Failure> {
        match key {
            Some(key) if key != self.key_of(nexus).unwrap_or(0) => Err(Failure::ReservationConflict),
            Some(_) | None => Ok(()),
        }
    }

    fn unregister(&mut self, nexus: &Arc<NexusId>) -> Vec<(Arc<NexusId>, UnitAttention)> {
        let is_registrants_only = self.reservation.as_ref().is_some_and(|reservation| {
            reservation.kind.admits_registrants() && matches!(reservation.holder, Holder::Nexus(_))
        });
        self.remove(|registration| same(&registration.nexus, nexus));
        if is_registrants_only && self.reservation.is_none() {
            return self.tell_others(nexus, UnitAttention::ReservationsReleased);
        }
        Vec::new()
    }
}
