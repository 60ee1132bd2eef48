//! A store copied to a new one: shared blocks where the file system can do that, else what is not a hole, piece by piece.
//!
//! A reflink is the disk as it is at one moment, whoever uses it. A copy by pieces is one only as long as nobody writes: so
//! it is refused while initiators could, and thrown away when one logs in meanwhile.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstores::{BlockStore, Durability, IoBuf};
use serde::{Deserialize, Serialize};
use target_core::iscsi::NodeEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use utoipa::ToSchema;

use super::change::blocking;
use super::making::{Making, Stopped, check_absent, entry, file, temporary};
use super::{ChangeError, Control, Job, JobKind, JobState};
use crate::access::Actor;
use crate::live::{InUse, UsingSession, open_one};
use crate::model::{Id, LunMap, Place, Problem, Store, Unit};

/// Where a copy goes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneRequest {
    /// Id of the new store.
    pub id: Id,
    /// Its file, below a store root; there is none yet.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// A file with the key that the copy is encrypted with. A copy of an encrypted store needs one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub encrypt: Option<PathBuf>,
}

impl Control {
    /// Begins to copy a store to a new file, which becomes a store of its own when all of it is there, durably.
    ///
    /// # Errors
    /// It cannot be begun; nothing was made.
    pub async fn clone_store(
        self: &Arc<Self>,
        actor: &Actor,
        source: &str,
        wanted: CloneRequest,
    ) -> Result<Job, ChangeError> {
        let model = self.model();
        let path = format!("stores/{source}");
        let from = model
            .get::<Store>(source)
            .ok_or_else(|| ChangeError::NotFound(path.clone()))?;
        let open = self.live().stores().get(source).ok_or_else(|| {
            let fix = "bring it back first; its status says what is wrong";
            ChangeError::Invalid(vec![Problem::new(path.clone(), "is missing", fix)])
        })?;
        let copy = definition(from, &wanted, open.geometry().block_size)?;
        let change = entry(&copy);
        self.check_making(actor, &copy, &change).await?;
        let total = open.geometry().size;
        let job = (JobKind::Clone, format!("{path} to stores/{}", copy.id), total);
        let making = self.enter_making(actor, job, copy, change).await?;
        let prepared = self.prepare(from, &making.store, &open).await;
        let (whole, watch) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.clear_made(&making).await;
                making.job.finish(JobState::Failed, Some(error.to_string()));
                return Err(error);
            }
        };
        let text = format!("store {source} is being copied to {}", making.store.id);
        self.tell_begun(actor, &making, &text);
        let shown = making.job.shown();
        let (this, actor) = (Arc::clone(self), actor.clone());
        let targets = self.targets_of(source);
        tokio::spawn(async move {
            let copied = match whole {
                true => this.note_making(&making).await,
                false => this.copy(&open, &making, (watch, &targets)).await,
            };
            drop(open);
            this.end_making(&actor, making, copied).await;
        });
        Ok(shown)
    }

    /// Makes the file: whole where the file system shares blocks, which is told, else empty. Who could write in the second
    /// case is in the way.
    async fn prepare(
        &self,
        from: &Store,
        copy: &Store,
        open: &Arc<dyn BlockStore>,
    ) -> Result<(bool, Receiver<Arc<NodeEvent>>), ChangeError> {
        let failed = |error: io::Error| {
            let path = format!("stores/{}/place/path", copy.id);
            let fix = "choose a file that is not there yet, in a folder that is";
            ChangeError::Invalid(vec![Problem::new(path, error.to_string(), fix)])
        };
        open.flush()
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        let watch = self.node.watch();
        let made = file(&temporary(copy, None), &self.directory);
        let is_file = matches!(from.place, Place::File { .. });
        let shares = is_file && from.encrypt.is_none() && copy.encrypt.is_none() && !from.protection;
        let from_file = shares.then(|| file(from, &self.directory));
        let whole = blocking(move || reflink(from_file.as_deref(), &made))
            .await
            .map_err(failed)?;
        if !whole {
            let uses = self.writers(from);
            if !uses.sessions.is_empty() {
                return Err(ChangeError::InUse(vec![uses]));
            }
        }
        Ok((whole, watch))
    }

    /// Everything that is no hole.
    async fn copy(
        &self,
        from: &Arc<dyn BlockStore>,
        making: &Making,
        (mut watch, targets): (Receiver<Arc<NodeEvent>>, &[String]),
    ) -> Result<(), Stopped> {
        let Making { store, job, .. } = making;
        let (base, size) = (self.directory.clone(), job.total);
        let made = temporary(store, Some(size));
        let to = blocking(move || open_one(&made, &base))
            .await
            .map_err(Stopped::Failed)?;
        self.note_making(making).await?;
        let mut at = 0;
        while at < size {
            if job.is_cancelled() {
                return Err(Stopped::Cancelled);
            }
            check_alone(&mut watch, targets)?;
            at = piece(from, &to, at, size)
                .await
                .map_err(|error| Stopped::Failed(error.to_string()))?;
            job.advance(at);
        }
        to.flush()
            .await
            .map_err(|error| Stopped::Failed(error.to_string()))?;
        check_alone(&mut watch, targets)
    }

    /// Sessions that can write to the units of a store.
    fn writers(&self, store: &Store) -> InUse {
        let targets = self.targets_of(store.id.as_str());
        let sessions = self.node.sessions();
        let theirs = sessions.iter().filter(|session| {
            let target = session.target.as_ref().map(ToString::to_string);
            !store.read_only && target.is_some_and(|target| targets.contains(&target))
        });
        InUse {
            path: format!("stores/{}", store.id),
            problem: "these sessions could write to the store while it is copied, and the copy would be of no moment"
                .to_owned(),
            fix: "log these initiators out first, or keep both files on a file system that shares blocks (XFS, Btrfs)"
                .to_owned(),
            forcible: false,
            sessions: theirs.map(UsingSession::of).collect(),
        }
    }

    /// The targets that lead to a store which can be written.
    fn targets_of(&self, store: &str) -> Vec<String> {
        let model = self.model();
        if model.get::<Store>(store).is_none_or(|store| store.read_only) {
            return Vec::new();
        }
        let units = model.all::<Unit>().filter(|unit| unit.store.as_str() == store);
        let maps = units.flat_map(|unit| model.all::<LunMap>().filter(move |map| map.unit == unit.id));
        maps.map(|map| map.target.to_string()).collect()
    }
}

