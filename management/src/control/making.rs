//! A store whose file takes time to be made. It is made beside its place under another name, moved there when all of it
//! is durable, and entered only then; of one that is cancelled or cannot be made nothing is left. How the content comes
//! is told by `duplicate.rs` and `zeroed.rs`, what becomes of one that the program's end cuts off by `left.rs`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};
use serde_json::json;
use tracing::{info, warn};

use super::change::blocking;
use super::jobs::{RUNNING_MAX, Running};
use super::left::Record;
use super::{Change, ChangeError, Control, Edit, JobKind, JobState, Precondition};
use crate::access::Actor;
use crate::events::{Event, EventKind};
use crate::model::{AnyObject, Kind, Object, Place, Problem, Store};
use crate::state::{MakingRecords, leads_to_own};

/// A store that is being made.
pub(super) struct Making {
    /// As it will be entered. A file.
    pub(super) store: Store,
    /// Made when the file is there; enters the store.
    change: Change,
    pub(super) job: Arc<Running>,
}

/// A store that was not made.
#[derive(Debug)]
pub(super) enum Stopped {
    Cancelled,
    Failed(String),
}

/// The change that enters a store alone.
pub(super) fn entry(store: &Store) -> Change {
    Change {
        preconditions: vec![Precondition::Absent(Kind::Store, store.key())],
        ..Change::of(vec![Edit::Put(AnyObject::Store(store.clone()))])
    }
}

impl Control {
    /// Whether a change that enters a store could be made now, and nothing is in the way of its file.
    pub(super) async fn check_making(
        self: &Arc<Self>,
        actor: &Actor,
        store: &Store,
        change: &Change,
    ) -> Result<(), ChangeError> {
        let dry_run = Change {
            dry_run: true,
            ..change.clone()
        };
        self.change(actor, dry_run).await?;
        let (store, base) = (store.clone(), self.directory.clone());
        blocking(move || check_free(&store, &base))
            .await
            .map_err(|problem| ChangeError::Invalid(vec![problem]))
    }

    /// Enters the job, of `total` bytes.
    pub(super) async fn enter_making(
        &self,
        actor: &Actor,
        (kind, subject, total): (JobKind, String, u64),
        store: Store,
        change: Change,
    ) -> Result<Making, ChangeError> {
        let makes = file(&store, &self.directory);
        let job = self
            .jobs
            .begin(kind, subject, makes, actor, total)
            .ok_or_else(|| {
                let problem = format!("{RUNNING_MAX} stores are being made, or one with the same file");
                ChangeError::Invalid(vec![Problem::new("jobs", problem, "wait for one, or cancel one")])
            })?;
        let making = Making { store, change, job };
        if let Err(Stopped::Failed(problem)) = self.note_making(&making).await {
            making.job.finish(JobState::Failed, Some(problem.clone()));
            let fix = "free some space in the state directory, or make it writable";
            return Err(ChangeError::Invalid(vec![Problem::new("jobs", problem, fix)]));
        }
        Ok(making)
    }

    /// Writes down which files are made, and which of them are there now.
    pub(super) async fn note_making(&self, making: &Making) -> Result<(), Stopped> {
        let (files, base) = (files(&making.store, &self.directory), self.directory.clone());
        let (job, name, makings) = (making.job.shown(), making.record(), self.makings.clone());
        let saved = blocking(move || {
            let record = serde_json::to_string(&Record::of(&job, &files, &base))?;
            makings.save(&name, &record)
        });
        saved
            .await
            .map_err(|error| Stopped::Failed(format!("it cannot be written down what is made: {error}")))
    }

    /// Nothing is left of what was made, or the next start looks for it.
    pub(super) async fn clear_made(&self, making: &Making) {
        let files = files(&making.store, &self.directory);
        let (name, makings) = (making.record(), self.makings.clone());
        blocking(move || {
            let made: Vec<_> = files.into_iter().map(|(made, _)| made).collect();
            if remove(&made) {
                forget(&makings, &name);
            }
        })
        .await;
    }

    /// It has begun.
    pub(super) fn tell_begun(&self, actor: &Actor, making: &Making, text: &str) {
        info!("{text}, by {actor}");
        self.events.record(
            Event::new(EventKind::JobStarted, text)
                .by(actor)
                .with(json!(making.job.shown())),
        );
    }

    /// The file takes its place and the store is entered, or nothing is left of it.
    pub(super) async fn end_making(
        self: &Arc<Self>,
        actor: &Actor,
        making: Making,
        made: Result<(), Stopped>,
    ) {
        let entered = match made {
            Ok(()) => self.enter_made(actor, &making).await,
            Err(stopped) => Err(stopped),
        };
        let (store, job) = (&making.store, &making.job);
        let (state, problem, text) = match entered {
            Ok(()) => {
                let (name, makings) = (making.record(), self.makings.clone());
                blocking(move || forget(&makings, &name)).await;
                job.advance(job.total);
                (JobState::Done, None, format!("store {} is made", store.id))
            }
            Err(stopped) => {
                self.clear_made(&making).await;
                match stopped {
                    Stopped::Cancelled => {
                        let text = format!("the making of store {} was cancelled", store.id);
                        (JobState::Cancelled, None, text)
                    }
                    Stopped::Failed(problem) => {
                        let text = format!("store {} could not be made: {problem}", store.id);
                        warn!("{text}");
                        (JobState::Failed, Some(problem), text)
                    }
                }
            }
        };
        job.finish(state, problem);
        self.events.record(
            Event::new(EventKind::JobEnded, text)
                .by(actor)
                .with(json!(job.shown())),
        );
    }

