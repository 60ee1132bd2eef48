//! Sense data (SPC-4 §4.5): the one place that knows sense keys and additional sense codes, and the one encoder.

use backstores::{StoreError, StoreErrorKind, StoreOp};

/// Sense key (SPC-4 §4.5).
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
    /// COMMAND-SPECIFIC INFORMATION.
    pub command_specific: Option<u32>,
    /// Progress indication, 0 to 65535 (SPC-4 §4.5.2.4.4).
    pub progress: Option<u16>,
    /// The unit's D_SENSE when the command ended: the format that [`encode`](Self::encode) is to be asked for.
    pub descriptor_format: bool,
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
            command_specific: None,
            progress: None,
            descriptor_format: false,
        }
    }

    /// The same, pointing at a field of the CDB (SPC-4 §4.5.2.4.2). `bit` is the field's most significant bit when it is
    /// smaller than its byte.
    #[must_use]
    pub const fn in_cdb(self, byte: u16, bit: Option<u8>) -> Self {
        Self {
            field: Some(FieldPointer {
                in_cdb: true,
                byte,
                bit,
            }),
            ..self
        }
    }

    /// The same, pointing at a field of the parameter list.
    #[must_use]
    pub const fn in_parameters(self, byte: u16, bit: Option<u8>) -> Self {
        Self {
            field: Some(FieldPointer {
                in_cdb: false,
                byte,
                bit,
            }),
            ..self
        }
    }

    /// The same with an INFORMATION field.
    #[must_use]
    pub const fn at(self, information: u64) -> Self {
        Self {
            information: Some(information),
            ..self
        }
    }

    /// The same for a copy that stopped at a segment: its number is COMMAND-SPECIFIC INFORMATION, and the place inside its
    /// descriptor is pointed at (SPC-4 §4.5.2.4.5).
    #[must_use]
    pub const fn in_segment(self, segment: u16, byte: Option<u16>) -> Self {
        let field = match byte {
            Some(byte) => Some(FieldPointer {
                in_cdb: false,
                byte,
                bit: None,
            }),
            None => None,
        };
        Self {
            field,
            command_specific: Some(segment as u32),
            ..self
        }
    }

    /// The sense a store's error becomes. It does not know block sizes, so that INFORMATION stays empty; a caller
    /// that knows the block adds it with [`at`](Self::at).
    #[must_use]
    pub const fn from_store(error: &StoreError) -> Self {
        match (error.kind, error.op) {
            // Ranges were checked before: the medium below the unit shrank.
            (StoreErrorKind::Medium | StoreErrorKind::OutOfRange, StoreOp::Extent | StoreOp::Read) => {
                Self::UNRECOVERED_READ_ERROR
            }
            (
                StoreErrorKind::Medium | StoreErrorKind::OutOfRange,
                StoreOp::EraseKey | StoreOp::Flush | StoreOp::Unmap | StoreOp::Write | StoreOp::WriteZeroes,
            ) => Self::WRITE_ERROR,
            // Commands ask for the store's abilities before they use them.
            (StoreErrorKind::NotSupported, _) => Self::INTERNAL_TARGET_FAILURE,
            (StoreErrorKind::Guard, _) => Self::LOGICAL_BLOCK_GUARD_CHECK_FAILED,
            (StoreErrorKind::ReferenceTag, _) => Self::LOGICAL_BLOCK_REFERENCE_TAG_CHECK_FAILED,
            (StoreErrorKind::NoSpace, _) => Self::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
            (StoreErrorKind::Offline, _) => Self::LOGICAL_UNIT_NOT_READY,
            (StoreErrorKind::ReadOnly, _) => Self::WRITE_PROTECTED,
        }
    }

    /// Fixed (0x70) or descriptor (0x72) format (SPC-4 §4.5.3, §4.5.2).
    #[must_use]
    pub fn encode(&self, descriptor_format: bool) -> Vec<u8> {
        if descriptor_format {
            self.encode_descriptors()
        } else {
            self.encode_fixed().to_vec()
        }
    }

    fn encode_fixed(&self) -> [u8; FIXED_LEN] {
        let mut bytes = [0; FIXED_LEN];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        // A value that does not fit is left out: VALID says whether there is one (§4.5.3).
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10; // bytes that follow this one
        bytes[8..12].copy_from_slice(&self.command_specific.unwrap_or(0).to_be_bytes());
        (bytes[12], bytes[13]) = self.code;
        if let Some(specific) = self.key_specific() {
            bytes[15..18].copy_from_slice(&specific);
        }
        bytes
    }

    fn encode_descriptors(&self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key as u8, self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend([0x00, 0x0a, 0x80, 0]); // information descriptor (§4.5.2.2), VALID
            bytes.extend(information.to_be_bytes());
        }
        if let Some(specific) = self.command_specific {
            bytes.extend([0x01, 0x0a, 0, 0]); // command-specific information descriptor (§4.5.2.3)
            bytes.extend(u64::from(specific).to_be_bytes());
        }
        if let Some([a, b, c]) = self.key_specific() {
            bytes.extend([0x02, 0x06, 0, 0, a, b, c, 0]); // sense key specific descriptor (§4.5.2.4)
        }
        bytes[7] = u8::try_from(bytes.len() - 8).expect("three short descriptors");
        bytes
    }

    /// SENSE KEY SPECIFIC with SKSV set: where the fault is, else how far a long operation got.
    fn key_specific(&self) -> Option<[u8; 3]> {
        let with_word = |flags: u8, word: u16| {
            let [high, low] = word.to_be_bytes();
            [0x80 | flags, high, low]
        };
        match (self.field, self.progress) {
            (Some(field), _) => {
                let source = match (field.in_cdb, self.key) {
                    (true, _) => 0x40,
                    // A segment pointer, relative to the segment's descriptor.
                    (false, SenseKey::CopyAborted) => 0x20,
                    (false, _) => 0,
                };
                let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 7));
                Some(with_word(source | bit, field.byte))
            }
            (None, Some(progress)) => Some(with_word(0, progress)),
            (None, None) => None,
        }
    }
}