/// The new store.
fn definition(from: &Store, wanted: &CloneRequest, block_size: u32) -> Result<Store, ChangeError> {
    let refuse = |field: &str, problem: &str, fix: &str| {
        Err(ChangeError::Invalid(vec![Problem::new(field, problem, fix)]))
    };
    if from.encrypt.is_some() && wanted.encrypt.is_none() {
        let fix = "make another key file (head -c 64 /dev/urandom > FILE; chmod 600 FILE) and name it here";
        return refuse(
            "encrypt",
            "a copy of an encrypted store has a key of its own",
            fix,
        );
    }
    match &from.place {
        Place::Block { .. } | Place::File { .. } => {}
        Place::Memory { .. } | Place::Null { .. } => {
            let problem = "is in memory alone";
            return refuse("place", problem, "copy stores that are files or devices");
        }
    }
    Ok(Store {
        id: wanted.id.clone(),
        place: Place::File {
            path: wanted.path.clone(),
            size: None,
        },
        encrypt: wanted.encrypt.clone(),
        block_size: Some(block_size),
        ..from.clone()
    })
}

/// One piece; where the next one begins.
async fn piece(
    from: &Arc<dyn BlockStore>,
    to: &Arc<dyn BlockStore>,
    at: u64,
    size: u64,
) -> Result<u64, backstores::StoreError> {
    let extent = from.extent(at..size).await?;
    if !extent.mapped {
        return Ok(extent.end);
    }
    let end = extent.end.min(at + SHARED_PIECE).min(size);
    if let Some(source) = from.copy_source()
        && to.copy_from(&source, at, at, end - at).await
    {
        return Ok(end);
    }
    let end = end.min(at + PIECE);
    let len = usize::try_from(end - at).expect("a piece is small");
    let buf = from.read(at, IoBuf::from_heap(len)).await?;
    if buf.iter().any(|byte| *byte != 0) {
        to.write(at, buf, Durability::Cached).await?;
    }
    Ok(end)
}

/// Whether nobody has come who could write.
fn check_alone(watch: &mut Receiver<Arc<NodeEvent>>, targets: &[String]) -> Result<(), Stopped> {
    loop {
        let event = match watch.try_recv() {
            Ok(event) => event,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(()),
            Err(TryRecvError::Lagged(_)) => {
                let problem = "too many logins to tell whether somebody wrote meanwhile; try again";
                return Err(Stopped::Failed(problem.to_owned()));
            }
        };
        if let NodeEvent::LoggedIn(session) = &*event
            && let Some(target) = &session.target
            && targets.contains(&target.to_string())
        {
            let problem = format!(
                "{} logged in to {target} meanwhile and may have written; keep it out, then try again",
                session.initiator.name
            );
            return Err(Stopped::Failed(problem));
        }
    }
}

/// Shares all blocks of a file with a new one. `false` when that cannot be done: then there is no new one.
fn reflink(from: Option<&Path>, to: &Path) -> io::Result<bool> {
    check_absent(to)?;
    let made = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    let shared = from.is_some_and(|from| {
        File::open(from).is_ok_and(|from| rustix::fs::ioctl_ficlone(&made, &from).is_ok())
    });
    if shared {
        made.sync_all()?;
    } else {
        fs::remove_file(to)?;
    }
    Ok(shared)
}

/// Bytes that pass through a buffer at once.
const PIECE: u64 = 1 << 20;
/// Bytes that the kernel copies at once: as long as a cancellation may wait.
const SHARED_PIECE: u64 = 16 << 20;
