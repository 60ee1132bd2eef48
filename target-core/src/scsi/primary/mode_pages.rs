//! Mode pages (SPC-4 §7.5, SBC-4 §6.5): what each says now, by default, and which of its bits MODE SELECT may change.
//! Pure values; the commands are in `mode_sense.rs` and `mode_select.rs`.

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