/// The codes a transport or a connection needs, named as SPC-4 and RFC 7143 §11.4.7.2 print them.
impl Sense {
    /// 0B/0C/0C: unsolicited data where none were allowed.
    pub const UNEXPECTED_UNSOLICITED_DATA: Self = Self::new(SenseKey::AbortedCommand, 0x0c, 0x0c);
    /// 0B/0C/0D: not as much data as announced.
    pub const NOT_ENOUGH_UNSOLICITED_DATA: Self = Self::new(SenseKey::AbortedCommand, 0x0c, 0x0d);
    /// 0B/00/00: aborted for the sake of other commands; the initiator may repeat it.
    pub const ABORTED_COMMAND: Self = Self::new(SenseKey::AbortedCommand, 0x00, 0x00);
    /// 0B/47/05: a data digest did not match.
    pub const PROTOCOL_SERVICE_CRC_ERROR: Self = Self::new(SenseKey::AbortedCommand, 0x47, 0x05);
    /// 0B/11/13 is SNACK's; 0B/4B/00 DATA PHASE ERROR: offsets or lengths that do not fit the R2T.
    pub const DATA_PHASE_ERROR: Self = Self::new(SenseKey::AbortedCommand, 0x4b, 0x00);
}

/// The codes of commands, by key and code, named as SPC-4 lists them.
#[expect(missing_docs, reason = "the names are SPC-4's")]
impl Sense {
    pub const NO_SENSE: Self = Self::new(SenseKey::NoSense, 0x00, 0x00);

