//! Persistent reservations that outlive a loss of power: one small JSON file a logical unit, replaced whole.
//!
//! They are no configuration, change while initiators wait, and a full disk must not spoil the database for what comes
//! after: so they are files beside it. A new state is written and synced under another name and then takes the place of
//! the old one, which holds until that moment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iscsi_proto::{Isid, Tpgt};
use serde::{Deserialize, Serialize};
use target_core::nexus::{InitiatorPort, NexusId, TargetPort};
use target_core::scsi::{KeptRegistration, KeptReservation, KeptReservations, ReservationType};

use super::{StateError, unit_file};

/// The files of a state directory. Whoever has them has the database of that directory open.
#[derive(Clone, Debug)]
pub struct ReservationFiles {
    directory: PathBuf,
}

impl ReservationFiles {
    /// Those of `state_directory`. Nothing is made before there is something to keep.
    #[must_use]
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("reservations"),
        }
    }

    /// Where they are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is kept for a unit. A file that cannot be read keeps the program from starting: without it a host that was
    /// fenced off might write.
    ///
    /// # Errors
    /// The file cannot be read, or means nothing.
    pub fn load(&self, unit: &str) -> Result<Option<KeptReservations>, StateError> {
        let path = self.path(unit);
        let refused = |problem: String| {
            let fix = "restore it, or remove it to start without these reservations";
            StateError::new(&path, problem, fix)
        };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(error.to_string())),
        };
        let saved: SavedReservations =
            serde_json::from_slice(&text).map_err(|error| refused(format!("it is damaged: {error}")))?;
        let kept = saved.decode().ok_or_else(|| {
            refused("it is damaged: a name, key, type or holder in it means nothing".to_owned())
        })?;
        Ok(Some(kept))
    }

    /// Replaces what is kept for a unit. Durable when this returns. On an error the old state is still there, unless it
    /// was the last step that failed, the sync of the directory: then either of both may be found after a power cut.
    ///
    /// # Errors
    /// It may not be kept.
    pub fn save(&self, unit: &str, kept: Option<&KeptReservations>) -> io::Result<()> {
        let path = self.path(unit);
        let Some(kept) = kept else {
            return unit_file::remove(&path);
        };
        let mut text = serde_json::to_string_pretty(&SavedReservations::encode(kept))
            .expect("plain values have a JSON form");
        text.push('\n');
        unit_file::replace(&path, &text)
    }

    fn path(&self, unit: &str) -> PathBuf {
        self.directory.join(format!("{unit}.json"))
    }
}

