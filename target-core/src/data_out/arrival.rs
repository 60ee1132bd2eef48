//! Data-Out that arrive: the place of each payload, and what follows when it is there.

use backstores::IoBuf;
use iscsi_proto::pdu::DataOut;
use iscsi_proto::{BHS_LEN, Itt, Ttt};

use super::{Answering, DataOutBook, Effect};
use crate::datamover::Notify;
use crate::scsi::Sense;

/// Where a payload goes: into this buffer, from this byte on.
#[derive(Debug)]
pub struct Place {
    /// The buffer.
    pub buf: IoBuf,
    /// The first byte's place.
    pub at: usize,
}

/// Too many tasks were given up by us and never finished by the initiator: a bound on memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("more than {ABANDONED_MAX} data sequences were left unfinished")]
pub struct TooManyAbandoned;

#[derive(Debug)]
pub(super) struct Landing {
    bhs: [u8; BHS_LEN],
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

/// What a header leads to.
type Verdict = (LandingKind, Option<Place>);

const NOWHERE: Verdict = (LandingKind::Nowhere, None);

impl DataOutBook {
    /// Where the payload of a Data-Out goes; `None` when nobody wants it. [`Self::landed`] follows when it is there.
    pub fn header(
        &mut self,
        bhs: &[u8; BHS_LEN],
        pdu: &DataOut,
        len: usize,
    ) -> Result<Option<Place>, TooManyAbandoned> {
        if self.abandoned() > ABANDONED_MAX {
            return Err(TooManyAbandoned);
        }
        let (kind, place) = if pdu.ttt == Ttt::RESERVED {
            self.unsolicited_place(bhs, pdu, len)
        } else {
            self.solicited_place(bhs, pdu, len)
        };
        self.landing = Some(Landing {
            bhs: *bhs,
            itt: pdu.itt,
            ttt: pdu.ttt,
            len,
            is_final: pdu.is_final,
            kind,
        });
        Ok(place)
    }

    /// The payload of the last Data-Out is in its place, which comes back.
    pub fn landed(&mut self, buf: Option<IoBuf>, digest_ok: bool) {
        let Landing {
            bhs,
            itt,
            ttt,
            len,
            is_final,
            kind,
        } = self.landing.take().expect("a payload follows its header");
        if !digest_ok {
            // Rejected at every level (§7.8). At level 0 the command ends with a CRC error besides.
            self.effects
                .push_back(Effect::Tell(Notify::DataDigestError { bhs }));
        }
        match (kind, buf) {
            (LandingKind::Solicited, Some(buf)) => self.land_solicited(ttt, buf, len, digest_ok),
            (LandingKind::Unsolicited, Some(buf)) => {
                self.land_unsolicited(itt, buf, len, is_final, digest_ok);
            }
            _ => {}
        }
        if is_final {
            self.finish_sequence(itt, ttt);
        }
    }

    /// Whether the payload of a Data-Out of this task is on its way.
    pub(super) fn is_landing(&self, itt: Itt) -> bool {
        self.landing.as_ref().is_some_and(|landing| landing.itt == itt)
    }

    /// The connection is gone in the middle of a payload: its buffer comes back as it was.
    pub fn take_back(&mut self, buf: IoBuf) {
        let Some(landing) = self.landing.take() else {
            return;
        };
        match landing.kind {
            LandingKind::Solicited => {
                let itt = self.r2ts.get(&landing.ttt.0).map(|r2t| r2t.itt);
                let task = itt.and_then(|itt| self.tasks.get_mut(&itt.0));
                if let Some(active) = task.and_then(|task| task.get.as_mut()) {
                    active.get.buf = buf;
                }
            }
            LandingKind::Unsolicited => {
                let task = self.tasks.get_mut(&landing.itt.0);
                if let Some(unsolicited) = task.and_then(|task| task.unsolicited.as_mut()) {
                    unsolicited.buf = buf;
                }
            }
            LandingKind::Nowhere => {}
        }
    }

    fn stray(&mut self, bhs: &[u8; BHS_LEN]) -> Verdict {
        self.effects
            .push_back(Effect::Tell(Notify::OutOfPlace { bhs: *bhs }));
        NOWHERE
    }

