//! What the initiator said of the data of its commands: the places in its memory, and what it sends without being
//! asked (RFC 7145 §7.3.1, §7.3.4). Pure.

use std::collections::{BTreeSet, HashMap, VecDeque};

use iscsi_proto::pdu::{DataOut, ScsiCommand};
use iscsi_proto::{BHS_LEN, Itt, Ttt};
use target_core::datamover::{GetData, Notify};
use target_core::scsi::Sense;

use crate::fabric::Remote;

/// The tasks of a connection that may still move data.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: HashMap<u32, Task>,
    /// Tasks that ended although their unsolicited data have not all come: those are swallowed.
    swallowed: BTreeSet<u32>,
    rules: Rules,
    effects: VecDeque<Effect>,
}

/// What the connection's two ends agreed on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rules {
    /// FirstBurstLength, bytes.
    pub(crate) first_burst_len: usize,
    /// The place of Data-Out begins with the first byte that is not sent unasked (TaggedBufferForSolicitedDataOnly, §6.9).
    pub(crate) solicited_only: bool,
}

/// What the owner has to do next, in order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Read the rest of the wish from the initiator's memory.
    Fetch(GetData, Remote),
    Tell(Notify),
}

/// A bound on memory was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("more than {TASKS_MAX} commands were left unfinished")]
pub(crate) struct TooManyTasks;

#[derive(Debug)]
struct Task {
    read: Option<Remote>,
    write: Option<Remote>,
    immediate_len: usize,
    unsolicited: Option<Unsolicited>,
    /// Waits for unsolicited data.
    wish: Option<GetData>,
    broken: Option<Sense>,
}

/// Data of one command that come unasked, behind its immediate data.
#[derive(Debug)]
struct Unsolicited {
    bytes: Vec<u8>,
    limit: usize,
    data_sn: u32,
    complete: bool,
}

impl Tasks {
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A command arrived.
    pub(crate) fn begin(
        &mut self,
        pdu: &ScsiCommand,
        read: Option<Remote>,
        write: Option<Remote>,
        immediate_len: usize,
    ) -> Result<(), TooManyTasks> {
        if self.tasks.len() + self.swallowed.len() >= TASKS_MAX {
            return Err(TooManyTasks);
        }
        if self.tasks.contains_key(&pdu.itt.0) {
            // A tag in use: this command will be refused, and must not harm the one that has the tag.
            return Ok(());
        }
        self.swallowed.remove(&pdu.itt.0);
        let unsolicited = (pdu.write && !pdu.is_final).then(|| {
            let expected = usize::try_from(pdu.expected_len).expect("32 bits fit");
            Unsolicited {
                bytes: Vec::new(),
                limit: self
                    .rules
                    .first_burst_len
                    .min(expected)
                    .saturating_sub(immediate_len),
                data_sn: 0,
                complete: false,
            }
        });
        let task = Task {
            read,
            write,
            immediate_len,
            unsolicited,
            wish: None,
            broken: None,
        };
        self.tasks.insert(pdu.itt.0, task);
        Ok(())
    }

    /// Where Data-In of a task go (§7.3.5).
    pub(crate) fn read_place(&self, itt: Itt) -> Option<Remote> {
        self.tasks.get(&itt.0)?.read
    }

    /// The tag that the response of a task may make invalid: that of Data-In, if there are two, since there is room for one
    /// (§7.3.2). The other stays the initiator's.
    pub(crate) fn tag(&self, itt: Itt) -> Option<u32> {
        let task = self.tasks.get(&itt.0)?;
        task.read.or(task.write).map(|place| place.stag)
    }

    /// A task wants data.
    pub(crate) fn get(&mut self, get: GetData) {
        let Some(task) = self.tasks.get_mut(&get.itt.0) else {
            let (itt, result) = (get.itt, Err(Sense::DATA_PHASE_ERROR));
            return self.tell(Notify::DataOut { itt, result });
        };
        let itt = get.itt;
        task.wish = Some(get);
        self.advance(itt);
    }

