//! The log of what has happened: kept in the state directory, and handed to who listens. Changes are in it with who made
//! them and what was before and after; that makes it the audit log.
//!
//! It is two logs: what strangers can cause as often as they like, logins and their ends, is apart, so that it does not wash
//! away what people did. Each is a file of one JSON object a line, and the file before it. An event is written when it happens, and not waited
//! for: it may be lost in a power cut, the change it tells of is not.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use tracing::warn;
use utoipa::ToSchema;

use crate::access::Actor;

/// Something that happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Event {
    /// Counts up from 1, over restarts.
    #[serde(default)]
    pub number: u64,
    /// When, milliseconds since 1970.
    pub time: u64,
    /// What kind of thing.
    pub kind: EventKind,
    /// In one line.
    pub text: String,
    /// Who did it, when somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// More, as its kind has it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub data: Value,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// States that initiators gave portal groups were reset by hand.
    AccessStatesReset,
    /// The configuration, a user or a token was changed.
    Changed,
    /// A unit was grown.
    Grown,
    /// Long work is to end before it is done.
    JobCancelled,
    /// Long work has ended.
    JobEnded,
    /// Long work has begun.
    JobStarted,
    /// A session was closed by hand.
    Kicked,
    /// An initiator logged in.
    LoggedIn,
    /// An initiator could not log in.
    LoginFailed,
    /// Events were lost.
    Missed,
    /// What was reserved on a unit was cleared by hand.
    ReservationsCleared,
    /// Somebody was shown secrets.
    SecretsShown,
    /// A session ended.
    SessionEnded,
    /// The program started.
    Started,
    /// A store is missing.
    StoreMissing,
    /// A missing store is back.
    StoreReturned,
    /// Connections are traced.
    TraceBegan,
    /// A trace was stopped or deleted.
    TraceEnded,
    /// A trace was downloaded.
    TraceTaken,
    /// Somebody logged in to the management.
    UserLoggedIn,
    /// Somebody could not log in to the management.
    UserRefused,
}

/// The log.
#[derive(Debug)]
pub struct EventLog {
    inner: Mutex<Inner>,
    live: broadcast::Sender<Arc<Event>>,
}

#[derive(Debug)]
struct Inner {
    deeds: Part,
    logins: Part,
    next: u64,
    counts: BTreeMap<EventKind, u64>,
}

/// One of the two logs.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    /// `None` when it cannot be written: told once, and tried again with every event.
    file: Option<File>,
    len: u64,
    recent: VecDeque<Arc<Event>>,
}

impl EventKind {
    /// Whether those who have no say in the management can cause it without end.
    const fn is_by_strangers(self) -> bool {
        matches!(
            self,
            Self::LoggedIn | Self::LoginFailed | Self::Missed | Self::SessionEnded | Self::UserRefused
        )
    }
}

impl Event {
    /// Something that happened now.
    #[must_use]
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            number: 0,
            time: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            kind,
            text: text.into(),
            actor: None,
            data: Value::Null,
        }
    }

    /// Somebody did it.
    #[must_use]
    pub fn by(mut self, actor: &Actor) -> Self {
        self.actor = Some(actor.to_string());
        self
    }

    /// More of it.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = data;
        self
    }
}

impl EventLog {
    /// Opens the log of a state directory. A log that cannot be read begins anew: it decides nothing.
    #[must_use]
    pub fn open(directory: &Path) -> Arc<Self> {
        let (deeds, logins) = (directory.join("events.jsonl"), directory.join("logins.jsonl"));
        let mut inner = Inner {
            deeds: Part::new(deeds.clone()),
            logins: Part::new(logins.clone()),
            next: 1,
            counts: BTreeMap::new(),
        };
        for file in [older(&deeds), deeds, older(&logins), logins] {
            read(&file, |event| {
                inner.next = inner.next.max(event.number + 1);
                inner.part(event.kind).remember(Arc::new(event));
            });
        }
        inner.deeds.reopen();
        inner.logins.reopen();
        Arc::new(Self {
            inner: Mutex::new(inner),
            live: broadcast::channel(BACKLOG).0,
        })
    }

    /// Writes an event down and tells it to who listens.
    pub fn record(&self, mut event: Event) {
        let mut inner = self.inner();
        event.number = inner.next;
        inner.next += 1;
        *inner.counts.entry(event.kind).or_default() += 1;
        let event = Arc::new(event);
        let part = inner.part(event.kind);
        part.write(&event);
        part.remember(Arc::clone(&event));
        // Nobody listens: nothing to do. Told under the lock, so that listeners hear in order.
        drop(self.live.send(event));
    }

    /// Events after a number, oldest first.
    #[must_use]
    pub fn after(&self, number: u64) -> Vec<Arc<Event>> {
        self.inner().after(number)
    }

