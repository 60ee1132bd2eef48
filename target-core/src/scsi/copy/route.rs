//! The way of bytes from one unit to another, piece by piece.
//!
//! A piece is claimed at both ends before it is touched, like any other command's blocks, and given back before the
//! next: whoever wants some of them for itself waits for a piece, not for the copy. The stores move it themselves where
//! this pair can, else it passes through one buffer of the pool. One piece is under way at a time, and between two of
//! them the core serves others.
//!
//! **Order.** Claims that exclude others are waited for holding claims. So all copies claim the two ends in one order,
//! that of units and then of blocks, and no circle of them can close.
//!
//! Checks of a unit are made for each piece, as if it were a READ or WRITE of its own: in [`End::check`] alone.

use std::ops::Range;
use std::sync::Arc;

use backstores::{BufPool, CHUNK, CopySource, Durability, IoBuf, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::rod::Rod;
use super::segment::Span;
use crate::nexus::NexusId;
use crate::scsi::table::{Access, ErasureRule, ReservationClass};
use crate::scsi::task_set::{Claim, TaskIdentity, TaskTicket};
use crate::scsi::{Failure, LogicalUnit, Sense, TaskAttribute};
use crate::transfer::AbortSignal;

/// In whose name a copy is made, and with what.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) nexus: Arc<NexusId>,
    pub(super) tag: u32,
    /// Fires when the copy has to stop.
    pub(super) abort: AbortSignal,
    pub(super) pool: Arc<BufPool>,
    /// Places of copies that move data.
    pub(super) places: Arc<Semaphore>,
}

/// A unit that takes part in a copy. The copy's place in its task set.
#[derive(Debug)]
pub(super) struct End {
    unit: Arc<LogicalUnit>,
    ticket: TaskTicket,
    nexus: Arc<NexusId>,
    /// Also fires when the unit is reset, or lost.
    abort: AbortSignal,
}

/// Two units, and what lies between them.
#[derive(Debug)]
pub(super) struct Route {
    agent: Agent,
    source: End,
    destination: End,
    /// Kept as long as the stores can copy by themselves.
    direct: Option<CopySource>,
    /// What is copied is of use only while this stands for its blocks.
    rod: Option<Arc<Rod>>,
}

/// How a piece is moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// By the stores themselves.
    Direct,
    /// Whole blocks by way of a buffer.
    Blocks,
    /// The same where both ends overlap.
    Whole,
    /// Parts of blocks.
    Bytes,
}

/// Why a copy stopped.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It was told to.
    Aborted,
    /// The unit that was to be read.
    Source(Failure),
    /// The unit that was to be written.
    Destination(Failure),
    /// The source does not hold any more what it held.
    Changed,
}

impl Agent {
    /// A place among the copies that move data.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        tokio::select! {
            biased;
            () = self.abort.fired() => Err(Trouble::Aborted),
            place = Arc::clone(&self.places).acquire_owned() => place.map_err(|_| Trouble::Aborted),
        }
    }

    /// What a unit's failure means, which may be no more than the echo of the copy's own abort.
    pub(super) fn trouble(&self, blame: fn(Failure) -> Trouble) -> impl Fn(Failure) -> Trouble + use<> {
        let abort = self.abort.clone();
        move |failure| {
            if abort.is_fired() {
                Trouble::Aborted
            } else {
                blame(failure)
            }
        }
    }

    async fn buffer(&self, len: usize) -> Result<IoBuf, Trouble> {
        tokio::select! {
            biased;
            buf = self.pool.acquire(len) => Ok(buf),
            () = self.abort.fired() => Err(Trouble::Aborted),
        }
    }
}

impl End {
    /// Enters the unit's task set, where the copy waits for nobody: the command that makes it has had its turn.
    pub(super) fn enter(agent: &Agent, unit: &Arc<LogicalUnit>) -> Result<Self, Failure> {
        let abort = agent.abort.part();
        let who = TaskIdentity {
            nexus: Arc::clone(&agent.nexus),
            tag: agent.tag,
            attribute: TaskAttribute::HeadOfQueue,
            abort: abort.clone(),
        };
        Ok(Self {
            unit: Arc::clone(unit),
            ticket: unit.tasks().enter(who, None)?,
            nexus: Arc::clone(&agent.nexus),
            abort,
        })
    }

