//! Reservations of a logical unit: persistent ones (SPC-4 §5.13), those of SPC-2 (RESERVE and RELEASE), and whom they
//! keep out. State machines without I/O; the commands are `primary/reserve.rs` and its neighbours, and the engine asks
//! [`Reservations::check`] before any command runs.
//!
//! A registrant is an I_T nexus by its names. It stays one when its session ends, until somebody unregisters it or,
//! without APTPL, the power goes. What RESERVE made ends with the nexus and with every reset.

mod kept;
mod kind;
mod parameters;
mod preempt;
mod register;
mod register_and_move;
mod reserve;
mod state;
mod transport_id;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

pub use kept::{KeepRequest, KeptRegistration, KeptReservation, KeptReservations, ReservationKeeper};
pub use kind::ReservationType;
pub(crate) use parameters::{BasicList, MoveList};
pub(crate) use register::Registering;
pub(crate) use register_and_move::Moving;
pub(crate) use state::{Consequences, PersistentReservations};
pub(crate) use transport_id::TransportId;
pub use view::ReservationsView;

use super::lu::same;
use super::table::ReservationClass;
use super::{Failure, Sense, UnitAttention};
use crate::nexus::NexusId;
use crate::transfer::AbortSignal;

/// Everything reserved on one unit.
#[derive(Debug)]
pub(crate) struct Reservations {
    /// Held for a look or a change, never while waiting.
    state: Mutex<State>,
    /// Whether anything is reserved, so that a command need not look when nothing is.
    is_reserved: AtomicBool,
    /// Whoever changes something has it from the first look until the change is durable and done.
    turn: Semaphore,
    keeper: OnceLock<Keeper>,
}

#[derive(Debug, Default)]
struct State {
    /// Who holds the unit by RESERVE (6) or (10).
    legacy: Option<Arc<NexusId>>,
    persistent: PersistentReservations,
}

#[derive(Debug)]
struct Keeper {
    /// The unit as the keeper knows it.
    unit: String,
    requests: ReservationKeeper,
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            is_reserved: AtomicBool::new(false),
            turn: Semaphore::new(1),
            keeper: OnceLock::new(),
        }
    }
}

impl Reservations {
    /// Gives the unit a place for what outlives a loss of power, and what is there from before. Once, before any nexus
    /// uses the unit; later calls change nothing.
    pub(super) fn keep(&self, unit: String, requests: ReservationKeeper, kept: Option<KeptReservations>) {
        if self.keeper.set(Keeper { unit, requests }).is_ok()
            && let Some(kept) = kept
        {
            self.update(|state| state.persistent = PersistentReservations::restored(kept));
        }
    }

    /// Whether APTPL can be had.
    pub(crate) fn can_keep(&self) -> bool {
        self.keeper.get().is_some()
    }

    /// RESERVATION CONFLICT when a command of this class may not run for this nexus (SPC-4 table 65, SBC-4 table 13).
    pub(crate) fn check(&self, class: ReservationClass, nexus: &Arc<NexusId>) -> Result<(), Failure> {
        if class == ReservationClass::Always || !self.is_reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.state().admits(class, nexus) {
            return Ok(());
        }
        Err(Failure::ReservationConflict)
    }

    /// The persistent part, for PERSISTENT RESERVE IN. RESERVATION CONFLICT while somebody holds the unit by RESERVE,
    /// whoever asks (SPC-2, PERSISTENT RESERVE IN).
    pub(crate) fn persistent(&self) -> Result<PersistentReservations, Failure> {
        let state = self.state();
        if state.legacy.is_some() {
            return Err(Failure::ReservationConflict);
        }
        Ok(state.persistent.clone())
    }

    /// Does one service action, whole and undisturbed by others: all of it or nothing. What has to outlive a loss of
    /// power is durable before it takes effect. `Aborted` only while it waits for its turn.
    pub(crate) async fn change(
        &self,
        abort: &AbortSignal,
        action: impl FnOnce(&mut PersistentReservations) -> Result<Consequences, Failure>,
    ) -> Result<Consequences, Failure> {
        let _turn = self.turn(abort).await?;
        let before = self.persistent()?;
        let mut after = before.clone();
        let consequences = action(&mut after)?;
        let (kept_before, kept_after) = (before.kept(), after.kept());
        if kept_before != kept_after {
            self.make_durable(kept_after).await?;
        }
        self.update(|state| state.persistent = after);
        Ok(consequences)
    }

