//! Logical units: who a disk is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Id;
use super::object::object;
use super::target::yes;

/// A logical unit: an identity over a store, mapped to LUNs of targets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// What it is called here.
    pub id: Id,
    /// Id of its store. A store has one unit at most.
    pub store: Id,
    /// NAA identifier, 16 or 32 hexadecimal digits. Made once when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "3a1b2c3d4e5f6071")]
    pub naa: Option<String>,
    /// Unit serial number, 1 to 36 printable ASCII characters. Made once when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 36)]
    pub serial: Option<String>,
    /// Product identification that initiators show, at most 16 printable ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16)]
    pub product: Option<String>,
    /// T10 vendor identification that initiators show, at most 8 printable ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 8)]
    pub vendor: Option<String>,
    /// Product revision that initiators show, at most 4 printable ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4)]
    pub revision: Option<String>,
    /// Warn initiators when so much of the unit's size is used, 1 to 100; for thin units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub soft_threshold_percent: Option<u8>,
    /// Disk, or CD-ROM: removable, over a read-only store with blocks of 2048 bytes.
    #[serde(default)]
    pub device: Device,
    /// Offer thin provisioning where the store can give space back.
    #[serde(default = "yes")]
    pub thin: bool,
    /// The medium can be loaded and ejected.
    #[serde(default)]
    pub removable: bool,
    /// Switched off it is at no LUN, and keeps its identity and data.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// What a unit is to initiators.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// A CD or DVD drive with a disc in it.
    Cdrom,
    /// A disk.
    #[default]
    Disk,
}

object! {
    Unit, Unit, units, |unit| unit.id.to_string();

    fn inherit(&mut self, older: &Self) {
        if self.naa.is_none() {
            self.naa.clone_from(&older.naa);
        }
        if self.serial.is_none() {
            self.serial.clone_from(&older.serial);
        }
    }
}

impl Unit {
    /// The bytes of its NAA identifier: type 2, 3 or 5 with 8 bytes or type 6 with 16 (SPC-4 §7.8.6.6).
    #[must_use]
    pub fn naa_bytes(&self) -> Option<Vec<u8>> {
        let text = self.naa.as_deref()?;
        if !text.is_ascii() || !matches!(text.len(), 16 | 32) {
            return None;
        }
        let bytes: Option<Vec<u8>> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect();
        let bytes = bytes?;
        match (bytes[0] >> 4, bytes.len()) {
            (2 | 3 | 5, 8) | (6, 16) => Some(bytes),
            _ => None,
        }
    }
}
