//! WRITE USING TOKEN (SBC-3): writes what a token stands for, or zeroes, to blocks of the unit. With IMMED the
//! status comes first, and the copy goes on by itself; a reset of the unit or the loss of the nexus ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;

use super::limits::{MAXIMUM_TOKEN_BYTES, THIRD_PARTY_COPY_OUT};
use super::operation::{Conclusion, Doing, ListId, Operation};
use super::ranges::{self, total};
use super::rod::Rod;
use super::route::{Agent, End, Route, Trouble};
use super::segment::Span;
use super::token::{TOKEN_LEN, Token};
use crate::scsi::cdb::{Cdb, LbaRange};
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{self, Access, CommandSpec, Needs, Offer, ReservationClass};
use crate::scsi::{Failure, LogicalUnit, Sense, TargetDevice};
use crate::transfer::{AbortSignal, Transfer};

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: THIRD_PARTY_COPY_OUT,
    service_action: Some(0x11),
    name: "WRITE USING TOKEN",
    usage: &[
        THIRD_PARTY_COPY_OUT,
        0x11,
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
    needs: Needs {
        writes: true,
        reservation: ReservationClass::Writes,
        ..Needs::MEDIUM
    },
    timeout_s: 120,
    operation: table::Operation::WriteUsingToken,
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
    let unit = context.shared_unit();
    let block = u64::from(unit.store().geometry().block_size);
    let order = parse(&list, unit.blocks(), block)?;
    let source = find_source(context, &order)?;
    // There is a runtime wherever commands run; without one the copy comes before its status.
    let leave = order
        .immediate
        .then(|| {
            context
                .device()
                .copies()
                .background()
                .zip(Handle::try_current().ok())
        })
        .flatten();
    // What goes on behind the status is no longer the command's, and not aborted with it.
    let cancel = match leave {
        Some(_) => AbortSignal::default(),
        None => data.abort_signal().part(),
    };
    let list = ListId::Long(cdb.u32_at(6));
    let doing = unit.copies().begin(context.nexus(), list, 0x11, cancel.clone())?;
    let agent = Agent {
        nexus: Arc::clone(context.nexus()),
        tag: context.tag(),
        abort: cancel,
        pool: Arc::clone(data.pool()),
        places: Arc::clone(context.device().copies().places()),
    };
    let work = Work {
        device: Arc::clone(context.device()),
        destination: End::enter(&agent, unit)?,
        agent,
        source,
        order,
    };
    if let Some((leave, runtime)) = leave {
        doing.operation().background.store(true, Ordering::Relaxed);
        runtime.spawn(async move {
            drop(work.run(doing).await);
            drop(leave);
        });
        return Ok(());
    }
    match work.run(doing).await {
        // Somebody ended the copy and left the command alone.
        Err(Failure::Aborted) if !data.abort_signal().is_fired() => Err(Sense::COPY_ABORTED.into()),
        result => result,
    }
}

/// What is to be written where.
#[derive(Debug)]
struct Order {
    immediate: bool,
    delete: bool,
    /// Blocks of the destination's size to be left out at the beginning of what the token stands for.
    offset: u64,
    token: Token,
    ranges: Vec<LbaRange>,
}

/// Where the bytes come from.
#[derive(Debug)]
enum Source {
    Zeroes,
    Blocks { rod: Arc<Rod>, unit: Arc<LogicalUnit> },
}

/// All that the copy needs, so that it can outlive its command.
#[derive(Debug)]
struct Work {
    device: Arc<TargetDevice>,
    agent: Agent,
    destination: End,
    source: Source,
    order: Order,
}

/// The token's blocks, if they are still what they were and the nexus can reach their unit.
fn find_source(context: &CommandContext<'_>, order: &Order) -> Result<Source, Failure> {
    let Some(rod) = context.device().copies().open(&order.token)? else {
        return Ok(Source::Zeroes);
    };
    let unit = rod.unit().ok_or(Sense::TOKEN_REVOKED)?;
    context
        .find_unit(|known| std::ptr::eq(known, Arc::as_ptr(&unit)))
        .ok_or(Sense::TOKEN_REVOKED)?;
    let block = u64::from(context.unit().store().geometry().block_size);
    let offset = order.offset.checked_mul(block);
    if !order.ranges.is_empty() && offset.is_none_or(|offset| offset >= rod.bytes()) {
        return Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST
            .in_parameters(8, None)
            .into());
    }
    Ok(Source::Blocks { rod, unit })
}

impl Work {
    async fn run(self, doing: Doing) -> Result<(), Failure> {
        let written = self.write(doing.operation()).await;
        let result = written.map_err(Trouble::of_token);
        if self.order.delete {
            self.device.copies().delete(&self.order.token);
        }
        doing.conclude(&result);
        result.map(drop)
    }

