//! One change: edits applied to a copy of the model, checked whole, saved, followed. Or refused, and then nothing has
//! happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tracing::warn;

use super::Control;
use crate::access::Actor;
use crate::diff::{Action, Difference, diff};
use crate::events::{Event, EventKind};
use crate::identity::UnitIdentity;
use crate::live::InUse;
use crate::model::{AnyObject, Kind, Model, Place, Problem, Role, Store, Unit, absent, validate};
use crate::state::{State, StateError};

/// What is to be changed, and on which conditions.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Applied in order.
    pub edits: Vec<Edit>,
    /// All must hold, or nothing is done.
    pub preconditions: Vec<Precondition>,
    /// Do it even where sessions lose something by it.
    pub force: bool,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// Remove the files of stores that are deleted.
    pub delete_data: bool,
}

/// One edit.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Takes an object away; nothing happens when there is none.
    Delete(Kind, String),
    /// Takes away every object of the configuration that is not among these.
    Prune(Vec<(Kind, String)>),
    /// Makes an object what it is to be.
    Put(AnyObject),
}

/// What must hold for a change to be made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Precondition {
    /// There is no such object.
    Absent(Kind, String),
    /// The state has this generation.
    Generation(u64),
    /// There is such an object.
    Present(Kind, String),
    /// The object has this revision.
    Revision(Kind, String, u64),
}

/// A change that was made, or would be.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The generation it made; the present one for a dry run, or when nothing was different.
    pub generation: u64,
    /// What was different.
    pub differences: Vec<Difference>,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// What would be different.
    pub differences: Vec<Difference>,
    /// What sessions would lose by it.
    pub uses: Vec<InUse>,
}

/// A change that was not made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// An object of this path is there already.
    #[error("{0} is there already")]
    Exists(String),
    /// Sessions would lose something.
    #[error("in use: {}", .0.iter().map(|it| it.path.as_str()).collect::<Vec<_>>().join(", "))]
    InUse(Vec<InUse>),
    /// The model would make no sense, or what it needs cannot be had.
    #[error("{}", .0.iter().map(|it| format!("{}: {}", it.path, it.problem)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
    /// There is no object of this path.
    #[error("there is no {0}")]
    NotFound(String),
    /// The actor's role does not go as far.
    #[error("{0} is for administrators to change")]
    NotAllowed(&'static str),
    /// It could not be saved.
    #[error(transparent)]
    NotSaved(#[from] StateError),
    /// Somebody else changed it in between.
    #[error("{0} was changed by somebody else in between")]
    Stale(String),
}

impl Change {
    /// A change with these edits and no conditions.
    #[must_use]
    pub fn of(edits: Vec<Edit>) -> Self {
        Self {
            edits,
            ..Self::default()
        }
    }
}

impl Control {
    /// Makes a change, or says why not. It goes on to its end when the caller stops waiting for it.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn change(self: &Arc<Self>, actor: &Actor, change: Change) -> Result<Outcome, ChangeError> {
        let (this, actor) = (Arc::clone(self), actor.clone());
        let task = tokio::spawn(async move { this.make(&actor, change).await });
        task.await.expect("a change does not panic and is not aborted")
    }

    /// What a change would do, and to which sessions, for who has to decide. Nothing is opened for it, so a change may
    /// still be refused for what it needs.
    ///
    /// # Errors
    /// It would be refused.
    pub fn preview(&self, change: &Change) -> Result<Preview, ChangeError> {
        let before = self.model();
        check_preconditions(&before, &change.preconditions)?;
        let imagined = Change {
            dry_run: true,
            ..change.clone()
        };
        let after = self.edited(&before, &imagined)?;
        Ok(Preview {
            differences: diff(&before, &after),
            uses: self.live().usage(&before, &after),
        })
    }

    async fn make(self: Arc<Self>, actor: &Actor, change: Change) -> Result<Outcome, ChangeError> {
        let state = Arc::clone(&self.writer).lock_owned().await;
        let before = self.model();
        check_preconditions(&before, &change.preconditions)?;
        let after = self.edited(&before, &change)?;
        check_role(actor, &before, &after)?;
        let differences = diff(&before, &after);
        if differences.is_empty() || change.dry_run {
            let generation = before.generation;
            return Ok(Outcome {
                generation,
                differences,
            });
        }
        let uses = self.live().usage(&before, &after);
        if uses.iter().any(|use_| !change.force || !use_.forcible) {
            return Err(ChangeError::InUse(uses));
        }
        let after = Arc::new(after);
        let (preparation, old, new) = (self.live().preparation(), Arc::clone(&before), Arc::clone(&after));
        let prepared = blocking(move || preparation.prepare(&old, &new))
            .await
            .map_err(ChangeError::Invalid)?;
        let state = save(state, &before, &after).await?;
        self.set_model(Arc::clone(&after));
        self.live().follow(&after, prepared);
        self.look_after_grown(&before, &after).await;
        if change.delete_data {
            self.remove_files(&before, &after);
        }
        drop(state);
        self.record(actor, &differences, after.generation);
        Ok(Outcome {
            generation: after.generation,
            differences,
        })
    }

    /// The model with the edits in it, validated.
    fn edited(&self, before: &Model, change: &Change) -> Result<Model, ChangeError> {
        let mut after = before.clone();
        after.generation += 1;
        let generation = after.generation;
        for edit in &change.edits {
            match edit {
                Edit::Delete(kind, key) => {
                    after.remove(*kind, key);
                }
                Edit::Prune(kept) => prune(&mut after, kept),
                Edit::Put(object) => object.clone().put(&mut after, generation),
            }
        }
        if !change.dry_run {
            self.give_identities(&mut after);
        }
        let problems = validate(&after, &self.directory);
        if problems.is_empty() {
            Ok(after)
        } else {
            Err(ChangeError::Invalid(of_deletion(before, &after, problems)))
        }
    }

    /// Identities are made once, here, and saved with the unit.
    fn give_identities(&self, model: &mut Model) {
        let generation = model.generation;
        let nameless = model
            .all::<Unit>()
            .filter(|unit| unit.naa.is_none() || unit.serial.is_none());
        for mut unit in nameless.cloned().collect::<Vec<_>>() {
            let identity = UnitIdentity::random(self.entropy);
            let naa = format!("{:016x}", u64::from_be_bytes(identity.naa));
            unit.naa.get_or_insert(naa);
            unit.serial.get_or_insert(identity.serial);
            AnyObject::Unit(unit).put(model, generation);
        }
    }

    fn remove_files(&self, before: &Model, after: &Model) {
        for store in before
            .all::<Store>()
            .filter(|store| after.get::<Store>(store.id.as_str()).is_none())
        {
            let Place::File { path, .. } = &store.place else {
                continue;
            };
            let own = self.directory.join(path);
            let tags = store
                .source(&self.directory)
                .beside()
                .filter(|path| store.protection && path.exists());
            for path in std::iter::once(own).chain(tags) {
                if let Err(error) = fs::remove_file(&path) {
                    warn!(store = %store.id, path = %path.display(), %error, "the file could not be removed");
                }
            }
        }
    }

    fn record(&self, actor: &Actor, differences: &[Difference], generation: u64) {
        let words = differences.iter().take(SHOWN).map(|difference| {
            let verb = match difference.action {
                Action::Change => "changed",
                Action::Create => "created",
                Action::Delete => "deleted",
            };
            format!("{verb} {}", difference.path)
        });
        let mut text = words.collect::<Vec<_>>().join(", ");
        if differences.len() > SHOWN {
            text.push_str(&format!(" and {} more", differences.len() - SHOWN));
        }
        let recorded: Vec<_> = differences.iter().take(RECORDED).collect();
        self.events.record(
            Event::new(EventKind::Changed, text).by(actor).with(
                json!({"generation": generation, "objects": differences.len(), "differences": recorded}),
            ),
        );
    }
}