    /// A Data-Out came. On iSER only what nobody asked for travels so.
    pub(crate) fn data_out(&mut self, bhs: &[u8; BHS_LEN], pdu: &DataOut, data: &[u8]) {
        let itt = pdu.itt;
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            let swallowed = pdu.ttt == Ttt::RESERVED && self.swallowed.contains(&itt.0);
            if !swallowed {
                self.tell(Notify::OutOfPlace { bhs: *bhs });
            } else if pdu.is_final {
                self.swallowed.remove(&itt.0);
            }
            return;
        };
        let (start, broken) = (task.immediate_len, task.broken.is_some());
        let unsolicited = task.unsolicited.as_mut();
        let expecting = |unsolicited: &&mut Unsolicited| !unsolicited.complete && pdu.ttt == Ttt::RESERVED;
        let Some(unsolicited) = unsolicited.filter(expecting) else {
            return self.tell(Notify::OutOfPlace { bhs: *bhs });
        };
        unsolicited.complete = pdu.is_final;
        if broken {
            return;
        }
        let expected = start + unsolicited.bytes.len();
        if usize::try_from(pdu.offset) != Ok(expected) || pdu.data_sn != unsolicited.data_sn {
            return self.fail(itt, Sense::DATA_PHASE_ERROR);
        }
        if data.len() > unsolicited.limit - unsolicited.bytes.len() {
            return self.fail(itt, Sense::UNEXPECTED_UNSOLICITED_DATA);
        }
        unsolicited.bytes.extend_from_slice(data);
        // Empty ones count too, and there is no end to those.
        unsolicited.data_sn = unsolicited.data_sn.wrapping_add(1);
        self.tell(Notify::Unsolicited { itt });
        self.advance(itt);
    }

    /// A task moves no data any more.
    pub(crate) fn forget(&mut self, itt: Itt) {
        if let Some(task) = self.tasks.remove(&itt.0)
            && task.unsolicited.is_some_and(|unsolicited| !unsolicited.complete)
        {
            self.swallowed.insert(itt.0);
        }
    }

    fn tell(&mut self, notify: Notify) {
        self.effects.push_back(Effect::Tell(notify));
    }

    /// A rule was broken: the wish fails now, or the next one will.
    fn fail(&mut self, itt: Itt, sense: Sense) {
        if let Some(task) = self.tasks.get_mut(&itt.0) {
            task.broken = Some(sense);
        }
        self.advance(itt);
    }

    /// Takes what came unasked, and asks for the rest, or hands the full buffer over.
    fn advance(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        let Some(mut get) = task.wish.take() else { return };
        if let Some(sense) = task.broken {
            let result = Err(sense);
            return self.tell(Notify::DataOut { itt, result });
        }
        let mut unasked = task.immediate_len;
        if let Some(unsolicited) = &task.unsolicited {
            if !unsolicited.complete {
                task.wish = Some(get);
                return;
            }
            unsolicited.copy_into(&mut get, task.immediate_len);
            unasked += unsolicited.bytes.len();
        }
        if get.filled == get.buf.len() {
            let result = Ok(get.buf);
            return self.tell(Notify::DataOut { itt, result });
        }
        let Some(place) = task.write else {
            // The command promised more than it sent, and named no place for the rest.
            let result = Err(Sense::NOT_ENOUGH_UNSOLICITED_DATA);
            return self.tell(Notify::DataOut { itt, result });
        };
        let start = if self.rules.solicited_only { unasked } else { 0 };
        let wanted = usize::try_from(get.offset).expect("32 bits fit") + get.filled;
        let from = place.plus(wanted.saturating_sub(start) as u64);
        self.effects.push_back(Effect::Fetch(get, from));
    }
}

impl Unsolicited {
    /// Copies what continues the filled part of a wish. `start` is the place of the first byte in the whole Data-Out.
    fn copy_into(&self, get: &mut GetData, start: usize) {
        let offset = usize::try_from(get.offset).expect("32 bits fit");
        let from = offset + get.filled;
        let to = (offset + get.buf.len()).min(start + self.bytes.len());
        if from < start || to <= from {
            return;
        }
        let (filled, len) = (get.filled, to - from);
        get.buf[filled..filled + len].copy_from_slice(&self.bytes[from - start..to - start]);
        get.filled += len;
    }
}

/// Far above any command window.
const TASKS_MAX: usize = 8192;

#[cfg(test)]
mod tests;
