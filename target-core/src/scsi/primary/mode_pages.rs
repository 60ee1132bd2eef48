//! Mode pages (SPC-4 §7.5, SBC-4 §6.5): what each says now, by default, as saved, and which of its bits MODE SELECT may
//! change. Pure values; the commands are in `mode_sense.rs` and `mode_select.rs`.

use backstores::Geometry;

use crate::scsi::DeviceType;
use crate::scsi::thin::{SoftThreshold, threshold_sets};

/// The mode parameters that an initiator can change. They are shared by all nexuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ModeParameters {
    /// WCE: writes may rest in the volatile cache of the store, if it has one.
    pub(crate) write_cache: bool,
    /// D_SENSE: descriptor format sense data.
    pub(crate) descriptor_sense: bool,
    /// SWP: the medium is write-protected by software.
    pub(crate) software_write_protect: bool,
}

impl Default for ModeParameters {
    fn default() -> Self {
        Self {
            write_cache: true,
            descriptor_sense: false,
            software_write_protect: false,
        }
    }
}

impl ModeParameters {
    /// The form in which they are kept over a restart.
    pub(crate) fn to_text(self) -> String {
        let bit = u8::from;
        format!(
            "WCE={} D_SENSE={} SWP={}",
            bit(self.write_cache),
            bit(self.descriptor_sense),
            bit(self.software_write_protect)
        )
    }

    /// From that form; `None` for what is none.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut parameters = Self::default();
        for part in text.split_whitespace() {
            let (name, value) = part.split_once('=')?;
            let value = match value {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            match name {
                "WCE" => parameters.write_cache = value,
                "D_SENSE" => parameters.descriptor_sense = value,
                "SWP" => parameters.software_write_protect = value,
                _ => return None,
            }
        }
        Some(parameters)
    }
}

/// PAGE CONTROL: which values of a page are wanted (SPC-4 §6.13).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PageControl {
    /// As they are.
    Current,
    /// A one for each bit that MODE SELECT may change.
    Changeable,
    /// As they were at first.
    Default,
    /// As they will be after a reset.
    Saved,
}

/// What the pages of a unit depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeSubject<'a> {
    pub(crate) device_type: DeviceType,
    /// Blocks have protection information.
    pub(crate) is_protected: bool,
    /// Somebody prevents the removal of the medium.
    pub(crate) is_locked: bool,
    pub(crate) geometry: &'a Geometry,
    /// When initiators are warned that space runs out.
    pub(crate) soft_threshold: Option<SoftThreshold>,
    pub(crate) current: ModeParameters,
    /// What a reset goes back to; `None` where nothing can be saved.
    pub(crate) saved: Option<ModeParameters>,
}

/// One page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ModePage {
    /// Read-Write Error Recovery (01h).
    ErrorRecovery,
    /// Disconnect-Reconnect (02h).
    DisconnectReconnect,
    /// Caching (08h).
    Caching,
    /// Control (0Ah).
    Control,
    /// Control Extension (0Ah, 01h).
    ControlExtension,
    /// Informational Exceptions Control (1Ch).
    InformationalExceptions,
    /// Logical Block Provisioning (1Ch, 02h).
    Provisioning,
    /// CD/DVD Capabilities and Mechanical Status (2Ah, MMC-3 §6.3.11; obsolete, and asked for by everybody).
    Capabilities,
}

impl ModePage {
    /// All pages, ascending, as page code 3Fh returns them.
    const ALL: [Self; 8] = [
        Self::ErrorRecovery,
        Self::DisconnectReconnect,
        Self::Caching,
        Self::Control,
        Self::ControlExtension,
        Self::InformationalExceptions,
        Self::Provisioning,
        Self::Capabilities,
    ];

    /// The pages of a unit, ascending.
    pub(crate) fn of(subject: &ModeSubject<'_>) -> impl Iterator<Item = Self> {
        let has_threshold = subject.soft_threshold.is_some();
        let is_disk = subject.device_type == DeviceType::Disk;
        Self::ALL.into_iter().filter(move |page| match page {
            Self::ErrorRecovery | Self::Control | Self::ControlExtension | Self::InformationalExceptions => {
                true
            }
            Self::DisconnectReconnect | Self::Caching => is_disk,
            Self::Provisioning => is_disk && has_threshold,
            Self::Capabilities => !is_disk,
        })
    }

