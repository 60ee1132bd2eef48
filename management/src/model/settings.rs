//! What holds for the whole node: one object.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Authentication;
use super::object::object;

/// What holds for the whole node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Folders below which files and devices may be used as stores. The state directory's own is always one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub store_roots: Vec<PathBuf>,
    /// Limits of negotiation and time-outs, by name, that hold where a target says nothing else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// What discovery sessions have to prove.
    #[serde(default)]
    pub discovery: Authentication,
}

impl Settings {
    /// Its key.
    pub const KEY: &'static str = "node";
}

object!(Settings, Settings, settings, |_settings| Settings::KEY.to_owned());
