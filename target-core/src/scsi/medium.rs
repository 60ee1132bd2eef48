//! The medium of a removable unit: loaded or ejected, and which nexuses prevent its removal (PREVENT ALLOW MEDIUM
//! REMOVAL, START STOP UNIT). A pure value; a unit that is not removable always has its medium.

use std::collections::HashSet;

use super::{Failure, Sense};
use crate::nexus::NexusId;

/// State of the medium.
#[derive(Debug)]
pub(crate) struct Medium {
    loaded: bool,
    prevented_by: HashSet<NexusId>,
}

impl Default for Medium {
    fn default() -> Self {
        Self {
            loaded: true,
            prevented_by: HashSet::new(),
        }
    }
}

impl Medium {
    /// Whether there is one to read and write.
    pub(crate) const fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// PREVENT: the medium stays until this nexus allows its removal.
    pub(crate) fn prevent(&mut self, nexus: &NexusId) {
        self.prevented_by.insert(nexus.clone());
    }

    /// ALLOW, and what a loss of the nexus means.
    pub(crate) fn allow(&mut self, nexus: &NexusId) {
        self.prevented_by.remove(nexus);
    }

    /// Logical unit reset: nobody prevents the removal any more.
    pub(crate) fn allow_all(&mut self) {
        self.prevented_by.clear();
    }

    /// 05/53/02 while any nexus prevents the removal. Loading is refused as well: it would change the medium.
    pub(crate) fn check_removable(&self) -> Result<(), Failure> {
        if self.prevented_by.is_empty() {
            Ok(())
        } else {
            Err(Sense::MEDIUM_REMOVAL_PREVENTED.into())
        }
    }

    /// Takes the medium out.
    pub(crate) const fn eject(&mut self) {
        self.loaded = false;
    }

    /// Puts the medium in. `true` when it was out: then all nexuses are to be told of a changed medium.
    pub(crate) const fn load(&mut self) -> bool {
        let was_out = !self.loaded;
        self.loaded = true;
        was_out
    }
}

#[cfg(test)]
mod tests {
    use iscsi_proto::{Isid, Tpgt};

    use super::*;
    use crate::nexus::{InitiatorPort, TargetPort};

    fn nexus(isid: u8) -> NexusId {
        NexusId {
            initiator: InitiatorPort {
                name: "iqn.2024-01.org.example:host".parse().unwrap(),
                isid: Isid([0x80, 0, 0, 0, 0, isid]),
            },
            target: TargetPort {
                name: "iqn.2024-01.org.example:disk".parse().unwrap(),
                tpgt: Tpgt(1),
            },
        }
    }

    #[test]
    fn every_nexus_that_prevents_must_allow() {
        let mut medium = Medium::default();
        medium.prevent(&nexus(1));
        medium.prevent(&nexus(1));
        medium.prevent(&nexus(2));
        medium.allow(&nexus(1));
        let Err(Failure::Check(sense)) = medium.check_removable() else {
            panic!("the second nexus still prevents");
        };
        assert_eq!(sense.code, (0x53, 0x02));
        medium.allow(&nexus(2));
        medium.allow(&nexus(3));
        assert!(medium.check_removable().is_ok());
    }

    #[test]
    fn a_reset_ends_all_prevention() {
        let mut medium = Medium::default();
        medium.prevent(&nexus(1));
        medium.allow_all();
        assert!(medium.check_removable().is_ok());
    }

    #[test]
    fn only_a_load_after_an_eject_changes_the_medium() {
        let mut medium = Medium::default();
        assert!(!medium.load());
        medium.eject();
        assert!(!medium.is_loaded());
        assert!(medium.load());
        assert!(medium.is_loaded());
    }
}
