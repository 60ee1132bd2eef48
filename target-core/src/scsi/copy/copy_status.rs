//! RECEIVE COPY STATUS (LID1), once RECEIVE COPY RESULTS with COPY STATUS, and RECEIVE COPY STATUS (LID4) (SPC-4): how
//! far a copy is and how it ended.

use std::sync::atomic::Ordering;

use super::limits::THIRD_PARTY_COPY_IN;
use super::operation::{Conclusion, ListId, Operation};
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, CommandSpec, Devices, Needs, Offer, ReservationClass};
use crate::scsi::{Failure, LogicalUnit};
use crate::transfer::Transfer;

pub(crate) const COPY_STATUS_LID1: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_IN,
    service_action: Some(0x00),
    name: "RECEIVE COPY STATUS (LID1)",
    usage: &[
        THIRD_PARTY_COPY_IN,
        0x00,
        0xff,
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
        reservation: ReservationClass::Persistent,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: table::Operation::CopyStatus,
};

pub(crate) const COPY_STATUS_LID4: CommandSpec = CommandSpec {
    service_action: Some(0x05),
    name: "RECEIVE COPY STATUS (LID4)",
    usage: &[
        THIRD_PARTY_COPY_IN,
        0x05,
        0xff,
        0xff,
        0xff,
        0xff,
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
    ..COPY_STATUS_LID1
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let short = Some(cdb.service_action()) == COPY_STATUS_LID1.service_action;
    let list = if short {
        ListId::Short(cdb.u8_at(2))
    } else {
        ListId::Long(cdb.u32_at(2))
    };
    let operation = context
        .unit()
        .copies()
        .find(context.nexus(), list)
        .ok_or_else(|| Cdb::invalid_field(2))?;
    let mut reply = if short {
        short_form(&operation)
    } else {
        long_form(&operation, context.unit())
    };
    complete(&mut reply);
    data.put_parameters(&reply, cdb.u32_at(10) as usize).await
}

/// LID1: COPY COMMAND STATUS 0, 1 or 2, the segments done, and the bytes in the smallest unit that can tell them.
fn short_form(operation: &Operation) -> Vec<u8> {
    let status = match operation.ending().map(|ending| ending.how) {
        None => 0,
        Some(Conclusion::Complete | Conclusion::Residual) => 1,
        Some(Conclusion::Failed | Conclusion::Terminated) => 2,
    };
    let bytes = operation.bytes.load(Ordering::Relaxed);
    let (units, count) = (0..6)
        .find_map(|units: u8| Some((units, u32::try_from(bytes >> (10 * units)).ok()?)))
        .expect("64 bits are fewer than 32 and 50");
    let mut reply = vec![0; 4];
    reply.push(status);
    reply.extend(operation.segments.load(Ordering::Relaxed).to_be_bytes());
    reply.push(units);
    reply.extend(count.to_be_bytes());
    reply
}

/// LID4, and the beginning of ROD token information: up to the sense data of the copy, those included. The length in
/// front is left open.
pub(super) fn long_form(operation: &Operation, unit: &LogicalUnit) -> Vec<u8> {
    let ending = operation.ending();
    let status = match ending.as_ref().map(|ending| ending.how) {
        Some(Conclusion::Complete) => 0x01,
        Some(Conclusion::Failed) => 0x02,
        Some(Conclusion::Residual) => 0x03,
        Some(Conclusion::Terminated) => 0x60,
        None if operation.background.load(Ordering::Relaxed) => 0x12,
        None => 0x11,
    };
    let block = u64::from(unit.store().geometry().block_size);
    let blocks = operation.bytes.load(Ordering::Relaxed) / block;
    let (completion, sense) = ending.map_or((0, Vec::new()), |ending| (ending.status, ending.sense));
    let sense_len = u8::try_from(sense.len()).expect("sense data have a few bytes");
    let mut reply = vec![0; FIXED_LEN];
    reply[4] = operation.service_action;
    reply[5] = status;
    reply[8..12].copy_from_slice(&UPDATE_DELAY_MS.to_be_bytes());
    reply[12] = completion;
    (reply[13], reply[14]) = (sense_len, sense_len);
    reply[15] = IN_BLOCKS;
    reply[16..24].copy_from_slice(&blocks.to_be_bytes());
    reply[24..26].copy_from_slice(&operation.segments.load(Ordering::Relaxed).to_be_bytes());
    reply.extend(sense);
    reply
}

/// Fills in AVAILABLE DATA, which counts from behind itself.
pub(super) fn complete(reply: &mut [u8]) {
    let len = u32::try_from(reply.len() - 4).expect("replies have a few hundred bytes");
    reply[..4].copy_from_slice(&len.to_be_bytes());
}

/// What precedes the sense data.
const FIXED_LEN: usize = 32;
/// ESTIMATED STATUS UPDATE DELAY: when to ask again.
const UPDATE_DELAY_MS: u32 = 100;
/// TRANSFER COUNT UNITS: logical blocks.
const IN_BLOCKS: u8 = 0xf1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::copy::CopyOperations;
    use crate::scsi::testing::{nexus, unit};
    use crate::scsi::{Failure, Sense};
    use crate::transfer::AbortSignal;

    #[test]
    fn a_copy_is_told_from_its_beginning_to_its_end() {
        let copies = CopyOperations::default();
        let begin = |list| {
            copies
                .begin(&nexus(1), list, 0x11, AbortSignal::default())
                .unwrap()
        };
        let doing = begin(ListId::Long(1));
        doing.operation().bytes.store(1024, Ordering::Relaxed);
        doing.operation().segments.store(2, Ordering::Relaxed);
        let reply = long_form(doing.operation(), &unit(8));
        assert_eq!(
            reply,
            [
                0, 0, 0, 0, 0x11, 0x11, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0xf1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 0,
                0, 0, 0, 0, 0
            ]
        );
        doing.operation().background.store(true, Ordering::Relaxed);
        assert_eq!(long_form(doing.operation(), &unit(8))[5], 0x12);
        assert_eq!(
            short_form(doing.operation()),
            [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0]
        );
        doing.operation().bytes.store((1 << 32) + 1024, Ordering::Relaxed);
        assert_eq!(short_form(doing.operation())[7..], [1, 0, 0x40, 0, 1]);
        doing.operation().bytes.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(short_form(doing.operation())[7..], [4, 0, 0xff, 0xff, 0xff]);
        let known = copies.find(&nexus(1), ListId::Long(1)).unwrap();
        doing.conclude(&Err(Failure::Check(Sense::WRITE_PROTECTED)));
        let reply = long_form(&known, &unit(8));
        assert_eq!(
            (reply[5], reply[12..15].to_vec(), reply.len()),
            (2, vec![2, 18, 18], 50)
        );
        assert_eq!((reply[34], reply[44]), (0x07, 0x27));
        assert_eq!(short_form(&known)[4], 2);
    }
}