    async fn enter_made(self: &Arc<Self>, actor: &Actor, making: &Making) -> Result<(), Stopped> {
        if making.job.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        let files = files(&making.store, &self.directory);
        let places: Vec<_> = files.iter().map(|(_, place)| place.clone()).collect();
        blocking(move || put_in_place(&files))
            .await
            .map_err(|error| Stopped::Failed(error.to_string()))?;
        match self.change(actor, making.change.clone()).await {
            Ok(_) => Ok(()),
            Err(error) => {
                blocking(move || remove(&places)).await;
                Err(Stopped::Failed(error.to_string()))
            }
        }
    }
}

impl Making {
    /// What its record is called. Numbers of jobs begin anew with each start.
    fn record(&self) -> String {
        let job = self.job.shown();
        format!("{}-{}", job.began.unwrap_or_default(), job.id)
    }
}

/// The store as it is made: its file has another name. `size` makes a new one.
pub(super) fn temporary(store: &Store, size: Option<u64>) -> Store {
    let Place::File { path, .. } = &store.place else {
        unreachable!("what is made is a file");
    };
    let mut name = path.as_os_str().to_owned();
    name.push(MADE);
    Store {
        place: Place::File {
            path: name.into(),
            size,
        },
        read_only: false,
        ..store.clone()
    }
}

/// The file of a store that is made.
pub(super) fn file(store: &Store, base: &Path) -> PathBuf {
    base.join(store.path().expect("what is made is a file"))
}

/// Nothing has come meanwhile where a file is to be made.
pub(super) fn check_absent(made: &Path) -> io::Result<()> {
    match made.symlink_metadata() {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} is there already", made.display()),
        )),
        Err(_) => Ok(()),
    }
}

/// Nothing is there yet at the places of its files, nor where they are made; and none of it is the program's own.
fn check_free(store: &Store, base: &Path) -> Result<(), Problem> {
    let path = format!("stores/{}/place/path", store.id);
    let refuse = |problem: &str| {
        let fix = "choose a file that is not there yet, in a folder that is";
        Err(Problem::new(path.clone(), problem, fix))
    };
    for (made, place) in files(store, base) {
        if [&made, &place].into_iter().any(|path| leads_to_own(base, path)) {
            return refuse("leads to the program's own state, which is no disk");
        }
        if place.symlink_metadata().is_ok() {
            return refuse("there is something already");
        }
        if made.symlink_metadata().is_ok() {
            let problem = format!("it is made as {}, which is there already", made.display());
            let fix = "remove that if nobody needs it, or choose another file";
            return Err(Problem::new(path, problem, fix));
        }
        if !place.parent().is_some_and(Path::is_dir) {
            return refuse("there is no such folder");
        }
    }
    Ok(())
}

/// All files take their places durably, or none does.
fn put_in_place(files: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    let put = |(made, place): &(PathBuf, PathBuf)| {
        rustix::fs::renameat_with(CWD, made, CWD, place, RenameFlags::NOREPLACE)?;
        File::open(place.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()
    };
    for (number, pair) in files.iter().enumerate() {
        if let Err(error) = put(pair) {
            let placed: Vec<_> = files[..number].iter().map(|(_, place)| place.clone()).collect();
            remove(&placed);
            return Err(error);
        }
    }
    Ok(())
}

/// What was made and is of no use. `false` when some of it stays.
fn remove(files: &[PathBuf]) -> bool {
    let mut is_gone = true;
    for path in files {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(path = %path.display(), %error, "a file that is of no use could not be removed");
                is_gone = false;
            }
            _ => {}
        }
    }
    is_gone
}

/// The record of a making that has ended. One that stays finds nothing at the next start.
fn forget(makings: &MakingRecords, name: &str) {
    if let Err(error) = makings.remove(name) {
        warn!(record = name, %error, "a record of what was being made cannot be removed");
    }
}

/// The files of a store: as they are made, and their places.
fn files(store: &Store, base: &Path) -> Vec<(PathBuf, PathBuf)> {
    let of = |store: &Store| {
        let tags = store.source(base).beside().filter(|_| store.protection);
        std::iter::once(file(store, base)).chain(tags).collect::<Vec<_>>()
    };
    of(&temporary(store, None)).into_iter().zip(of(store)).collect()
}

/// Behind the name of a file while it is made.
const MADE: &str = ".partial";

#[cfg(test)]
mod tests {
    use super::*;

    fn store(path: &str) -> Store {
        let text = format!(r#"{{"id": "new", "place": {{"kind": "file", "path": "{path}"}}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_file_is_made_over_nothing_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        fs::create_dir(base.join("db")).unwrap();
        std::os::unix::fs::symlink("db", base.join("link")).unwrap();
        fs::write(base.join("there.img"), "somebody's").unwrap();
        fs::write(base.join("other.img.partial"), "somebody's").unwrap();
        let problem = |path: &str| check_free(&store(path), base).map_err(|problem| problem.problem);
        assert_eq!(problem("new.img"), Ok(()));
        assert_eq!(problem("there.img"), Err("there is something already".into()));
        assert_eq!(problem("nowhere/new.img"), Err("there is no such folder".into()));
        assert!(problem("link/new.img").unwrap_err().contains("own state"));
        let of_somebody = problem("other.img").unwrap_err();
        assert!(
            of_somebody.contains("other.img.partial, which is there"),
            "{of_somebody}"
        );
    }

    #[test]
    fn files_that_cannot_all_take_their_places_take_none() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["a.partial", "b.partial", "b"] {
            fs::write(at(name), name).unwrap();
        }
        let pairs = [(at("a.partial"), at("a")), (at("b.partial"), at("b"))];
        put_in_place(&pairs).unwrap_err();
        assert!(!at("a").exists());
        assert_eq!(fs::read(at("b")).unwrap(), b"b");
    }
}