    /// PAGE CODE.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::ErrorRecovery => 0x01,
            Self::DisconnectReconnect => 0x02,
            Self::Caching => 0x08,
            Self::Control | Self::ControlExtension => 0x0a,
            Self::InformationalExceptions | Self::Provisioning => 0x1c,
            Self::Capabilities => 0x2a,
        }
    }

    /// SUBPAGE CODE; 0 for a page without one.
    pub(crate) const fn subpage(self) -> u8 {
        match self {
            Self::ErrorRecovery
            | Self::DisconnectReconnect
            | Self::Caching
            | Self::Control
            | Self::InformationalExceptions
            | Self::Capabilities => 0,
            Self::ControlExtension => 0x01,
            Self::Provisioning => 0x02,
        }
    }

    /// Bytes of the header: a subpage's is longer.
    pub(crate) const fn header_len(self) -> usize {
        if self.subpage() == 0 { 2 } else { 4 }
    }

    /// Bytes behind the header: PAGE LENGTH.
    const fn length(self) -> usize {
        match self {
            Self::ErrorRecovery | Self::Control | Self::InformationalExceptions => 0x0a,
            Self::DisconnectReconnect => 0x0e,
            Self::Caching => 0x12,
            Self::Provisioning | Self::Capabilities => 0x14,
            Self::ControlExtension => 0x1c,
        }
    }

    /// The page with its header.
    pub(crate) fn bytes(self, control: PageControl, subject: &ModeSubject<'_>) -> Vec<u8> {
        let mut page = self.header(subject);
        page.resize(self.header_len() + self.length(), 0);
        let parameters = match control {
            PageControl::Changeable => {
                self.mark_changeable(&mut page, subject.geometry);
                return page;
            }
            PageControl::Current => subject.current,
            PageControl::Default => ModeParameters::default(),
            PageControl::Saved => subject.saved.unwrap_or_default(),
        };
        self.fill(&mut page, parameters, subject);
        page
    }

    /// Takes the values of a page sent by MODE SELECT, whose bits have been found changeable.
    pub(crate) fn apply(self, page: &[u8], geometry: &Geometry, parameters: &mut ModeParameters) {
        match self {
            Self::ErrorRecovery
            | Self::DisconnectReconnect
            | Self::ControlExtension
            | Self::InformationalExceptions
            | Self::Provisioning
            | Self::Capabilities => {}
            Self::Caching if geometry.volatile_cache => parameters.write_cache = page[2] & WCE != 0,
            Self::Caching => {}
            Self::Control => {
                parameters.descriptor_sense = page[2] & D_SENSE != 0;
                parameters.software_write_protect = page[4] & SWP != 0;
            }
        }
    }

    fn header(self, subject: &ModeSubject<'_>) -> Vec<u8> {
        let can_be_saved = match self {
            Self::Caching | Self::Control => subject.saved.is_some(),
            Self::ErrorRecovery
            | Self::DisconnectReconnect
            | Self::ControlExtension
            | Self::InformationalExceptions
            | Self::Provisioning
            | Self::Capabilities => false,
        };
        let code = self.code() | when(PS, can_be_saved);
        let length = u8::try_from(self.length()).expect("pages are short");
        match self.subpage() {
            0 => vec![code, length],
            subpage => vec![code | SPF, subpage, 0, length],
        }
    }

    fn mark_changeable(self, page: &mut [u8], geometry: &Geometry) {
        match self {
            Self::ErrorRecovery
            | Self::DisconnectReconnect
            | Self::ControlExtension
            | Self::InformationalExceptions
            | Self::Provisioning
            | Self::Capabilities => {}
            // Without a volatile cache there is nothing to switch on or off.
            Self::Caching => page[2] = when(WCE, geometry.volatile_cache),
            Self::Control => {
                page[2] = D_SENSE;
                page[4] = SWP;
            }
        }
    }

    fn fill(self, page: &mut [u8], parameters: ModeParameters, subject: &ModeSubject<'_>) {
        match self {
            Self::ErrorRecovery => page[7] = when(LBPERE, subject.soft_threshold.is_some()),
            // Zeroes: no limit is set on how long a connection is held or a burst is (iSCSI negotiates those).
            Self::DisconnectReconnect => {}
            Self::Caching => {
                page[2] = when(WCE, parameters.write_cache && subject.geometry.volatile_cache);
            }
            Self::Control => {
                // TST 000b, one task set for all nexuses, is so: an ordered command holds those of others too.
                page[2] = GLTSD | when(D_SENSE, parameters.descriptor_sense);
                page[3] = UNRESTRICTED_REORDERING;
                page[4] = when(SWP, parameters.software_write_protect);
                page[5] = when(ATO, subject.is_protected);
            }
            Self::ControlExtension => page[4] = TCMOS | SCSIP | IALUAE,
            Self::InformationalExceptions => page[2] = DEXCPT,
            Self::Capabilities => capabilities(page, subject.is_locked),
            Self::Provisioning => {
                // SITUA 0: every nexus is told.
                if let Some(threshold) = subject.soft_threshold {
                    let bytes = threshold.bytes(subject.geometry);
                    let sets = threshold_sets(bytes, subject.geometry).max(1);
                    page[16] = ENABLED | SOFT | ARMED_BY_INCREASE;
                    page[17] = USED_RESOURCE;
                    page[20..24].copy_from_slice(&sets.to_be_bytes());
                }
            }
        }
    }
}

