//! The configuration and what really runs, looked at once for a page: a LUN that is configured is not yet one that is
//! served, and a page says which it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use management::control::SessionStatus;
use management::live::{Condition, StoreStatus};
use management::model::{LunMap, Model, Place, Store, Target, Unit};

use super::show;
use crate::Web;

/// Model and live state of one moment.
pub(crate) struct Snapshot {
    /// What is configured.
    pub(crate) model: Arc<Model>,
    stores: BTreeMap<String, StoreStatus>,
    refused: BTreeMap<String, String>,
    served: BTreeSet<String>,
    sessions: Vec<SessionStatus>,
}

/// A word about a thing, and its colour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Status {
    /// `ok`, `warn`, `bad`, or nothing.
    pub(crate) tone: &'static str,
    /// In a word or two.
    pub(crate) word: &'static str,
    /// Why, when it is not as it should be.
    pub(crate) why: Option<String>,
}

/// A LUN as lists show it.
#[derive(Clone, Debug)]
pub(crate) struct LunRow {
    pub(crate) target: String,
    pub(crate) lun: u16,
    /// Where its page is.
    pub(crate) href: String,
    pub(crate) unit: String,
    pub(crate) store: String,
    /// Size for people; empty when it is not known.
    pub(crate) size: String,
    pub(crate) status: Status,
    pub(crate) read_only: bool,
    /// Sessions at its target.
    pub(crate) sessions: usize,
}

impl Snapshot {
    pub(crate) fn of(web: &Web) -> Self {
        let control = web.control();
        Self {
            model: control.model(),
            stores: control
                .store_statuses()
                .into_iter()
                .map(|status| (status.id.clone(), status))
                .collect(),
            refused: control.refused_units().into_iter().collect(),
            served: control.units().into_iter().map(|(id, _)| id).collect(),
            sessions: control.sessions(),
        }
    }

    /// How a store is; `None` when there is none of this id.
    pub(crate) fn store(&self, id: &str) -> Option<&StoreStatus> {
        self.stores.get(id)
    }

    /// The sessions of a target.
    pub(crate) fn sessions_of<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a SessionStatus> {
        self.sessions
            .iter()
            .filter(move |session| session.target.as_deref() == Some(target))
    }

    /// How many sessions each target has.
    pub(crate) fn sessions_by_target(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for target in self
            .sessions
            .iter()
            .filter_map(|session| session.target.as_deref())
        {
            *counts.entry(target).or_insert(0) += 1;
        }
        counts
    }

    /// Whether a logical unit is served, and why not.
    pub(crate) fn unit_status(&self, unit: &Unit) -> Status {
        if !unit.enabled {
            return Status::new("", "switched off");
        }
        if let Some(store) = self.stores.get(unit.store.as_str())
            && store.condition == Condition::Missing
        {
            return Status::new("bad", "store missing").because(store.problem.clone());
        }
        if let Some(problem) = self.refused.get(unit.id.as_str()) {
            return Status::new("bad", "not served").because(Some(problem.clone()));
        }
        if self.served.contains(unit.id.as_str()) {
            return Status::new("ok", "ready");
        }
        Status::new("bad", "not served")
    }

    /// A LUN as lists show it.
    pub(crate) fn lun(&self, map: &LunMap) -> LunRow {
        let (target, unit) = (map.target.to_string(), self.model.get::<Unit>(map.unit.as_str()));
        let is_on = self
            .model
            .get::<Target>(&target)
            .is_some_and(|target| target.enabled);
        let status = match unit {
            Some(_) if !is_on => Status::new("", "target off"),
            Some(unit) => self.unit_status(unit),
            None => Status::new("bad", "not served"),
        };
        let store = unit.map(|unit| unit.store.to_string()).unwrap_or_default();
        LunRow {
            href: lun_href(&target, map.lun),
            lun: map.lun,
            unit: map.unit.to_string(),
            size: self.size_of(&store).map(show::bytes).unwrap_or_default(),
            status,
            read_only: self
                .model
                .get::<Store>(&store)
                .is_some_and(|store| store.read_only),
            sessions: self.sessions_of(&target).count(),
            store,
            target,
        }
    }

    /// Size of a store: as it is, or as it should be while it is missing.
    pub(crate) fn size_of(&self, store: &str) -> Option<u64> {
        let open = self.stores.get(store).and_then(|status| status.size);
        open.or_else(|| match self.model.get::<Store>(store)?.place {
            Place::Block { .. } => None,
            Place::File { size, .. } => size,
            Place::Memory { size } | Place::Null { size } => Some(size),
        })
    }
}

impl Status {
    const fn new(tone: &'static str, word: &'static str) -> Self {
        Self {
            tone,
            word,
            why: None,
        }
    }

    fn because(self, why: Option<String>) -> Self {
        Self { why, ..self }
    }
}

/// The page of a LUN.
pub(crate) fn lun_href(target: &str, lun: u16) -> String {
    format!("/luns/{}/{lun}", show::segment(target))
}

/// The page of a target.
pub(crate) fn target_href(target: &str) -> String {
    format!("/targets/{}", show::segment(target))
}
