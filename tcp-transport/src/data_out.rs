//! Data-Out without a socket: what was asked for by R2T, what comes unsolicited, where each PDU's bytes belong, and
//! which rules it breaks (RFC 7143 §11.7, §11.8, §11.4.7.2). Data arrive in order: we negotiate DataPDUInOrder and
//! DataSequenceInOrder.

use std::collections::{HashMap, HashSet, VecDeque};

use backstores::IoBuf;
use iscsi_proto::pdu::{DataOut, R2t, ScsiCommand};
use iscsi_proto::{Itt, Ttt};
use target_core::datamover::{GetData, Notify};
use target_core::scsi::Sense;

use crate::framer::Place;

/// All Data-Out business of one connection.
#[derive(Debug)]
pub(crate) struct DataOutBook {
    tasks: HashMap<u32, OutTask>,
    r2ts: HashMap<u32, Solicited>,
    /// Tasks that ended although their unsolicited data have not all come: those are swallowed.
    swallowed: HashSet<u32>,
    /// The Data-Out whose payload is on its way.
    landing: Option<Landing>,
    next_ttt: u32,
    rules: OutRules,
    effects: VecDeque<Effect>,
}

/// What the negotiation decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OutRules {
    pub(crate) max_burst_len: usize,
    pub(crate) first_burst_len: usize,
    pub(crate) max_outstanding_r2t: usize,
}

/// What the owner has to do next, in order.
#[derive(Debug)]
pub(crate) enum Effect {
    Send(R2t),
    Tell(Notify),
}

/// Too many tasks were given up by us and never finished by the initiator: a bound on memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("more than {ABANDONED_MAX} data sequences were left unfinished")]
pub(crate) struct TooManyAbandoned;

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
}

/// An R2T that is being answered.
#[derive(Debug)]
struct Solicited {
    itt: Itt,
    /// Position of the next byte in the buffer of its wish; `None` once the task let go of it.
    live: Option<Span>,
    data_sn: u32,
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
    complete: bool,
}

#[derive(Debug)]
struct Landing {
    bhs: [u8; iscsi_proto::BHS_LEN],
    itt: Itt,
    ttt: Ttt,
    len: usize,
    is_final: bool,
    kind: LandingKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LandingKind {
    Solicited,
    Unsolicited,
    Nowhere,
}

impl DataOutBook {
    pub(crate) fn new(rules: OutRules) -> Self {
        Self {
            tasks: HashMap::new(),
            r2ts: HashMap::new(),
            swallowed: HashSet::new(),
            landing: None,
            next_ttt: 0,
            rules,
            effects: VecDeque::new(),
        }
    }

    pub(crate) fn set_rules(&mut self, rules: OutRules) {
        self.rules = rules;
    }

    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// R2Ts sent for a task so far: ExpDataSN of its response.
    pub(crate) fn r2ts_sent(&self, itt: Itt) -> u32 {
        self.tasks.get(&itt.0).map_or(0, |task| task.r2t_sn)
    }

