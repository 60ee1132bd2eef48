//! Copies through the whole engine, as an initiator sees them, and what such tests have in common.

mod aborts;
mod extended;
mod tokens;

use std::sync::Arc;

use super::identification::describe;
use crate::scsi::testing::{config, device, memory, run, sense, status};
use crate::scsi::{LogicalUnit, Outcome, Status, TargetDevice, UnitConfig};

/// A parameter list of EXTENDED COPY with these CSCDs and segment descriptors.
pub(super) fn extended_copy_list(list: u8, units: &[&Arc<LogicalUnit>], segments: &[Vec<u8>]) -> Vec<u8> {
    let cscds: Vec<u8> = units.iter().flat_map(|unit| describe(unit)).collect();
    let segments = segments.concat();
    let mut bytes = vec![list, 0];
    bytes.extend(u16::try_from(cscds.len()).unwrap().to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(u32::try_from(segments.len()).unwrap().to_be_bytes());
    bytes.extend([0; 4]);
    [bytes, cscds, segments].concat()
}

/// A 02h segment descriptor.
pub(super) fn block_segment(source: u16, destination: u16, blocks: u16, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0x18];
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes
}

/// A 0Ah segment descriptor: count, then block and offset of both ends.
pub(super) fn byte_segment(
    source: u16,
    destination: u16,
    count: u32,
    from: (u64, u16),
    to: (u64, u16),
) -> Vec<u8> {
    let mut bytes = vec![0x0a, 0, 0, 0x1c];
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    bytes.extend(from.0.to_be_bytes());
    bytes.extend(to.0.to_be_bytes());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes
}

/// A CDB of operation code 83h with its parameter list's length.
pub(super) fn out_cdb(action: u8, list: u32, len: usize) -> Vec<u8> {
    let mut cdb = vec![0x83, action, 0, 0, 0, 0];
    cdb.extend(list.to_be_bytes());
    cdb.extend(u32::try_from(len).unwrap().to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// A CDB of operation code 84h for a four-byte list identifier.
pub(super) fn in_cdb(action: u8, list: u32, allocation: u32) -> Vec<u8> {
    let mut cdb = vec![0x84, action];
    cdb.extend(list.to_be_bytes());
    cdb.extend([0; 4]);
    cdb.extend(allocation.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// A parameter list of POPULATE TOKEN.
pub(super) fn populate_list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let len = u16::try_from(16 * ranges.len()).unwrap();
    let mut list = (len + 14).to_be_bytes().to_vec();
    list.resize(14, 0);
    list.extend(len.to_be_bytes());
    list.extend(ranges.iter().flat_map(range));
    list
}

/// A parameter list of WRITE USING TOKEN.
pub(super) fn write_list(flags: u8, offset: u64, token: &[u8], ranges: &[(u64, u32)]) -> Vec<u8> {
    let len = u16::try_from(16 * ranges.len()).unwrap();
    let mut list = (len + 534).to_be_bytes().to_vec();
    list.extend([flags, 0, 0, 0, 0, 0]);
    list.extend(offset.to_be_bytes());
    list.extend(token);
    list.resize(534, 0);
    list.extend(len.to_be_bytes());
    list.extend(ranges.iter().flat_map(range));
    list
}

fn range((lba, blocks): &(u64, u32)) -> Vec<u8> {
    [&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[0; 4]].concat()
}

/// A unit over `blocks` blocks in memory, with a name of its own.
fn named(name: u8, blocks: u64) -> Arc<LogicalUnit> {
    LogicalUnit::new(name_config(name), memory(blocks))
}

fn name_config(name: u8) -> UnitConfig {
    UnitConfig {
        naa: vec![0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, name],
        serial: format!("{name:04}"),
        ..config()
    }
}

/// A device with two units of so many blocks, and the units.
fn pair(blocks: u64) -> (Arc<TargetDevice>, [Arc<LogicalUnit>; 2]) {
    let units = [named(1, blocks), named(2, blocks)];
    (device(&units), units)
}

/// Blocks that tell where they are and what they are.
fn pattern(mark: u8, lba: u64, blocks: u64) -> Vec<u8> {
    (lba..lba + blocks)
        .flat_map(|lba| {
            let mut block = vec![mark; 512];
            block[..8].copy_from_slice(&lba.to_be_bytes());
            block
        })
        .collect()
}

fn rw(opcode: u8, lba: u64, blocks: usize) -> Vec<u8> {
    let mut cdb = vec![opcode, 0];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(u32::try_from(blocks).unwrap().to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

async fn write(device: &Arc<TargetDevice>, lun: u16, lba: u64, data: &[u8]) {
    let (outcome, _) = run(device, lun, &rw(0x8a, lba, data.len() / 512), data).await;
    assert_eq!(status(&outcome), Status::Good);
}

async fn read(device: &Arc<TargetDevice>, lun: u16, lba: u64, blocks: usize) -> Vec<u8> {
    let (outcome, data) = run(device, lun, &rw(0x88, lba, blocks), &[]).await;
    assert_eq!(status(&outcome), Status::Good);
    data
}

/// Sends a command of operation code 83h.
async fn send(device: &Arc<TargetDevice>, lun: u16, action: u8, list: u32, data: &[u8]) -> Outcome {
    run(device, lun, &out_cdb(action, list, data.len()), data).await.0
}

fn code(outcome: &Outcome) -> (u8, u8, u8) {
    let sense = sense(outcome);
    (sense.key as u8, sense.code.0, sense.code.1)
}