    /// All that are kept at hand, newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<Event>> {
        let mut recent = self.inner().after(0);
        recent.reverse();
        recent
    }

    /// How many of each kind there were since the start.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<EventKind, u64> {
        self.inner().counts.clone()
    }

    /// Events after a number, and those to come.
    #[must_use]
    pub fn follow(&self, number: u64) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let inner = self.inner();
        (inner.after(number), self.live.subscribe())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn part(&mut self, kind: EventKind) -> &mut Part {
        if kind.is_by_strangers() {
            &mut self.logins
        } else {
            &mut self.deeds
        }
    }

    /// Of both logs, by number.
    fn after(&self, number: u64) -> Vec<Arc<Event>> {
        let both = self.deeds.recent.iter().chain(&self.logins.recent);
        let mut after: Vec<_> = both.filter(|event| event.number > number).cloned().collect();
        after.sort_by_key(|event| event.number);
        after
    }
}

impl Part {
    const fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            len: 0,
            recent: VecDeque::new(),
        }
    }

    fn remember(&mut self, event: Arc<Event>) {
        self.recent.push_back(event);
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
    }

    fn reopen(&mut self) {
        let opened = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path);
        let mut opened = opened.and_then(|mut file| {
            // Behind a line that a crash tore.
            if !ends_with_newline(&self.path)? {
                file.write_all(b"\n")?;
            }
            Ok(file)
        });
        self.len = opened
            .as_mut()
            .ok()
            .and_then(|file| file.metadata().ok())
            .map_or(0, |it| it.len());
        self.file = opened.ok();
    }

    fn write(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("plain values have a JSON form");
        line.push(b'\n');
        let was_writable = self.file.is_some();
        let written = self.append(&line);
        if let Err(error) = written {
            self.file = None;
            if was_writable {
                warn!(%error, path = %self.path.display(), "events cannot be written down");
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.len > FILE_MAX {
            fs::rename(&self.path, older(&self.path))?;
            self.file = None;
        }
        if self.file.is_none() {
            self.reopen();
        }
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| io::Error::other("it cannot be opened"))?;
        file.write_all(line)?;
        self.len += line.len() as u64;
        Ok(())
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut last = [b'\n'];
    if len > 0 {
        file.read_exact_at(&mut last, len - 1)?;
    }
    Ok(last == *b"\n")
}

/// Lines that are no event (torn by a crash) are passed over.
fn read(path: &Path, mut found: impl FnMut(Event)) {
    let Ok(file) = File::open(path) else { return };
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        if let Ok(event) = serde_json::from_str(&line) {
            found(event);
        }
    }
}

/// Events at hand, of each log.
const KEPT: usize = 10_000;
/// Bytes of a file before the next begins.
const FILE_MAX: u64 = 16 << 20;
/// Events a listener may lag behind.
const BACKLOG: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_after_a_restart_and_a_torn_line() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path());
        log.record(Event::new(EventKind::Started, "one"));
        log.record(Event::new(EventKind::Started, "two"));
        drop(log);
        let path = directory.path().join("events.jsonl");
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(b"{\"number\":3,\"ti")
            .unwrap();
        let log = EventLog::open(directory.path());
        log.record(Event::new(EventKind::Started, "three"));
        let texts: Vec<_> = log
            .after(1)
            .iter()
            .map(|event| (event.number, event.text.clone()))
            .collect();
        assert_eq!(texts, [(2, "two".to_owned()), (3, "three".to_owned())]);
    }

    #[test]
    fn no_number_of_failed_logins_washes_away_what_people_did() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path());
        log.record(Event::new(EventKind::Changed, "somebody did it"));
        for _ in 0..=KEPT {
            log.record(Event::new(EventKind::LoginFailed, "x".repeat(3000)));
        }
        log.record(Event::new(EventKind::Changed, "and again"));
        let deeds = |log: &EventLog| -> Vec<String> {
            let recent = log.recent();
            let deeds = recent.iter().filter(|event| event.kind == EventKind::Changed);
            deeds.map(|event| event.text.clone()).collect()
        };
        assert_eq!(deeds(&log), ["and again", "somebody did it"]);
        assert_eq!(log.recent().len(), KEPT + 2);
        drop(log);
        let log = EventLog::open(directory.path());
        assert_eq!(deeds(&log), ["and again", "somebody did it"]);
        assert_eq!(log.recent()[0].number, 10_003);
    }

    #[test]
    fn who_follows_misses_nothing_in_between() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path());
        log.record(Event::new(EventKind::Started, "one"));
        let (before, mut live) = log.follow(0);
        log.record(Event::new(EventKind::Started, "two"));
        assert_eq!(before.len(), 1);
        assert_eq!(live.try_recv().unwrap().text, "two");
    }
}
