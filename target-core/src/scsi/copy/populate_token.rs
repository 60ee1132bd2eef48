//! POPULATE TOKEN (SBC-3): makes a token for blocks of the unit. RECEIVE ROD TOKEN INFORMATION gives it out.
//!
//! Nothing is copied, so that it always ends before its status does, IMMED or not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::limits::{
    DEFAULT_INACTIVITY_S, MAXIMUM_INACTIVITY_S, MAXIMUM_TOKEN_BYTES, ROD_ANY_POINT_IN_TIME,
    ROD_CHANGE_VULNERABLE, THIRD_PARTY_COPY_OUT,
};
use super::operation::{Conclusion, Doing, ListId};
use super::ranges;
use super::rod::Rod;
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, Access, CommandSpec, Needs, Offer};
use crate::scsi::task_set::Claim;
use crate::scsi::{Failure, Sense};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_OUT,
    service_action: Some(0x10),
    name: "POPULATE TOKEN",
    usage: &[
        THIRD_PARTY_COPY_OUT,
        0x10,
        0,
        0,
        0,
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        0xff,
        GROUP,
        0,
    ],
    offer: Offer::Always,
    needs: Needs::MEDIUM,
    timeout_s: 30,
    operation: table::Operation::PopulateToken,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let len = usize::try_from(cdb.u32_at(10)).unwrap_or(usize::MAX);
    let list = data.get_parameters(len).await?;
    if len == 0 {
        return Ok(());
    }
    let block = context.unit().store().geometry().block_size;
    let wish = parse(&list, context.unit().blocks(), u64::from(block))?;
    let list = ListId::Long(cdb.u32_at(6));
    let cancel = data.abort_signal().part();
    let doing = context
        .unit()
        .copies()
        .begin(context.nexus(), list, 0x10, cancel)?;
    let made = make(context, data, wish, &doing).await;
    let result = made.map(|()| Conclusion::Complete);
    doing.conclude(&result);
    result.map(drop)
}

/// What is to be named, and for how long.
#[derive(Debug, Eq, PartialEq)]
struct Wish {
    ranges: Vec<LbaRange>,
    patience: Duration,
}

/// The blocks are watched first; who writes one of them already is waited for. So the token stands for what the blocks
/// hold when the last of these has ended, or is revoked.
async fn make(
    context: &CommandContext<'_>,
    data: &Transfer,
    wish: Wish,
    doing: &Doing,
) -> Result<(), Failure> {
    let unit = context.shared_unit();
    let rod = Rod::new(unit, wish.ranges.clone());
    unit.tasks().watch().add(&rod);
    for range in wish.ranges {
        context
            .claim(Claim {
                blocks: range.lba..range.lba + range.blocks,
                access: Access::ReadStill,
            })
            .await?;
    }
    context.release();
    data.check()?;
    let token = context.device().copies().make(unit, &rod, wish.patience)?;
    doing.operation().bytes.store(rod.bytes(), Ordering::Relaxed);
    doing.made(token);
    Ok(())
}

fn parse(list: &[u8], capacity: u64, block: u64) -> Result<Wish, Failure> {
    let invalid = |byte| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, None));
    if list.len() < HEADER_LEN {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let fields = Cdb::new(list);
    let data_len = usize::from(fields.u16_at(0));
    if data_len < MINIMUM_DATA_LEN {
        return Err(invalid(0));
    }
    let ranges_len = usize::from(fields.u16_at(14));
    if data_len + 2 > list.len() {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    if ranges_len + HEADER_LEN > data_len + 2 {
        return Err(invalid(14));
    }
    let type_wanted = fields.bit(2, 1);
    if type_wanted && ![ROD_CHANGE_VULNERABLE, ROD_ANY_POINT_IN_TIME].contains(&fields.u32_at(8)) {
        return Err(invalid(8));
    }
    let inactivity = match fields.u32_at(4) {
        0 => DEFAULT_INACTIVITY_S,
        wanted if wanted <= MAXIMUM_INACTIVITY_S => wanted,
        _ => return Err(invalid(4)),
    };
    Ok(Wish {
        ranges: ranges::parse(list, 14, capacity, MAXIMUM_TOKEN_BYTES / block)?,
        patience: Duration::from_secs(inactivity.into()),
    })
}

const HEADER_LEN: usize = 16;
/// POPULATE TOKEN DATA LENGTH with one descriptor.
const MINIMUM_DATA_LEN: usize = 0x1e;
/// GROUP NUMBER counts for statistics only.
const GROUP: u8 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::copy::tests::populate_list;

    fn code(list: &[u8]) -> (u8, u8) {
        match parse(list, 100, 512) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_length_shorter_than_it_says_is_an_error_of_length() {
        let whole = populate_list(&[(0, 8), (20, 8)]);
        for len in 0..whole.len() {
            assert_eq!(code(&whole[..len]), (0x1a, 0x00), "{len}");
        }
        let wish = parse(&whole, 100, 512).unwrap();
        assert_eq!((wish.ranges.len(), wish.patience.as_secs()), (2, 60));
    }

    #[test]
    fn fields_that_contradict_each_other_or_ask_too_much_are_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut list = populate_list(&[(0, 8)]);
            list[at..at + bytes.len()].copy_from_slice(bytes);
            list
        };
        assert_eq!(code(&with(0, &[0, 0x1d])), (0x26, 0x00));
        assert_eq!(code(&with(14, &[0, 32])), (0x26, 0x00));
        assert_eq!(code(&with(14, &[0, 0])), (0x26, 0x00));
        assert_eq!(code(&with(4, &3601_u32.to_be_bytes())), (0x26, 0x00));
        let patient = parse(&with(4, &3600_u32.to_be_bytes()), 100, 512).unwrap();
        assert_eq!(patient.patience.as_secs(), 3600);
    }

    #[test]
    fn a_type_is_looked_at_only_if_it_is_said_to_count() {
        let with = |flags: u8, kind: u32| {
            let mut list = populate_list(&[(0, 8)]);
            list[2] = flags;
            list[8..12].copy_from_slice(&kind.to_be_bytes());
            list
        };
        assert!(parse(&with(0, 0x0001_0000), 100, 512).is_ok());
        for kind in [0x0080_0001, 0x0080_ffff] {
            assert!(parse(&with(2, kind), 100, 512).is_ok(), "{kind:#x}");
        }
        for kind in [0, 0x0001_0000, 0x0080_0000, 0x0080_0002, 0xffff_0001] {
            assert_eq!(code(&with(2, kind)), (0x26, 0x00), "{kind:#x}");
        }
    }
}
