//! The whole configuration at once.

use std::sync::Arc;

use super::{Change, ChangeError, Control, Edit, Outcome};
use crate::access::Actor;
use crate::document::Document;
use crate::model::AnyObject;

impl Control {
    /// Makes the configuration what the document says. With `prune`, what it does not name goes; without, it stays.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn apply(
        self: &Arc<Self>,
        actor: &Actor,
        document: Document,
        prune: bool,
        mut change: Change,
    ) -> Result<Outcome, ChangeError> {
        let objects = document.into_objects().map_err(ChangeError::Invalid)?;
        if prune {
            let kept = objects
                .iter()
                .map(|object: &AnyObject| (object.kind(), object.key()))
                .collect();
            change.edits.push(Edit::Prune(kept));
        }
        change.edits.extend(objects.into_iter().map(Edit::Put));
        self.change(actor, change).await
    }
}