    /// The unit.
    pub(super) fn unit(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }

    /// Whether the unit lets the copy read or write now. To be asked when the blocks are claimed.
    pub(super) fn check(&self, access: Access) -> Result<(), Failure> {
        if self.abort.is_fired() {
            return Err(Failure::Aborted);
        }
        let class = if access.writes() {
            ReservationClass::Writes
        } else {
            ReservationClass::Reads
        };
        self.unit.reservations().check(class, &self.nexus)?;
        self.unit.check_medium()?;
        if access.writes() {
            self.unit.check_writable()?;
        }
        self.unit.erasure().check(ErasureRule::Refuse)
    }

    /// Claims the blocks that hold these bytes.
    pub(super) async fn claim(&self, bytes: Range<u64>, access: Access) -> Result<(), Failure> {
        let blocks = self.blocks(&bytes);
        self.ticket.claim(Claim { blocks, access }).await
    }

    /// Gives back what was claimed.
    pub(super) fn release(&self) {
        self.ticket.release();
    }

    /// Makes claimed bytes read as zeroes, which need no space where space can be given back.
    pub(super) async fn clear(&self, bytes: Range<u64>) -> Result<(), StoreError> {
        let store = self.unit.store();
        if self.unit.is_thin() {
            store.unmap(bytes).await
        } else {
            store.write_zeroes(bytes, Durability::Cached).await
        }
    }

    /// After the last write: with the write cache off it has to be on the medium.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        match self.unit.durability(false) {
            Durability::Cached => Ok(()),
            Durability::Stable => Ok(self.unit.store().flush().await?),
        }
    }

    fn block(&self) -> u64 {
        u64::from(self.unit.store().geometry().block_size)
    }

    fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.block()..bytes.end.div_ceil(self.block())
    }

    /// The bytes of the blocks that hold these bytes.
    fn whole_blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        let blocks = self.blocks(bytes);
        blocks.start * self.block()..blocks.end * self.block()
    }
}

impl Route {
    /// A way from `source` to `destination`, which may be one unit.
    pub(super) fn open(
        agent: &Agent,
        source: &Arc<LogicalUnit>,
        destination: &Arc<LogicalUnit>,
        rod: Option<Arc<Rod>>,
    ) -> Result<Self, Trouble> {
        Ok(Self {
            source: End::enter(agent, source).map_err(Trouble::Source)?,
            destination: End::enter(agent, destination).map_err(Trouble::Destination)?,
            direct: source.store().copy_source(),
            agent: agent.clone(),
            rod,
        })
    }

