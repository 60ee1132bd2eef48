//! A logical unit: identity, store, mode parameters, medium, task set, and the attentions of every nexus that uses it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use backstores::{BlockStore, Durability, Geometry, Measured};

use super::attention::AttentionQueue;
use super::block;
use super::copy::CopyOperations;
use super::erasure::{Erasure, ErasureView};
use super::identifying::{self, Identifying, InformationKind};
use super::medium::Medium;
use super::nonvolatile::NonVolatileMemory;
use super::primary::mode_pages::{ModeParameters, ModeSubject};
use super::primary::vpd::is_thin;
use super::reservations::{KeptReservations, ReservationKeeper, Reservations, ReservationsView};
use super::self_test::{SelfTestEnd, SelfTests};
use super::statistics::Statistics;
use super::task_set::TaskSet;
use super::timestamp::DeviceClock;
use super::{Failure, MarkKeeper, SanitizeMark, Sense, SoftThreshold, UnitAttention};
use crate::nexus::NexusId;

/// What kind of device a unit is (PERIPHERAL DEVICE TYPE, SPC-4 §6.6.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeviceType {
    /// A CD or DVD drive. Its store has blocks of 2048 bytes and is read-only.
    Cdrom,
    /// A disk.
    Disk,
}

impl DeviceType {
    /// PERIPHERAL DEVICE TYPE.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Cdrom => 0x05,
            Self::Disk => 0x00,
        }
    }
}

/// Who a unit is and how it behaves; fixed while it lives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnitConfig {
    /// Which commands it has.
    pub device_type: DeviceType,
    /// NAA identifier, 16 bytes of type 6 or 8 bytes of type 3 or 5 (SPC-4 §7.8.6.6).
    pub naa: Vec<u8>,
    /// Unit serial number, ASCII.
    pub serial: String,
    /// T10 vendor identification, at most 8 ASCII characters.
    pub vendor: String,
    /// Product identification, at most 16 ASCII characters.
    pub product: String,
    /// Product revision, at most 4 ASCII characters.
    pub revision: String,
    /// Offer logical block provisioning when the store can give space back.
    pub thin: bool,
    /// RMB: the medium can be loaded and ejected.
    pub removable: bool,
    /// Warn initiators (38/07) when the space that its contents take has reached this; for thin units whose store can
    /// tell that space.
    pub soft_threshold: Option<SoftThreshold>,
}

/// The unit. One for a store, however many LUNs and nexuses lead to it.
#[derive(Debug)]
pub struct LogicalUnit {
    config: UnitConfig,
    store: Arc<dyn BlockStore>,
    mode: Mutex<Mode>,
    identifying: Mutex<Identifying>,
    memory: OnceLock<Arc<dyn NonVolatileMemory>>,
    statistics: Statistics,
    clock: DeviceClock,
    /// The soft threshold was reached, and all were told.
    threshold_reached: AtomicBool,
    medium: Mutex<Medium>,
    erasure: Erasure,
    tasks: Arc<TaskSet>,
    attentions: Attentions,
    reservations: Reservations,
    copies: CopyOperations,
    self_tests: Arc<SelfTests>,
}

/// Mode parameters as they are, and as a reset makes them.
#[derive(Clone, Copy, Debug, Default)]
struct Mode {
    current: ModeParameters,
    saved: ModeParameters,
}

/// What each nexus has still to be told.
#[derive(Debug, Default)]
struct Attentions {
    /// One for each nexus that is attached; how many there are, sessions are limited by. Besides, at most
    /// [`MAX_ABSENT`] for others that have to be told of persistent reservations when they come back.
    queues: Mutex<Vec<Listener>>,
    /// Queues that are not empty, so that a command need not look when nobody has to be told anything.
    pending: AtomicUsize,
}

#[derive(Debug)]
struct Listener {
    nexus: Arc<NexusId>,
    queue: AttentionQueue,
    is_attached: bool,
}