/// What is missed because the change deletes it is told as that: whoever deletes it knows that it is there.
fn of_deletion(before: &Model, after: &Model, problems: Vec<Problem>) -> Vec<Problem> {
    let mut deleted = BTreeMap::new();
    for kind in Kind::ALL {
        let kept: BTreeSet<_> = after.keys(*kind).into_iter().collect();
        let gone = before.keys(*kind).into_iter().filter(|key| !kept.contains(key));
        deleted.extend(gone.map(|key| (absent(*kind, &key), format!("{}/{key}", kind.path()))));
    }
    let told = |problem: Problem| match deleted.get(&problem.problem) {
        None => problem,
        Some(gone) => Problem::new(
            problem.path,
            format!("needs {gone}, which is to be deleted"),
            "delete or change this first, or in the same change",
        ),
    };
    problems.into_iter().map(told).collect()
}

fn prune(model: &mut Model, kept: &[(Kind, String)]) {
    for kind in Kind::ALL.iter().copied().filter(|kind| kind.is_configuration()) {
        let kept: BTreeSet<&str> = kept
            .iter()
            .filter(|(it, _)| *it == kind)
            .map(|(_, key)| key.as_str())
            .collect();
        for key in model.keys(kind) {
            if !kept.contains(key.as_str()) {
                model.remove(kind, &key);
            }
        }
    }
}

fn check_preconditions(model: &Model, preconditions: &[Precondition]) -> Result<(), ChangeError> {
    for precondition in preconditions {
        match precondition {
            Precondition::Absent(kind, key) if model.revision(*kind, key).is_some() => {
                return Err(ChangeError::Exists(format!("{}/{key}", kind.path())));
            }
            Precondition::Present(kind, key) | Precondition::Revision(kind, key, _)
                if model.revision(*kind, key).is_none() =>
            {
                return Err(ChangeError::NotFound(format!("{}/{key}", kind.path())));
            }
            Precondition::Generation(wanted) if *wanted != model.generation => {
                return Err(ChangeError::Stale("the configuration".to_owned()));
            }
            Precondition::Revision(kind, key, wanted) if model.revision(*kind, key) != Some(*wanted) => {
                return Err(ChangeError::Stale(format!("{}/{key}", kind.path())));
            }
            Precondition::Absent(..)
            | Precondition::Generation(_)
            | Precondition::Present(..)
            | Precondition::Revision(..) => {}
        }
    }
    Ok(())
}

/// Roots say which files and devices of the host can be read and written at all: not a matter of serving disks.
fn check_role(actor: &Actor, before: &Model, after: &Model) -> Result<(), ChangeError> {
    let is_changed = before.settings().store_roots != after.settings().store_roots;
    if is_changed && actor.role < Role::Admin {
        return Err(ChangeError::NotAllowed("settings/node/store_roots"));
    }
    Ok(())
}

/// Saves the step on a thread that may wait.
async fn save(
    mut state: OwnedMutexGuard<State>,
    before: &Arc<Model>,
    after: &Arc<Model>,
) -> Result<OwnedMutexGuard<State>, StateError> {
    let (before, after) = (Arc::clone(before), Arc::clone(after));
    blocking(move || state.commit(&before, &after).map(|()| state)).await
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .expect("this work does not panic, and blocking work is not aborted")
}

/// Differences named in the line of an event.
const SHOWN: usize = 3;
/// Differences kept in an event whole.
const RECORDED: usize = 100;