/// The form of the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SavedReservations {
    registrations: Vec<SavedRegistration>,
    reservation: Option<SavedReservation>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SavedRegistration {
    initiator: String,
    /// Twelve hexadecimal digits.
    isid: String,
    target: String,
    portal_group: u16,
    /// Sixteen hexadecimal digits.
    key: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SavedReservation {
    /// The TYPE code.
    r#type: u8,
    /// Which of the registrations; nothing for the types that each registrant holds.
    holder: Option<usize>,
}

impl SavedReservations {
    fn encode(kept: &KeptReservations) -> Self {
        let holder_of = |reservation: &KeptReservation| {
            let holder = reservation.holder.as_ref()?;
            kept.registrations
                .iter()
                .position(|registration| registration.nexus == *holder)
        };
        Self {
            registrations: kept.registrations.iter().map(SavedRegistration::encode).collect(),
            reservation: kept.reservation.as_ref().map(|reservation| SavedReservation {
                r#type: reservation.kind.code(),
                holder: holder_of(reservation),
            }),
        }
    }

    fn decode(self) -> Option<KeptReservations> {
        let registrations: Vec<_> = self
            .registrations
            .iter()
            .map(SavedRegistration::decode)
            .collect::<Option<_>>()?;
        let reservation = match self.reservation {
            None => None,
            Some(saved) => Some(KeptReservation {
                kind: ReservationType::from_code(saved.r#type)?,
                holder: match saved.holder {
                    None => None,
                    Some(place) => Some(registrations.get(place)?.nexus.clone()),
                },
            }),
        };
        Some(KeptReservations {
            registrations,
            reservation,
        })
    }
}

impl SavedRegistration {
    fn encode(kept: &KeptRegistration) -> Self {
        let NexusId { initiator, target } = &kept.nexus;
        Self {
            initiator: initiator.name.to_string(),
            isid: initiator
                .isid
                .0
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            target: target.name.to_string(),
            portal_group: target.tpgt.0,
            key: format!("{:016x}", kept.key),
        }
    }

    fn decode(&self) -> Option<KeptRegistration> {
        let [0, 0, isid @ ..] = u64::from_str_radix(&self.isid, 16).ok()?.to_be_bytes() else {
            return None;
        };
        let initiator = InitiatorPort {
            name: self.initiator.parse().ok()?,
            isid: Isid(isid),
        };
        let target = TargetPort {
            name: self.target.parse().ok()?,
            tpgt: Tpgt(self.portal_group),
        };
        let key = u64::from_str_radix(&self.key, 16).ok().filter(|key| *key != 0)?;
        Some(KeptRegistration {
            nexus: NexusId { initiator, target },
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(isid: u8) -> KeptRegistration {
        KeptRegistration {
            nexus: NexusId {
                initiator: InitiatorPort {
                    name: "iqn.2026-11.org.example:host".parse().unwrap(),
                    isid: Isid([0x80, 0, 0, 0, 0, isid]),
                },
                target: TargetPort {
                    name: "iqn.2026-11.org.example:disks".parse().unwrap(),
                    tpgt: Tpgt(1),
                },
            },
            key: 0x1122_3344_5566_7700 + u64::from(isid),
        }
    }

    fn kept(kind: ReservationType) -> KeptReservations {
        let registrations = vec![registration(1), registration(2)];
        let holder = Some(registrations[1].nexus.clone());
        KeptReservations {
            registrations,
            reservation: Some(KeptReservation { kind, holder }),
        }
    }

    #[test]
    fn what_was_saved_is_loaded_and_what_was_removed_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReservationFiles::new(directory.path());
        assert_eq!(files.load("30aa").unwrap(), None);
        files.save("30aa", None).unwrap();
        assert!(!directory.path().join("reservations").exists());
        for kind in ReservationType::ALL {
            files.save("30aa", Some(&kept(kind))).unwrap();
            assert_eq!(files.load("30aa").unwrap(), Some(kept(kind)));
        }
        assert_eq!(files.load("30ab").unwrap(), None, "another unit");
        files.save("30aa", None).unwrap();
        assert_eq!(files.load("30aa").unwrap(), None);
    }

    #[test]
    fn a_state_that_cannot_be_written_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReservationFiles::new(directory.path());
        let old = kept(ReservationType::WriteExclusive);
        files.save("30aa", Some(&old)).unwrap();
        fs::create_dir(directory.path().join("reservations/30aa.new")).unwrap();
        let new = kept(ReservationType::ExclusiveAccess);
        assert!(files.save("30aa", Some(&new)).is_err());
        assert_eq!(files.load("30aa").unwrap(), Some(old));
    }

    #[test]
    fn a_damaged_file_is_named_and_nothing_starts_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = ReservationFiles::new(directory.path());
        files
            .save("30aa", Some(&kept(ReservationType::WriteExclusive)))
            .unwrap();
        let path = directory.path().join("reservations/30aa.json");
        let text = fs::read_to_string(&path).unwrap();
        for (part, wrong) in [
            ("\"type\": 1", "\"type\": 2"),
            ("\"holder\": 1", "\"holder\": 2"),
            ("800000000001", "1800000000001"),
            ("1122334455667701", "0000000000000000"),
            ("iqn.2026-11.org.example:host", "host"),
            ("{", "["),
        ] {
            fs::write(&path, text.replacen(part, wrong, 1)).unwrap();
            let message = files.load("30aa").unwrap_err().to_string();
            assert!(
                message.contains("30aa.json") && message.contains("damaged"),
                "{wrong}: {message}"
            );
        }
    }
}
