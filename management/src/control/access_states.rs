//! How well each portal group of a target reaches its disks (ALUA states of target port groups), and the administrator's way
//! to take back what initiators set by SET TARGET PORT GROUPS. What they set holds over restarts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use target_core::scsi::{AccessState, GroupView, StateCause, TargetDevice};
use tracing::info;
use utoipa::ToSchema;

use super::{ChangeError, Control};
use crate::access::Actor;
use crate::events::{Event, EventKind};
use crate::state::StateError;

/// The portal groups of a target, as initiators are told of them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TargetStates {
    /// The target.
    pub target: String,
    /// Ascending.
    pub groups: Vec<GroupState>,
}

/// The state of a portal group.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct GroupState {
    /// Its tag.
    pub group: u16,
    /// How well it reaches the disks.
    pub state: PathState,
    /// Who put it there; nobody when it always was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<SetBy>,
}

/// How well a portal group reaches the disks of its target.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// Every command, at full speed.
    Optimized,
    /// Every command; another path is to be preferred.
    NonOptimized,
    /// Nothing that touches the disk.
    Standby,
    /// Only what tells of the disk and its paths.
    Unavailable,
}

/// Who puts a portal group into a state.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SetBy {
    /// The administrator.
    Administrator,
    /// An initiator.
    Initiator,
}

impl Control {
    /// The states of all targets that are served, by name.
    #[must_use]
    pub fn access_states(&self) -> Vec<TargetStates> {
        self.live()
            .devices()
            .map(|device| TargetStates::of(&device))
            .collect()
    }

    /// Those of one target; `None` when it is not served.
    #[must_use]
    pub fn access_states_of(&self, target: &str) -> Option<TargetStates> {
        self.device(target).map(|device| TargetStates::of(&device))
    }

    /// Puts the portal groups whose states initiators set back into those that they were given at the start, durably;
    /// initiators are told.
    ///
    /// # Errors
    /// There is no such target, or it could not be saved; nothing was changed.
    pub async fn reset_access_states(
        self: &Arc<Self>,
        actor: &Actor,
        target: &str,
    ) -> Result<(), ChangeError> {
        let device = self
            .device(target)
            .ok_or_else(|| ChangeError::NotFound(format!("targets/{target}")))?;
        // To its end, even when whoever asked for it goes away.
        let (this, actor) = (Arc::clone(self), actor.clone());
        let task = tokio::spawn(async move { this.reset(&actor, &device).await });
        task.await.expect("it does not panic and is not aborted")
    }

    async fn reset(&self, actor: &Actor, device: &TargetDevice) -> Result<(), ChangeError> {
        let before = TargetStates::of(device);
        device.reset_access_states().await.map_err(|_| {
            let fix = "free some space or check the disk, then try again";
            StateError::new(&self.directory.join("units"), "it could not be saved", fix)
        })?;
        let text = format!(
            "states of portal groups of target {} were reset by hand",
            before.target
        );
        info!("{text}, by {actor}");
        self.events.record(
            Event::new(EventKind::AccessStatesReset, text)
                .by(actor)
                .with(json!({ "before": before })),
        );
        Ok(())
    }

    fn device(&self, target: &str) -> Option<Arc<TargetDevice>> {
        let live = self.live();
        live.devices().find(|device| device.name().as_str() == target)
    }
}

impl TargetStates {
    fn of(device: &TargetDevice) -> Self {
        Self {
            target: device.name().to_string(),
            groups: device.port_groups().into_iter().map(GroupState::from).collect(),
        }
    }
}

impl From<GroupView> for GroupState {
    fn from(view: GroupView) -> Self {
        Self {
            group: view.number,
            state: match view.state {
                AccessState::ActiveOptimized => PathState::Optimized,
                AccessState::ActiveNonOptimized => PathState::NonOptimized,
                AccessState::Standby => PathState::Standby,
                AccessState::Unavailable => PathState::Unavailable,
            },
            set_by: match view.cause {
                StateCause::None => None,
                StateCause::Explicit => Some(SetBy::Initiator),
                StateCause::Implicit => Some(SetBy::Administrator),
            },
        }
    }
}