    /// A command arrived. Without the F bit, unsolicited Data-Out follow it (§11.3.1).
    pub(crate) fn begin_command(&mut self, pdu: &ScsiCommand, immediate_len: usize) {
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
    pub(crate) fn get(&mut self, get: GetData) {
        let task = self.tasks.entry(get.itt.0).or_default();
        let asked = get.filled;
        task.get = Some(ActiveGet {
            get,
            asked,
            outstanding: 0,
        });
        let itt = task.get.as_ref().expect("set above").get.itt;
        self.advance(itt);
    }

    /// Where the payload of a Data-Out goes. [`Self::landed`] follows when it is there.
    pub(crate) fn header(
        &mut self,
        bhs: &[u8; iscsi_proto::BHS_LEN],
        pdu: &DataOut,
        len: usize,
    ) -> Result<Place, TooManyAbandoned> {
        if self.abandoned() > ABANDONED_MAX {
            return Err(TooManyAbandoned);
        }
        let (kind, place) = if pdu.ttt == Ttt::RESERVED {
            self.unsolicited_place(bhs, pdu, len)
        } else {
            self.solicited_place(bhs, pdu, len)
        };
        let (itt, ttt, is_final) = (pdu.itt, pdu.ttt, pdu.is_final);
        self.landing = Some(Landing {
            bhs: *bhs,
            itt,
            ttt,
            len,
            is_final,
            kind,
        });
        Ok(place)
    }

    /// The payload of the last Data-Out is in its place.
    pub(crate) fn landed(&mut self, place: Place, digest_ok: bool) {
        let Landing {
            bhs,
            itt,
            ttt,
            len,
            is_final,
            kind,
        } = self.landing.take().expect("a payload follows its header");
        if !digest_ok {
            // Rejected, and the command ends with a CRC error: level 0 has no retransmission (§7.8).
            self.effects
                .push_back(Effect::Tell(Notify::DataDigestError { bhs }));
        }
        match (kind, place) {
            (LandingKind::Solicited, Place::Buffer { buf, .. }) => {
                self.land_solicited(itt, ttt, buf, len, digest_ok);
            }
            (LandingKind::Unsolicited, Place::Buffer { buf, .. }) => {
                self.land_unsolicited(itt, buf, len, is_final, digest_ok);
            }
            _ => {}
        }
        if is_final {
            self.finish_sequence(itt, ttt);
        }
    }

    /// Lets go of a task's buffers; [`Notify::Released`] follows when the initiator has finished what it was asked for.
    pub(crate) fn release(&mut self, itt: Itt) {
        self.abandon(itt);
        self.tell_released(itt, true);
    }

    /// A task ended by itself.
    pub(crate) fn end(&mut self, itt: Itt) {
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
            self.let_go_of_r2ts(itt);
        }
    }

    fn let_go_of_r2ts(&mut self, itt: Itt) {
        for r2t in self.r2ts.values_mut().filter(|r2t| r2t.itt == itt) {
            r2t.live = None;
        }
    }

    fn abandoned(&self) -> usize {
        self.swallowed.len() + self.r2ts.values().filter(|r2t| r2t.live.is_none()).count()
    }

    fn tell_released(&mut self, itt: Itt, even_if_none: bool) {
        let waiting = self.r2ts.values().any(|r2t| r2t.itt == itt && r2t.live.is_none());
        if even_if_none && !waiting {
            self.effects.push_back(Effect::Tell(Notify::Released(itt)));
        }
    }

    fn unsolicited_place(
        &mut self,
        bhs: &[u8; iscsi_proto::BHS_LEN],
        pdu: &DataOut,
        len: usize,
    ) -> (LandingKind, Place) {
        let nowhere = (LandingKind::Nowhere, Place::Discard);
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else {
            if !self.swallowed.contains(&pdu.itt.0) {
                self.effects
                    .push_back(Effect::Tell(Notify::StrayDataOut { bhs: *bhs }));
            }
            return nowhere;
        };
        let Some(unsolicited) = task
            .unsolicited
            .as_mut()
            .filter(|unsolicited| !unsolicited.complete)
        else {
            self.effects
                .push_back(Effect::Tell(Notify::StrayDataOut { bhs: *bhs }));
            return nowhere;
        };
        if task.broken.is_some() {
            return nowhere;
        }
        let offset = usize::try_from(pdu.offset).expect("32 bits fit");
        let error = if offset != unsolicited.start + unsolicited.have || pdu.data_sn != unsolicited.data_sn {
            Some(Sense::DATA_PHASE_ERROR)
        } else if len > unsolicited.buf.len() - unsolicited.have {
            Some(Sense::UNEXPECTED_UNSOLICITED_DATA)
        } else {
            None
        };
        if let Some(sense) = error {
            self.fail(pdu.itt, sense);
            return nowhere;
        }
        unsolicited.data_sn += 1;
        let at = unsolicited.have;
        let buf = std::mem::replace(&mut unsolicited.buf, IoBuf::from_heap(0));
        (LandingKind::Unsolicited, Place::Buffer { buf, at })
    }

    fn land_unsolicited(&mut self, itt: Itt, buf: IoBuf, len: usize, is_final: bool, digest_ok: bool) {
        let Some(unsolicited) = self
            .tasks
            .get_mut(&itt.0)
            .and_then(|task| task.unsolicited.as_mut())
        else {
            return;
        };
        unsolicited.buf = buf;
        unsolicited.have += len;
        unsolicited.complete = is_final;
        if digest_ok {
            self.effects.push_back(Effect::Tell(Notify::Unsolicited { itt }));
            self.advance(itt);
        } else {
            self.fail(itt, Sense::PROTOCOL_SERVICE_CRC_ERROR);
        }
    }

