//! Looking after stores while they are served: those that were grown are served larger, those that were cut are named,
//! and initiators are warned before space runs out. Now and then by itself, and at once on SIGHUP.

use std::sync::Arc;
use std::time::Duration;

use backstores::Measured;
use futures_util::future::join_all;
use management::control::Control;
use tokio::signal::unix::Signal;
use tokio::sync;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::plan::PlannedUnit;
use crate::size::format_size;

/// Watches until the future is dropped. Each disk for itself: one that is stuck keeps no other from being looked at, and
/// is not asked again before it has answered.
pub(crate) async fn watch(units: &[PlannedUnit], mut hangup: Signal) {
    let asked = sync::watch::Sender::new(());
    let looking = units.iter().map(|unit| async {
        let mut asked = asked.subscribe();
        loop {
            look(unit).await;
            // An error means that nobody asks any more; the period remains.
            drop(timeout(PERIOD, asked.changed()).await);
        }
    });
    let listening = async {
        while hangup.recv().await.is_some() {
            info!("SIGHUP: looking at the size of every disk");
            asked.send_replace(());
        }
        std::future::pending::<()>().await;
    };
    tokio::join!(join_all(looking), listening);
}

/// The same for units that come and go.
pub(crate) async fn watch_managed(control: &Arc<Control>, mut hangup: Signal) {
    loop {
        control.look_at_units();
        // The end of the period, or of the signals, is as good a reason.
        if let Ok(Some(())) = timeout(PERIOD, hangup.recv()).await {
            info!("SIGHUP: looking at the size of every disk");
        }
    }
}

async fn look(unit: &PlannedUnit) {
    let (target, lun, what) = (&unit.target, unit.lun, &unit.what);
    match unit.unit.refresh().await {
        Ok(Measured::Unchanged) => {}
        Ok(Measured::Grown { size }) => {
            info!(target_name = %target, lun, "{what} was grown to {}: initiators are told", format_size(size));
        }
        Ok(Measured::Shrunk { end }) => {
            let size = format_size(unit.store.geometry().size);
            warn!(
                target_name = %target, lun,
                "{what} was cut to {}, but is served with {size}: what is behind its end can be neither read nor written; \
                 make it as long as it was",
                format_size(end),
            );
        }
        Err(error) => warn!(target_name = %target, lun, %error, "{what} could not be asked for its size"),
    }
}

/// How often everything is looked at.
const PERIOD: Duration = Duration::from_secs(5);