impl LogicalUnit {
    /// A unit over an open store.
    #[must_use]
    pub fn new(config: UnitConfig, store: Arc<dyn BlockStore>) -> Arc<Self> {
        Arc::new(Self {
            config,
            store,
            mode: Mutex::default(),
            identifying: Mutex::default(),
            memory: OnceLock::new(),
            statistics: Statistics::default(),
            clock: DeviceClock::default(),
            threshold_reached: AtomicBool::new(false),
            medium: Mutex::default(),
            erasure: Erasure::default(),
            tasks: Arc::default(),
            attentions: Attentions::default(),
            reservations: Reservations::default(),
            copies: CopyOperations::default(),
            self_tests: Arc::default(),
        })
    }

    /// Offers APTPL: what has to outlive a loss of power goes to `keeper`, and `kept` is what was there before. Once,
    /// before any nexus uses the unit.
    pub fn keep_reservations(&self, keeper: ReservationKeeper, kept: Option<KeptReservations>) {
        self.reservations.keep(self.kept_as(), keeper, kept);
    }

    /// Sanitizing leaves its mark with `keeper` until it has succeeded; `left` is the one that was there before, and what it
    /// says begins anew, in the runtime that this is called in. Once, before any nexus uses the unit. A store whose
    /// contents end with the process needs no marks.
    pub fn keep_sanitize_mark(self: &Arc<Self>, keeper: MarkKeeper, left: Option<SanitizeMark>) {
        if self.store.abilities().transient {
            return;
        }
        self.erasure.keep(keeper, self.kept_as(), left.as_ref());
        if let Some(SanitizeMark {
            unrestricted,
            work: Some(work),
        }) = left
        {
            block::resume_sanitizing(self, unrestricted, work);
        }
    }

