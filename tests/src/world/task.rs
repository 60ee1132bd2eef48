//! One command at the initiator's end: what came of it so far, and what its end means for the model disk.

use std::collections::BTreeMap;

use iscsi_proto::Sn;
use iscsi_proto::pdu::{DataIn, R2t, Residual};
use tokio::time::Instant;

use super::ledger::Check;
use super::model::{BLOCK, Before, ChangeId, Content};
use super::plan::{Command, Kind};
use super::scene::Scene;

/// A command that has not been answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) command: Command,
    pub(crate) unit: usize,
    /// The connection that it belongs to.
    pub(crate) leg: u16,
    /// The connection that it is to go on with.
    pub(crate) moving_to: Option<u16>,
    pub(crate) cmd_sn: Sn,
    pub(crate) start: u64,
    pub(crate) sent_at: Instant,
    pub(crate) change: Option<ChangeId>,
    /// Changes that it has to run behind.
    pub(crate) behind: Vec<Before>,
    /// Some of its data had a digest that did not match.
    pub(crate) damaged: bool,
    /// A task management request concerns it.
    pub(crate) aborting: bool,
    /// One did, and its answer was lost.
    pub(crate) may_be_gone: bool,
    /// When it was last sent.
    pub(crate) said_at: Instant,
    /// The same, among all that happens at the same time.
    pub(crate) said: u64,
    /// Bytes that go with it, and behind it unasked.
    pub(crate) first: (usize, usize),
    /// Data-Out up to here was sent or asked for.
    pub(crate) asked_to: usize,
    received: Vec<u8>,
    /// Data-In that came, where some may be lost: place and data, by DataSN.
    pieces: BTreeMap<u32, (u32, Vec<u8>)>,
    next_data_sn: u32,
    /// Where the gap begins that was asked for last.
    pub(crate) gap_asked_for: Option<u32>,
    burst: usize,
    next_r2t_sn: u32,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    residual: Residual,
    /// Sense key, additional sense code and qualifier.
    pub(crate) sense: Option<(u8, u8, u8)>,
}

impl Answer {
    pub(crate) fn of(status: u8, residual: Residual, data: &[u8]) -> Self {
        // Behind the two bytes of SenseLength; fixed format.
        let byte = |at: usize| data.get(2 + at).copied().unwrap_or(0);
        let sense = (data.len() > 2).then(|| (byte(2) & 0x0f, byte(12), byte(13)));
        Self {
            status,
            residual,
            sense,
        }
    }
}

impl Task {
    /// A command about to be sent: from here on it may land.
    pub(crate) fn new(scene: &Scene, unit: usize, command: Command, cmd_sn: Sn, leg: u16) -> Self {
        let start = scene.tick();
        let change = {
            let mut model = scene.model(unit);
            match &command.kind {
                Kind::Write {
                    lba,
                    blocks,
                    stamp,
                    fua,
                } => Some(model.begin(start, *lba..lba + blocks, *fua, |n| Content::Stamped(*stamp, n))),
                Kind::WriteSame { lba, blocks, content } => {
                    Some(model.begin(start, *lba..lba + blocks, false, |_| *content))
                }
                Kind::Unmap(lba, blocks) => {
                    Some(model.begin(start, *lba..lba + blocks, false, |_| Content::Zero))
                }
                Kind::CompareAndWrite {
                    lba,
                    expected,
                    stamp,
                    fua,
                } => {
                    let blocks = *lba..lba + expected.len() as u64;
                    Some(model.begin(start, blocks, *fua, |n| Content::Stamped(*stamp, n)))
                }
                Kind::Read(..) | Kind::Rewrite(..) | Kind::Flush | Kind::Verify(..) | Kind::Ask => None,
            }
        };
        Self {
            command,
            unit,
            leg,
            moving_to: None,
            cmd_sn,
            start,
            sent_at: Instant::now(),
            change,
            behind: Vec::new(),
            damaged: false,
            aborting: false,
            may_be_gone: false,
            said_at: Instant::now(),
            said: start,
            first: (0, 0),
            asked_to: 0,
            received: Vec::new(),
            pieces: BTreeMap::new(),
            next_data_sn: 0,
            gap_asked_for: None,
            burst: 0,
            next_r2t_sn: 0,
        }
    }