    fn solicited_place(
        &mut self,
        bhs: &[u8; iscsi_proto::BHS_LEN],
        pdu: &DataOut,
        len: usize,
    ) -> (LandingKind, Place) {
        let nowhere = (LandingKind::Nowhere, Place::Discard);
        let Some(r2t) = self.r2ts.get_mut(&pdu.ttt.0) else {
            self.effects
                .push_back(Effect::Tell(Notify::StrayDataOut { bhs: *bhs }));
            return nowhere;
        };
        let Some(span) = r2t.live else { return nowhere };
        let itt = r2t.itt;
        let expected_sn = r2t.data_sn;
        r2t.data_sn = r2t.data_sn.wrapping_add(1);
        let active = self
            .tasks
            .get_mut(&itt.0)
            .and_then(|task| task.get.as_mut())
            .expect("a live R2T belongs to a wish that waits");

        let offset = usize::try_from(pdu.offset).expect("32 bits fit");
        let wanted = usize::try_from(active.get.offset).expect("32 bits fit") + span.next;
        let in_turn = active.get.filled == span.next;
        let end = span.next + len;
        let error = if pdu.itt != itt || offset != wanted || pdu.data_sn != expected_sn || !in_turn {
            Some(Sense::DATA_PHASE_ERROR)
        } else if end > span.end || (pdu.is_final && end < span.end) {
            // More or less than the R2T asked for (§11.4.7.2: incorrect amount of data).
            Some(Sense::NOT_ENOUGH_UNSOLICITED_DATA)
        } else {
            None
        };
        if let Some(sense) = error {
            self.fail(itt, sense);
            return nowhere;
        }
        let buf = std::mem::replace(&mut active.get.buf, IoBuf::from_heap(0));
        (LandingKind::Solicited, Place::Buffer { buf, at: span.next })
    }

    fn land_solicited(&mut self, itt: Itt, ttt: Ttt, buf: IoBuf, len: usize, digest_ok: bool) {
        let Some(span) = self.r2ts.get_mut(&ttt.0).and_then(|r2t| r2t.live.as_mut()) else {
            return;
        };
        span.next += len;
        let done = span.next == span.end;
        let active = self
            .tasks
            .get_mut(&itt.0)
            .and_then(|task| task.get.as_mut())
            .expect("a live R2T belongs to a wish that waits");
        active.get.buf = buf;
        active.get.filled += len;
        if !digest_ok {
            self.fail(itt, Sense::PROTOCOL_SERVICE_CRC_ERROR);
            return;
        }
        if done {
            active.outstanding -= 1;
            self.r2ts.remove(&ttt.0);
        }
        self.advance(itt);
    }

    /// The F bit ends a sequence we no longer wanted.
    fn finish_sequence(&mut self, itt: Itt, ttt: Ttt) {
        if ttt == Ttt::RESERVED {
            self.swallowed.remove(&itt.0);
            return;
        }
        if self.r2ts.get(&ttt.0).is_some_and(|r2t| r2t.live.is_none())
            && let Some(r2t) = self.r2ts.remove(&ttt.0)
            && r2t.itt != Itt::RESERVED
            && !self.tasks.contains_key(&r2t.itt.0)
        {
            self.tell_released(r2t.itt, true);
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
            self.r2ts.insert(
                ttt.0,
                Solicited {
                    itt,
                    live: Some(span),
                    data_sn: 0,
                },
            );
            let position = u32::try_from(active.asked).expect("a chunk is small");
            self.effects.push_back(Effect::Send(R2t {
                lun: active.get.lun,
                itt,
                ttt,
                stat_sn: active.get.numbering.stat_sn,
                exp_cmd_sn: active.get.numbering.exp_cmd_sn,
                max_cmd_sn: active.get.numbering.max_cmd_sn,
                r2t_sn: task.r2t_sn,
                offset: active.get.offset + position,
                desired_len: u32::try_from(len).expect("a chunk is small"),
            }));
            task.r2t_sn += 1;
            active.asked += len;
            active.outstanding += 1;
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

/// Far above any honest initiator's unfinished business: a command window of aborted tasks with several R2Ts each.
const ABANDONED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use iscsi_proto::pdu::{Request, TaskAttribute};
    use iscsi_proto::{BHS_LEN, Lun, Sn};
    use target_core::datamover::Numbering;

    use super::*;

    const RULES: OutRules = OutRules {
        max_burst_len: 1024,
        first_burst_len: 2048,
        max_outstanding_r2t: 2,
    };

    fn get(offset: u32, len: usize, filled: usize) -> GetData {
        GetData {
            itt: Itt(1),
            lun: Lun::ZERO,
            offset,
            buf: IoBuf::from_heap(len),
            filled,
            numbering: Numbering::default(),
        }
    }

    fn command(expected_len: u32) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: false,
            read: false,
            write: true,
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt(1),
            expected_len,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(1),
            cdb: [0; 16],
        }
    }

