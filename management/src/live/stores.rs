//! Stores, open or missing. A store that cannot be opened at a start is missing: it keeps its place in the configuration
//! and is tried again until it is there. A store that a change brings must be there, or the change is refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use backstores::{BlockStore, StoreSource};
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;

use crate::model::{Model, Object, Place, Problem, Store};
use crate::state::leads_to_own;

/// How a store is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct StoreStatus {
    /// Its id.
    pub id: String,
    /// Open or missing.
    pub condition: Condition,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Since when it is missing, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<u64>,
    /// Size in bytes, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Logical block size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// Bytes it takes where it is kept; less than its size when it is sparse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// Acknowledged writes may rest in a cache until they are flushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile_cache: Option<bool>,
}

/// Whether a store can be used.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// It cannot be opened; its LUNs are not there until it can.
    Missing,
    /// It is open.
    Open,
}

/// All stores of the model.
#[derive(Debug)]
pub(crate) struct Stores {
    base: PathBuf,
    all: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    definition: Store,
    state: State,
}

#[derive(Debug)]
enum State {
    Missing { problem: String, since: SystemTime },
    Open(Arc<dyn BlockStore>),
}

/// A definition and the store it leads to.
type Opened = (Store, Arc<dyn BlockStore>);

/// A definition and what came of it.
type Tried = (Store, Result<Arc<dyn BlockStore>, String>);

/// A way to open a store.
type Opener = fn(&Store, &Path) -> Result<Arc<dyn BlockStore>, String>;

/// Stores opened for a change that is not saved yet. Files made for it go again unless it is kept.
#[derive(Debug, Default)]
pub(super) struct PreparedStores {
    opened: Vec<Opened>,
    created: Vec<PathBuf>,
    /// Files that were made longer, with the length they had.
    grown: Vec<(PathBuf, u64)>,
}

/// Whether a store has to be opened anew to become what it is to be. A file that is only longer is not: the store looks.
pub(super) fn is_reopened(old: &Store, new: &Store) -> bool {
    let with_size_of_new = match (&old.place, &new.place) {
        (Place::File { path, .. }, Place::File { size, .. }) => Place::File {
            path: path.clone(),
            size: *size,
        },
        (place, _) => place.clone(),
    };
    let old = Store {
        place: with_size_of_new,
        ..old.clone()
    };
    old != *new
}

impl Stores {
    pub(super) const fn new(base: PathBuf) -> Self {
        Self {
            base,
            all: BTreeMap::new(),
        }
    }

