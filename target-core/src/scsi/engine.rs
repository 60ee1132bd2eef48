//! What a running command may ask of its surroundings.

use super::cdb::LbaRange;
use super::{LogicalUnit, Sense, UnitAttention};
use crate::nexus::NexusId;

/// The surroundings of one running command.
#[derive(Debug)]
pub(crate) struct CommandContext<'a> {
    unit: Option<&'a LogicalUnit>,
    nexus: &'a NexusId,
    range: Option<LbaRange>,
    luns: Vec<u16>,
    attention: Option<Sense>,
    raise: fn(UnitAttention),
    relative_port: u16,
}

impl CommandContext<'_> {
    pub(crate) fn unit(&self) -> &LogicalUnit {
        self.unit.expect("the table says that it needs one")
    }

    pub(crate) fn addressed_unit(&self) -> Option<&LogicalUnit> {
        self.unit
    }

    pub(crate) fn nexus(&self) -> &NexusId {
        self.nexus
    }

    pub(crate) fn relative_port(&self) -> u16 {
        self.relative_port
    }

    pub(crate) fn range(&self) -> LbaRange {
        self.range.expect("the table says that it has one")
    }

    pub(crate) fn lun_numbers(&self) -> Vec<u16> {
        self.luns.clone()
    }

    pub(crate) fn take_attention(&self) -> Option<Sense> {
        self.attention
    }

    pub(crate) fn raise_for_others(&self, attention: UnitAttention) {
        (self.raise)(attention);
    }
}
