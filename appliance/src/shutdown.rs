//! Stopping: initiators are asked to leave, what remains is closed, and every store is flushed, however long it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use target_core::iscsi::{Node, Order};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::error::StartError;
use crate::notify;
use crate::plan::PlannedUnit;

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Taken so that a write beyond the file size limit fails instead of ending the process. Never waited for.
    _file_size_exceeded: Signal,
}

impl StopSignals {
    /// From now on the two signals are ours.
    pub(crate) fn install() -> Result<Self, StartError> {
        let install = |kind| {
            signal(kind).map_err(|source| StartError::System {
                what: "signals cannot be received",
                source,
            })
        };
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            _file_size_exceeded: install(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// SIGHUP, which stops nothing.
    pub(crate) fn hangup() -> Result<Signal, StartError> {
        signal(SignalKind::hangup()).map_err(|source| StartError::System {
            what: "signals cannot be received",
            source,
        })
    }

    /// The next one; its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Asks every initiator to log out, waits, then closes what is left.
pub(crate) async fn drain(node: &Arc<Node>) {
    notify::stopping();
    if node.connections() == 0 {
        return;
    }
    info!(connections = node.connections(), "asking initiators to log out");
    node.order_all(Order::Logout { within: DRAIN });
    if !all_gone(node, DRAIN).await {
        warn!(
            connections = node.connections(),
            "closing connections whose initiators did not log out"
        );
        node.order_all(Order::Close);
        all_gone(node, CLOSE).await;
    }
}

/// Flushes every store, many at once, so that a slow one keeps few from being flushed. `false` when one of them failed: then
/// acknowledged writes may be lost, and it was said which.
pub(crate) async fn flush(units: &[PlannedUnit]) -> bool {
    let flushes = stream::iter(units).map(flush_one).buffer_unordered(AT_ONCE);
    let whole = flushes.fold(true, |all, good| async move { all & good });
    tokio::pin!(whole);
    loop {
        tokio::select! {
            all_good = &mut whole => return all_good,
            () = tokio::time::sleep(PROGRESS) => notify::extend(3 * PROGRESS),
        }
    }
}

async fn flush_one(unit: &PlannedUnit) -> bool {
    let started = Instant::now();
    let flush = unit.store.flush();
    tokio::pin!(flush);
    let result = loop {
        tokio::select! {
            result = &mut flush => break result,
            () = tokio::time::sleep(PROGRESS) => {
                let seconds = started.elapsed().as_secs();
                info!(target_name = %unit.target, lun = unit.lun, seconds, "still flushing {}", unit.what);
            }
        }
    };
    if let Err(error) = &result {
        error!(target_name = %unit.target, lun = unit.lun, %error, "{} could not be flushed", unit.what);
    }
    result.is_ok()
}

async fn all_gone(node: &Arc<Node>, patience: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + patience;
    while node.connections() > 0 {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}

/// Patience with initiators that were asked to log out.
const DRAIN: Duration = Duration::from_secs(5);
/// Patience with connections that were told to close.
const CLOSE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_secs(5);
/// Stores that are flushed at the same time: more than a device can use, and a thread each at most.
const AT_ONCE: usize = 64;
