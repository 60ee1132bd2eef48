//! What must always hold, by name, and the list of what did not.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

/// Rules that hold in every run, whatever chance does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Check {
    /// StatSN counts every response, once, without a gap (RFC 7143 §4.2.2.2).
    StatSn,
    /// ExpCmdSN and MaxCmdSN never go back, acknowledge nothing unsent, and at rest the window is wide open (§4.2.2.1).
    CommandWindow,
    /// Data-In come in order, without gaps, within the limits agreed, and all of them before the status (§11.7).
    DataIn,
    /// R2Ts ask in order, without gaps, within the limits agreed, for data that the command announced (§11.8).
    DataOut,
    /// The residual is what was announced against what the CDB calls for (§11.4.5).
    Residual,
    /// Data and status of a command come by the connection of the command alone (§4.2.5).
    Allegiance,
    /// Every command is answered exactly once, unless it was aborted or its nexus lost.
    AnsweredOnce,
    /// A task management response is the last word about the tasks it concerns (§4.2.3.2, SAM-5 §7).
    SilentAfterAbort,
    /// RDMA touches memory that is open for it, and none after the last word on its task (RFC 7145 §7.3.5, §7.3.6).
    OpenMemory,
    /// Task management is answered in time, whatever the store does.
    TaskManagementInTime,
    /// A login is answered in time, whatever the store and older sessions do.
    LoginInTime,
    /// A read returns what the latest write left: never older, never another block's, never half of two.
    DiskModel,
    /// An ordered command runs behind all that its session sent before it, by whichever connection, and before all that it
    /// sent behind it (§4.2.2.1, SAM-5 §8.6).
    Order,
    /// What was flushed, or written with FUA, survives a power cut.
    Durability,
    /// When all is done every buffer is back in the pool.
    PoolFull,
    /// When all is done no session, connection or command is left.
    NoSessionLeft,
    /// A reply was no valid PDU, or not one that fits.
    Protocol,
    /// Everything ends.
    Liveness,
}

/// A rule that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// What was seen.
    pub detail: String,
    /// When, since the world began.
    pub at: std::time::Duration,
}

/// The list, shared by everyone who looks.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    began: Instant,
    entries: Arc<Mutex<Vec<Violation>>>,
    trace: Arc<Mutex<Vec<String>>>,
}

impl Ledger {
    /// An empty list; the world begins now.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            entries: Arc::default(),
            trace: Arc::default(),
        }
    }

    /// Enters a violation. After a hundred more would not help anybody.
    pub(crate) fn violated(&self, check: Check, detail: impl fmt::Display) {
        let violation = Violation {
            check,
            detail: detail.to_string(),
            at: self.began.elapsed(),
        };
        self.note(format_args!("VIOLATED {violation}"));
        let mut entries = self.entries.lock().expect("plain data");
        if entries.len() < 100 {
            entries.push(violation);
        }
    }

    /// Enters a violation unless it holds.
    pub(crate) fn check(&self, check: Check, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.violated(check, detail());
        }
    }

    /// Remembers what happened, for whoever reruns a seed.
    pub(crate) fn note(&self, what: impl fmt::Display) {
        let line = format!("{:>12.6} {what}", self.began.elapsed().as_secs_f64());
        self.trace.lock().expect("plain data").push(line);
    }

    /// What was violated.
    #[must_use]
    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.entries.lock().expect("plain data").clone()
    }

    /// What happened.
    #[must_use]
    pub(crate) fn trace(&self) -> Vec<String> {
        self.trace.lock().expect("plain data").clone()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.check, self.detail)
    }
}
