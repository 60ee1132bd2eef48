//! A logical unit: identity, store, mode parameters, task set, attentions, of every nexus that uses it.

use std::sync::Arc;

use std::sync::{Mutex, MutexGuard};

use backstores::{BlockStore, Durability};

use super::medium::Medium;
use super::primary::mode_pages::ModeParameters;

/// Who a unit is and how it behaves; fixed while it lives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnitConfig {
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
}

/// The unit. One for a store, however many LUNs and nexuses lead to it.
#[derive(Debug)]
pub struct LogicalUnit {
    config: UnitConfig,
    store: Arc<dyn BlockStore>,
    mode: Mutex<ModeParameters>,
    medium: Mutex<Medium>,
}

impl LogicalUnit {
    /// A unit over an open store.
    #[must_use]
    pub fn new(config: UnitConfig, store: Arc<dyn BlockStore>) -> Arc<Self> {
        Arc::new(Self {
            config,
            store,
            mode: Mutex::default(),
            medium: Mutex::default(),
        })
    }

    /// The store, for the final flush.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    pub(crate) fn config(&self) -> &UnitConfig {
        &self.config
    }

    pub(crate) fn mode_parameters(&self) -> ModeParameters {
        *self.mode.lock().expect("nothing panics while it holds this lock")
    }

    pub(crate) fn set_mode_parameters(&self, parameters: ModeParameters) {
        *self.mode.lock().expect("nothing panics while it holds this lock") = parameters;
    }

    pub(crate) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium
            .lock()
            .expect("nothing panics while it holds this lock")
    }

    /// Whether writes are refused, by the store or by software (SWP).
    pub(crate) fn is_write_protected(&self) -> bool {
        self.store.geometry().read_only || self.mode_parameters().software_write_protect
    }

    /// How safe a write has to be before it is acknowledged: FUA and a write cache switched off both mean the medium.
    pub(crate) fn durability(&self, fua: bool) -> Durability {
        if fua || !self.mode_parameters().write_cache {
            Durability::Stable
        } else {
            Durability::Cached
        }
    }
}