    /// Opens every store of a model, several at a time: a thousand files take a moment each.
    pub(super) fn open_all(&mut self, model: &Model) {
        let wanted: Vec<_> = model.all::<Store>().cloned().collect();
        for (definition, result) in self.open_many(wanted, open_known) {
            let key = definition.key();
            let state = match result {
                Ok(store) => State::Open(store),
                Err(problem) => {
                    warn!(store = key, "missing: {problem}");
                    State::Missing {
                        problem,
                        since: SystemTime::now(),
                    }
                }
            };
            self.all.insert(key, Entry { definition, state });
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<dyn BlockStore>> {
        match &self.all.get(id)?.state {
            State::Open(store) => Some(Arc::clone(store)),
            State::Missing { .. } => None,
        }
    }

    pub(super) fn open(&self) -> Vec<(String, Arc<dyn BlockStore>)> {
        self.all
            .keys()
            .filter_map(|id| Some((id.clone(), self.get(id)?)))
            .collect()
    }

    /// Definitions of the stores that are missing.
    pub(crate) fn missing(&self) -> Vec<Store> {
        let entries = self.all.values();
        let missing = entries.filter(|entry| matches!(entry.state, State::Missing { .. }));
        missing.map(|entry| entry.definition.clone()).collect()
    }

    /// The folder of relative paths.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// How all of them are.
    pub(crate) fn statuses(&self) -> Vec<StoreStatus> {
        self.all
            .iter()
            .map(|(id, entry)| entry.status(id, &self.base))
            .collect()
    }

    /// Opens the stores that a step brings, and makes files longer that it grows.
    pub(super) fn prepare(&self, before: &Model, after: &Model) -> Result<PreparedStores, Vec<Problem>> {
        check_descriptors(after)?;
        let mut prepared = PreparedStores::default();
        let mut problems = Vec::new();
        let mut wanted = Vec::new();
        for store in after.all::<Store>() {
            match before.get::<Store>(store.id.as_str()) {
                None => wanted.push(store.clone()),
                Some(old) if old != store => {
                    problems.extend(self.grow(old, store, &mut prepared).err());
                }
                Some(_) => {}
            }
        }
        let absent = |store: &Store| -> Vec<PathBuf> {
            let source = store.source(&self.base);
            let tags = source.beside().filter(|_| store.protection);
            let file = match source {
                StoreSource::File { path, .. } => Some(path),
                _ => None,
            };
            file.into_iter()
                .chain(tags)
                .filter(|path| !path.exists())
                .collect()
        };
        let absent: BTreeMap<_, _> = wanted.iter().map(|store| (store.key(), absent(store))).collect();
        for (definition, result) in self.open_many(wanted, open_one) {
            match result {
                Ok(store) => {
                    prepared
                        .created
                        .extend(absent.get(&definition.key()).into_iter().flatten().cloned());
                    prepared.opened.push((definition, store));
                }
                Err(problem) => {
                    let fix = "correct the store, or what the message names";
                    problems.push(Problem::new(
                        format!("stores/{}/place", definition.id),
                        problem,
                        fix,
                    ));
                }
            }
        }
        if problems.is_empty() {
            Ok(prepared)
        } else {
            Err(problems)
        }
    }

    /// Stores that have to be let go of before they are opened as the model wants them now.
    pub(super) fn reopened(&self, after: &Model) -> Vec<String> {
        let entries = self.all.iter();
        let changed = entries.filter(|(id, entry)| {
            after
                .get::<Store>(id)
                .is_none_or(|new| is_reopened(&entry.definition, new))
        });
        changed.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn follow(&mut self, after: &Model, prepared: PreparedStores) {
        for id in self.reopened(after) {
            self.all.remove(&id);
        }
        for (definition, store) in prepared.keep() {
            let state = State::Open(store);
            self.all.insert(definition.key(), Entry { definition, state });
        }
        for store in after.all::<Store>() {
            let key = store.key();
            if let Some(entry) = self.all.get_mut(&key) {
                entry.definition = store.clone();
            } else {
                // An operation of before may still hold the file for a moment: then it is missing until it does not.
                let state = match open_known(store, &self.base) {
                    Ok(open) => State::Open(open),
                    Err(problem) => State::Missing {
                        problem,
                        since: SystemTime::now(),
                    },
                };
                let definition = store.clone();
                self.all.insert(key, Entry { definition, state });
            }
        }
    }

    /// Takes stores that were opened again, unless the model has changed its mind meanwhile. The ids of those taken.
    pub(super) fn take_back(
        &mut self,
        model: &Model,
        found: Vec<(String, Arc<dyn BlockStore>)>,
    ) -> Vec<String> {
        let mut taken = Vec::new();
        for (id, store) in found {
            let Some(entry) = self.all.get_mut(&id) else {
                continue;
            };
            let is_missing = matches!(entry.state, State::Missing { .. });
            if is_missing && model.get::<Store>(&id) == Some(&entry.definition) {
                entry.state = State::Open(store);
                taken.push(id);
            }
        }
        taken
    }

    /// A file is made longer, never shorter; any other change of place is another store.
    fn grow(&self, old: &Store, new: &Store, prepared: &mut PreparedStores) -> Result<(), Problem> {
        let refuse = |field: &str, problem: String, fix: &str| {
            Err(Problem::new(format!("stores/{}/{field}", new.id), problem, fix))
        };
        let (Place::File { path: old_path, .. }, Place::File { path, size }) = (&old.place, &new.place)
        else {
            if old.place != new.place {
                return refuse(
                    "place",
                    "a store does not move and does not change its size".to_owned(),
                    "make another store",
                );
            }
            return Ok(());
        };
        if old_path != path {
            return refuse(
                "place/path",
                "a store does not move".to_owned(),
                "make another store",
            );
        }
        if old.place == new.place {
            return Ok(());
        }
        let Some(size) = *size else { return Ok(()) };
        let path = self.base.join(path);
        let has = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) => return refuse("place/path", error.to_string(), "bring the file back first"),
        };
        if size < has {
            return refuse(
                "place/size",
                format!("the file has {has} bytes, and shrinking it would cut data off"),
                "leave the size as it is, or copy the data to a smaller store",
            );
        }
        if size > has {
            let grown = File::options().write(true).open(&path).and_then(|file| {
                file.set_len(size)?;
                file.sync_all()
            });
            prepared.grown.push((path, has));
            if let Err(error) = grown {
                return refuse(
                    "place/size",
                    error.to_string(),
                    "check space and limits of the file system",
                );
            }
        }
        Ok(())
    }

    fn open_many(&self, wanted: Vec<Store>, open_it: Opener) -> Vec<Tried> {
        if wanted.len() < 2 * OPENERS {
            let open = |store: Store| {
                let result = open_it(&store, &self.base);
                (store, result)
            };
            return wanted.into_iter().map(open).collect();
        }
        let share = wanted.len().div_ceil(OPENERS);
        std::thread::scope(|scope| {
            let open = |stores: &[Store]| -> Vec<_> {
                stores
                    .iter()
                    .map(|store| (store.clone(), open_it(store, &self.base)))
                    .collect()
            };
            let openers: Vec<_> = wanted
                .chunks(share)
                .map(|stores| scope.spawn(move || open(stores)))
                .collect();
            openers
                .into_iter()
                .flat_map(|opener| opener.join().expect("opening a store does not panic"))
                .collect()
        })
    }
}

impl Entry {
    fn status(&self, id: &str, base: &Path) -> StoreStatus {
        let mut status = StoreStatus {
            id: id.to_owned(),
            condition: Condition::Missing,
            problem: None,
            missing_since: None,
            size: None,
            block_size: None,
            allocated: None,
            volatile_cache: None,
        };
        match &self.state {
            State::Missing { problem, since } => {
                status.problem = Some(problem.clone());
                let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                status.missing_since = Some(since.as_secs());
            }
            State::Open(store) => {
                let geometry = store.geometry();
                status.condition = Condition::Open;
                status.size = Some(geometry.size);
                status.block_size = Some(geometry.block_size);
                status.volatile_cache = Some(geometry.volatile_cache);
                status.allocated = allocated(&self.definition, base);
            }
        }
        status
    }
}

impl PreparedStores {
    /// The change is saved: what was made for it stays.
    fn keep(mut self) -> Vec<Opened> {
        self.created.clear();
        self.grown.clear();
        std::mem::take(&mut self.opened)
    }
}

impl Drop for PreparedStores {
    fn drop(&mut self) {
        self.opened.clear();
        for path in &self.created {
            if let Err(error) = fs::remove_file(path) {
                warn!(path = %path.display(), %error, "a file made for a refused change could not be removed");
            }
        }
        for (path, len) in &self.grown {
            let back = File::options()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(*len));
            if let Err(error) = back {
                warn!(path = %path.display(), %error, "a file grown for a refused change could not be cut back");
            }
        }
    }
}