    /// A Data-In; the error says which rule it breaks (RFC 7143 §11.7).
    pub(crate) fn data_in(
        &mut self,
        pdu: &DataIn,
        data: &[u8],
        max_recv: usize,
        max_burst: usize,
    ) -> Result<(), String> {
        if !self.command.is_read() {
            return Err("Data-In for a command that reads nothing".into());
        }
        if pdu.data_sn != self.next_data_sn {
            return Err(format!("DataSN {} instead of {}", pdu.data_sn, self.next_data_sn));
        }
        if pdu.offset as usize != self.received.len() {
            return Err(format!(
                "offset {} instead of {}",
                pdu.offset,
                self.received.len()
            ));
        }
        self.next_data_sn += 1;
        self.received.extend_from_slice(data);
        self.burst += data.len();
        if data.len() > max_recv || self.burst > max_burst {
            return Err(format!("{} bytes, {} in the burst", data.len(), self.burst));
        }
        if self.received.len() > self.command.announced {
            return Err(format!("{} bytes are too many", self.received.len()));
        }
        if pdu.is_final {
            self.burst = 0;
        } else if pdu.status.is_some() {
            return Err("a status before the last Data-In of the sequence".into());
        }
        Ok(())
    }

    /// A Data-In where some may be lost, and come again. All data are put together as soon as they are here.
    pub(crate) fn data_in_again(&mut self, pdu: &DataIn, data: &[u8], max_recv: usize) -> Result<(), String> {
        if !self.command.is_read() {
            return Err("Data-In for a command that reads nothing".into());
        }
        if data.len() > max_recv || pdu.status.is_some() {
            return Err(format!("{} bytes, status {:?}", data.len(), pdu.status));
        }
        let piece = (pdu.offset, data.to_vec());
        if let Some(before) = self.pieces.insert(pdu.data_sn, piece)
            && before != self.pieces[&pdu.data_sn]
        {
            return Err(format!("DataSN {} is not what it was before", pdu.data_sn));
        }
        while let Some((offset, data)) = self.pieces.get(&self.next_data_sn) {
            if *offset as usize != self.received.len() {
                return Err(format!("offset {offset} instead of {}", self.received.len()));
            }
            self.received.extend_from_slice(data);
            self.next_data_sn += 1;
        }
        if self.received.len() > self.command.announced {
            return Err(format!("{} bytes are too many", self.received.len()));
        }
        Ok(())
    }

    /// The first Data-In that is missing before one that came, and how many are.
    pub(crate) fn first_gap(&self) -> Option<(u32, u32)> {
        let (behind, _) = self.pieces.range(self.next_data_sn..).next()?;
        Some((self.next_data_sn, behind - self.next_data_sn))
    }

    /// DataSN of the first Data-In that is missing.
    pub(crate) fn next_data_sn(&self) -> u32 {
        self.next_data_sn
    }

    /// An R2T where some may be lost, and come again; `None` when it is known. What is asked for a second time is what
    /// did not arrive.
    pub(crate) fn r2t_again(&mut self, pdu: &R2t) -> Result<Option<(usize, usize)>, String> {
        if pdu.r2t_sn < self.next_r2t_sn {
            return Ok(None);
        }
        self.next_r2t_sn = pdu.r2t_sn + 1;
        let (from, to) = (pdu.offset as usize, (pdu.offset + pdu.desired_len) as usize);
        if from > self.asked_to || from == to || to > self.command.moved() {
            let (asked, moved) = (self.asked_to, self.command.moved());
            return Err(format!("asks for {from}..{to} of {moved} after {asked}"));
        }
        self.asked_to = self.asked_to.max(to);
        Ok(Some((from, to)))
    }

    /// An R2T; what it asks for, or which rule it breaks (RFC 7143 §11.8).
    pub(crate) fn r2t(&mut self, pdu: &R2t) -> Result<(usize, usize), String> {
        let (from, to) = (
            pdu.offset as usize,
            pdu.offset as usize + pdu.desired_len as usize,
        );
        if pdu.r2t_sn != self.next_r2t_sn {
            return Err(format!("R2TSN {} instead of {}", pdu.r2t_sn, self.next_r2t_sn));
        }
        self.next_r2t_sn += 1;
        if from != self.asked_to || from == to {
            return Err(format!("asks for {from}..{to} instead of from {}", self.asked_to));
        }
        if to > self.command.moved() {
            let moved = self.command.moved();
            return Err(format!("asks for {from}..{to} of {moved}"));
        }
        self.asked_to = to;
        Ok((from, to))
    }

    /// It was answered: what is wrong with the answer, and what the model learns.
    pub(crate) fn finish(&self, scene: &Scene, answer: &Answer) -> Vec<(Check, String)> {
        let mut problems = Vec::new();
        match answer.status {
            0x00 => self.ended_well(scene, answer, &mut problems),
            0x02 => self.failed(scene, answer, &mut problems),
            // BUSY and TASK SET FULL; an UNMAP may have begun.
            0x08 | 0x28 if !matches!(self.command.kind, Kind::Unmap(..)) => self.refused(scene),
            0x08 | 0x28 => self.aborted(scene),
            other => problems.push((Check::Protocol, format!("status {other:#04x}"))),
        }
        if answer.status != 0 && self.command.is_read() {
            let missing = self.command.announced - self.received.len().min(self.command.announced);
            if missing > 0 && answer.residual != Residual::Underflow(missing as u32) {
                let residual = answer.residual;
                problems.push((
                    Check::Residual,
                    format!("{residual:?}, but {missing} bytes did not come"),
                ));
            }
        }
        problems
    }