const fn when(bit: u8, on: bool) -> u8 {
    if on { bit } else { 0 }
}

/// What the drive can do: read CDs and DVDs that were pressed, lock and eject.
fn capabilities(page: &mut [u8], is_locked: bool) {
    page[2] = READS_CD_R | READS_CD_RW | READS_DVD_ROM;
    page[6] = TRAY | EJECTS | LOCKS | when(LOCKED, is_locked);
    // Speeds in thousands of bytes a second: the highest, and the one that is set.
    page[8..10].copy_from_slice(&SPEED.to_be_bytes());
    page[12..14].copy_from_slice(&BUFFER_KIB.to_be_bytes());
    page[14..16].copy_from_slice(&SPEED.to_be_bytes());
}

/// PAGE CODE that asks for all pages.
pub(crate) const ALL_PAGES: u8 = 0x3f;
/// SUBPAGE CODE that asks for all subpages.
pub(crate) const ALL_SUBPAGES: u8 = 0xff;
/// First byte of a page: its parameters can be saved.
const PS: u8 = 0x80;
/// First byte of a page: it has a subpage code.
pub(crate) const SPF: u8 = 0x40;

/// Read-Write Error Recovery, byte 7: thresholds are reported.
const LBPERE: u8 = 0x80;
/// Caching, byte 2: write cache enable.
const WCE: u8 = 0x04;
/// Control, byte 2: descriptor format sense data.
const D_SENSE: u8 = 0x04;
/// Control, byte 2: no log parameter is saved by itself.
const GLTSD: u8 = 0x02;
/// Control, byte 3: QUEUE ALGORITHM MODIFIER 1; tasks with the SIMPLE attribute run in any order.
const UNRESTRICTED_REORDERING: u8 = 0x10;
/// Control, byte 4: software write protect.
const SWP: u8 = 0x08;
/// Control, byte 5: application tags are the initiator's, and nobody else changes them.
const ATO: u8 = 0x80;
/// Control Extension, byte 4: clocks begin otherwise than by a command too; what a command set has precedence; the
/// administrator may change the states of target port groups.
const TCMOS: u8 = 0x04;
const SCSIP: u8 = 0x02;
const IALUAE: u8 = 0x01;
/// Informational Exceptions Control, byte 2: none are reported.
const DEXCPT: u8 = 0x08;
/// Threshold descriptor (SBC-4 §6.5.9), byte 0.
const ENABLED: u8 = 0x80;
/// THRESHOLD TYPE: a warning.
const SOFT: u8 = 0 << 3;
/// THRESHOLD ARMING: crossed from below.
const ARMED_BY_INCREASE: u8 = 1;
/// THRESHOLD RESOURCE: the log parameter of the used mapping resource.
const USED_RESOURCE: u8 = 0x02;

