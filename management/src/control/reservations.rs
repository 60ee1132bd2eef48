//! What initiators have reserved on logical units, and the administrator's way to take it away from them: for a host that
//! is gone for good and left its reservation behind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use target_core::iscsi::SessionView;
use target_core::nexus::NexusId;
use target_core::scsi::{KeptReservations, ReservationType, ReservationsView};
use tracing::info;
use utoipa::ToSchema;

use super::{ChangeError, Control};
use crate::access::Actor;
use crate::events::{Event, EventKind};
use crate::live::{InUse, UsingSession};
use crate::model::{LunMap, Model, Unit};
use crate::state::StateError;

/// What is reserved on one logical unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct UnitReservations {
    /// Id of the logical unit.
    pub unit: String,
    /// The LUNs that lead to it.
    pub luns: Vec<ReservedLun>,
    /// Type of the persistent reservation, when there is one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ReservationKind>,
    /// Registrants, in the order in which they registered.
    pub registrants: Vec<Registrant>,
    /// All of it outlives a loss of power (APTPL).
    pub aptpl: bool,
    /// PRGENERATION: changes since the start.
    pub generation: u32,
    /// Who holds the unit by the older command RESERVE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_by: Option<Port>,
}

/// A LUN that leads to a reserved unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct ReservedLun {
    /// The target.
    pub target: String,
    /// The number.
    pub lun: u16,
}

/// An initiator port at a target port.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Port {
    /// The initiator's name.
    pub initiator: String,
    /// Which of its ports: ISID, hexadecimal.
    pub isid: String,
    /// The target.
    pub target: String,
    /// Tag of the portal group it came in by.
    pub portal_group: u16,
    /// The session it has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsih: Option<u16>,
}

/// A registrant.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Registrant {
    /// Who.
    #[serde(flatten)]
    pub port: Port,
    /// Its reservation key, 16 hexadecimal digits.
    pub key: String,
    /// Whether it holds the reservation.
    pub holder: bool,
}

/// Types of persistent reservations (SPC-4).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// Only the holder reads and writes.
    ExclusiveAccess,
    /// Only registrants read and write; each of them is a holder.
    ExclusiveAccessAllRegistrants,
    /// Only registrants read and write; one of them is the holder.
    ExclusiveAccessRegistrantsOnly,
    /// Only the holder writes.
    WriteExclusive,
    /// Only registrants write; each of them is a holder.
    WriteExclusiveAllRegistrants,
    /// Only registrants write; one of them is the holder.
    WriteExclusiveRegistrantsOnly,
}

impl Control {
    /// Units on which something is registered or reserved, by id; also those that are not served now, as far as it
    /// outlives a loss of power.
    #[must_use]
    pub fn reservations(&self) -> Vec<UnitReservations> {
        let model = self.model();
        let units = model.all::<Unit>().map(|unit| unit.id.to_string());
        units
            .filter_map(|id| self.reservations_of(&id))
            .filter(|reserved| !reserved.registrants.is_empty() || reserved.reserved_by.is_some())
            .collect()
    }

    /// What is reserved on one unit; `None` when there is no such unit.
    #[must_use]
    pub fn reservations_of(&self, unit: &str) -> Option<UnitReservations> {
        let model = self.model();
        let view = self.reservations_view(model.get::<Unit>(unit)?);
        Some(shown(&model, unit, &view, &self.node.sessions()))
    }

    /// Takes all registrations and reservations of a unit away, durably; registrants are told. Registrants with a session
    /// would lose what protects their data from each other: that needs `force`. Nothing happens where nothing is reserved.
    ///
    /// # Errors
    /// There is no such unit, a registrant has a session, or it could not be saved; nothing was changed.
    pub async fn clear_reservations(
        self: &Arc<Self>,
        actor: &Actor,
        unit: &str,
        force: bool,
    ) -> Result<(), ChangeError> {
        let path = format!("reservations/{unit}");
        let before = self
            .reservations_of(unit)
            .ok_or_else(|| ChangeError::NotFound(format!("units/{unit}")))?;
        if before.registrants.is_empty() && before.reserved_by.is_none() {
            return Ok(());
        }
        let uses = self.use_of_reservations(&path, &before);
        if !force && !uses.sessions.is_empty() {
            return Err(ChangeError::InUse(vec![uses]));
        }
        // To its end, even when whoever asked for it goes away.
        let (this, actor, unit) = (Arc::clone(self), actor.clone(), unit.to_owned());
        let task = tokio::spawn(async move { this.clear(&actor, &unit, before).await });
        task.await.expect("it does not panic and is not aborted")
    }

