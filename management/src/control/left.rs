//! What a run of the program that was killed left of stores that it was making. Each making is written down before its first
//! byte; a start removes what is surely that file, and tells of everything else that may be, which it leaves alone.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Job, JobKind};
use crate::model::{Model, Store};
use crate::state::MakingRecords;

/// A store that is being made, as it is written down.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) kind: JobKind,
    pub(super) subject: String,
    pub(super) actor: String,
    /// Milliseconds since 1970.
    pub(super) began: u64,
    pub(super) total: u64,
    files: Vec<Made>,
}

/// A file of it. Paths are relative to the state directory, or absolute.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Made {
    /// Where it is while it is made.
    made: PathBuf,
    /// Where it is to be.
    place: PathBuf,
    /// The file system that its folder is on.
    device: Option<u64>,
    /// Which file it is, once it is there.
    identity: Option<Identity>,
}

/// Which file it is, and no other that has its number later.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Identity {
    device: u64,
    inode: u64,
    /// When it was made, nanoseconds since 1970; left out when the file system does not tell.
    born: Option<u64>,
}

impl Record {
    /// Of a job that makes these files: as they are made, and their places. As much as is there now.
    pub(super) fn of(job: &Job, files: &[(PathBuf, PathBuf)], base: &Path) -> Self {
        let short = |path: &Path| path.strip_prefix(base).unwrap_or(path).to_owned();
        let made = |(made, place): &(PathBuf, PathBuf)| Made {
            device: folder_device(made),
            identity: Identity::of(made).ok(),
            made: short(made),
            place: short(place),
        };
        Self {
            kind: job.kind,
            subject: job.subject.clone(),
            actor: job.actor.clone().unwrap_or_default(),
            began: job.began.unwrap_or_default(),
            total: job.total,
            files: files.iter().map(made).collect(),
        }
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        let born = metadata.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        })
    }
}

/// Removes what earlier runs left, as far as it is surely theirs. Each making that was cut off, and what there is to know and
/// to do about it. Blocks.
pub(super) fn clear(records: &MakingRecords, model: &Model, base: &Path) -> Vec<(Record, String)> {
    let all = records.all().unwrap_or_else(|error| {
        warn!(%error, "what was being made when the program ended cannot be read");
        Vec::new()
    });
    let stores: Vec<PathBuf> = model
        .all::<Store>()
        .filter_map(|store| Some(base.join(store.path()?)))
        .collect();
    let mut cut_off = Vec::new();
    for (name, text) in all {
        let record: Record = match serde_json::from_str(&text) {
            Ok(record) => record,
            Err(error) => {
                warn!(record = name, %error, "a record of what was being made is damaged");
                continue;
            }
        };
        let stays: Vec<String> = record
            .files
            .iter()
            .flat_map(|file| file.clear(&stores, base))
            .collect();
        let is_entered = record
            .files
            .iter()
            .any(|file| stores.contains(&base.join(&file.place)));
        if stays.is_empty()
            && let Err(error) = records.remove(&name)
        {
            warn!(record = name, %error, "a record of what was being made cannot be removed");
        }
        // It was killed behind the last step, with everything done.
        if is_entered && stays.is_empty() {
            continue;
        }
        let left = if stays.is_empty() {
            "nothing of it is left".to_owned()
        } else {
            stays.join("; ")
        };
        cut_off.push((record, format!("the program ended before it was made; {left}")));
    }
    cut_off
}

impl Made {
    /// Removes it where it was made; a line for everything that stays.
    fn clear(&self, stores: &[PathBuf], base: &Path) -> Vec<String> {
        let (made, place) = (base.join(&self.made), base.join(&self.place));
        let is_served = |path: &Path| {
            let same = |store: &PathBuf| fs::canonicalize(store).ok() == fs::canonicalize(path).ok();
            stores.iter().any(same)
        };
        let mut stays = Vec::new();
        match Identity::of(&made) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.device.is_none() || folder_device(&made) != self.device {
                    stays.push(format!(
                        "whether {} is left cannot be told while its folder is not there: the next start looks again",
                        made.display()
                    ));
                }
            }
            Ok(there) if Some(there) == self.identity && !is_served(&made) => {
                stays.extend(fs::remove_file(&made).err().map(|error| {
                    let made = made.display();
                    format!("{made} is left of it, and cannot be removed ({error}): remove it")
                }));
            }
            _ => stays.push(format!(
                "{} may be left of it: remove it if nobody needs it",
                made.display()
            )),
        }
        // Whoever found it whole may use it.
        let is_placed = self.identity.is_some() && Identity::of(&place).ok() == self.identity;
        if is_placed && !is_served(&place) {
            stays.push(format!(
                "{} is complete, but no store: make one of it, or remove it",
                place.display()
            ));
        }
        stays
    }
}

