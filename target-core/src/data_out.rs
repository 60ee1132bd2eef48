//! Data-Out without a socket: what was asked for by R2T, what comes unsolicited, where each PDU's bytes belong, and
//! which rules it breaks (RFC 7143 §11.7, §11.8, §11.4.7.2). A book that each mover of iSCSI PDUs keeps for its
//! connection. Data arrive in order: we negotiate DataPDUInOrder and DataSequenceInOrder.
//!
//! Here: wishes, R2Ts, and letting go. What arrives is in `data_out/arrival.rs`; what is done about data that did not
//! arrive, at ErrorRecoveryLevel 1 and 2, in `data_out/recovery.rs`.

mod arrival;
mod recovery;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use backstores::IoBuf;
use iscsi_proto::pdu::{R2t, ScsiCommand};
use iscsi_proto::{Itt, Ttt};

use crate::datamover::{GetData, Notify, Numbering};
use crate::scsi::Sense;

pub use arrival::{Place, TooManyAbandoned};
pub use recovery::OutRemains;

/// All Data-Out business of one connection.
#[derive(Debug)]
pub struct DataOutBook {
    tasks: BTreeMap<u32, OutTask>,
    r2ts: HashMap<u32, Solicited>,
    /// Tasks that ended although their unsolicited data have not all come: those are swallowed.
    swallowed: BTreeSet<u32>,
    /// The Data-Out whose payload is on its way.
    landing: Option<arrival::Landing>,
    next_ttt: u32,
    rules: OutRules,
    effects: VecDeque<Effect>,
}

/// What the negotiation decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutRules {
    /// MaxBurstLength, bytes.
    pub max_burst_len: usize,
    /// FirstBurstLength, bytes.
    pub first_burst_len: usize,
    /// MaxOutstandingR2T; one where data are recovered.
    pub max_outstanding_r2t: usize,
    /// ErrorRecoveryLevel 1 or 2: data that are lost or damaged are asked for again.
    pub recovers: bool,
}

/// What the owner has to do next, in order.
#[derive(Debug)]
pub enum Effect {
    /// Send this.
    Send(R2t),
    /// Tell this.
    Tell(Notify),
}

#[derive(Debug, Default)]
struct OutTask {
    r2t_sn: u32,
    get: Option<ActiveGet>,
    unsolicited: Option<Unsolicited>,
    broken: Option<Sense>,
}

/// A wish that is being fulfilled. Positions are bytes of its buffer.
#[derive(Debug)]
struct ActiveGet {
    get: GetData,
    /// Up to here R2Ts were sent.
    asked: usize,
    outstanding: usize,
    /// How much there was when somebody last looked whether it goes on.
    looked_at: Option<usize>,
}

/// An R2T that is being answered.
#[derive(Debug)]
struct Solicited {
    itt: Itt,
    state: Answering,
    data_sn: u32,
    r2t_sn: u32,
    /// What it asked for, for it to be repeated.
    start: usize,
    is_repeated: bool,
}

/// How far the answer to an R2T is.
#[derive(Clone, Copy, Debug)]
enum Answering {
    /// The next byte belongs here, in the buffer of its wish.
    Live(Span),
    /// Something is missing from here on; the rest of the sequence goes nowhere, and is then asked for again.
    Gap(Span),
    /// The task let go of it: swallowed, and waited for by a release.
    LetGo,
    /// Another R2T asks for what is missing: swallowed.
    Superseded,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    next: usize,
    end: usize,
}

/// Unsolicited data of one command, from the end of its immediate data on.
#[derive(Debug)]
struct Unsolicited {
    buf: IoBuf,
    start: usize,
    have: usize,
    data_sn: u32,
    /// Something is missing: what follows goes nowhere.
    gap: bool,
    complete: bool,
}

impl DataOutBook {
    /// A book with nothing in it.
    #[must_use]
    pub fn new(rules: OutRules) -> Self {
        Self {
            tasks: BTreeMap::new(),
            r2ts: HashMap::new(),
            swallowed: BTreeSet::new(),
            landing: None,
            next_ttt: 0,
            rules,
            effects: VecDeque::new(),
        }
    }

    /// The negotiation is over.
    pub fn set_rules(&mut self, rules: OutRules) {
        self.rules = rules;
    }

    /// What is to be done, until there is nothing.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// R2Ts sent for a task so far: ExpDataSN of its response.
    #[must_use]
    pub fn r2ts_sent(&self, itt: Itt) -> u32 {
        self.tasks.get(&itt.0).map_or(0, |task| task.r2t_sn)
    }

    /// A command arrived. Without the F bit, unsolicited Data-Out follow it (§11.3.1).
    pub fn begin_command(&mut self, pdu: &ScsiCommand, immediate_len: usize) {
        if self.tasks.contains_key(&pdu.itt.0) {
            // A tag in use: this command will be refused, and must not harm the one that has the tag.
            return;
        }
        self.swallowed.remove(&pdu.itt.0);
        if pdu.is_final || !pdu.write {
            return;
        }
        let expected = usize::try_from(pdu.expected_len).expect("32 bits fit");
        let limit = self.rules.first_burst_len.min(expected).max(immediate_len);
        let unsolicited = Unsolicited {
            buf: IoBuf::from_heap(limit - immediate_len),
            start: immediate_len,
            have: 0,
            data_sn: 0,
            gap: false,
            complete: false,
        };
        self.tasks.insert(
            pdu.itt.0,
            OutTask {
                unsolicited: Some(unsolicited),
                ..OutTask::default()
            },
        );
    }

