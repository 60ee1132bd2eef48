//! What outlives a loss of power (APTPL, SPC-4 §5.13.5), and the way to where it is kept. The core opens no file:
//! whoever runs it takes requests from a queue and answers each when it is durable.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::ReservationType;
use super::state::{Holder, PersistentReservations, Registration, Reservation};
use crate::nexus::NexusId;

/// Registrations and the reservation of a unit, as they are kept. The generation is not: it begins with 0 again
/// (§6.15.2).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptReservations {
    /// In the order they were made.
    pub registrations: Vec<KeptRegistration>,
    /// The reservation, if there is one.
    pub reservation: Option<KeptReservation>,
}

/// A kept registration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptRegistration {
    /// Whose.
    pub nexus: NexusId,
    /// Its key, not 0.
    pub key: u64,
}

/// A kept reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptReservation {
    /// Its type.
    pub kind: ReservationType,
    /// The nexus that holds it, which is registered; `None` for the types that each registrant holds.
    pub holder: Option<NexusId>,
}

/// A request to keep what a unit says, in place of what it said before. At most one a unit is under way.
#[derive(Debug)]
pub struct KeepRequest {
    /// The unit, by its NAA identifier in hexadecimal digits.
    pub unit: String,
    /// What is to be kept; `None` when nothing is.
    pub reservations: Option<KeptReservations>,
    /// Told when it is durable, or else why the old state still holds. Dropping it says that it failed.
    pub done: oneshot::Sender<Result<(), String>>,
}

/// Where units send their requests. Unbounded, because each unit waits for its answer before it asks again.
pub type ReservationKeeper = mpsc::UnboundedSender<KeepRequest>;

impl PersistentReservations {
    /// What is to be kept.
    pub(super) fn kept(&self) -> Option<KeptReservations> {
        (self.aptpl && !self.registrations.is_empty()).then(|| self.named())
    }

    /// All of it by the names of the nexuses.
    pub(super) fn named(&self) -> KeptReservations {
        let registrations = self.registrations.iter().map(|registration| KeptRegistration {
            nexus: NexusId::clone(&registration.nexus),
            key: registration.key,
        });
        let reservation = self.reservation.as_ref().map(|reservation| KeptReservation {
            kind: reservation.kind,
            holder: match &reservation.holder {
                Holder::AllRegistrants => None,
                Holder::Nexus(holder) => Some(NexusId::clone(holder)),
            },
        });
        KeptReservations {
            registrations: registrations.collect(),
            reservation,
        }
    }

    /// The state at power on. A reservation without its holder's registration, which we never keep, is none.
    pub(super) fn restored(kept: KeptReservations) -> Self {
        let registrations: Vec<_> = kept
            .registrations
            .into_iter()
            .map(|registration| Registration {
                nexus: Arc::new(registration.nexus),
                key: registration.key,
            })
            .collect();
        let mut state = Self {
            generation: 0,
            reservation: kept.reservation.and_then(|reservation| {
                let holder = if reservation.kind.is_all_registrants() {
                    Holder::AllRegistrants
                } else {
                    Holder::Nexus(Arc::new(reservation.holder?))
                };
                Some(Reservation {
                    kind: reservation.kind,
                    holder,
                })
            }),
            registrations,
            aptpl: true,
        };
        state.remove(|_| false);
        state
    }
}
