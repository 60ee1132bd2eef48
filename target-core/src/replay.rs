//! Data-In that may have to be sent again (RFC 7143 §7.2, §11.7.2, §11.16): what a mover of iSCSI PDUs keeps at
//! ErrorRecoveryLevel 1 and 2. At level 0 there is none of this.
//!
//! The data themselves are kept, in a copy outside the pool, not read again: a command that came later may have written
//! those blocks meanwhile, and then the halves of one read would be of different times. Of one connection at most
//! [`KEPT_MAX`] bytes are kept, the latest; an initiator that acknowledges what it is asked to (once in a
//! MaxBurstLength) never meets that bound. What was let go of because of it cannot be sent again: the SNACK is rejected,
//! and the initiator repeats the command.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use iscsi_proto::pdu::{DataIn, ScsiResponse};
use iscsi_proto::{Itt, Lun, Ttt};

use crate::datamover::{Numbering, PutData, Unsent};

/// What one connection keeps.
#[derive(Debug)]
pub struct Replay {
    rules: ReplayRules,
    tasks: BTreeMap<u32, SentTask>,
    /// Bytes kept.
    kept: usize,
    /// Segments kept since the beginning: the first gives way first.
    count: u64,
    last_ttt: u32,
}

/// How Data-In are cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplayRules {
    /// The initiator's MaxRecvDataSegmentLength, bytes.
    pub max_data_len: usize,
    /// MaxBurstLength, bytes.
    pub max_burst_len: usize,
}

/// A PDU to send.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its header.
    pub header: DataIn,
    /// Its data.
    pub data: Bytes,
}

/// What was sent for one task. It outlives the task until its status is acknowledged.
#[derive(Debug)]
pub struct SentTask {
    lun: Lun,
    /// The next Data-In's DataSN.
    next_sn: u32,
    /// Everything before this is acknowledged.
    acknowledged: u32,
    /// Sent and not acknowledged, but for the first ones if they were let go of.
    kept: VecDeque<Segment>,
    /// Place of the first of them in the order of all that was ever kept.
    age: u64,
    /// Bytes since the last request for an acknowledgement.
    since_asked: usize,
    /// What an acknowledgement names.
    ttt: Option<Ttt>,
    /// ExpDataSN of its response, once it has ended.
    exp_data_sn: Option<u32>,
    /// SNACK Tag of the last R-Data SNACK.
    snack_tag: u32,
}

impl Replay {
    /// Nothing was sent.
    #[must_use]
    pub fn new(rules: ReplayRules) -> Self {
        Self {
            rules,
            tasks: BTreeMap::new(),
            kept: 0,
            count: 0,
            last_ttt: 0,
        }
    }

    /// New rules for what is sent from now on.
    pub fn set_rules(&mut self, rules: ReplayRules) {
        self.rules = rules;
    }

    /// Cuts a piece of Data-In into PDUs and keeps them. Status never rides on them at these levels: what can be asked
    /// for again by different SNACKs is kept apart.
    pub fn send(&mut self, put: &PutData) -> Vec<Segment> {
        debug_assert!(put.last.is_none(), "a status goes by itself");
        let data = Bytes::copy_from_slice(&put.buf);
        let segments = self.cut(put.itt, put.lun, put.offset, &data, put.numbering);
        self.keep(put.itt, &segments);
        segments
    }

    /// Data-In from DataSN `begin` on, `count` of them or, with 0, all; with both 0 all that is not acknowledged.
    pub fn again(
        &self,
        itt: Itt,
        begin: u32,
        count: u32,
        numbering: Numbering,
    ) -> Result<Vec<Segment>, Unsent> {
        let task = self.tasks.get(&itt.0).ok_or(Unsent::Unknown)?;
        let begin = if (begin, count) == (0, 0) {
            task.acknowledged
        } else {
            begin
        };
        let end = if count == 0 {
            task.next_sn
        } else {
            begin.checked_add(count).ok_or(Unsent::Unknown)?
        };
        if begin < task.acknowledged || end > task.next_sn || begin >= end {
            return Err(Unsent::Unknown);
        }
        let wanted = task
            .kept
            .iter()
            .filter(|segment| (begin..end).contains(&segment.header.data_sn));
        let again: Vec<_> = wanted.map(|segment| segment.renewed(numbering)).collect();
        if again.len() == usize::try_from(end - begin).unwrap_or(usize::MAX) {
            Ok(again)
        } else {
            Err(Unsent::NotKept)
        }
    }