    /// A task wants data.
    pub fn get(&mut self, get: GetData) {
        let (itt, asked) = (get.itt, get.filled);
        let task = self.tasks.entry(itt.0).or_default();
        task.get = Some(ActiveGet {
            get,
            asked,
            outstanding: 0,
            looked_at: None,
        });
        self.advance(itt);
    }

    /// Lets go of a task's buffers; [`Notify::Released`] follows when the initiator has finished what it was asked for.
    pub fn release(&mut self, itt: Itt) {
        self.abandon(itt);
        self.tell_released(itt);
    }

    /// A task ended by itself.
    pub fn end(&mut self, itt: Itt) {
        self.abandon(itt);
        // An R2T left unanswered belongs to no release.
        for r2t in self.r2ts.values_mut().filter(|r2t| r2t.itt == itt) {
            r2t.itt = Itt::RESERVED;
        }
    }

    fn abandon(&mut self, itt: Itt) {
        let Some(task) = self.tasks.remove(&itt.0) else {
            return;
        };
        if task.unsolicited.is_some_and(|unsolicited| !unsolicited.complete) {
            self.swallowed.insert(itt.0);
        }
        if task.r2t_sn > 0 {
            self.forget_superseded(itt);
            self.let_go_of_r2ts(itt);
        }
    }

    fn let_go_of_r2ts(&mut self, itt: Itt) {
        for r2t in self.r2ts.values_mut().filter(|r2t| r2t.itt == itt) {
            r2t.state = Answering::LetGo;
        }
    }

    fn abandoned(&self) -> usize {
        let r2ts = self.r2ts.values().filter(|r2t| !r2t.is_live());
        self.swallowed.len() + r2ts.count()
    }

    fn tell_released(&mut self, itt: Itt) {
        let mut r2ts = self.r2ts.values();
        if !r2ts.any(|r2t| r2t.itt == itt && !r2t.is_live()) {
            self.effects.push_back(Effect::Tell(Notify::Released(itt)));
        }
    }

    /// A rule was broken: the wish fails now, or the next one will.
    fn fail(&mut self, itt: Itt, sense: Sense) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        task.broken = Some(sense);
        if task.get.take().is_some() {
            self.effects.push_back(Effect::Tell(Notify::DataOut {
                itt,
                result: Err(sense),
            }));
        }
        self.let_go_of_r2ts(itt);
    }

    /// Takes what came unsolicited, asks for the rest, or hands the full buffer over.
    fn advance(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        let Some(active) = task.get.as_mut() else { return };
        if let Some(sense) = task.broken {
            self.fail(itt, sense);
            return;
        }
        if let Some(unsolicited) = &task.unsolicited {
            if !unsolicited.complete {
                return;
            }
            unsolicited.copy_into(&mut active.get);
            active.asked = active.asked.max(active.get.filled);
        }
        if active.get.filled == active.get.buf.len() {
            let get = task.get.take().expect("borrowed above").get;
            self.effects.push_back(Effect::Tell(Notify::DataOut {
                itt,
                result: Ok(get.buf),
            }));
            return;
        }
        self.ask(itt);
    }

    /// Sends as many R2Ts as may be outstanding.
    fn ask(&mut self, itt: Itt) {
        let Some(task) = self.tasks.get_mut(&itt.0) else {
            return;
        };
        let Some(active) = task.get.as_mut() else { return };
        while active.outstanding < self.rules.max_outstanding_r2t && active.asked < active.get.buf.len() {
            let len = (active.get.buf.len() - active.asked).min(self.rules.max_burst_len);
            let ttt = Ttt(self.next_ttt);
            self.next_ttt = if self.next_ttt == Ttt::RESERVED.0 - 1 {
                0
            } else {
                self.next_ttt + 1
            };
            let span = Span {
                next: active.asked,
                end: active.asked + len,
            };
            let solicited = Solicited {
                itt,
                state: Answering::Live(span),
                data_sn: 0,
                r2t_sn: task.r2t_sn,
                start: span.next,
                is_repeated: false,
            };
            let r2t = solicited.pdu(ttt, span, &active.get, active.get.numbering);
            self.effects.push_back(Effect::Send(r2t));
            self.r2ts.insert(ttt.0, solicited);
            task.r2t_sn += 1;
            active.asked += len;
            active.outstanding += 1;
        }
    }
}

impl Solicited {
    /// Whether its data are wanted.
    fn is_live(&self) -> bool {
        matches!(self.state, Answering::Live(_) | Answering::Gap(_))
    }

    fn pdu(&self, ttt: Ttt, span: Span, get: &GetData, numbering: Numbering) -> R2t {
        let position = u32::try_from(self.start).expect("a chunk is small");
        R2t {
            lun: get.lun,
            itt: self.itt,
            ttt,
            stat_sn: numbering.stat_sn,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            r2t_sn: self.r2t_sn,
            offset: get.offset + position,
            desired_len: u32::try_from(span.end - self.start).expect("a chunk is small"),
        }
    }
}

impl Unsolicited {
    /// Copies what overlaps the unfilled part of a wish: the only copy of Data-Out, and only with InitialR2T=No.
    fn copy_into(&self, get: &mut GetData) {
        let offset = usize::try_from(get.offset).expect("32 bits fit");
        let from = offset + get.filled;
        let to = (offset + get.buf.len()).min(self.start + self.have);
        if from < self.start || to <= from {
            return;
        }
        let source = &self.buf[from - self.start..to - self.start];
        let filled = get.filled;
        get.buf[filled..filled + source.len()].copy_from_slice(source);
        get.filled += source.len();
    }
}

#[cfg(test)]
mod tests;
