//! Who may log in: rules of targets, initiators that are known by name, and groups of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::{Cidr, Id, Name, Pattern};

/// One way into a target. All conditions that are given must hold, and one at least is given: for everyone, the rule
/// says `"any": true`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// What it is called here.
    pub id: Id,
    /// The target it opens.
    pub target: Name,
    /// Any initiator.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any: bool,
    /// The initiator with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<Name>,
    /// Initiators whose name matches; `*` is any run of characters, `?` any one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Pattern>,
    /// Initiators of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Id>,
    /// Initiators that come from this network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Cidr>,
}

/// An initiator that is known by name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Initiator {
    /// Its iSCSI name.
    pub name: Name,
    /// A text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Groups it belongs to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Id>,
    /// Id of its own CHAP credential: at targets that ask for CHAP this one lets it in, and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Id>,
}

/// A group of initiators. Its members name it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitiatorGroup {
    /// What it is called here.
    pub id: Id,
    /// A text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

object!(AccessRule, Access, access, |rule| rule.id.to_string());
object!(Initiator, Initiator, initiators, |initiator| initiator
    .name
    .to_string());
object!(InitiatorGroup, Group, groups, |group| group.id.to_string());

impl AccessRule {
    /// Whether it says whom it is for.
    pub(super) const fn has_condition(&self) -> bool {
        self.any
            || self.initiator.is_some()
            || self.pattern.is_some()
            || self.group.is_some()
            || self.network.is_some()
    }
}

const fn is_false(value: &bool) -> bool {
    !*value
}