/// CD/DVD Capabilities, byte 2: what is read. Windows takes a drive without CD-R for a very old one.
const READS_CD_R: u8 = 0x01;
const READS_CD_RW: u8 = 0x02;
const READS_DVD_ROM: u8 = 0x08;
/// CD/DVD Capabilities, byte 6: LOADING MECHANISM TYPE, EJECT, LOCK STATE, LOCK.
const TRAY: u8 = 1 << 5;
const EJECTS: u8 = 0x08;
const LOCKED: u8 = 0x02;
const LOCKS: u8 = 0x01;
/// 48 times the speed of audio, as drives say that are not asked to hurry.
const SPEED: u16 = 48 * 176;
const BUFFER_KIB: u16 = 256;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scsi::primary::vpd::tests::geometry;

    /// A unit as it is at first, where nothing can be saved.
    pub(crate) fn subject(geometry: &Geometry) -> ModeSubject<'_> {
        ModeSubject {
            device_type: DeviceType::Disk,
            is_protected: false,
            is_locked: false,
            geometry,
            soft_threshold: None,
            current: ModeParameters::default(),
            saved: None,
        }
    }

    #[test]
    fn application_tags_are_owned_by_initiators_where_there_are_some() {
        let geometry = geometry();
        for (is_protected, ato) in [(false, 0x00), (true, 0x80)] {
            let subject = ModeSubject {
                is_protected,
                ..subject(&geometry)
            };
            assert_eq!(ModePage::Control.bytes(PageControl::Current, &subject)[5], ato);
        }
    }

    #[test]
    fn values_follow_the_parameters() {
        let changed = ModeParameters {
            write_cache: false,
            descriptor_sense: true,
            software_write_protect: true,
        };
        let geometry = geometry();
        let subject = ModeSubject {
            current: changed,
            ..subject(&geometry)
        };
        use PageControl::{Changeable, Current, Default, Saved};
        for (page, control, expected) in [
            (ModePage::Control, Current, &[0x0a, 0x0a, 0x06, 0x10, 0x08][..]),
            (ModePage::Control, Default, &[0x0a, 0x0a, 0x02, 0x10, 0x00]),
            (ModePage::Control, Changeable, &[0x0a, 0x0a, 0x04, 0x00, 0x08]),
            (ModePage::Caching, Current, &[0x08, 0x12, 0x00]),
            (ModePage::Caching, Default, &[0x08, 0x12, 0x04]),
            (ModePage::Caching, Changeable, &[0x08, 0x12, 0x04]),
        ] {
            assert_eq!(
                &page.bytes(control, &subject)[..expected.len()],
                expected,
                "{page:?} {control:?}"
            );
        }
        let saving = ModeSubject {
            saved: Some(changed),
            ..subject
        };
        assert_eq!(ModePage::Caching.bytes(Saved, &saving)[..3], [0x88, 0x12, 0x00]);
        assert_eq!(ModePage::Control.bytes(Saved, &saving)[..3], [0x8a, 0x0a, 0x06]);
    }

    #[test]
    fn clocks_obey_set_timestamp_and_nobody_can_change_that() {
        let geometry = geometry();
        let page = |control| ModePage::ControlExtension.bytes(control, &subject(&geometry));
        for control in [PageControl::Current, PageControl::Default] {
            assert_eq!(page(control)[..6], [0x4a, 0x01, 0, 0x1c, 0x07, 0]);
            assert_eq!(page(control)[6..], [0; 26]);
        }
        assert_eq!(page(PageControl::Changeable)[4..], [0; 28]);
    }

    #[test]
    fn a_store_without_volatile_cache_has_none_to_enable() {
        let stable = Geometry {
            volatile_cache: false,
            ..geometry()
        };
        for control in [
            PageControl::Current,
            PageControl::Default,
            PageControl::Changeable,
        ] {
            let page = ModePage::Caching.bytes(control, &subject(&stable));
            assert_eq!(page[2], 0, "{control:?}");
        }
    }

    #[test]
    fn pages_say_their_length() {
        let geometry = geometry();
        let thin = ModeSubject {
            soft_threshold: Some(SoftThreshold::Percent(80)),
            ..subject(&geometry)
        };
        assert_eq!(ModePage::of(&thin).count(), 7);
        for page in ModePage::of(&thin) {
            let bytes = page.bytes(PageControl::Current, &thin);
            let length = if page.subpage() == 0 { bytes[1] } else { bytes[3] };
            assert_eq!(bytes.len(), usize::from(length) + page.header_len());
        }
    }

    #[test]
    fn the_threshold_is_told_where_there_is_one() {
        let geometry = geometry();
        assert!(!ModePage::of(&subject(&geometry)).any(|page| page == ModePage::Provisioning));
        let thin = ModeSubject {
            soft_threshold: Some(SoftThreshold::Bytes(0x123 << 20)),
            ..subject(&geometry)
        };
        let page = ModePage::Provisioning.bytes(PageControl::Current, &thin);
        assert_eq!(page[..4], [0x5c, 0x02, 0, 0x14]);
        assert_eq!(page[4..16], [0; 12]);
        assert_eq!(page[16..], [0x81, 0x02, 0, 0, 0, 0, 0x01, 0x23]);
        assert_eq!(
            ModePage::ErrorRecovery.bytes(PageControl::Current, &thin)[7],
            0x80
        );
        assert_eq!(
            ModePage::Provisioning.bytes(PageControl::Changeable, &thin)[4..],
            [0; 20]
        );
    }

    #[test]
    fn what_is_kept_can_be_taken_back() {
        for bits in 0..8_u8 {
            let parameters = ModeParameters {
                write_cache: bits & 1 != 0,
                descriptor_sense: bits & 2 != 0,
                software_write_protect: bits & 4 != 0,
            };
            assert_eq!(ModeParameters::from_text(&parameters.to_text()), Some(parameters));
        }
        assert_eq!(ModeParameters::from_text("WCE=2"), None);
        assert_eq!(ModeParameters::from_text("colour=1"), None);
    }
}
