//! READ CAPACITY (10) and (16) (SBC-4).

use backstores::Geometry;

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::primary::vpd::is_thin;
use crate::scsi::table::{CommandSpec, Devices, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const READ_CAPACITY_10: CommandSpec = CommandSpec {
    opcode: 0x25,
    service_action: None,
    name: "READ CAPACITY (10)",
    usage: &[0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, PMI, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::All,
        reservation: ReservationClass::Persistent,
        ..Needs::MEDIUM
    },
    timeout_s: 10,
    operation: Operation::ReadCapacity10,
};

pub(crate) const READ_CAPACITY_16: CommandSpec = CommandSpec {
    opcode: 0x9e,
    service_action: Some(0x10),
    name: "READ CAPACITY (16)",
    usage: &[
        0x9e, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, PMI, 0,
    ],
    needs: Needs::MEDIUM,
    operation: Operation::ReadCapacity16,
    ..READ_CAPACITY_10
};

pub(crate) async fn run_10(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    check_pmi(u64::from(cdb.u32_at(2)), cdb.bit(8, 0))?;
    let parameters = capacity_10(&context.unit().store().geometry());
    data.put_parameters(&parameters, parameters.len()).await
}

pub(crate) async fn run_16(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    check_pmi(cdb.u64_at(2), cdb.bit(14, 0))?;
    let unit = context.unit();
    let geometry = unit.store().geometry();
    let parameters = capacity_16(&geometry, is_thin(unit.config(), &geometry), unit.is_protected());
    data.put_parameters(&parameters, cdb.u32_at(10) as usize).await
}

/// LBA and PMI are obsolete, but were never allowed to contradict each other: an LBA counts only with PMI. Nothing on
/// this medium is slow to reach, so that with PMI the last block is the answer too.
fn check_pmi(lba: u64, pmi: bool) -> Result<(), Failure> {
    if lba != 0 && !pmi {
        return Err(Cdb::invalid_field(2));
    }
    Ok(())
}

/// RETURNED LOGICAL BLOCK ADDRESS and LOGICAL BLOCK LENGTH.
fn capacity_10(geometry: &Geometry) -> [u8; 8] {
    // All ones tells the initiator to ask again with READ CAPACITY (16).
    let last = u32::try_from(last_block(geometry)).unwrap_or(u32::MAX);
    let mut parameters = [0; 8];
    parameters[..4].copy_from_slice(&last.to_be_bytes());
    parameters[4..].copy_from_slice(&geometry.block_size.to_be_bytes());
    parameters
}

fn capacity_16(geometry: &Geometry, thin: bool, is_protected: bool) -> [u8; 32] {
    let exponent = (geometry.physical_block_size / geometry.block_size).ilog2();
    let mut parameters = [0; 32];
    parameters[..8].copy_from_slice(&last_block(geometry).to_be_bytes());
    parameters[8..12].copy_from_slice(&geometry.block_size.to_be_bytes());
    // P_TYPE 0 is type 1. P_I_EXPONENT 0: each block has one piece of it.
    parameters[12] = if is_protected { PROT_EN } else { 0 };
    parameters[13] = u8::try_from(exponent).unwrap_or(0) & 0x0f;
    // LOWEST ALIGNED LOGICAL BLOCK ADDRESS stays 0: stores start on a physical block.
    parameters[14] = if thin { LBPME | LBPRZ } else { 0 };
    parameters
}

fn last_block(geometry: &Geometry) -> u64 {
    (geometry.size / u64::from(geometry.block_size)).saturating_sub(1)
}

/// Partial medium indicator, obsolete since SBC-3.
const PMI: u8 = 0x01;
/// Blocks have protection information.
const PROT_EN: u8 = 0x01;
/// Logical block provisioning management enabled.
const LBPME: u8 = 0x80;
/// Unmapped blocks read as zeroes.
const LBPRZ: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::primary::vpd::tests::geometry;

    #[test]
    fn the_last_block_and_its_length() {
        assert_eq!(capacity_10(&geometry()), [0, 0x1f, 0xff, 0xff, 0, 0, 2, 0]);
        let expected = [0, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0];
        assert_eq!(capacity_16(&geometry(), true, false)[..16], expected);
        assert_eq!(capacity_16(&geometry(), true, false)[16..], [0; 16]);
        assert_eq!(capacity_16(&geometry(), false, false)[14], 0);
        assert_eq!(capacity_16(&geometry(), false, true)[12..14], [0x01, 3]);
    }

    #[test]
    fn a_medium_too_large_for_32_bits_says_all_ones() {
        for (size, last_10, last_16) in [
            (1_u64 << 41, 0xffff_ffff_u32, 0xffff_ffff_u64),
            ((1 << 41) - 512, 0xffff_fffe, 0xffff_fffe),
            (1 << 45, 0xffff_ffff, 0xf_ffff_ffff),
        ] {
            let large = Geometry { size, ..geometry() };
            assert_eq!(capacity_10(&large)[..4], last_10.to_be_bytes());
            assert_eq!(capacity_16(&large, false, false)[..8], last_16.to_be_bytes());
        }
    }
}
