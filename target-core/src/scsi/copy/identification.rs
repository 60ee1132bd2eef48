//! CSCD descriptors (SPC-4): which logical unit a copy means, told by one of the names in its device
//! identification page (E4h, identification descriptor). No other form is supported.

use std::sync::Arc;

use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::unit_names;
use crate::scsi::{DeviceType, Failure, LogicalUnit, Sense};

/// Length of a descriptor.
pub(super) const CSCD_LEN: usize = 32;

/// A descriptor that names a unit by a designator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Cscd {
    code_set: u8,
    kind: u8,
    designator: Vec<u8>,
    device_type: u8,
    block: u32,
    /// Where the descriptor is in the parameter list.
    at: u16,
}

impl Cscd {
    /// Reads the descriptor at byte `at` of the parameter list. LU ID TYPE and the fields of other transports say
    /// nothing in this form and are not looked at.
    pub(super) fn parse(bytes: &[u8], at: u16) -> Result<Self, Failure> {
        let fields = Cdb::new(bytes);
        if fields.u8_at(0) != IDENTIFICATION {
            return Err(Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE
                .in_parameters(at, None)
                .into());
        }
        let len = usize::from(fields.u8_at(7));
        let designator = bytes.get(8..8 + len).filter(|_| len <= 20).ok_or_else(|| {
            Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(at.saturating_add(7), None)
        })?;
        Ok(Self {
            code_set: fields.u8_at(4) & 0x0f,
            // Association and designator type: only names of logical units can be meant.
            kind: fields.u8_at(5) & 0x3f,
            designator: designator.to_vec(),
            device_type: fields.u8_at(1) & 0x1f,
            block: fields.u24_at(29),
            at,
        })
    }

    /// The unit, if the nexus can reach it. The sense is that of a copy that cannot begin.
    pub(super) fn resolve(&self, context: &CommandContext<'_>) -> Result<Arc<LogicalUnit>, Sense> {
        if self.device_type != 0 {
            return Err(Sense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
        }
        let unit = context
            .find_unit(|unit| self.names(unit))
            .ok_or(Sense::COPY_TARGET_DEVICE_NOT_REACHABLE)?;
        if unit.config().device_type != DeviceType::Disk {
            return Err(Sense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
        }
        // Who has another block size in mind means other blocks.
        if self.block != unit.store().geometry().block_size {
            return Err(
                Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(self.at.saturating_add(29), None)
            );
        }
        Ok(unit)
    }

    fn names(&self, unit: &LogicalUnit) -> bool {
        if self.kind == NAA {
            // The common case, which costs nothing on a device with many units.
            return self.code_set == BINARY && unit.config().naa == self.designator;
        }
        let named = (self.code_set, self.kind, &self.designator);
        let names = unit_names(unit.config());
        names
            .iter()
            .any(|(code_set, kind, name)| named == (*code_set, *kind, name))
    }
}

/// A descriptor for `unit`, as a token names its creator.
pub(super) fn describe(unit: &LogicalUnit) -> [u8; CSCD_LEN] {
    let naa = &unit.config().naa;
    let mut descriptor = [0; CSCD_LEN];
    descriptor[0] = IDENTIFICATION;
    descriptor[4] = BINARY;
    descriptor[5] = NAA;
    descriptor[7] = u8::try_from(naa.len()).expect("NAA identifiers have 8 or 16 bytes");
    descriptor[8..8 + naa.len()].copy_from_slice(naa);
    descriptor[29..].copy_from_slice(&unit.store().geometry().block_size.to_be_bytes()[1..]);
    descriptor
}

/// Type code of the identification descriptor.
pub(super) const IDENTIFICATION: u8 = 0xe4;
const BINARY: u8 = 1;
const NAA: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::testing::unit;

    fn code(bytes: &[u8]) -> (u8, u8) {
        match Cscd::parse(bytes, 16) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_unit_is_described_as_it_can_be_found() {
        let descriptor = describe(&unit(8));
        assert_eq!(descriptor[..9], [0xe4, 0, 0, 0, 1, 3, 0, 16, 0x60]);
        assert_eq!(descriptor[24..], [0, 0, 0, 0, 0, 0, 2, 0]);
        let cscd = Cscd::parse(&descriptor, 16).unwrap();
        assert_eq!((cscd.kind, cscd.code_set, cscd.block), (3, 1, 512));
        assert_eq!(cscd.designator.len(), 16);
    }

    #[test]
    fn other_forms_and_designators_that_are_too_long_are_refused() {
        let mut descriptor = describe(&unit(8));
        descriptor[7] = 21;
        assert_eq!(code(&descriptor), (0x26, 0x00));
        descriptor[7] = 0xff;
        assert_eq!(code(&descriptor), (0x26, 0x00));
        for kind in [0xe0, 0xe1, 0xe9, 0xea, 0xfe, 0x00] {
            descriptor[0] = kind;
            assert_eq!(code(&descriptor), (0x26, 0x07), "{kind:#x}");
        }
    }
}