    /// Copies a run of bytes that both units have, telling `progress` the bytes done since it was told last. Where the
    /// two runs overlap, the destination gets what the source held before.
    pub(super) async fn copy(&mut self, span: Span, progress: impl Fn(u64)) -> Result<(), Trouble> {
        let Span { from, to, len } = span;
        let same_unit = self.is_one_unit();
        let overlapping = same_unit && from < to + len && to < from + len;
        let backward = overlapping && to > from;
        let (source, destination) = (self.source.block(), self.destination.block());
        let aligned = from % source == 0 && to % destination == 0 && len % source.max(destination) == 0;
        let mut done = 0;
        while done < len {
            let way = match (aligned, overlapping) {
                (false, _) => Way::Bytes,
                (true, true) => Way::Whole,
                (true, false) if self.direct.is_some() => Way::Direct,
                (true, false) => Way::Blocks,
            };
            let most = match way {
                Way::Direct => DIRECT_PIECE,
                Way::Blocks | Way::Whole => CHUNK as u64,
                Way::Bytes => CHUNK as u64 / 2,
            };
            let piece = most.min(len - done);
            let at = if backward { len - done - piece } else { done };
            let span = Span {
                from: from + at,
                to: to + at,
                len: piece,
            };
            self.piece(span, way).await?;
            done += piece;
            progress(piece);
            // Commands that wait for this core come first.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// After the last piece.
    pub(super) async fn finish(&self) -> Result<(), Trouble> {
        let settled = self.destination.settle().await;
        settled.map_err(self.agent.trouble(Trouble::Destination))
    }

    async fn piece(&mut self, span: Span, way: Way) -> Result<(), Trouble> {
        self.claim(span, way != Way::Bytes).await?;
        let (source_failed, destination_failed) = (
            self.agent.trouble(Trouble::Source),
            self.agent.trouble(Trouble::Destination),
        );
        self.source.check(Access::Read).map_err(source_failed)?;
        self.destination
            .check(Access::Write)
            .map_err(destination_failed)?;
        let moved = match way {
            Way::Direct => self.move_direct(span).await,
            Way::Blocks => self.move_blocks(span).await,
            Way::Whole => self.move_whole(span.from, span.to, within_chunk(span.len)).await,
            Way::Bytes => self.move_bytes(span).await,
        };
        self.source.release();
        self.destination.release();
        moved?;
        match &self.rod {
            Some(rod) if rod.is_changed() => Err(Trouble::Changed),
            Some(_) | None => Ok(()),
        }
    }

    /// Claims both ends of a piece. Parts of blocks are read and written back, which nobody may see half done.
    async fn claim(&self, span: Span, aligned: bool) -> Result<(), Trouble> {
        let (source_failed, destination_failed) = (
            self.agent.trouble(Trouble::Source),
            self.agent.trouble(Trouble::Destination),
        );
        let from = span.from..span.from + span.len;
        let to = span.to..span.to + span.len;
        let access = if aligned { Access::Write } else { Access::Exclusive };
        if !aligned && self.is_one_unit() {
            // Two claims of its own would wait for each other.
            let both = from.start.min(to.start)..from.end.max(to.end);
            return self
                .destination
                .claim(both, access)
                .await
                .map_err(destination_failed);
        }
        let place = |end: &End, start: u64| (Arc::as_ptr(&end.unit) as usize, start);
        if place(&self.source, from.start) <= place(&self.destination, to.start) {
            self.source
                .claim(from, Access::Read)
                .await
                .map_err(source_failed)?;
            self.destination
                .claim(to, access)
                .await
                .map_err(destination_failed)
        } else {
            self.destination
                .claim(to, access)
                .await
                .map_err(destination_failed)?;
            self.source.claim(from, Access::Read).await.map_err(source_failed)
        }
    }

    async fn move_direct(&mut self, span: Span) -> Result<(), Trouble> {
        if let Some(source) = &self.direct {
            let store = self.destination.unit.store();
            if store.copy_from(source, span.from, span.to, span.len).await {
                return Ok(());
            }
            // This pair cannot, or something is wrong: reading and writing tells what.
            self.direct = None;
        }
        self.move_blocks(span).await
    }

    /// What takes no space at the source takes none at the destination where that can be.
    async fn move_blocks(&self, span: Span) -> Result<(), Trouble> {
        let whole = self.source.block().max(self.destination.block());
        let mut done = 0;
        while done < span.len {
            let (from, to, left) = (span.from + done, span.to + done, span.len - done);
            let failed = self.agent.trouble(Trouble::Source);
            let extent = self.source.unit.store().extent(from..from + left).await;
            let extent = extent.map_err(|error| failed(error.into()))?;
            let run = left.min(extent.end.saturating_sub(from));
            let hole = if extent.mapped { 0 } else { run - run % whole };
            done += if hole > 0 {
                self.clear(to..to + hole).await?;
                hole
            } else {
                let len = run.max(1).next_multiple_of(whole).min(left).min(CHUNK as u64);
                self.move_whole(from, to, within_chunk(len)).await?;
                len
            };
        }
        Ok(())
    }

    /// Reads all before it writes any.
    async fn move_whole(&self, from: u64, to: u64, len: usize) -> Result<(), Trouble> {
        let buf = self.agent.buffer(len).await?;
        let buf = self.read(from, buf).await?;
        self.write(to, buf).await
    }

    async fn clear(&self, bytes: Range<u64>) -> Result<(), Trouble> {
        self.proceed()?;
        let failed = self.agent.trouble(Trouble::Destination);
        let cleared = self.destination.clear(bytes).await;
        cleared.map_err(|error| failed(error.into()))
    }

    /// A piece that begins or ends inside blocks: the blocks around it are read, changed, and written back.
    async fn move_bytes(&self, span: Span) -> Result<(), Trouble> {
        let len = within_chunk(span.len);
        let source = self.source.whole_blocks(&(span.from..span.from + span.len));
        let target = self.destination.whole_blocks(&(span.to..span.to + span.len));
        let buf = self.agent.buffer(within_chunk(source.end - source.start)).await?;
        let bytes = self.read(source.start, buf).await?;
        // Beside the first buffer, so not waited for.
        let room = within_chunk(target.end - target.start);
        let buf = self.agent.pool.try_acquire(room);
        let buf = buf.unwrap_or_else(|| IoBuf::from_heap(room));
        let around = self.destination.unit.store().read(target.start, buf).await;
        let failed = self.agent.trouble(Trouble::Destination);
        let mut around = around.map_err(|error| failed(error.into()))?;
        let (skip, at) = (
            within_chunk(span.from - source.start),
            within_chunk(span.to - target.start),
        );
        around[at..at + len].copy_from_slice(&bytes[skip..skip + len]);
        drop(bytes);
        self.write(target.start, around).await
    }

    async fn read(&self, at: u64, buf: IoBuf) -> Result<IoBuf, Trouble> {
        self.proceed()?;
        let failed = self.agent.trouble(Trouble::Source);
        let read = self.source.unit.store().read(at, buf).await;
        read.map_err(|error| failed(error.into()))
    }

    async fn write(&self, at: u64, buf: IoBuf) -> Result<(), Trouble> {
        self.proceed()?;
        let failed = self.agent.trouble(Trouble::Destination);
        let store = self.destination.unit.store();
        let written = store.write(at, buf, Durability::Cached).await;
        written.map(drop).map_err(|error| failed(error.into()))
    }

    /// To be asked before an operation is handed to a store.
    fn proceed(&self) -> Result<(), Trouble> {
        if self.agent.abort.is_fired() {
            return Err(Trouble::Aborted);
        }
        if self.destination.abort.is_fired() {
            return Err(Trouble::Destination(Failure::Aborted));
        }
        Ok(())
    }

    fn is_one_unit(&self) -> bool {
        Arc::ptr_eq(&self.source.unit, &self.destination.unit)
    }
}

impl Trouble {
    /// The sense of a copy that names both units and stopped at a segment.
    pub(super) fn of_segment(&self) -> Sense {
        match self {
            Self::Aborted | Self::Changed => Sense::COPY_ABORTED,
            Self::Source(_) | Self::Destination(_) => Sense::THIRD_PARTY_DEVICE_FAILURE,
        }
    }

    /// How a command ends that writes to its own unit what a token stands for.
    pub(super) fn of_token(self) -> Failure {
        match self {
            Self::Aborted => Failure::Aborted,
            // The unit's reset does not end the command without a word, as it is its own.
            Self::Destination(Failure::Aborted) => Sense::COPY_ABORTED.into(),
            Self::Destination(failure) => failure,
            Self::Source(failure) => {
                tracing::debug!(?failure, "what a token stands for cannot be read");
                Sense::THIRD_PARTY_DEVICE_FAILURE.into()
            }
            Self::Changed => Sense::TOKEN_REVOKED.into(),
        }
    }
}

fn within_chunk(len: u64) -> usize {
    usize::try_from(len).expect("pieces are smaller than a chunk")
}

/// Bytes that stores copy by themselves in one go: little enough that a copy in memory holds its core up for a fraction
/// of a millisecond.
const DIRECT_PIECE: u64 = 1 << 20;
