//! A store whose file is written with zeroes from end to end before it is served: all its space is taken then, so that no
//! write fails for want of it later, and none has to find a place first.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstores::{Durability, IoBuf};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::change::blocking;
use super::making::{Making, Stopped, check_absent, file, temporary};
use super::{Change, ChangeError, Control, Edit, Job, JobKind};
use crate::access::Actor;
use crate::live::open_one;
use crate::model::{AnyObject, Place, Problem, Store};

/// A folder for disks and what is left there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct StoreRoot {
    /// The folder.
    pub path: String,
    /// Bytes that new disks can take; left out when the file system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}

impl Control {
    /// Begins to make a new store whose file is filled with zeroes. `change` enters it, and whatever is to be there with
    /// it, when all is written durably; that can still fail, and then there is no store.
    ///
    /// # Errors
    /// It cannot be begun; nothing was made.
    pub async fn make_zeroed(self: &Arc<Self>, actor: &Actor, change: Change) -> Result<Job, ChangeError> {
        let (store, size) = wanted(&change)?;
        self.check_making(actor, &store, &change).await?;
        self.check_space(&store, size).await?;
        let job = (JobKind::Zero, format!("stores/{}", store.id), size);
        let making = self.enter_making(actor, job, store, change).await?;
        let text = format!("store {} is being filled with zeroes", making.store.id);
        self.tell_begun(actor, &making, &text);
        let shown = making.job.shown();
        let (this, actor) = (Arc::clone(self), actor.clone());
        tokio::spawn(async move {
            let filled = this.fill(&making).await;
            this.end_making(&actor, making, filled).await;
        });
        Ok(shown)
    }

    /// Folders that new disks can be in, the state directory last, and the space that is left there.
    pub async fn store_roots(&self) -> Vec<StoreRoot> {
        let roots = self.model().settings().store_roots;
        let mut found = Vec::new();
        for root in roots.into_iter().chain([self.directory.clone()]) {
            found.push(StoreRoot {
                path: root.display().to_string(),
                free: free(&root).await,
            });
        }
        found
    }

    /// Bytes by which the file of a store could grow; `None` for what is no file, or when the file system does not tell.
    pub async fn space_beside(&self, store: &Store) -> Option<u64> {
        let Place::File { path, .. } = &store.place else {
            return None;
        };
        let place = self.directory.join(path);
        free(place.parent()?).await
    }

    async fn check_space(&self, store: &Store, size: u64) -> Result<(), ChangeError> {
        match self.space_beside(store).await {
            Some(free) if free < size => {
                let path = format!("stores/{}/place/size", store.id);
                let problem = format!("needs {size} bytes, and {free} are free there");
                let fix = "make it smaller, free some space, or choose another folder";
                Err(ChangeError::Invalid(vec![Problem::new(path, problem, fix)]))
            }
            _ => Ok(()),
        }
    }

    async fn fill(&self, making: &Making) -> Result<(), Stopped> {
        let (base, size) = (self.directory.clone(), making.job.total);
        let made = temporary(&making.store, Some(size));
        let store = blocking(move || {
            check_absent(&file(&made, &base)).map_err(|error| error.to_string())?;
            open_one(&made, &base)
        })
        .await
        .map_err(Stopped::Failed)?;
        self.note_making(making).await?;
        let failed = |error: backstores::StoreError| Stopped::Failed(error.to_string());
        let mut at = 0;
        while at < size {
            if making.job.is_cancelled() {
                return Err(Stopped::Cancelled);
            }
            let len = PIECE.min(size - at);
            let zeroes = IoBuf::from_heap(usize::try_from(len).expect("a piece is small"));
            store
                .write(at, zeroes, Durability::Cached)
                .await
                .map_err(failed)?;
            at += len;
            // So that what is told to be done is, and the flush at the end is short.
            if at % FLUSHED == 0 {
                store.flush().await.map_err(failed)?;
            }
            making.job.advance(at);
        }
        store.flush().await.map_err(failed)
    }
}

/// The one new store of a change, and its size.
fn wanted(change: &Change) -> Result<(Store, u64), ChangeError> {
    let mut stores = change.edits.iter().filter_map(|edit| match edit {
        Edit::Put(AnyObject::Store(store)) => Some(store),
        _ => None,
    });
    let refuse = |path: String, problem: &str, fix: &str| {
        Err(ChangeError::Invalid(vec![Problem::new(path, problem, fix)]))
    };
    let (Some(store), None) = (stores.next(), stores.next()) else {
        return refuse("stores".to_owned(), "is not one store", "make one at a time");
    };
    match store.place {
        Place::File { size: Some(size), .. } if !store.read_only => Ok((store.clone(), size)),
        Place::File { .. } if store.read_only => {
            let path = format!("stores/{}/read_only", store.id);
            refuse(path, "would stay empty", "leave it out")
        }
        Place::File { .. } => {
            let path = format!("stores/{}/place/size", store.id);
            refuse(path, "is missing", "say how large it is to be")
        }
        Place::Block { .. } | Place::Memory { .. } | Place::Null { .. } => {
            let path = format!("stores/{}/place", store.id);
            refuse(path, "is no new file", "give it a file with a size")
        }
    }
}

/// Bytes that somebody who is not root could still write below a folder. A file system that does not answer is not
/// waited for.
async fn free(folder: &Path) -> Option<u64> {
    let folder = folder.to_owned();
    let asked = blocking(move || rustix::fs::statvfs(&folder).ok());
    let told = timeout(PATIENCE, asked).await.ok()??;
    Some(told.f_bavail.saturating_mul(told.f_frsize))
}

/// Bytes written at once.
const PIECE: u64 = 1 << 20;
/// Bytes after which they are on the medium: as long as a cancellation may wait.
const FLUSHED: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(1);