fn folder_device(path: &Path) -> Option<u64> {
    Some(fs::metadata(path.parent()?).ok()?.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::JobState;
    use crate::model::AnyObject;

    /// A state directory with a record of `new.img`, whose first half is there.
    fn cut_off() -> (tempfile::TempDir, MakingRecords) {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        fs::write(base.join("new.img.partial"), "half").unwrap();
        let records = MakingRecords::new(base);
        let files = [(base.join("new.img.partial"), base.join("new.img"))];
        let record = Record::of(&job(), &files, base);
        records
            .save("1-1", &serde_json::to_string(&record).unwrap())
            .unwrap();
        (directory, records)
    }

    fn job() -> Job {
        Job {
            id: "1".to_owned(),
            kind: JobKind::Zero,
            subject: "stores/new".to_owned(),
            state: JobState::Running,
            done: 0,
            total: 8,
            cancellable: true,
            began: Some(1),
            ended: None,
            actor: Some("ada".to_owned()),
            problem: None,
        }
    }

    fn told(cleared: &[(Record, String)]) -> Vec<&str> {
        cleared.iter().map(|(_, told)| told.as_str()).collect()
    }

    fn model_with(path: &str) -> Model {
        let mut model = Model::default();
        let text = format!(r#"{{"id": "old", "place": {{"kind": "file", "path": "{path}"}}}}"#);
        AnyObject::Store(serde_json::from_str(&text).unwrap()).put(&mut model, 1);
        model
    }

    #[test]
    fn what_a_killed_run_was_making_is_removed_and_told_once() {
        let (directory, records) = cut_off();
        let cleared = clear(&records, &Model::default(), directory.path());
        assert_eq!(
            told(&cleared),
            ["the program ended before it was made; nothing of it is left"]
        );
        assert_eq!(cleared[0].0.subject, "stores/new");
        assert!(!directory.path().join("new.img.partial").exists());
        assert_eq!(clear(&records, &Model::default(), directory.path()), []);
    }

    #[test]
    fn another_file_of_that_name_is_somebodys_and_stays() {
        let (directory, records) = cut_off();
        let partial = directory.path().join("new.img.partial");
        fs::write(directory.path().join("other"), "somebody's").unwrap();
        fs::rename(directory.path().join("other"), &partial).unwrap();
        for _ in 0..2 {
            let cleared = clear(&records, &Model::default(), directory.path());
            assert!(
                cleared[0]
                    .1
                    .contains("new.img.partial may be left of it: remove it")
            );
            assert_eq!(fs::read(&partial).unwrap(), b"somebody's");
        }
    }

    #[test]
    fn what_a_store_is_made_of_stays() {
        let (directory, records) = cut_off();
        let cleared = clear(&records, &model_with("./new.img.partial"), directory.path());
        assert!(cleared[0].1.contains("may be left of it"), "{}", cleared[0].1);
        assert!(directory.path().join("new.img.partial").exists());
    }

    #[test]
    fn a_file_that_has_its_place_stays_and_is_no_news_once_it_is_a_store() {
        let (directory, records) = cut_off();
        let at = |name: &str| directory.path().join(name);
        fs::rename(at("new.img.partial"), at("new.img")).unwrap();
        let cleared = clear(&records, &Model::default(), directory.path());
        assert!(
            cleared[0].1.contains("new.img is complete, but no store"),
            "{}",
            cleared[0].1
        );
        assert!(at("new.img").exists());
        assert_eq!(clear(&records, &model_with("new.img"), directory.path()), []);
        assert!(at("new.img").exists());
        assert_eq!(records.all().unwrap(), []);
    }

    #[test]
    fn a_folder_that_is_not_there_may_come_back() {
        let (directory, records) = cut_off();
        let text = records.all().unwrap()[0]
            .1
            .replace("new.img", "elsewhere/new.img");
        records.save("1-1", &text).unwrap();
        let cleared = clear(&records, &Model::default(), directory.path());
        assert!(
            cleared[0].1.contains("the next start looks again"),
            "{}",
            cleared[0].1
        );
        assert_eq!(records.all().unwrap().len(), 1);
    }
}
