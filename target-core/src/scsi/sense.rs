//! Sense data (SPC-4 §4.5): the one place that knows sense keys and additional sense codes, and the one encoder.

use backstores::StoreError;

/// Sense key (SPC-4 table 45).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are SPC-4's")]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// Where an illegal request is wrong (SPC-4 §4.5.2.4.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FieldPointer {
    /// In the CDB, else in the parameter list.
    pub in_cdb: bool,
    /// Byte.
    pub byte: u16,
    /// Most significant bit of the field, if it is not the whole byte.
    pub bit: Option<u8>,
}

/// What a CHECK CONDITION tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code and qualifier.
    pub code: (u8, u8),
    /// INFORMATION field: an LBA, an offset, as the code defines it.
    pub information: Option<u64>,
    /// Field pointer of an illegal request.
    pub field: Option<FieldPointer>,
    /// Progress indication, 0 to 65535 (SPC-4 §4.5.2.4.4).
    pub progress: Option<u16>,
}

impl Sense {
    /// A sense without further detail.
    #[must_use]
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            code: (asc, ascq),
            information: None,
            field: None,
            progress: None,
        }
    }

    /// The sense a store's error becomes.
    #[must_use]
    pub fn from_store(error: &StoreError) -> Self {
        let _ = error;
        todo!()
    }

    /// Fixed (0x70) or descriptor (0x72) format.
    #[must_use]
    pub fn encode(&self, descriptor_format: bool) -> Vec<u8> {
        let _ = descriptor_format;
        todo!()
    }
}

/// The codes a transport or a connection needs, named as SPC-4 and RFC 7143 §11.4.7.2 print them.
impl Sense {
    /// 0B/0C/0C: unsolicited data where none were allowed.
    pub const UNEXPECTED_UNSOLICITED_DATA: Self = Self::new(SenseKey::AbortedCommand, 0x0c, 0x0c);
    /// 0B/0C/0D: not as much data as announced.
    pub const NOT_ENOUGH_UNSOLICITED_DATA: Self = Self::new(SenseKey::AbortedCommand, 0x0c, 0x0d);
    /// 0B/47/05: a data digest did not match.
    pub const PROTOCOL_SERVICE_CRC_ERROR: Self = Self::new(SenseKey::AbortedCommand, 0x47, 0x05);
    /// 0B/11/13 is SNACK's; 0B/4B/00 DATA PHASE ERROR: offsets or lengths that do not fit the R2T.
    pub const DATA_PHASE_ERROR: Self = Self::new(SenseKey::AbortedCommand, 0x4b, 0x00);
}
