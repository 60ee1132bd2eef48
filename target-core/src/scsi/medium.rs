//! The medium of a removable unit: loaded or ejected, and which nexuses prevent its removal (PREVENT ALLOW MEDIUM
//! REMOVAL, START STOP UNIT). A pure value; a unit that is not removable always has its medium.

use std::collections::{HashMap, HashSet};

use super::{Failure, Sense};
use crate::nexus::NexusId;

/// State of the medium.
#[derive(Debug)]
pub(crate) struct Medium {
    loaded: bool,
    prevented_by: HashSet<NexusId>,
    /// How often it was put in or taken out. The first time was before anybody could look.
    changes: u64,
    /// How many of the changes a nexus has been told of as events. As many entries as nexuses at most.
    told: HashMap<NexusId, u64>,
}

/// What happened to a medium, as MMC-6 §6.7.2.6 counts it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum MediaEvent {
    /// Nothing.
    NoChange = 0,
    /// It was put in.
    NewMedia = 2,
    /// It was taken out.
    MediaRemoval = 3,
}

impl Default for Medium {
    fn default() -> Self {
        Self {
            loaded: true,
            prevented_by: HashSet::new(),
            changes: 1,
            told: HashMap::new(),
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

    /// ALLOW.
    pub(crate) fn allow(&mut self, nexus: &NexusId) {
        self.prevented_by.remove(nexus);
    }

    /// The nexus is lost: it prevents nothing any more, and has been told of nothing.
    pub(crate) fn forget(&mut self, nexus: &NexusId) {
        self.allow(nexus);
        self.told.remove(nexus);
    }

    /// What became of the medium since the nexus last asked. The last change is told, not each.
    pub(crate) fn take_event(&mut self, nexus: &NexusId) -> MediaEvent {
        let told = self.told.insert(nexus.clone(), self.changes);
        if told == Some(self.changes) {
            MediaEvent::NoChange
        } else if self.loaded {
            MediaEvent::NewMedia
        } else {
            MediaEvent::MediaRemoval
        }
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
        if self.loaded {
            self.loaded = false;
            self.changes += 1;
        }
    }

    /// Puts the medium in. `true` when it was out: then all nexuses are to be told of a changed medium.
    pub(crate) const fn load(&mut self) -> bool {
        let was_out = !self.loaded;
        if was_out {
            self.loaded = true;
            self.changes += 1;
        }
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
    fn each_nexus_is_told_once_what_became_of_the_medium() {
        let mut medium = Medium::default();
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::NewMedia);
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::NoChange);
        medium.eject();
        medium.eject();
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::MediaRemoval);
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::NoChange);
        assert_eq!(medium.take_event(&nexus(2)), MediaEvent::MediaRemoval);
        medium.load();
        medium.eject();
        medium.load();
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::NewMedia);
        medium.forget(&nexus(1));
        assert_eq!(medium.take_event(&nexus(1)), MediaEvent::NewMedia);
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
