//! Which sessions a step would disturb.

use serde::{Deserialize, Serialize};
use target_core::iscsi::SessionView;
use utoipa::ToSchema;

use super::stores::is_reopened;
use super::targets;
use crate::model::{Kind, LunMap, Model, Name, Store, Target, Unit};
use crate::state::differences;

/// Something that sessions use and a change takes away.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct InUse {
    /// `kind/key`.
    pub path: String,
    /// What would happen to them.
    pub problem: String,
    /// What can be done about it.
    pub fix: String,
    /// Whether `force` does it all the same.
    pub forcible: bool,
    /// The sessions.
    pub sessions: Vec<UsingSession>,
}

/// A session that uses something.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct UsingSession {
    /// Its handle.
    pub tsih: u16,
    /// The initiator's name.
    pub initiator: String,
    /// Where it comes from.
    pub peer: String,
    /// The target.
    pub target: String,
}

impl UsingSession {
    pub(crate) fn of(session: &SessionView) -> Self {
        Self {
            tsih: session.tsih.0,
            initiator: session.initiator.name.to_string(),
            peer: session.peer.to_string(),
            target: session
                .target
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        }
    }
}

/// What a step takes from living sessions.
pub(super) fn of_step(before: &Model, after: &Model, sessions: &[SessionView]) -> Vec<InUse> {
    if sessions.iter().all(|session| session.target.is_none()) {
        return Vec::new();
    }
    let mut uses = Uses {
        sessions,
        found: Vec::new(),
    };
    for (kind, key) in differences(before, after) {
        match kind {
            Kind::Target => uses.target(before, after, &key),
            Kind::Lun => uses.lun(before, after, &key),
            Kind::Unit => uses.unit(before, after, &key),
            Kind::Store => uses.store(before, after, &key),
            Kind::Access
            | Kind::Advertised
            | Kind::Credential
            | Kind::Group
            | Kind::Initiator
            | Kind::Portal
            | Kind::Settings
            | Kind::Token
            | Kind::User => {}
        }
    }
    uses.rights(before, after);
    uses.found
}

struct Uses<'a> {
    sessions: &'a [SessionView],
    found: Vec<InUse>,
}

impl Uses<'_> {
    fn of_target(&self, target: &Name) -> Vec<UsingSession> {
        let of_target = self
            .sessions
            .iter()
            .filter(|session| session.target.as_ref() == Some(&target.0));
        of_target.map(UsingSession::of).collect()
    }

    /// Sessions that came by a portal group which is none of the target's.
    fn shut_out(&self, target: &Target) -> Vec<UsingSession> {
        let of_target = self
            .sessions
            .iter()
            .filter(|session| session.target.as_ref() == Some(&target.name.0));
        let shut_out = of_target.filter(|session| {
            let leads = |group: iscsi_proto::Tpgt| target.portal_groups.contains(&group.0);
            !target.portal_groups.is_empty() && !session.portal_group.is_some_and(leads)
        });
        shut_out.map(UsingSession::of).collect()
    }

    fn add(&mut self, path: String, problem: &str, sessions: Vec<UsingSession>) {
        if !sessions.is_empty() && !self.found.iter().any(|use_| use_.path == path) {
            self.found.push(InUse {
                path,
                problem: problem.to_owned(),
                fix: "log these initiators out first, or repeat with force=true".to_owned(),
                forcible: true,
                sessions,
            });
        }
    }

    fn target(&mut self, before: &Model, after: &Model, key: &str) {
        let Some(old) = before.get::<Target>(key).filter(|target| target.enabled) else {
            return;
        };
        let problem = match after.get::<Target>(key) {
            None => "these sessions would be closed: their target goes",
            Some(new) if !new.enabled => "these sessions would be closed: their target is switched off",
            Some(new) => {
                let problem =
                    "these sessions would be closed: their target is reached by other portal groups only";
                let path = format!("targets/{key}/portal_groups");
                return self.add(path, problem, self.shut_out(new));
            }
        };
        self.add(format!("targets/{key}"), problem, self.of_target(&old.name));
    }

    fn lun(&mut self, before: &Model, after: &Model, key: &str) {
        let Some(old) = before.get::<LunMap>(key) else {
            return;
        };
        if after.get::<LunMap>(key).is_none_or(|new| new.unit != old.unit) {
            let problem = "these sessions would lose the disk, and commands under way would be aborted";
            self.add(format!("luns/{key}"), problem, self.of_target(&old.target));
        }
    }

    fn unit(&mut self, before: &Model, after: &Model, key: &str) {
        let Some(old) = before.get::<Unit>(key).filter(|unit| unit.enabled) else {
            return;
        };
        if after.get::<Unit>(key) == Some(old) {
            return;
        }
        let problem = "these sessions would lose the disk, or see another one in its place";
        self.add(format!("units/{key}"), problem, self.of_unit(before, key));
    }

    fn store(&mut self, before: &Model, after: &Model, key: &str) {
        let Some(old) = before.get::<Store>(key) else {
            return;
        };
        if after.get::<Store>(key).is_some_and(|new| !is_reopened(old, new)) {
            return;
        }
        let units: Vec<_> = before
            .all::<Unit>()
            .filter(|unit| unit.store.as_str() == key)
            .collect();
        let sessions = units
            .iter()
            .flat_map(|unit| self.of_unit(before, unit.id.as_str()))
            .collect();
        let problem = "the store would be opened anew, and commands of these sessions aborted";
        self.add(format!("stores/{key}"), problem, sessions);
    }

    fn of_unit(&self, model: &Model, unit: &str) -> Vec<UsingSession> {
        let maps = model.all::<LunMap>().filter(|map| map.unit.as_str() == unit);
        maps.flat_map(|map| self.of_target(&map.target)).collect()
    }

    /// Sessions that a rule let in and none does any more.
    fn rights(&mut self, before: &Model, after: &Model) {
        let rights = |model: &Model, target: &Target, session: &SessionView| {
            targets::access(model, target).admits(&session.initiator.name, session.peer.ip())
        };
        let mut losers: Vec<(String, UsingSession)> = Vec::new();
        for session in self.sessions {
            let Some(name) = &session.target else { continue };
            let (old, new) = (
                before.get::<Target>(name.as_str()),
                after.get::<Target>(name.as_str()),
            );
            let (Some(old), Some(new)) = (old, new) else {
                continue;
            };
            if rights(before, old, session) && !rights(after, new, session) {
                losers.push((format!("targets/{name}/access"), UsingSession::of(session)));
            }
        }
        losers.sort_by(|(one, _), (other, _)| one.cmp(other));
        for chunk in losers.chunk_by(|(one, _), (other, _)| one == other) {
            let sessions = chunk.iter().map(|(_, session)| session.clone()).collect();
            let problem = "these sessions would be closed: no rule admits them any more";
            self.add(chunk[0].0.clone(), problem, sessions);
        }
    }
}