    /// R-Data SNACK (§11.16.3): all that is not acknowledged, cut anew under the rules of now.
    pub fn cut_anew(
        &mut self,
        itt: Itt,
        snack_tag: u32,
        numbering: Numbering,
    ) -> Result<Vec<Segment>, Unsent> {
        let task = self.tasks.get_mut(&itt.0).ok_or(Unsent::Unknown)?;
        let missing = task.next_sn - task.acknowledged;
        if task.kept.len() != usize::try_from(missing).unwrap_or(usize::MAX) {
            return Err(Unsent::NotKept);
        }
        task.snack_tag = snack_tag;
        let old = std::mem::take(&mut task.kept);
        let sent_before = task.next_sn;
        task.next_sn = task.acknowledged;
        let lun = task.lun;
        let Some(first) = old.front() else {
            return Ok(Vec::new());
        };
        let offset = first.header.offset;
        let data: Vec<u8> = old
            .iter()
            .flat_map(|segment| segment.data.iter().copied())
            .collect();
        self.kept -= data.len();
        let segments = self.cut(itt, lun, offset, &data.into(), numbering);
        self.keep(itt, &segments);
        if let Some(task) = self.tasks.get_mut(&itt.0)
            && let Some(exp_data_sn) = &mut task.exp_data_sn
        {
            *exp_data_sn = exp_data_sn.wrapping_add(task.next_sn).wrapping_sub(sent_before);
        }
        Ok(segments)
    }

    /// DataACK: everything before DataSN `next` of the task that this tag was sent for has arrived. `false` when it was
    /// sent for none, or so many were never sent.
    pub fn acknowledge(&mut self, ttt: Ttt, next: u32) -> bool {
        let found = self.tasks.values_mut().find(|task| task.ttt == Some(ttt));
        let Some(task) = found.filter(|task| next <= task.next_sn) else {
            return false;
        };
        task.acknowledged = task.acknowledged.max(next);
        while let Some(first) = task.kept.front()
            && first.header.data_sn < next
        {
            self.kept -= first.data.len();
            task.kept.pop_front();
        }
        true
    }