    pub const LOGICAL_UNIT_NOT_READY: Self = Self::new(SenseKey::NotReady, 0x04, 0x00);
    pub const INITIALIZING_COMMAND_REQUIRED: Self = Self::new(SenseKey::NotReady, 0x04, 0x02);
    pub const FORMAT_IN_PROGRESS: Self = Self::new(SenseKey::NotReady, 0x04, 0x04);
    pub const LOGICAL_UNIT_FAILED_SELF_TEST: Self = Self::new(SenseKey::HardwareError, 0x3e, 0x03);
    pub const SELF_TEST_IN_PROGRESS: Self = Self::new(SenseKey::NotReady, 0x04, 0x09);
    pub const TARGET_PORT_IN_STANDBY_STATE: Self = Self::new(SenseKey::NotReady, 0x04, 0x0b);
    pub const TARGET_PORT_IN_UNAVAILABLE_STATE: Self = Self::new(SenseKey::NotReady, 0x04, 0x0c);
    pub const SANITIZE_IN_PROGRESS: Self = Self::new(SenseKey::NotReady, 0x04, 0x1b);
    pub const MEDIUM_NOT_PRESENT: Self = Self::new(SenseKey::NotReady, 0x3a, 0x00);
    pub const MEDIUM_NOT_PRESENT_TRAY_OPEN: Self = Self::new(SenseKey::NotReady, 0x3a, 0x02);

    pub const WRITE_ERROR: Self = Self::new(SenseKey::MediumError, 0x0c, 0x00);
    pub const UNRECOVERED_READ_ERROR: Self = Self::new(SenseKey::MediumError, 0x11, 0x00);
    pub const FORMAT_COMMAND_FAILED: Self = Self::new(SenseKey::MediumError, 0x31, 0x01);
    pub const SANITIZE_COMMAND_FAILED: Self = Self::new(SenseKey::MediumError, 0x31, 0x03);