    /// RESERVE (6) and (10), as SPC-2 has them, but for registrants that a persistent reservation lets in: they get
    /// GOOD and nothing changes (SPC-4 §5.13.3).
    pub(crate) async fn reserve_legacy(
        &self,
        nexus: &Arc<NexusId>,
        abort: &AbortSignal,
    ) -> Result<(), Failure> {
        let _turn = self.turn(abort).await?;
        self.update(|state| {
            if state.persistent.makes_legacy_idle(nexus) {
                return Ok(());
            }
            let is_free = state.legacy.as_ref().is_none_or(|holder| same(holder, nexus));
            if !state.persistent.registrations.is_empty() || !is_free {
                return Err(Failure::ReservationConflict);
            }
            state.legacy = Some(Arc::clone(nexus));
            Ok(())
        })
    }

    /// RELEASE (6) and (10), with the same exception. From a nexus that holds nothing it does nothing.
    pub(crate) async fn release_legacy(
        &self,
        nexus: &Arc<NexusId>,
        abort: &AbortSignal,
    ) -> Result<(), Failure> {
        let _turn = self.turn(abort).await?;
        self.update(|state| {
            if state.persistent.makes_legacy_idle(nexus) {
                return Ok(());
            }
            if !state.persistent.registrations.is_empty() {
                return Err(Failure::ReservationConflict);
            }
            state.legacy.take_if(|holder| same(holder, nexus));
            Ok(())
        })
    }

    /// The administrator takes away all that is registered and reserved, by whichever commands. Durable before it takes
    /// effect. Who lost something is to be told.
    pub(super) async fn clear(&self) -> Result<Consequences, Failure> {
        let _turn = self.turn.acquire().await.expect("nobody closes it");
        let mut after = self.state().persistent.clone();
        let mut consequences = after.clear_by_administrator();
        self.make_durable(None).await?;
        self.update(|state| {
            state.persistent = after;
            let legacy = state.legacy.take().into_iter();
            let told = legacy.map(|holder| (holder, UnitAttention::ReservationsPreempted));
            consequences.told.extend(told);
        });
        Ok(consequences)
    }

    /// What RESERVE gave to a nexus that is lost ends.
    pub(super) fn nexus_lost(&self, nexus: &Arc<NexusId>) {
        self.update(|state| drop(state.legacy.take_if(|holder| same(holder, nexus))));
    }

    /// What RESERVE gave ends with a reset of the unit.
    pub(super) fn reset(&self) {
        self.update(|state| state.legacy = None);
    }

    async fn turn(&self, abort: &AbortSignal) -> Result<SemaphorePermit<'_>, Failure> {
        tokio::select! {
            biased;
            () = abort.fired() => Err(Failure::Aborted),
            turn = self.turn.acquire() => Ok(turn.expect("nobody closes it")),
        }
    }

    async fn make_durable(&self, kept: Option<KeptReservations>) -> Result<(), Failure> {
        let Some(keeper) = self.keeper.get() else {
            // APTPL was refused then, so that nothing is ever to be kept.
            return Ok(());
        };
        let (done, answer) = oneshot::channel();
        let request = KeepRequest {
            unit: keeper.unit.clone(),
            reservations: kept,
            done,
        };
        let problem = match keeper.requests.send(request) {
            Ok(()) => match answer.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => problem,
                Err(_) => "it was not answered".to_owned(),
            },
            Err(_) => "nobody keeps it any more".to_owned(),
        };
        tracing::warn!(
            unit = keeper.unit,
            problem,
            "a reservation could not be kept, and was not changed"
        );
        Err(Sense::INTERNAL_TARGET_FAILURE.into())
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let is_reserved = state.legacy.is_some() || state.persistent.reservation.is_some();
        self.is_reserved.store(is_reserved, Ordering::Release);
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }
}

impl State {
    fn admits(&self, class: ReservationClass, nexus: &Arc<NexusId>) -> bool {
        if self.legacy.as_ref().is_some_and(|holder| !same(holder, nexus)) {
            return class == ReservationClass::Always;
        }
        let Some(reservation) = &self.persistent.reservation else {
            return true;
        };
        let is_kept_out = match class {
            ReservationClass::Always | ReservationClass::Persistent => false,
            ReservationClass::Reads => reservation.kind.excludes_readers(),
            ReservationClass::Writes | ReservationClass::WritesUnless { .. } => true,
        };
        !is_kept_out || self.persistent.lets_in(nexus)
    }
}

impl PersistentReservations {
    /// Whether a reservation, if there is one, keeps nothing from this nexus.
    fn lets_in(&self, nexus: &Arc<NexusId>) -> bool {
        let admits_registrants = self
            .reservation
            .as_ref()
            .is_some_and(|reservation| reservation.kind.admits_registrants());
        self.is_holder(nexus) || (admits_registrants && self.key_of(nexus).is_some())
    }

    /// Whether RESERVE and RELEASE of this nexus do nothing and are no error.
    fn makes_legacy_idle(&self, nexus: &Arc<NexusId>) -> bool {
        self.reservation.is_some() && self.lets_in(nexus)
    }
}

#[cfg(test)]
mod tests;
