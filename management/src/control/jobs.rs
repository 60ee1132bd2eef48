//! Work that takes long: how far it is, and its end when somebody wants that. Making stores is the program's own work;
//! formatting and sanitizing are initiators' commands, which go on whatever happens and are shown beside them.
//!
//! The list is of this run of the program, and begins with what the one before could not finish.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use target_core::scsi::{ErasureView, LogicalUnit};
use tracing::info;
use utoipa::ToSchema;

use super::Control;
use super::left::Record;
use crate::access::Actor;
use crate::events::{Event, EventKind};

/// A piece of long work.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Job {
    /// What it is called here.
    pub id: String,
    /// What is done.
    pub kind: JobKind,
    /// What it is done to: `stores/…` or `units/…`.
    pub subject: String,
    /// How it stands.
    pub state: JobState,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// When it began, milliseconds since 1970; left out where an initiator began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Who began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Kinds of long work.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A store is copied to a new one.
    Clone,
    /// An initiator formats a disk.
    Format,
    /// An initiator sanitizes a disk.
    Sanitize,
    /// The file of a new store is filled with zeroes.
    Zero,
}

/// How long work stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Somebody ended it; nothing of it is left.
    Cancelled,
    /// All is done.
    Done,
    /// It could not be done.
    Failed,
    /// It goes on.
    Running,
}

/// Work of the program in this run.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: Mutex<BTreeMap<u64, Arc<Running>>>,
    last: AtomicU64,
}

/// Work as whoever does it sees it.
#[derive(Debug)]
pub(super) struct Running {
    number: u64,
    kind: JobKind,
    subject: String,
    /// The file that it makes.
    makes: PathBuf,
    actor: String,
    began: u64,
    pub(super) total: u64,
    done: AtomicU64,
    cancelled: AtomicBool,
    end: Mutex<Option<End>>,
}

#[derive(Clone, Debug)]
struct End {
    at: u64,
    state: JobState,
    problem: Option<String>,
}

impl Jobs {
    /// Enters the making of a store; `None` while as many go on as may, or one that makes the same file.
    pub(super) fn begin(
        &self,
        kind: JobKind,
        subject: String,
        makes: PathBuf,
        actor: &Actor,
        total: u64,
    ) -> Option<Arc<Running>> {
        let mut all = self.all();
        let running = all.values().filter(|job| job.end().is_none());
        if running.clone().count() >= RUNNING_MAX || running.clone().any(|job| job.makes == makes) {
            return None;
        }
        while all.len() >= KEPT {
            let oldest = all.values().find(|job| job.end().is_some())?.number;
            all.remove(&oldest);
        }
        let job = Arc::new(Running {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            kind,
            subject,
            makes,
            actor: actor.to_string(),
            began: now(),
            total,
            done: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            end: Mutex::default(),
        });
        all.insert(job.number, Arc::clone(&job));
        Some(job)
    }

    /// Enters what an earlier run was making when it ended.
    pub(super) fn enter_cut_off(&self, record: Record, problem: String) -> Job {
        let job = Arc::new(Running {
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            kind: record.kind,
            subject: record.subject,
            makes: PathBuf::new(),
            actor: record.actor,
            began: record.began,
            total: record.total,
            done: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            end: Mutex::default(),
        });
        job.finish(JobState::Failed, Some(problem));
        self.all().insert(job.number, Arc::clone(&job));
        job.shown()
    }

    fn list(&self) -> Vec<Job> {
        self.all().values().map(|job| job.shown()).collect()
    }

    fn find(&self, id: &str) -> Option<Arc<Running>> {
        self.all().get(&id.parse().ok()?).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Running>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// So many bytes are done.
    pub(super) fn advance(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Whether somebody wants it to end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// It has ended: well, cancelled, or with a problem.
    pub(super) fn finish(&self, state: JobState, problem: Option<String>) {
        let at = now();
        self.end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(End { at, state, problem });
    }

    fn end(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As the API shows it.
    pub(super) fn shown(&self) -> Job {
        let end = self.end();
        Job {
            id: self.number.to_string(),
            kind: self.kind,
            subject: self.subject.clone(),
            state: end.as_ref().map_or(JobState::Running, |end| end.state),
            done: self.done.load(Ordering::Relaxed),
            total: self.total,
            cancellable: end.is_none(),
            began: Some(self.began),
            ended: end.as_ref().map(|end| end.at),
            actor: Some(self.actor.clone()),
            problem: end.and_then(|end| end.problem),
        }
    }
}

impl Control {
    /// Long work that goes on, and that of this run which has ended; the oldest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = self.jobs.list();
        jobs.extend(self.units().iter().filter_map(|(id, unit)| erasure(id, unit)));
        jobs
    }

    /// One of them.
    #[must_use]
    pub fn job(&self, id: &str) -> Option<Job> {
        self.jobs().into_iter().find(|job| job.id == id)
    }

    /// Ends one before it is done, soon. `false` when there is none that could be ended.
    pub fn cancel_job(&self, actor: &Actor, id: &str) -> bool {
        let Some(job) = self.jobs.find(id).filter(|job| job.end().is_none()) else {
            return false;
        };
        if !job.cancelled.swap(true, Ordering::Relaxed) {
            let text = format!("job {id} ({}) is cancelled", job.subject);
            info!("{text}, by {actor}");
            self.events
                .record(Event::new(EventKind::JobCancelled, text).by(actor));
        }
        true
    }
}

/// What an initiator erases.
fn erasure(id: &str, unit: &LogicalUnit) -> Option<Job> {
    let view = unit.erasure_view()?;
    let total = unit.store().geometry().size;
    let (kind, word, state, share) = match view {
        ErasureView::Formatting(share) => (JobKind::Format, "format", JobState::Running, share),
        ErasureView::FormatFailed => (JobKind::Format, "format", JobState::Failed, 0),
        ErasureView::Sanitizing(share) => (JobKind::Sanitize, "sanitize", JobState::Running, share),
        ErasureView::SanitizeFailed => (JobKind::Sanitize, "sanitize", JobState::Failed, 0),
    };
    let done = u128::from(total) * u128::from(share) / 0x1_0000;
    Some(Job {
        id: format!("{word}-{id}"),
        kind,
        subject: format!("units/{id}"),
        state,
        done: u64::try_from(done).unwrap_or(total),
        total,
        cancellable: false,
        began: None,
        ended: None,
        actor: None,
        problem: (state == JobState::Failed).then(|| {
            "it did not come to its end; the disk is closed until the initiator repeats it".to_owned()
        }),
    })
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Stores made at once.
pub(super) const RUNNING_MAX: usize = 4;
/// Jobs that are remembered.
const KEPT: usize = 100;