    pub const INTERNAL_TARGET_FAILURE: Self = Self::new(SenseKey::HardwareError, 0x44, 0x00);

    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self::new(SenseKey::IllegalRequest, 0x1a, 0x00);
    pub const INVALID_COMMAND_OPERATION_CODE: Self = Self::new(SenseKey::IllegalRequest, 0x20, 0x00);
    pub const LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE: Self = Self::new(SenseKey::IllegalRequest, 0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self::new(SenseKey::IllegalRequest, 0x24, 0x00);
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self::new(SenseKey::IllegalRequest, 0x25, 0x00);
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x00);
    pub const PARAMETER_NOT_SUPPORTED: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x01);
    pub const PARAMETER_VALUE_INVALID: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x02);
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: Self =
        Self::new(SenseKey::IllegalRequest, 0x26, 0x04);
    pub const CANNOT_READ_MEDIUM_INCOMPATIBLE_FORMAT: Self = Self::new(SenseKey::IllegalRequest, 0x30, 0x02);
    pub const SAVING_PARAMETERS_NOT_SUPPORTED: Self = Self::new(SenseKey::IllegalRequest, 0x39, 0x00);
    pub const OPERATION_IN_PROGRESS: Self = Self::new(SenseKey::IllegalRequest, 0x00, 0x16);
    pub const UNSUPPORTED_TOKEN_TYPE: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x01);
    pub const TOKEN_UNKNOWN: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x04);
    pub const TOKEN_CORRUPT: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x05);
    pub const TOKEN_REVOKED: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x06);
    pub const TOKEN_EXPIRED: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x07);
    pub const TOKEN_CANCELLED: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x08);
    pub const TOKEN_DELETED: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x09);
    pub const INVALID_TOKEN_LENGTH: Self = Self::new(SenseKey::IllegalRequest, 0x23, 0x0a);
    pub const TOO_MANY_TARGET_DESCRIPTORS: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x06);
    pub const UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x07);
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x08);
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE: Self =
        Self::new(SenseKey::IllegalRequest, 0x26, 0x09);
    pub const INLINE_DATA_LENGTH_EXCEEDED: Self = Self::new(SenseKey::IllegalRequest, 0x26, 0x0b);
    pub const INSUFFICIENT_RESOURCES: Self = Self::new(SenseKey::IllegalRequest, 0x55, 0x03);
    pub const INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN: Self =
        Self::new(SenseKey::IllegalRequest, 0x55, 0x0d);
    pub const INVALID_MESSAGE_ERROR: Self = Self::new(SenseKey::IllegalRequest, 0x49, 0x00);
    pub const MEDIUM_REMOVAL_PREVENTED: Self = Self::new(SenseKey::IllegalRequest, 0x53, 0x02);
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: Self = Self::new(SenseKey::IllegalRequest, 0x55, 0x04);
    pub const ILLEGAL_MODE_FOR_THIS_TRACK: Self = Self::new(SenseKey::IllegalRequest, 0x64, 0x00);

    pub const NOT_READY_TO_READY_CHANGE: Self = Self::new(SenseKey::UnitAttention, 0x28, 0x00);
    pub const POWER_ON_OR_RESET_OCCURRED: Self = Self::new(SenseKey::UnitAttention, 0x29, 0x00);
    pub const POWER_ON_OCCURRED: Self = Self::new(SenseKey::UnitAttention, 0x29, 0x01);
    pub const DEVICE_RESET_FUNCTION_OCCURRED: Self = Self::new(SenseKey::UnitAttention, 0x29, 0x03);
    pub const I_T_NEXUS_LOSS_OCCURRED: Self = Self::new(SenseKey::UnitAttention, 0x29, 0x07);
    pub const LOG_PARAMETERS_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x02);
    pub const TIMESTAMP_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x10);
    pub const MODE_PARAMETERS_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x01);
    pub const ASYMMETRIC_ACCESS_STATE_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x06);
    pub const RESERVATIONS_PREEMPTED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x03);
    pub const RESERVATIONS_RELEASED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x04);
    pub const REGISTRATIONS_PREEMPTED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x05);
    pub const CAPACITY_DATA_HAS_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x2a, 0x09);
    pub const COMMANDS_CLEARED_BY_ANOTHER_INITIATOR: Self = Self::new(SenseKey::UnitAttention, 0x2f, 0x00);
    pub const THIN_PROVISIONING_SOFT_THRESHOLD_REACHED: Self = Self::new(SenseKey::UnitAttention, 0x38, 0x07);
    pub const COMMANDS_CLEARED_BY_PROTOCOL_EVENT: Self = Self::new(SenseKey::UnitAttention, 0x47, 0x7f);
    pub const INQUIRY_DATA_HAS_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x3f, 0x03);
    pub const DEVICE_IDENTIFIER_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x3f, 0x05);
    pub const REPORTED_LUNS_DATA_HAS_CHANGED: Self = Self::new(SenseKey::UnitAttention, 0x3f, 0x0e);

    pub const WRITE_PROTECTED: Self = Self::new(SenseKey::DataProtect, 0x27, 0x00);
    pub const SPACE_ALLOCATION_FAILED_WRITE_PROTECT: Self = Self::new(SenseKey::DataProtect, 0x27, 0x07);

    pub const LOGICAL_BLOCK_GUARD_CHECK_FAILED: Self = Self::new(SenseKey::AbortedCommand, 0x10, 0x01);
    pub const LOGICAL_BLOCK_REFERENCE_TAG_CHECK_FAILED: Self =
        Self::new(SenseKey::AbortedCommand, 0x10, 0x03);
    pub const COPY_ABORTED: Self = Self::new(SenseKey::CopyAborted, 0x00, 0x00);
    pub const UNREACHABLE_COPY_TARGET: Self = Self::new(SenseKey::CopyAborted, 0x08, 0x04);
    pub const THIRD_PARTY_DEVICE_FAILURE: Self = Self::new(SenseKey::CopyAborted, 0x0d, 0x01);
    pub const COPY_TARGET_DEVICE_NOT_REACHABLE: Self = Self::new(SenseKey::CopyAborted, 0x0d, 0x02);
    pub const INCORRECT_COPY_TARGET_DEVICE_TYPE: Self = Self::new(SenseKey::CopyAborted, 0x0d, 0x03);
    pub const UNEXPECTED_INEXACT_SEGMENT: Self = Self::new(SenseKey::CopyAborted, 0x26, 0x0a);

    pub const MISCOMPARE_DURING_VERIFY_OPERATION: Self = Self::new(SenseKey::Miscompare, 0x1d, 0x00);
}

