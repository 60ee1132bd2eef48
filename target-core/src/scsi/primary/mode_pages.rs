//! Mode pages (SPC-4 §7.5, SBC-4 §6.5): what each says now, by default, and which of its bits MODE SELECT may change.
//! Pure values; the commands are in `mode_sense.rs` and `mode_select.rs`.

use backstores::Geometry;

use crate::scsi::DeviceType;

/// The mode parameters that an initiator can change. They are shared by all nexuses and never saved.
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

/// Whose pages they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeSubject<'a> {
    /// Which pages there are.
    pub(crate) device_type: DeviceType,
    /// Shape of the medium.
    pub(crate) geometry: &'a Geometry,
    /// Blocks have protection information.
    pub(crate) is_protected: bool,
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
}

/// One page: its code and its content behind the two-byte header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ModePage {
    /// Read-Write Error Recovery (01h).
    ErrorRecovery,
    /// Caching (08h).
    Caching,
    /// Control (0Ah).
    Control,
    /// Informational Exceptions Control (1Ch).
    InformationalExceptions,
    /// CD/DVD Capabilities and Mechanical Status (2Ah, MMC-3 §6.3.11; obsolete, and asked for by everybody).
    Capabilities,
}

impl ModePage {
    /// All pages of a device, ascending, as page code 3Fh returns them.
    pub(crate) const fn all(device_type: DeviceType) -> &'static [Self] {
        match device_type {
            DeviceType::Cdrom => &[
                Self::ErrorRecovery,
                Self::Control,
                Self::InformationalExceptions,
                Self::Capabilities,
            ],
            DeviceType::Disk => &[
                Self::ErrorRecovery,
                Self::Caching,
                Self::Control,
                Self::InformationalExceptions,
            ],
        }
    }

    /// PAGE CODE. No page has subpages.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::ErrorRecovery => 0x01,
            Self::Caching => 0x08,
            Self::Control => 0x0a,
            Self::InformationalExceptions => 0x1c,
            Self::Capabilities => 0x2a,
        }
    }

    /// Bytes behind the header: PAGE LENGTH.
    pub(crate) const fn length(self) -> u8 {
        match self {
            Self::ErrorRecovery | Self::Control | Self::InformationalExceptions => 0x0a,
            Self::Caching => 0x12,
            Self::Capabilities => 0x14,
        }
    }

    /// The page with its header.
    pub(crate) fn bytes(
        self,
        control: PageControl,
        now: ModeParameters,
        subject: &ModeSubject<'_>,
    ) -> Vec<u8> {
        let geometry = subject.geometry;
        let mut page = vec![0; 2 + usize::from(self.length())];
        page[0] = self.code();
        page[1] = self.length();
        let parameters = match control {
            PageControl::Changeable => {
                match self {
                    Self::Capabilities | Self::ErrorRecovery | Self::InformationalExceptions => {}
                    // Without a volatile cache there is nothing to switch on or off.
                    Self::Caching => page[2] = if geometry.volatile_cache { WCE } else { 0 },
                    Self::Control => {
                        page[2] = D_SENSE;
                        page[4] = SWP;
                    }
                }
                return page;
            }
            PageControl::Current => now,
            PageControl::Default => ModeParameters::default(),
        };
        let when = |bit: u8, on: bool| if on { bit } else { 0 };
        match self {
            Self::ErrorRecovery => {}
            Self::Caching => page[2] = when(WCE, parameters.write_cache && geometry.volatile_cache),
            Self::Control => {
                page[2] = GLTSD | when(D_SENSE, parameters.descriptor_sense);
                page[3] = UNRESTRICTED_REORDERING;
                page[4] = when(SWP, parameters.software_write_protect);
                page[5] = when(ATO, subject.is_protected);
            }
            Self::InformationalExceptions => page[2] = DEXCPT,
            Self::Capabilities => capabilities(&mut page),
        }
        page
    }

    /// Takes the values of a page sent by MODE SELECT, whose bits have been found changeable.
    pub(crate) fn apply(self, page: &[u8], geometry: &Geometry, parameters: &mut ModeParameters) {
        match self {
            Self::Capabilities | Self::ErrorRecovery | Self::InformationalExceptions => {}
            Self::Caching if geometry.volatile_cache => parameters.write_cache = page[2] & WCE != 0,
            Self::Caching => {}
            Self::Control => {
                parameters.descriptor_sense = page[2] & D_SENSE != 0;
                parameters.software_write_protect = page[4] & SWP != 0;
            }
        }
    }
}

