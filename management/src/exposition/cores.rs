//! What the data cores of the process have to tell: whoever started them knows how to ask them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Exposition, FamilyKind};

/// A data core at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CoreView {
    /// Processor time it has used.
    pub busy: Duration,
    /// Connections that live on it.
    pub connections: u64,
    /// Bytes of its buffers.
    pub buffer_bytes: u64,
    /// Those that are in use.
    pub buffer_bytes_used: u64,
    /// Times that somebody had to wait for a buffer.
    pub buffer_waits: u64,
}

/// The data cores, by number.
#[derive(Clone)]
pub struct Cores(Arc<dyn Fn() -> Vec<CoreView> + Send + Sync>);

impl Cores {
    /// Cores that are asked by this.
    #[must_use]
    pub fn new(ask: impl Fn() -> Vec<CoreView> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Every core as it is now.
    #[must_use]
    pub fn view(&self) -> Vec<CoreView> {
        (self.0)()
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cores")
    }
}

impl Exposition {
    /// Busy time and buffers of every core.
    pub fn cores(&mut self, cores: &Cores) {
        let views = cores.view();
        let mut busy = self.family(
            "lunaport_core_busy_seconds_total",
            FamilyKind::Counter,
            "Processor time used by a data core.",
        );
        for (core, view) in views.iter().enumerate() {
            let nanoseconds = u64::try_from(view.busy.as_nanos()).unwrap_or(u64::MAX);
            busy.seconds(&[("core", &core.to_string())], nanoseconds);
        }
        let families: [(&str, FamilyKind, &str, fn(&CoreView) -> u64); 4] = [
            (
                "lunaport_core_connections",
                FamilyKind::Gauge,
                "Connections that live on a data core.",
                |view| view.connections,
            ),
            (
                "lunaport_buffer_bytes",
                FamilyKind::Gauge,
                "Buffers of a data core.",
                |view| view.buffer_bytes,
            ),
            (
                "lunaport_buffer_used_bytes",
                FamilyKind::Gauge,
                "Buffers of a data core that are in use.",
                |view| view.buffer_bytes_used,
            ),
            (
                "lunaport_buffer_waits_total",
                FamilyKind::Counter,
                "Times that a command had to wait for a buffer of its data core.",
                |view| view.buffer_waits,
            ),
        ];
        for (name, kind, help, value) in families {
            let mut family = self.family(name, kind, help);
            for (core, view) in views.iter().enumerate() {
                family.value(&[("core", &core.to_string())], value(view));
            }
        }
    }
}
