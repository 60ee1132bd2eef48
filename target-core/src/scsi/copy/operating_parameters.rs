//! RECEIVE COPY OPERATING PARAMETERS (SPC-4), once RECEIVE COPY RESULTS with OPERATING PARAMETERS: what EXTENDED
//! COPY (LID1) can do here.

use super::identification::IDENTIFICATION;
use super::limits::{
    CONCURRENT_COPIES, MAXIMUM_CSCD_DESCRIPTORS, MAXIMUM_DESCRIPTOR_LIST, MAXIMUM_SEGMENT_LENGTH,
    MAXIMUM_SEGMENTS, REMEMBERED_COPIES, THIRD_PARTY_COPY_IN,
};
use super::segment::{BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSET};
use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_IN,
    service_action: Some(0x03),
    name: "RECEIVE COPY OPERATING PARAMETERS",
    usage: &[
        THIRD_PARTY_COPY_IN,
        0x03,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Disk,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: table::Operation::CopyOperatingParameters,
};

/// Kinds of descriptors, ascending.
pub(crate) const DESCRIPTOR_KINDS: [u8; 3] = [BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSET, IDENTIFICATION];

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    data.put_parameters(&reply(), cdb.u32_at(10) as usize).await
}

fn reply() -> Vec<u8> {
    let mut reply = vec![0; FIXED_LEN];
    let mut put = |byte: usize, field: &[u8]| reply[byte..][..field.len()].copy_from_slice(field);
    put(4, &[SNLID]);
    put(8, &MAXIMUM_CSCD_DESCRIPTORS.to_be_bytes());
    put(10, &MAXIMUM_SEGMENTS.to_be_bytes());
    put(12, &MAXIMUM_DESCRIPTOR_LIST.to_be_bytes());
    put(16, &MAXIMUM_SEGMENT_LENGTH.to_be_bytes());
    // No inline data, no held data, no stream devices.
    put(34, &u16::from(CONCURRENT_COPIES).to_be_bytes());
    put(36, &[REMEMBERED_COPIES, GRANULARITY]);
    put(43, &[DESCRIPTOR_KINDS.len().to_le_bytes()[0]]);
    reply.extend(DESCRIPTOR_KINDS);
    super::copy_status::complete(&mut reply);
    reply
}

const FIXED_LEN: usize = 44;
/// A copy need not have a list identifier.
const SNLID: u8 = 0x01;
/// DATA SEGMENT GRANULARITY as a power of two: bytes can be copied.
const GRANULARITY: u8 = 0;

#[cfg(test)]
mod tests {
    #[test]
    fn the_reply_tells_the_limits_that_are_enforced() {
        let reply = super::reply();
        assert_eq!(
            reply[..24],
            [
                0, 0, 0, 43, 1, 0, 0, 0, 0, 16, 0, 64, 0, 0, 10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(
            reply[24..],
            [
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 128, 0, 0, 0, 0, 0, 0, 3, 0x02, 0x0a, 0xe4
            ]
        );
    }
}
