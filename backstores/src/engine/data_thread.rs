//! What the appliance does to a data thread: choose an engine and enter it.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use super::uring;

/// Wish for an engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EngineChoice {
    /// io_uring where it works, else the pool.
    #[default]
    Auto,
    /// Page cache in place and blocking threads.
    Pool,
    /// io_uring or an error.
    Uring,
}

/// What runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EngineKind {
    /// Cached reads in place (`RWF_NOWAIT`), the rest on a few blocking threads per store.
    NowaitPool,
    /// One io_uring per data thread.
    Uring,
}

/// What runs and why; its `Display` is the line for the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Engine {
    /// What runs.
    pub kind: EngineKind,
    /// Why, in a few words.
    pub reason: String,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            EngineKind::NowaitPool => "blocking threads with cached reads in place",
            EngineKind::Uring => "io_uring",
        };
        write!(f, "{name} ({})", self.reason)
    }
}

/// Finds out what [`DataThread::enter`] would use, by trying. Once at start, for the log.
///
/// # Errors
/// When io_uring was demanded and does not work.
pub fn probe(choice: EngineChoice) -> io::Result<Engine> {
    let chosen = |kind, reason: &str| Engine {
        kind,
        reason: reason.into(),
    };
    if choice == EngineChoice::Pool {
        return Ok(chosen(EngineKind::NowaitPool, "as configured"));
    }
    match uring::check() {
        Ok(()) => Ok(chosen(EngineKind::Uring, "the kernel allows it")),
        Err(error) if choice == EngineChoice::Uring => Err(error),
        Err(error) => Ok(chosen(EngineKind::NowaitPool, &format!("no io_uring: {error}"))),
    }
}

/// A thread's membership in its engine: while this lives, store operations polled on the thread use the thread's own
/// ring (or, with the pool, none). Dropping it waits for the ring's operations under way.
///
/// ```
/// use backstores::{DataThread, EngineChoice};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// runtime.block_on(async {
///     let _data_thread = DataThread::enter(EngineChoice::Auto)?;
///     // ... serve connections here until told to stop ...
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct DataThread {
    kind: EngineKind,
    _ring: Option<uring::Membership>,
    /// The ring belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

impl DataThread {
    /// Enters the engine on this thread, inside its `current_thread` runtime (with I/O enabled).
    ///
    /// # Errors
    /// Outside such a runtime, when the thread has entered before, or when io_uring was demanded and does not work.
    pub fn enter(choice: EngineChoice) -> io::Result<Self> {
        let kind = probe(choice)?.kind;
        let ring = match kind {
            EngineKind::NowaitPool => None,
            EngineKind::Uring => Some(uring::Membership::enter()?),
        };
        Ok(Self {
            kind,
            _ring: ring,
            _not_send: PhantomData,
        })
    }

    /// What this thread runs.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.kind
    }
}