/// Opens a store as its definition says.
pub(crate) fn open_one(store: &Store, base: &Path) -> Result<Arc<dyn BlockStore>, String> {
    for path in [store.path(), store.encrypt.as_deref()].into_iter().flatten() {
        if leads_to_own(base, path) {
            let path = path.display();
            return Err(format!(
                "{path}: leads to the program's own state, which is no disk"
            ));
        }
    }
    let (source, options) = (store.source(base), store.options());
    let opened = match &store.encrypt {
        None => backstores::open(&source, options),
        Some(key_file) => backstores::open_encrypted(&source, options, &base.join(key_file)),
    };
    opened.map_err(|error| error.to_string())
}

/// Opens a store that was there before. A file that is gone is not made anew: hosts would find an empty disk under the
/// name of theirs, and the file may be back when its file system is mounted.
pub(crate) fn open_known(store: &Store, base: &Path) -> Result<Arc<dyn BlockStore>, String> {
    if let Place::File { path, size: Some(_) } = &store.place
        && let Err(error) = fs::metadata(base.join(path))
    {
        return Err(format!("{}: {error}", path.display()));
    }
    open_one(store, base)
}

fn allocated(store: &Store, base: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let Place::File { path, .. } = &store.place else {
        return None;
    };
    Some(fs::metadata(base.join(path)).ok()?.blocks() * 512)
}

/// Each file and device needs a descriptor: said before, rather than found out halfway.
fn check_descriptors(after: &Model) -> Result<(), Vec<Problem>> {
    let needed = after
        .all::<Store>()
        .filter(|store| store.path().is_some())
        .count() as u64
        + DESCRIPTORS_KEPT;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if needed > limit => Err(vec![Problem::new(
            "stores",
            format!("these stores need {needed} open files, and the limit (ulimit -n) is {limit}"),
            format!("raise the limit of open files to {needed} or more, or have fewer stores"),
        )]),
        _ => Ok(()),
    }
}

/// Threads that open stores.
const OPENERS: usize = 8;
/// Open files for everything else.
const DESCRIPTORS_KEPT: u64 = 128;