    /// The unit's name where something is kept for it: its NAA identifier in hexadecimal digits.
    #[must_use]
    pub fn kept_as(&self) -> String {
        self.config.naa.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Who it is.
    #[must_use]
    pub fn config(&self) -> &UnitConfig {
        &self.config
    }

    /// The store, for commands and for the final flush.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// Whether its blocks have protection information (type 1).
    pub(crate) fn is_protected(&self) -> bool {
        self.store.abilities().protection
    }

    /// Capacity in blocks, as it is now.
    pub(crate) fn blocks(&self) -> u64 {
        let geometry = self.store.geometry();
        geometry.size / u64::from(geometry.block_size)
    }

    /// The mode parameters as they are.
    pub(crate) fn mode_parameters(&self) -> ModeParameters {
        self.mode().current
    }

    /// Replaces the mode parameters. Telling the other nexuses is the caller's business.
    pub(crate) fn set_mode_parameters(&self, parameters: ModeParameters) {
        self.mode().current = parameters;
    }

    /// The mode parameters that a reset goes back to; `None` where none can be saved.
    pub(crate) fn saved_mode_parameters(&self) -> Option<ModeParameters> {
        self.memory.get().map(|_| self.mode().saved)
    }

    /// What its mode pages depend on.
    pub(crate) fn mode_subject<'a>(&self, geometry: &'a Geometry) -> ModeSubject<'a> {
        ModeSubject {
            device_type: self.config.device_type,
            is_protected: self.is_protected(),
            is_locked: self.medium().check_removable().is_err(),
            geometry,
            soft_threshold: self.soft_threshold(),
            current: self.mode_parameters(),
            saved: self.saved_mode_parameters(),
        }
    }

    /// Saves mode parameters, which are the current ones from then on. They outlive the program when this returns.
    pub(crate) async fn save_mode_parameters(&self, parameters: ModeParameters) -> Result<(), Failure> {
        self.keep(MODE_PARAMETERS, parameters.to_text()).await?;
        *self.mode() = Mode {
            current: parameters,
            saved: parameters,
        };
        Ok(())
    }

    /// One kind of identifying information.
    pub(crate) fn identifying(&self, kind: InformationKind) -> Vec<u8> {
        self.identifying.lock().expect("plain data").of(kind).to_vec()
    }

    /// Changes it. It outlives the program when this returns.
    pub(crate) async fn set_identifying(&self, kind: InformationKind, value: Vec<u8>) -> Result<(), Failure> {
        self.keep(kind.name(), identifying::to_text(&value)).await?;
        self.identifying.lock().expect("plain data").set(kind, value);
        Ok(())
    }

    /// Whether there is something that keeps what must outlive the program.
    pub(crate) fn can_keep(&self) -> bool {
        self.memory.get().is_some()
    }

    /// Gives it a memory that outlives the program, and takes back what that holds. To be called before the unit is
    /// used; only the first memory counts.
    ///
    /// # Errors
    /// What is there cannot be read or understood.
    pub fn remember(&self, memory: &Arc<dyn NonVolatileMemory>) -> io::Result<()> {
        let recall = |what| memory.recall(&self.kept_as(), what);
        let unknown = |what: &str| io::Error::other(format!("what was kept as {what} is unknown here"));
        if let Some(text) = recall(MODE_PARAMETERS)? {
            let saved = ModeParameters::from_text(&text).ok_or_else(|| unknown(MODE_PARAMETERS))?;
            *self.mode() = Mode {
                current: saved,
                saved,
            };
        }
        for kind in InformationKind::ALL {
            if let Some(text) = recall(kind.name())? {
                let value = identifying::from_text(&text).ok_or_else(|| unknown(kind.name()))?;
                self.identifying.lock().expect("plain data").set(kind, value);
            }
        }
        self.memory.get_or_init(|| Arc::clone(memory));
        Ok(())
    }

    /// What it has done so far.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Its clock.
    pub(crate) fn clock(&self) -> &DeviceClock {
        &self.clock
    }

    /// Whether it offers logical block provisioning.
    pub(crate) fn is_thin(&self) -> bool {
        is_thin(&self.config, &self.store.geometry())
    }

    /// When its initiators are warned of its filling up, if they are.
    pub(crate) fn soft_threshold(&self) -> Option<SoftThreshold> {
        self.config.soft_threshold.filter(|_| self.is_thin())
    }

    /// Looks at the store anew. When it grew, new commands reach all of it at once and every nexus is told (2A/09). When
    /// its contents reached the soft threshold since the last look, every nexus is told of that (38/07). To be called
    /// now and then, and when somebody says that there is something to see.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub async fn refresh(&self) -> io::Result<Measured> {
        let measured = self.store.measure().await?;
        if let Measured::Grown { .. } = measured {
            self.raise(UnitAttention::CapacityChanged, None);
        }
        if let Some(threshold) = self.soft_threshold()
            && let Some(space) = self.store.space().await?
        {
            let reached = space.used >= threshold.bytes(&self.store.geometry());
            if reached && !self.threshold_reached.swap(reached, Ordering::AcqRel) {
                self.raise(UnitAttention::SoftThresholdReached, None);
            } else if !reached {
                self.threshold_reached.store(false, Ordering::Release);
            }
        }
        Ok(measured)
    }

    async fn keep(&self, what: &'static str, text: String) -> Result<(), Failure> {
        let memory = self.memory.get().expect("asked for where it can be kept alone");
        memory.keep(&self.kept_as(), what, text).await.map_err(|error| {
            tracing::error!(serial = self.config.serial, %error, "{what} could not be saved");
            Sense::INTERNAL_TARGET_FAILURE.into()
        })
    }

    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().expect("plain data")
    }

    /// The medium. Not to be held while waiting.
    pub(crate) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("plain data")
    }

    /// What formats or sanitizes it, or failed to, for who administers it.
    #[must_use]
    pub fn erasure_view(&self) -> Option<ErasureView> {
        self.erasure.view()
    }

    /// Formatting and sanitizing.
    pub(crate) fn erasure(&self) -> &Erasure {
        &self.erasure
    }

    /// How a write is to be done: on the medium when it has to be there at once (FUA) or when the initiator switched the
    /// write cache off.
    pub(crate) fn durability(&self, force_unit_access: bool) -> Durability {
        if force_unit_access || !self.mode_parameters().write_cache {
            Durability::Stable
        } else {
            Durability::Cached
        }
    }

    /// After blocks were unmapped: with the write cache off, a power cut must not bring their old contents back.
    pub(crate) async fn settle_unmapped(&self) -> Result<(), Failure> {
        match self.durability(false) {
            Durability::Cached => Ok(()),
            Durability::Stable => Ok(self.store.flush().await?),
        }
    }

    /// 02/3A/00 unless a medium is loaded; 02/3A/02 of a drive with a tray, which an eject opens.
    pub(crate) fn check_medium(&self) -> Result<(), Failure> {
        if !self.config.removable || self.medium().is_loaded() {
            return Ok(());
        }
        Err(match self.config.device_type {
            DeviceType::Cdrom => Sense::MEDIUM_NOT_PRESENT_TRAY_OPEN,
            DeviceType::Disk => Sense::MEDIUM_NOT_PRESENT,
        }
        .into())
    }

    /// 07/27/00 unless the medium may be changed.
    pub(crate) fn check_writable(&self) -> Result<(), Failure> {
        if self.store.geometry().read_only || self.mode_parameters().software_write_protect {
            return Err(Sense::WRITE_PROTECTED.into());
        }
        Ok(())
    }

    /// Its tasks.
    pub(crate) fn tasks(&self) -> &Arc<TaskSet> {
        &self.tasks
    }

    /// The copies it was told to do.
    pub(crate) fn copies(&self) -> &CopyOperations {
        &self.copies
    }

    /// Self-tests and their results.
    pub(crate) fn self_tests(&self) -> &Arc<SelfTests> {
        &self.self_tests
    }

    /// What is reserved.
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// What is registered and reserved, for who administers it.
    #[must_use]
    pub fn reservations_view(&self) -> ReservationsView {
        self.reservations.view()
    }

    /// The administrator takes away all that is registered and reserved; who lost something is told (2A/03). Durable when
    /// this returns.
    ///
    /// # Errors
    /// It could not be made durable, and nothing was changed.
    pub async fn clear_reservations(&self) -> Result<(), Failure> {
        for (told, attention) in self.reservations.clear().await?.told {
            self.raise_for_registrant(&told, attention);
        }
        Ok(())
    }

    /// A nexus begins to use the unit, with a first thing to be told, and what it missed of persistent reservations.
    pub(crate) fn attach(&self, nexus: &Arc<NexusId>, first: UnitAttention) {
        self.attentions.change(|listeners| {
            let listener = listener(listeners, nexus);
            listener.nexus = Arc::clone(nexus);
            listener.is_attached = true;
            listener.queue.push(first);
        });
    }

    /// A nexus is gone, and told of persistent reservations when it comes back.
    pub(crate) fn detach(&self, nexus: &Arc<NexusId>) {
        self.lose_nexus(nexus);
        self.attentions.change(|listeners| {
            let Some(place) = listeners.iter().position(|known| same(&known.nexus, nexus)) else {
                return;
            };
            listeners[place].is_attached = false;
            listeners[place].queue.keep_reservations();
            bound_absent(listeners);
        });
    }

    /// I_T nexus loss (SAM-5 §6.3.4): the tasks of the nexus are aborted and what it held is released, but for persistent
    /// reservations.
    pub(crate) fn lose_nexus(&self, nexus: &Arc<NexusId>) {
        self.tasks.abort(|owner| same(owner, nexus));
        self.medium().forget(nexus);
        self.reservations.nexus_lost(nexus);
        self.copies.forget_nexus(nexus);
    }

    /// Back to the state after power on, as far as a reset goes (SAM-5 §6.3.2, §6.3.3): all tasks are aborted, nobody
    /// prevents the removal of the medium or holds the unit by RESERVE, mode parameters are the saved or else the default
    /// ones. Every nexus is told, the one that asked for it too. Formatting and sanitizing go on.
    pub(crate) fn reset(&self, told: UnitAttention) {
        self.tasks.abort(|_| true);
        self.medium().allow_all();
        self.reservations.reset();
        self.copies.forget_all();
        self.self_tests.abort(SelfTestEnd::AbortedOtherwise);
        // A hard reset sets the clock anew, one of the unit does not.
        if told != UnitAttention::LogicalUnitReset {
            self.clock.reset();
        }
        {
            let mut mode = self.mode();
            mode.current = mode.saved;
        }
        self.raise(told, None);
    }

    /// Raises a unit attention for every nexus but `except`.
    pub fn raise(&self, attention: UnitAttention, except: Option<&Arc<NexusId>>) {
        self.attentions.change(|listeners| {
            for listener in listeners.iter_mut().filter(|listener| listener.is_attached) {
                if except.is_none_or(|except| !same(&listener.nexus, except)) {
                    listener.queue.push(attention);
                }
            }
        });
    }

    /// Raises a unit attention for one nexus.
    pub(crate) fn raise_for(&self, nexus: &Arc<NexusId>, attention: UnitAttention) {
        self.attentions.of(nexus, |queue| queue.push(attention));
    }

    /// Raises a unit attention for a registrant, which is told when it comes back if it is not there.
    pub(crate) fn raise_for_registrant(&self, nexus: &Arc<NexusId>, attention: UnitAttention) {
        self.attentions.change(|listeners| {
            listener(listeners, nexus).queue.push(attention);
            bound_absent(listeners);
        });
    }

    /// Takes the next attention of a nexus, which is thereby told.
    pub(crate) fn take_attention(&self, nexus: &Arc<NexusId>) -> Option<UnitAttention> {
        if self.attentions.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.attentions.of(nexus, AttentionQueue::pop).flatten()
    }

    /// The same for a reset alone.
    pub(crate) fn take_reset(&self, nexus: &Arc<NexusId>) -> Option<UnitAttention> {
        if self.attentions.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.attentions.of(nexus, AttentionQueue::pop_reset).flatten()
    }

    /// What a nexus would be told next, and how many conditions wait for it.
    pub(crate) fn pending_attention(&self, nexus: &Arc<NexusId>) -> Option<(UnitAttention, usize)> {
        self.attentions.of(nexus, |queue| queue.first_of()).flatten()
    }

    /// One kind of attention of a nexus is done with, told or not.
    pub(crate) fn clear_attention(&self, nexus: &Arc<NexusId>, attention: UnitAttention) {
        self.attentions.of(nexus, |queue| queue.clear(attention));
    }
}

