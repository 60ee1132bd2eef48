//! What is different between two models, for people and machines, without secrets.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::model::{AnyObject, Kind, Model};
use crate::state::differences;

/// One object that a change makes, alters or takes away.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Difference {
    /// `kind/key`.
    pub path: String,
    /// What happens to it.
    pub action: Action,
    /// As it was; secrets are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// As it becomes; a secret that changes is `"secret": "changed"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is altered.
    Change,
    /// It is made.
    Create,
    /// It is taken away.
    Delete,
}

/// Everything that is different, by kind and key.
#[must_use]
pub fn diff(before: &Model, after: &Model) -> Vec<Difference> {
    differences(before, after)
        .into_iter()
        .filter_map(|(kind, key)| difference(before, after, kind, &key))
        .collect()
}

fn difference(before: &Model, after: &Model, kind: Kind, key: &str) -> Option<Difference> {
    let path = format!("{}/{key}", kind.path());
    let old = before.find(kind, key).map(|(_, object)| object);
    let new = after.find(kind, key).map(|(_, object)| object);
    let action = match (&old, &new) {
        (None, None) => return None,
        (None, Some(_)) => Action::Create,
        (Some(_), None) => Action::Delete,
        (Some(old), Some(new)) if old == new => return None,
        (Some(_), Some(_)) => Action::Change,
    };
    let mut shown = new.as_ref().map(AnyObject::to_public);
    if let (Some(old), Some(new), Some(shown)) = (&old, &new, &mut shown) {
        let (old, new) = (old.to_state(), new.to_state());
        for secret in ["secret", "password_hash", "hash"] {
            if old.get(secret) != new.get(secret) {
                shown[secret] = "changed".into();
            }
        }
    }
    Some(Difference {
        path,
        action,
        before: old.as_ref().map(AnyObject::to_public),
        after: shown,
    })
}
