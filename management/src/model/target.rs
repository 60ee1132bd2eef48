//! Targets and their LUNs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::{Authentication, Id, Name};

/// An iSCSI target. It admits nobody until an access rule does.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its iSCSI name.
    pub name: Name,
    /// TargetAlias: a text for people that initiators may show, at most 255 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Switched off it is not served, and keeps everything.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Tags of the portal groups that it is reached through, 1 to 65535; left out, every portal leads to it. A tag is also
    /// the relative target port identifier and the number of the target port group (ALUA).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portal_groups: Vec<u16>,
    /// How initiators prove who they are.
    #[serde(default)]
    pub authentication: Authentication,
    /// Limits of negotiation and time-outs that differ from the node's, by name, such as `MaxBurstLength` or
    /// `nop-timeout`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// A logical unit at a number of a target.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LunMap {
    /// The target.
    pub target: Name,
    /// The number, 0 to 16383.
    #[schema(maximum = 16383)]
    pub lun: u16,
    /// Id of the logical unit.
    pub unit: Id,
}

object!(Target, Target, targets, |target| target.name.to_string());
object!(LunMap, Lun, luns, |map| format!("{}/{}", map.target, map.lun));

pub(super) const fn yes() -> bool {
    true
}