/// What the drive can do: read CDs and DVDs that were pressed, lock and eject.
fn capabilities(page: &mut [u8]) {
    page[2] = READS_CD_R | READS_CD_RW | READS_DVD_ROM;
    page[6] = TRAY | EJECTS | LOCKS;
    // Speeds in thousands of bytes a second: the highest, and the one that is set.
    page[8..10].copy_from_slice(&SPEED.to_be_bytes());
    page[12..14].copy_from_slice(&BUFFER_KIB.to_be_bytes());
    page[14..16].copy_from_slice(&SPEED.to_be_bytes());
}

/// PAGE CODE that asks for all pages.
pub(crate) const ALL_PAGES: u8 = 0x3f;

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
/// Informational Exceptions Control, byte 2: none are reported.
const DEXCPT: u8 = 0x08;

/// CD/DVD Capabilities, byte 2: what is read. Windows takes a drive without CD-R for a very old one.
const READS_CD_R: u8 = 0x01;
const READS_CD_RW: u8 = 0x02;
const READS_DVD_ROM: u8 = 0x08;
/// CD/DVD Capabilities, byte 6: LOADING MECHANISM TYPE, EJECT, LOCK.
const TRAY: u8 = 1 << 5;
const EJECTS: u8 = 0x08;
const LOCKS: u8 = 0x01;
/// 48 times the speed of audio, as drives say that are not asked to hurry.
const SPEED: u16 = 48 * 176;
const BUFFER_KIB: u16 = 256;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scsi::primary::vpd::tests::geometry;

    /// A disk without protection information.
    pub(crate) const fn disk(geometry: &Geometry) -> ModeSubject<'_> {
        ModeSubject {
            device_type: DeviceType::Disk,
            geometry,
            is_protected: false,
        }
    }

    #[test]
    fn application_tags_are_owned_by_initiators_where_there_are_some() {
        let geometry = geometry();
        for (is_protected, ato) in [(false, 0x00), (true, 0x80)] {
            let subject = ModeSubject {
                is_protected,
                ..disk(&geometry)
            };
            let page = ModePage::Control.bytes(PageControl::Current, ModeParameters::default(), &subject);
            assert_eq!(page[5], ato);
        }
    }

    #[test]
    fn current_values_follow_the_parameters() {
        let changed = ModeParameters {
            write_cache: false,
            descriptor_sense: true,
            software_write_protect: true,
        };
        let page = |page: ModePage, control| page.bytes(control, changed, &disk(&geometry()));
        assert_eq!(
            page(ModePage::Control, PageControl::Current)[..5],
            [0x0a, 0x0a, 0x06, 0x10, 0x08]
        );
        assert_eq!(
            page(ModePage::Control, PageControl::Default)[..5],
            [0x0a, 0x0a, 0x02, 0x10, 0x00]
        );
        assert_eq!(
            page(ModePage::Control, PageControl::Changeable)[..5],
            [0x0a, 0x0a, 0x04, 0x00, 0x08]
        );
        assert_eq!(
            page(ModePage::Caching, PageControl::Current)[..3],
            [0x08, 0x12, 0x00]
        );
        assert_eq!(
            page(ModePage::Caching, PageControl::Default)[..3],
            [0x08, 0x12, 0x04]
        );
        assert_eq!(
            page(ModePage::Caching, PageControl::Changeable)[..3],
            [0x08, 0x12, 0x04]
        );
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
            assert_eq!(
                ModePage::Caching.bytes(control, ModeParameters::default(), &disk(&stable))[2],
                0,
                "{control:?}"
            );
        }
    }

    #[test]
    fn pages_say_their_length() {
        for page in [DeviceType::Cdrom, DeviceType::Disk]
            .into_iter()
            .flat_map(ModePage::all)
        {
            let bytes = page.bytes(
                PageControl::Current,
                ModeParameters::default(),
                &disk(&geometry()),
            );
            assert_eq!(bytes.len(), usize::from(bytes[1]) + 2);
        }
    }
}
