//! What goes on by itself: stores that come back, ports that become free, and what the node tells is written down.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use backstores::Measured;
use iscsi_proto::pdu::LoginStatus;
use serde_json::json;
use target_core::iscsi::{LoginFailure, NodeEvent};
use target_core::scsi::LogicalUnit;
use tokio::sync::broadcast::error::RecvError;
use tracing::{info, warn};

use super::{Control, SessionStatus};
use crate::events::{Event, EventKind};
use crate::live::open_known;
use crate::model::{Model, Store, Unit};

impl Control {
    /// Runs until it is dropped.
    pub async fn tend(self: Arc<Self>) {
        tokio::join!(self.retry(), self.write_down(), self.rates.run());
    }

    async fn retry(&self) {
        let mut pause = tokio::time::interval(RETRY);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        pause.tick().await;
        loop {
            pause.tick().await;
            self.retry_once().await;
        }
    }

    /// One try for everything that is missing.
    pub(crate) async fn retry_once(&self) {
        let (missing, base) = {
            let live = self.live();
            (live.stores().missing(), live.stores().base().to_owned())
        };
        if !missing.is_empty() {
            let open = move || -> Vec<_> {
                let tried = missing
                    .iter()
                    .map(|store| (store.id.to_string(), open_known(store, &base)));
                tried
                    .filter_map(|(id, opened)| Some((id, opened.ok()?)))
                    .collect()
            };
            let found = tokio::task::spawn_blocking(open).await.unwrap_or_default();
            if !found.is_empty() {
                // With the writer, so that no change is in between.
                let _writer = self.writer.lock().await;
                let returned = self.live().return_stores(&self.model(), found);
                for id in returned {
                    info!(store = id, "is back");
                    let text = format!("store {id} is back, and its LUNs with it");
                    self.events
                        .record(Event::new(EventKind::StoreReturned, text).with(json!({"store": id})));
                }
            }
        }
        let _writer = self.writer.lock().await;
        self.live().retry_ports(&self.model());
    }

    /// Looks at every unit: what was grown is served larger, and initiators are warned before space runs out. Nobody waits
    /// for one that is stuck.
    pub fn look_at_units(self: &Arc<Self>) {
        for (id, unit) in self.units() {
            if !self.looking().insert(id.clone()) {
                continue;
            }
            let this = Arc::clone(self);
            tokio::spawn(async move {
                this.look(&id, &unit).await;
                this.looking().remove(&id);
            });
        }
    }

    /// Stores that a change made larger are served so when the change is acknowledged, unless they are stuck.
    pub(super) async fn look_after_grown(&self, before: &Model, after: &Model) {
        let place = |model: &Model, id: &str| model.get::<Store>(id).map(|store| store.place.clone());
        for (id, unit) in self.units() {
            let Some(store) = after.get::<Unit>(&id).map(|unit| unit.store.to_string()) else {
                continue;
            };
            let was = place(before, &store);
            if was.is_some() && was != place(after, &store) {
                drop(tokio::time::timeout(LOOK, self.look(&id, &unit)).await);
            }
        }
    }

    async fn look(&self, id: &str, unit: &LogicalUnit) {
        match unit.refresh().await {
            Ok(Measured::Unchanged) => {}
            Ok(Measured::Grown { size }) => {
                let text = format!("unit {id} was grown to {size} bytes: initiators are told");
                info!("{text}");
                let data = json!({"unit": id, "size": size});
                self.events.record(Event::new(EventKind::Grown, text).with(data));
            }
            Ok(Measured::Shrunk { end }) => {
                let size = unit.store().geometry().size;
                warn!(
                    unit = id,
                    "the store was cut to {end} bytes, but is served with {size}: what is behind its end can be neither \
                     read nor written; make it as long as it was"
                );
            }
            Err(error) => warn!(unit = id, %error, "the store could not be asked for its size"),
        }
    }

    fn looking(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_down(&self) {
        let mut watched = self.node.watch();
        loop {
            match watched.recv().await {
                Ok(event) => self.events.record(told(&event)),
                Err(RecvError::Lagged(missed)) => {
                    let text = format!("{missed} events came faster than they could be written down");
                    self.events.record(Event::new(EventKind::Missed, text));
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn told(event: &NodeEvent) -> Event {
    match event {
        NodeEvent::LoggedIn(session) => {
            let target = session
                .target
                .as_ref()
                .map_or_else(|| "discovery".to_owned(), ToString::to_string);
            let text = format!(
                "{} logged in to {target} from {}",
                session.initiator.name, session.peer
            );
            Event::new(EventKind::LoggedIn, text).with(json!(SessionStatus::of(session)))
        }
        NodeEvent::LoginFailed {
            peer,
            local,
            transport,
            failure,
            reason,
        } => {
            let mut data =
                json!({"peer": peer.to_string(), "local": local.to_string(), "transport": transport});
            let (reason, fix) = match failure {
                Some(failure) => {
                    data["initiator"] = json!(failure.initiator);
                    data["target"] = json!(failure.target);
                    data["status"] = json!(format!("{:?}", failure.status));
                    data["key"] = json!(offending_key(failure));
                    (failure.reason.as_str(), failure.fix.as_str())
                }
                None => (
                    reason.as_str(),
                    "look at the initiator's own log, and at the network between",
                ),
            };
            data["reason"] = json!(reason);
            data["fix"] = json!(fix);
            Event::new(
                EventKind::LoginFailed,
                format!("login from {peer} failed: {reason}; {fix}"),
            )
            .with(data)
        }
        NodeEvent::SessionEnded {
            session,
            reason,
            in_order,
        } => {
            let text = format!(
                "session of {} from {} ended: {reason}",
                session.initiator.name, session.peer
            );
            let mut data = json!(SessionStatus::of(session));
            data["reason"] = json!(reason);
            data["in_order"] = json!(in_order);
            Event::new(EventKind::SessionEnded, text).with(data)
        }
    }
}

/// The key of the login, or the limit, that stood against it: the one that the reason names, else the one that its status is
/// about.
fn offending_key(failure: &LoginFailure) -> Option<&str> {
    let mut words = failure
        .reason
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    if let Some(named) = words.find(|word| iscsi_proto::keys::spec(word).is_some()) {
        return Some(named);
    }
    match failure.status {
        LoginStatus::AuthorizationFailure => Some("InitiatorName"),
        LoginStatus::NotFound | LoginStatus::TargetRemoved => Some("TargetName"),
        LoginStatus::OutOfResources => Some("max-sessions"),
        _ => None,
    }
}

/// How long a change waits for a store to notice that it was grown.
const LOOK: Duration = Duration::from_secs(2);
/// How long what is missing stays so at most, once it can be had.
const RETRY: Duration = Duration::from_secs(2);