    async fn write(&self, operation: &Operation) -> Result<Conclusion, Trouble> {
        let _place = self.agent.place().await?;
        let progress = |bytes| {
            operation.bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        match &self.source {
            Source::Zeroes => self.write_zeroes(progress).await,
            Source::Blocks { rod, unit } => self.write_blocks(rod, unit, progress).await,
        }
    }

    async fn write_blocks(
        &self,
        rod: &Arc<Rod>,
        source: &Arc<LogicalUnit>,
        progress: impl Fn(u64),
    ) -> Result<Conclusion, Trouble> {
        let block = self.block();
        let mut route = Route::open(
            &self.agent,
            source,
            self.destination.unit(),
            Some(Arc::clone(rod)),
        )?;
        let mut offset = self.order.offset * block;
        for range in &self.order.ranges {
            let mut to = range.lba * block;
            let mut left = range.blocks * block;
            while left > 0 {
                let Some((from, there)) = rod.locate(offset) else {
                    route.finish().await?;
                    return Ok(Conclusion::Residual);
                };
                let span = Span {
                    from,
                    to,
                    len: there.min(left),
                };
                route.copy(span, &progress).await?;
                (offset, to, left) = (offset + span.len, to + span.len, left - span.len);
            }
        }
        route.finish().await?;
        Ok(Conclusion::Complete)
    }

    /// Zeroes need no space where space can be given back.
    async fn write_zeroes(&self, progress: impl Fn(u64)) -> Result<Conclusion, Trouble> {
        for range in &self.order.ranges {
            let end = (range.lba + range.blocks) * self.block();
            let mut next = range.lba * self.block();
            while next < end {
                let piece = next..end.min(next + ZERO_PIECE);
                let zeroed = self.zero(piece.clone()).await;
                zeroed.map_err(self.agent.trouble(Trouble::Destination))?;
                progress(piece.end - piece.start);
                next = piece.end;
                tokio::task::yield_now().await;
            }
        }
        let settled = self.destination.settle().await;
        settled.map_err(self.agent.trouble(Trouble::Destination))?;
        Ok(Conclusion::Complete)
    }

    async fn zero(&self, bytes: std::ops::Range<u64>) -> Result<(), Failure> {
        self.destination.claim(bytes.clone(), Access::Write).await?;
        self.destination.check(Access::Write)?;
        let zeroed = self.destination.clear(bytes).await;
        self.destination.release();
        Ok(zeroed?)
    }

    fn block(&self) -> u64 {
        u64::from(self.destination.unit().store().geometry().block_size)
    }
}

fn parse(list: &[u8], capacity: u64, block: u64) -> Result<Order, Failure> {
    let invalid = |byte| Failure::from(Sense::INVALID_FIELD_IN_PARAMETER_LIST.in_parameters(byte, None));
    if list.len() < HEADER_LEN {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    let fields = Cdb::new(list);
    let data_len = usize::from(fields.u16_at(0));
    if data_len < MINIMUM_DATA_LEN {
        return Err(invalid(0));
    }
    if data_len + 2 > list.len() {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    }
    if usize::from(fields.u16_at(RANGES_LEN_AT.into())) + HEADER_LEN > data_len + 2 {
        return Err(invalid(RANGES_LEN_AT));
    }
    let token = list[TOKEN_AT..TOKEN_AT + TOKEN_LEN]
        .try_into()
        .expect("the header has a token");
    let order = Order {
        immediate: fields.bit(2, 0),
        delete: fields.bit(2, 1),
        offset: fields.u64_at(8),
        token: Token::from_bytes(token),
        ranges: ranges::parse(list, RANGES_LEN_AT, capacity, MAXIMUM_TOKEN_BYTES / block)?,
    };
    // So that no sum of bytes wraps later.
    match order.offset.checked_add(total(&order.ranges)) {
        Some(end) if end.checked_mul(block).is_some() => Ok(order),
        _ => Err(invalid(8)),
    }
}

/// Bytes zeroed in one go.
const ZERO_PIECE: u64 = 16 << 20;

const TOKEN_AT: usize = 16;
/// Place of BLOCK DEVICE RANGE DESCRIPTOR LENGTH.
const RANGES_LEN_AT: u16 = 534;
const HEADER_LEN: usize = 536;
/// WRITE USING TOKEN DATA LENGTH with one descriptor.
const MINIMUM_DATA_LEN: usize = 0x226;
/// GROUP NUMBER counts for statistics only.
const GROUP: u8 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::copy::tests::write_list;

    fn code(list: &[u8]) -> (u8, u8) {
        match parse(list, 100, 512) {
            Err(Failure::Check(sense)) => sense.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_length_shorter_than_it_says_is_an_error_of_length() {
        let whole = write_list(0, 0, &[0; 512], &[(0, 8), (20, 8)]);
        for len in 0..whole.len() {
            assert_eq!(code(&whole[..len]), (0x1a, 0x00), "{len}");
        }
        let order = parse(&whole, 100, 512).unwrap();
        assert_eq!(
            (order.ranges.len(), order.immediate, order.delete),
            (2, false, false)
        );
    }

    #[test]
    fn fields_that_contradict_each_other_or_wrap_are_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut list = write_list(0, 0, &[0; 512], &[(0, 8)]);
            list[at..at + bytes.len()].copy_from_slice(bytes);
            list
        };
        assert_eq!(code(&with(0, &[0x02, 0x25])), (0x26, 0x00));
        assert_eq!(code(&with(534, &[0, 32])), (0x26, 0x00));
        assert_eq!(code(&with(8, &[0xff; 8])), (0x26, 0x00));
        assert_eq!(code(&with(8, &[0x7f; 8])), (0x26, 0x00));
        assert_eq!(code(&with(536, &100_u64.to_be_bytes())), (0x21, 0x00));
        let both = parse(&with(2, &[3]), 100, 512).unwrap();
        assert!(both.immediate && both.delete);
    }
}