impl Attentions {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Listener>) -> T) -> T {
        let mut listeners = self.queues.lock().expect("nothing panics while it is held");
        let result = change(&mut listeners);
        let pending = listeners
            .iter()
            .filter(|listener| listener.is_attached && !listener.queue.is_empty())
            .count();
        self.pending.store(pending, Ordering::Release);
        result
    }

    fn of<T>(&self, nexus: &Arc<NexusId>, change: impl FnOnce(&mut AttentionQueue) -> T) -> Option<T> {
        self.change(|listeners| {
            let listener = listeners
                .iter_mut()
                .find(|listener| listener.is_attached && same(&listener.nexus, nexus))?;
            Some(change(&mut listener.queue))
        })
    }
}

/// The entry of a nexus; a new one is not attached.
fn listener<'a>(listeners: &'a mut Vec<Listener>, nexus: &Arc<NexusId>) -> &'a mut Listener {
    let place = listeners
        .iter()
        .position(|known| same(&known.nexus, nexus))
        .unwrap_or_else(|| {
            listeners.push(Listener {
                nexus: Arc::clone(nexus),
                queue: AttentionQueue::default(),
                is_attached: false,
            });
            listeners.len() - 1
        });
    &mut listeners[place]
}

/// Who is not attached and has nothing to be told is forgotten, and so are the eldest of too many.
fn bound_absent(listeners: &mut Vec<Listener>) {
    listeners.retain(|listener| listener.is_attached || !listener.queue.is_empty());
    let absent = listeners.iter().filter(|listener| !listener.is_attached).count();
    let mut surplus = absent.saturating_sub(MAX_ABSENT);
    listeners.retain(|listener| {
        let is_dropped = !listener.is_attached && surplus > 0;
        surplus -= usize::from(is_dropped);
        !is_dropped
    });
}

/// Whether two handles name the same nexus. Usually they are the same handle.
pub(crate) fn same(one: &Arc<NexusId>, other: &Arc<NexusId>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// The name that saved mode parameters are kept by.
const MODE_PARAMETERS: &str = "mode-parameters";

/// Nexuses that are not there and whose news of persistent reservations are kept for them. One beyond that is told
/// no more than every new nexus is (29/00).
const MAX_ABSENT: usize = 1024;