    /// Sends one Data-Out full of `fill`.
    fn send(
        book: &mut DataOutBook,
        ttt: Ttt,
        data_sn: u32,
        offset: u32,
        len: usize,
        is_final: bool,
        fill: u8,
    ) {
        let pdu = DataOut {
            is_final,
            lun: Lun::ZERO,
            itt: Itt(1),
            ttt,
            exp_stat_sn: Sn(1),
            data_sn,
            offset,
        };
        let bhs: [u8; BHS_LEN] = Request::DataOut(pdu.clone()).encode();
        let mut place = book.header(&bhs, &pdu, len).unwrap();
        if let Place::Buffer { buf, at } = &mut place {
            buf[*at..*at + len].fill(fill);
        }
        book.landed(place, true);
    }

    fn r2t(book: &mut DataOutBook) -> R2t {
        match book.next_effect() {
            Some(Effect::Send(r2t)) => r2t,
            other => panic!("no R2T but {other:?}"),
        }
    }

    fn told(book: &mut DataOutBook) -> Notify {
        match book.next_effect() {
            Some(Effect::Tell(notify)) => notify,
            other => panic!("nothing told but {other:?}"),
        }
    }

    #[test]
    fn a_wish_becomes_r2ts_within_burst_and_outstanding_limits() {
        let mut book = DataOutBook::new(RULES);
        book.get(get(4096, 2560, 100));
        let first = r2t(&mut book);
        assert_eq!((first.offset, first.desired_len, first.r2t_sn), (4196, 1024, 0));
        let second = r2t(&mut book);
        assert_eq!(
            (second.offset, second.desired_len, second.r2t_sn),
            (5220, 1024, 1)
        );
        assert!(book.next_effect().is_none());

        send(&mut book, first.ttt, 0, 4196, 1000, false, 1);
        send(&mut book, first.ttt, 1, 5196, 24, true, 2);
        let third = r2t(&mut book);
        assert_eq!((third.offset, third.desired_len, third.r2t_sn), (6244, 412, 2));
        send(&mut book, second.ttt, 0, 5220, 1024, true, 3);
        send(&mut book, third.ttt, 0, 6244, 412, true, 4);
        let Notify::DataOut { result: Ok(buf), .. } = told(&mut book) else {
            panic!()
        };
        assert_eq!((buf[100], buf[1100], buf[1124], buf[2559]), (1, 2, 3, 4));
        assert_eq!(book.r2ts_sent(Itt(1)), 3);
    }

    #[test]
    fn unsolicited_data_serve_the_wish_and_the_rest_is_asked_for() {
        let mut book = DataOutBook::new(RULES);
        book.begin_command(&command(4000), 512);
        book.get(get(0, 4000, 512));
        assert!(
            book.next_effect().is_none(),
            "nothing is asked for while data still come by themselves"
        );
        send(&mut book, Ttt::RESERVED, 0, 512, 1000, false, 1);
        send(&mut book, Ttt::RESERVED, 1, 1512, 536, true, 2);
        assert!(matches!(told(&mut book), Notify::Unsolicited { .. }));
        assert!(matches!(told(&mut book), Notify::Unsolicited { .. }));
        let first = r2t(&mut book);
        assert_eq!((first.offset, first.desired_len), (2048, 1024));
    }