    /// A task has ended; `r2ts` were sent for it. What it had sent is counted as long as its response may be repeated.
    pub fn end(&mut self, itt: Itt, r2ts: u32) {
        if r2ts > 0 {
            self.tasks.entry(itt.0).or_default();
        }
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            task.exp_data_sn.get_or_insert(task.next_sn + r2ts);
        }
    }

    /// Fills in what a response says of its data; `r2ts` were sent for its task.
    pub fn complete(&self, response: &mut ScsiResponse, r2ts: u32) {
        if let Some(task) = self.tasks.get(&response.itt.0) {
            response.exp_data_sn = task.exp_data_sn.unwrap_or(task.next_sn + r2ts);
            response.snack_tag = task.snack_tag;
        }
    }

    /// Data-In sent for a task.
    #[must_use]
    pub fn sent(&self, itt: Itt) -> u32 {
        self.tasks.get(&itt.0).map_or(0, |task| task.next_sn)
    }

    /// Its status is acknowledged, or it was aborted: nothing of it can be asked for any more.
    pub fn forget(&mut self, itt: Itt) {
        self.surrender(itt);
    }

    /// Takes a task out of a connection that is gone.
    pub fn surrender(&mut self, itt: Itt) -> SentTask {
        let task = self.tasks.remove(&itt.0).unwrap_or_default();
        let kept: usize = task.kept.iter().map(|segment| segment.data.len()).sum();
        self.kept -= kept;
        task
    }

    /// Goes on with a task of another connection: sends again what is missing from DataSN `next` on (everything that was
    /// not acknowledged, with 0). Cut anew when this connection takes shorter segments than the other did.
    pub fn adopt(
        &mut self,
        itt: Itt,
        mut sent: SentTask,
        next: u32,
        numbering: Numbering,
    ) -> Result<Vec<Segment>, Unsent> {
        sent.since_asked = 0;
        sent.ttt = None;
        self.kept += sent.kept.iter().map(|segment| segment.data.len()).sum::<usize>();
        let longest = sent.kept.iter().map(|segment| segment.data.len()).max();
        let (acknowledged, next_sn, tag) = (sent.acknowledged, sent.next_sn, sent.snack_tag);
        self.tasks.insert(itt.0, sent);
        // Any other value is to be ignored (§11.5.6).
        let next = if next < acknowledged || next > next_sn {
            acknowledged
        } else {
            next
        };
        if next == next_sn {
            return Ok(Vec::new());
        }
        if longest > Some(self.rules.max_data_len) {
            if next > acknowledged {
                return Err(Unsent::NotKept);
            }
            return self.cut_anew(itt, tag, numbering);
        }
        self.again(itt, next, 0, numbering)
    }

    fn cut(&mut self, itt: Itt, lun: Lun, offset: u32, data: &Bytes, numbering: Numbering) -> Vec<Segment> {
        let ReplayRules {
            max_data_len,
            max_burst_len,
        } = self.rules;
        let task = self.tasks.entry(itt.0).or_default();
        task.lun = lun;
        let mut segments = Vec::with_capacity(data.len().div_ceil(max_data_len).max(1));
        let (mut at, mut burst_left) = (0, max_burst_len);
        while at < data.len() {
            let len = (data.len() - at).min(max_data_len).min(burst_left);
            let ends = at + len == data.len();
            burst_left -= len;
            task.since_asked += len;
            let is_final = ends || burst_left == 0;
            // Not more often than once in a MaxBurstLength (§11.7.2).
            let acknowledge = is_final && task.since_asked >= max_burst_len;
            if acknowledge {
                task.since_asked = 0;
                self.last_ttt = (self.last_ttt + 1) & 0x7fff_ffff;
                task.ttt.get_or_insert(Ttt(self.last_ttt));
            }
            let header = DataIn {
                is_final,
                acknowledge,
                status: None,
                lun,
                itt,
                ttt: task.ttt.filter(|_| acknowledge).unwrap_or(Ttt::RESERVED),
                exp_cmd_sn: numbering.exp_cmd_sn,
                max_cmd_sn: numbering.max_cmd_sn,
                data_sn: task.next_sn,
                offset: offset + u32::try_from(at).expect("a piece of Data-In is short"),
            };
            let data = data.slice(at..at + len);
            segments.push(Segment { header, data });
            task.next_sn += 1;
            at += len;
            if is_final {
                burst_left = max_burst_len;
            }
        }
        segments
    }

    /// Where all is full, the task gives way that began to keep first.
    fn keep(&mut self, itt: Itt, segments: &[Segment]) {
        let task = self.tasks.entry(itt.0).or_default();
        if task.kept.is_empty() {
            task.age = self.count;
        }
        for segment in segments {
            self.count += 1;
            self.kept += segment.data.len();
            task.kept.push_back(segment.clone());
        }
        while self.kept > KEPT_MAX {
            let keeping = self.tasks.values_mut().filter(|task| !task.kept.is_empty());
            let Some(oldest) = keeping.min_by_key(|task| task.age) else {
                return;
            };
            if let Some(segment) = oldest.kept.pop_front() {
                self.kept -= segment.data.len();
            }
        }
    }
}

impl Default for SentTask {
    /// Nothing was sent.
    fn default() -> Self {
        Self {
            lun: Lun::ZERO,
            next_sn: 0,
            acknowledged: 0,
            kept: VecDeque::new(),
            age: 0,
            since_asked: 0,
            ttt: None,
            exp_data_sn: None,
            snack_tag: 0,
        }
    }
}

impl Segment {
    /// As it was, but for the window, which is the one of now (§11.16).
    fn renewed(&self, numbering: Numbering) -> Self {
        let header = DataIn {
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            ..self.header.clone()
        };
        let data = self.data.clone();
        Self { header, data }
    }
}

/// Data-In that one connection keeps, bytes: as much as it may have in flight.
const KEPT_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests;