/// Length of fixed-format sense data.
const FIXED_LEN: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_without_detail() {
        assert_eq!(
            Sense::MEDIUM_NOT_PRESENT.encode(false),
            [0x70, 0, 0x02, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x3a, 0x00, 0, 0, 0, 0]
        );
    }

    #[test]
    fn fixed_format_carries_a_short_lba_and_says_when_it_cannot() {
        let sense = Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE;
        let short = sense.at(0x0102_0304).encode(false);
        assert_eq!(short[..8], [0xf0, 0, 0x05, 1, 2, 3, 4, 10]);
        let long = sense.at(0x1_0000_0000).encode(false);
        assert_eq!(long[..8], [0x70, 0, 0x05, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn descriptor_format_carries_a_long_lba() {
        assert_eq!(
            Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE
                .at(0x1_0000_0002)
                .encode(true),
            [
                0x72, 0x05, 0x21, 0x00, 0, 0, 0, 12, 0x00, 0x0a, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 2
            ]
        );
    }

    #[test]
    fn field_pointers_name_byte_and_bit() {
        let in_cdb = Sense::INVALID_FIELD_IN_CDB.in_cdb(1, Some(7));
        assert_eq!(in_cdb.encode(false)[15..], [0xcf, 0, 1]);
        let in_list = Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(0x0102, None);
        assert_eq!(in_list.encode(false)[15..], [0x80, 1, 2]);
        assert_eq!(
            in_cdb.encode(true),
            [
                0x72, 0x05, 0x24, 0x00, 0, 0, 0, 8, 0x02, 0x06, 0, 0, 0xcf, 0, 1, 0
            ]
        );
    }

    #[test]
    fn segment_pointers_name_the_segment_and_a_place_in_it() {
        let sense = Sense::UNREACHABLE_COPY_TARGET.in_segment(3, Some(6));
        let fixed = sense.encode(false);
        assert_eq!(fixed[2..4], [0x0a, 0]);
        assert_eq!(fixed[8..], [0, 0, 0, 3, 0x08, 0x04, 0, 0xa0, 0, 6]);
        assert_eq!(
            sense.encode(true)[7..],
            [
                20, 0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x02, 0x06, 0, 0, 0xa0, 0, 6, 0
            ]
        );
    }

    #[test]
    fn progress_is_key_specific_too() {
        let sense = Sense {
            progress: Some(0x8000),
            ..Sense::LOGICAL_UNIT_NOT_READY
        };
        assert_eq!(sense.encode(false)[15..], [0x80, 0x80, 0x00]);
    }

    #[test]
    fn every_store_error_has_the_sense_of_its_cause() {
        use StoreErrorKind::{Medium, NoSpace, NotSupported, Offline, OutOfRange, ReadOnly};
        const CASES: [(StoreErrorKind, StoreOp, u8, u8, u8); 11] = [
            (Medium, StoreOp::Read, 0x3, 0x11, 0x00),
            (Medium, StoreOp::Write, 0x3, 0x0c, 0x00),
            (Medium, StoreOp::Flush, 0x3, 0x0c, 0x00),
            (Medium, StoreOp::Unmap, 0x3, 0x0c, 0x00),
            (Medium, StoreOp::WriteZeroes, 0x3, 0x0c, 0x00),
            (Medium, StoreOp::EraseKey, 0x3, 0x0c, 0x00),
            (NotSupported, StoreOp::EraseKey, 0x4, 0x44, 0x00),
            (NoSpace, StoreOp::Write, 0x7, 0x27, 0x07),
            (Offline, StoreOp::Read, 0x2, 0x04, 0x00),
            (OutOfRange, StoreOp::Read, 0x3, 0x11, 0x00),
            (ReadOnly, StoreOp::Write, 0x7, 0x27, 0x00),
        ];
        for (kind, op, key, asc, ascq) in CASES {
            let sense = Sense::from_store(&StoreError {
                kind,
                op,
                at: 4096,
                source: None,
            });
            assert_eq!(
                (sense.key as u8, sense.code),
                (key, (asc, ascq)),
                "{kind:?} {op:?}"
            );
        }
    }
}