    #[test]
    fn broken_rules_fail_the_command_with_the_standards_sense() {
        for (data_sn, offset, len, is_final, sense) in [
            (1, 0, 1024, true, Sense::DATA_PHASE_ERROR),
            (0, 4, 1020, true, Sense::DATA_PHASE_ERROR),
            (0, 0, 1025, true, Sense::NOT_ENOUGH_UNSOLICITED_DATA),
            (0, 0, 1000, true, Sense::NOT_ENOUGH_UNSOLICITED_DATA),
        ] {
            let mut book = DataOutBook::new(RULES);
            book.get(get(0, 1024, 0));
            let r2t = r2t(&mut book);
            send(&mut book, r2t.ttt, data_sn, offset, len, is_final, 0);
            let Notify::DataOut {
                result: Err(told), ..
            } = told(&mut book)
            else {
                panic!()
            };
            assert_eq!(told, sense);
            assert!(book.r2ts.is_empty(), "the F bit ended the sequence");
        }
    }

    #[test]
    fn unsolicited_data_beyond_first_burst_are_refused() {
        let mut book = DataOutBook::new(RULES);
        book.begin_command(&command(4000), 0);
        send(&mut book, Ttt::RESERVED, 0, 0, 2049, true, 0);
        book.get(get(0, 4000, 0));
        let Notify::DataOut {
            result: Err(sense), ..
        } = told(&mut book)
        else {
            panic!()
        };
        assert_eq!(sense, Sense::UNEXPECTED_UNSOLICITED_DATA);
    }

    #[test]
    fn release_waits_until_the_initiator_has_finished_and_swallows_what_comes() {
        let mut book = DataOutBook::new(RULES);
        book.get(get(0, 1024, 0));
        let r2t = r2t(&mut book);
        book.release(Itt(1));
        assert!(book.next_effect().is_none());
        send(&mut book, r2t.ttt, 0, 0, 512, false, 0);
        assert!(book.next_effect().is_none());
        send(&mut book, r2t.ttt, 1, 512, 512, true, 0);
        assert!(matches!(told(&mut book), Notify::Released(Itt(1))));
        assert!(book.r2ts.is_empty());
    }

    #[test]
    fn release_while_a_payload_is_landing_keeps_the_buffer_sound() {
        let mut book = DataOutBook::new(RULES);
        book.get(get(0, 1024, 0));
        let r2t = r2t(&mut book);
        let pdu = DataOut {
            is_final: true,
            lun: Lun::ZERO,
            itt: Itt(1),
            ttt: r2t.ttt,
            exp_stat_sn: Sn(1),
            data_sn: 0,
            offset: 0,
        };
        let place = book
            .header(&Request::DataOut(pdu.clone()).encode(), &pdu, 1024)
            .unwrap();
        book.release(Itt(1));
        book.landed(place, true);
        assert!(matches!(told(&mut book), Notify::Released(Itt(1))));
    }

    #[test]
    fn data_for_nothing_we_know_are_stray() {
        let mut book = DataOutBook::new(RULES);
        send(&mut book, Ttt(9), 0, 0, 16, true, 0);
        assert!(matches!(told(&mut book), Notify::StrayDataOut { .. }));
        send(&mut book, Ttt::RESERVED, 0, 0, 16, true, 0);
        assert!(matches!(told(&mut book), Notify::StrayDataOut { .. }));
    }

    #[test]
    fn unsolicited_data_of_a_command_that_ended_early_are_swallowed() {
        let mut book = DataOutBook::new(RULES);
        book.begin_command(&command(2000), 0);
        book.end(Itt(1));
        send(&mut book, Ttt::RESERVED, 0, 0, 1000, false, 0);
        send(&mut book, Ttt::RESERVED, 1, 1000, 1000, true, 0);
        assert!(book.next_effect().is_none());
        assert!(book.swallowed.is_empty());
    }

    #[test]
    fn abandoned_sequences_are_bounded() {
        let mut book = DataOutBook::new(RULES);
        for itt in 0..=u32::try_from(ABANDONED_MAX).unwrap() {
            book.begin_command(
                &ScsiCommand {
                    itt: Itt(itt),
                    ..command(2000)
                },
                0,
            );
            book.end(Itt(itt));
        }
        let pdu = DataOut {
            is_final: true,
            lun: Lun::ZERO,
            itt: Itt(1),
            ttt: Ttt::RESERVED,
            exp_stat_sn: Sn(1),
            data_sn: 0,
            offset: 0,
        };
        assert_eq!(book.header(&[0; BHS_LEN], &pdu, 0).unwrap_err(), TooManyAbandoned);
    }
}