    async fn clear(&self, actor: &Actor, unit: &str, before: UnitReservations) -> Result<(), ChangeError> {
        let live = self.units().into_iter().find(|(id, _)| id == unit);
        match live {
            Some((_, live)) => live.clear_reservations().await.map_err(|_| {
                let fix = "free some space or check the disk, then try again";
                StateError::new(&self.directory.join("reservations"), "it could not be saved", fix)
            })?,
            None => self.forget_kept(unit)?,
        }
        let text = format!("reservations of unit {unit} were cleared by hand");
        info!("{text}, by {actor}");
        self.events.record(
            Event::new(EventKind::ReservationsCleared, text)
                .by(actor)
                .with(json!({"unit": unit, "before": before})),
        );
        Ok(())
    }

    fn reservations_view(&self, unit: &Unit) -> ReservationsView {
        let live = self.units().into_iter().find(|(id, _)| *id == unit.id.as_str());
        if let Some((_, live)) = live {
            return live.reservations_view();
        }
        // Damage is told where the unit is refused.
        let kept = kept_as(unit).and_then(|name| self.live().reservation_files().load(&name).ok()?);
        ReservationsView {
            aptpl: kept.is_some(),
            persistent: kept.unwrap_or_default(),
            ..ReservationsView::default()
        }
    }

    fn forget_kept(&self, unit: &str) -> Result<(), StateError> {
        let model = self.model();
        let Some(name) = model.get::<Unit>(unit).and_then(kept_as) else {
            return Ok(());
        };
        let files = self.live().reservation_files();
        files.save(&name, None).map_err(|error| {
            StateError::new(
                files.directory(),
                error,
                "check its permissions and the disk below it",
            )
        })
    }

    fn use_of_reservations(&self, path: &str, reserved: &UnitReservations) -> InUse {
        let ports = reserved.registrants.iter().map(|registrant| &registrant.port);
        let handles: Vec<u16> = ports
            .chain(&reserved.reserved_by)
            .filter_map(|port| port.tsih)
            .collect();
        let sessions = self.node.sessions();
        let sessions = sessions
            .iter()
            .filter(|session| handles.contains(&session.tsih.0));
        InUse {
            path: path.to_owned(),
            problem: "these sessions would lose what keeps others from writing to their disk".to_owned(),
            fix: "log these initiators out first, or repeat with force=true".to_owned(),
            forcible: true,
            sessions: sessions.map(UsingSession::of).collect(),
        }
    }
}

impl ReservationKind {
    const fn of(kind: ReservationType) -> Self {
        match kind {
            ReservationType::ExclusiveAccess => Self::ExclusiveAccess,
            ReservationType::ExclusiveAccessAllRegistrants => Self::ExclusiveAccessAllRegistrants,
            ReservationType::ExclusiveAccessRegistrantsOnly => Self::ExclusiveAccessRegistrantsOnly,
            ReservationType::WriteExclusive => Self::WriteExclusive,
            ReservationType::WriteExclusiveAllRegistrants => Self::WriteExclusiveAllRegistrants,
            ReservationType::WriteExclusiveRegistrantsOnly => Self::WriteExclusiveRegistrantsOnly,
        }
    }
}

impl Port {
    fn of(nexus: &NexusId, sessions: &[SessionView]) -> Self {
        let isid = nexus.initiator.isid.0.iter();
        let session = sessions.iter().find(|session| {
            session.initiator == nexus.initiator && session.target.as_ref() == Some(&nexus.target.name)
        });
        Self {
            initiator: nexus.initiator.name.to_string(),
            isid: isid.map(|byte| format!("{byte:02x}")).collect(),
            target: nexus.target.name.to_string(),
            portal_group: nexus.target.tpgt.0,
            tsih: session.map(|session| session.tsih.0),
        }
    }
}

fn shown(model: &Model, unit: &str, view: &ReservationsView, sessions: &[SessionView]) -> UnitReservations {
    let KeptReservations {
        registrations,
        reservation,
    } = &view.persistent;
    let holds = |nexus: &NexusId| {
        let held = reservation.as_ref();
        held.is_some_and(|held| held.holder.as_ref().is_none_or(|holder| holder == nexus))
    };
    let registrants = registrations.iter().map(|registration| Registrant {
        port: Port::of(&registration.nexus, sessions),
        key: format!("{:016x}", registration.key),
        holder: holds(&registration.nexus),
    });
    let luns = model.all::<LunMap>().filter(|map| map.unit.as_str() == unit);
    UnitReservations {
        unit: unit.to_owned(),
        luns: luns
            .map(|map| ReservedLun {
                target: map.target.to_string(),
                lun: map.lun,
            })
            .collect(),
        kind: reservation
            .as_ref()
            .map(|reservation| ReservationKind::of(reservation.kind)),
        registrants: registrants.collect(),
        aptpl: view.aptpl,
        generation: view.generation,
        reserved_by: view.reserved_by.as_ref().map(|nexus| Port::of(nexus, sessions)),
    }
}

/// The name of a unit's file.
fn kept_as(unit: &Unit) -> Option<String> {
    let naa = unit.naa_bytes()?;
    Some(naa.iter().map(|byte| format!("{byte:02x}")).collect())
}