    fn ended_well(&self, scene: &Scene, answer: &Answer, problems: &mut Vec<(Check, String)>) {
        let (len, announced) = (self.command.len, self.command.announced);
        let expected = match len.cmp(&announced) {
            std::cmp::Ordering::Less => Residual::Underflow((announced - len) as u32),
            std::cmp::Ordering::Equal => Residual::None,
            std::cmp::Ordering::Greater => Residual::Overflow((len - announced) as u32),
        };
        if answer.residual != expected {
            let residual = answer.residual;
            problems.push((Check::Residual, format!("{residual:?} instead of {expected:?}")));
        }
        if self.command.is_read() && self.received.len() != self.command.moved() {
            let (came, moved) = (self.received.len(), self.command.moved());
            problems.push((
                Check::DataIn,
                format!("{came} of {moved} bytes came before the status"),
            ));
            return;
        }
        // Of a block that is not announced as a whole nothing need be asked for.
        let whole_blocks = self.command.moved() - self.command.moved() % BLOCK;
        if self.command.is_write() && self.command.len >= BLOCK && self.asked_to < whole_blocks {
            let (asked, moved) = (self.asked_to, whole_blocks);
            problems.push((Check::DataOut, format!("{asked} of {moved} bytes were asked for")));
        }
        let now = scene.tick();
        let mut model = scene.model(self.unit);
        let mut found: Vec<(u64, Content)> = Vec::new();
        match &self.command.kind {
            Kind::Read(lba, _) => {
                found.extend((*lba..).zip(self.received.chunks_exact(BLOCK).map(Content::of)));
            }
            Kind::Verify(lba, contents) => found.extend((*lba..).zip(contents.iter().copied())),
            Kind::CompareAndWrite { lba, expected, .. } => {
                found.extend((*lba..).zip(expected.iter().copied()));
                for (number, content) in &found {
                    if !model.replaced(*number, *content, self.start) {
                        let detail = format!("block {number}: {content:?} was compared and replaced twice");
                        problems.push((Check::DiskModel, detail));
                    }
                }
            }
            Kind::Flush => model.flushed(self.start),
            Kind::Write { .. } | Kind::WriteSame { .. } | Kind::Unmap(..) | Kind::Rewrite(..) | Kind::Ask => {
            }
        }
        for (number, content) in found {
            let mut behind = self.behind.iter();
            if !behind.all(|before| model.follows(before, number, content)) {
                let detail = format!("block {number} was read before what was sent first was written");
                problems.push((Check::Order, detail));
                break;
            }
            if let Err(stale) = model.read(number, content, self.start, now) {
                let check = if stale.promised {
                    Check::Durability
                } else {
                    Check::DiskModel
                };
                problems.push((check, format!("unit {}: {stale}", self.unit)));
                break;
            }
        }
        // What was compared was there before what was written.
        if self.change.is_some_and(|change| !model.acknowledged(change, now)) {
            let detail = "what was sent behind it has run before it".into();
            problems.push((Check::Order, detail));
        }
    }

    fn failed(&self, scene: &Scene, answer: &Answer, problems: &mut Vec<(Check, String)>) {
        match answer.sense {
            // A unit attention: the command did not run.
            Some((0x06, ..)) => self.refused(scene),
            // Another content was found, and nothing written.
            Some((0x0e, ..)) if matches!(self.command.kind, Kind::CompareAndWrite { .. }) => {
                self.refused(scene);
            }
            // Not ready, medium error, hardware error, data protect, aborted command, miscompare.
            Some((0x02 | 0x03 | 0x04 | 0x07 | 0x0b | 0x0e, ..)) => self.aborted(scene),
            sense => {
                self.aborted(scene);
                problems.push((Check::Protocol, format!("sense {sense:02x?}")));
            }
        }
    }

    /// It was never begun.
    pub(crate) fn refused(&self, scene: &Scene) {
        if let Some(change) = self.change {
            scene.model(self.unit).refused(change);
        }
    }

    /// It ended somewhere on the way.
    pub(crate) fn aborted(&self, scene: &Scene) {
        if let Some(change) = self.change {
            let now = scene.tick();
            scene.model(self.unit).uncertain(change, now);
        }
    }
}