    fn unsolicited_place(&mut self, bhs: &[u8; BHS_LEN], pdu: &DataOut, len: usize) -> Verdict {
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else {
            if self.swallowed.contains(&pdu.itt.0) {
                return NOWHERE;
            }
            return self.stray(bhs);
        };
        let broken = task.broken.is_some();
        let Some(unsolicited) = task
            .unsolicited
            .as_mut()
            .filter(|unsolicited| !unsolicited.complete)
        else {
            return self.stray(bhs);
        };
        if broken || unsolicited.gap {
            return NOWHERE;
        }
        if self.rules.recovers && pdu.data_sn != unsolicited.data_sn {
            unsolicited.gap = true;
            return NOWHERE;
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
            return NOWHERE;
        }
        // Empty ones count too, and there is no end to those.
        unsolicited.data_sn = unsolicited.data_sn.wrapping_add(1);
        let at = unsolicited.have;
        let buf = std::mem::replace(&mut unsolicited.buf, IoBuf::from_heap(0));
        (LandingKind::Unsolicited, Some(Place { buf, at }))
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
        if !digest_ok && self.rules.recovers {
            unsolicited.gap = true;
            return;
        }
        unsolicited.have += len;
        unsolicited.complete = is_final;
        if digest_ok {
            self.effects.push_back(Effect::Tell(Notify::Unsolicited { itt }));
            self.advance(itt);
        } else {
            self.fail(itt, Sense::PROTOCOL_SERVICE_CRC_ERROR);
        }
    }

    fn solicited_place(&mut self, bhs: &[u8; BHS_LEN], pdu: &DataOut, len: usize) -> Verdict {
        let Some(r2t) = self.r2ts.get_mut(&pdu.ttt.0) else {
            return self.stray(bhs);
        };
        let span = match r2t.state {
            Answering::Live(span) => span,
            Answering::Gap(_) | Answering::LetGo | Answering::Superseded => return NOWHERE,
        };
        if self.rules.recovers && pdu.data_sn != r2t.data_sn {
            if pdu.data_sn > r2t.data_sn {
                r2t.state = Answering::Gap(span);
            }
            return NOWHERE;
        }
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
            return NOWHERE;
        }
        let buf = std::mem::replace(&mut active.get.buf, IoBuf::from_heap(0));
        (LandingKind::Solicited, Some(Place { buf, at: span.next }))
    }

    fn land_solicited(&mut self, ttt: Ttt, buf: IoBuf, len: usize, digest_ok: bool) {
        let Some(r2t) = self.r2ts.get_mut(&ttt.0) else {
            return;
        };
        if matches!(r2t.state, Answering::LetGo) {
            return;
        }
        let itt = r2t.itt;
        let task = self.tasks.get_mut(&itt.0);
        let active = task
            .and_then(|task| task.get.as_mut())
            .expect("an R2T that nobody let go of belongs to a wish that waits");
        active.get.buf = buf;
        let Answering::Live(mut span) = r2t.state else {
            return;
        };
        if !digest_ok && self.rules.recovers {
            r2t.state = Answering::Gap(span);
            return;
        }
        span.next += len;
        r2t.state = Answering::Live(span);
        active.get.filled += len;
        if !digest_ok {
            self.fail(itt, Sense::PROTOCOL_SERVICE_CRC_ERROR);
            return;
        }
        if span.next == span.end {
            active.outstanding -= 1;
            self.r2ts.remove(&ttt.0);
        }
        self.advance(itt);
    }

    /// The F bit ends a sequence that we no longer wanted, or some of which did not arrive.
    fn finish_sequence(&mut self, itt: Itt, ttt: Ttt) {
        if ttt == Ttt::RESERVED {
            self.swallowed.remove(&itt.0);
            self.end_of_unsolicited(itt);
            return;
        }
        let Some(r2t) = self.r2ts.get(&ttt.0) else { return };
        match r2t.state {
            Answering::Live(_) => {}
            Answering::Gap(_) => self.ask_again(ttt),
            Answering::Superseded => drop(self.r2ts.remove(&ttt.0)),
            Answering::LetGo => {
                let itt = r2t.itt;
                self.r2ts.remove(&ttt.0);
                if itt != Itt::RESERVED && !self.tasks.contains_key(&itt.0) {
                    self.tell_released(itt);
                }
            }
        }
    }
}

/// Far above any honest initiator's unfinished business: a command window of aborted tasks with several R2Ts each.
pub(super) const ABANDONED_MAX: usize = 4096;
