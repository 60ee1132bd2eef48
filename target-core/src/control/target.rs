//! One iSCSI target node.

use std::sync::Arc;

use iscsi_proto::{IscsiName, Tpgt};

use super::{Access, ChapPolicy, Parameters};
use crate::scsi::TargetDevice;

/// A target; its device knows its portal groups.
#[derive(Clone, Debug)]
pub struct Target {
    /// Node name.
    pub name: IscsiName,
    /// TargetAlias, if any.
    pub alias: Option<String>,
    /// The portal group of connections to an address that none of the portals has, as behind a translator of
    /// addresses.
    pub tpgt: Tpgt,
    /// Who may log in.
    pub access: Access,
    /// How they prove it.
    pub chap: ChapPolicy,
    /// Limits of negotiation and time-outs.
    pub parameters: Parameters,
    /// The logical units.
    pub device: Arc<TargetDevice>,
}
