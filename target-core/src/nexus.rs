//! Who talks to whom: SCSI port names and the I_T nexus (SAM-5 §4.5; RFC 7143 §4.4.2, §4.5.2 names of ports).

use std::fmt;

use iscsi_proto::{IscsiName, Isid, Tpgt};

/// SCSI initiator port: `iqn…,i,0x<ISID>`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InitiatorPort {
    /// iSCSI node name.
    pub name: IscsiName,
    /// Initiator part of the session identifier.
    pub isid: Isid,
}

/// SCSI target port: `iqn…,t,0x<TPGT>`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TargetPort {
    /// iSCSI node name.
    pub name: IscsiName,
    /// Target portal group.
    pub tpgt: Tpgt,
}

/// An I_T nexus. At most one session exists for it (RFC 7143 §4.4.3.1).
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NexusId {
    /// The initiator's end.
    pub initiator: InitiatorPort,
    /// Our end.
    pub target: TargetPort,
}

impl fmt::Display for InitiatorPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},i,0x", self.name)?;
        self.isid.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for TargetPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},t,0x{:04x}", self.name, self.tpgt.0)
    }
}
