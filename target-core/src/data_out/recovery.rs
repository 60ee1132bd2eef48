//! Data-Out that did not arrive, or not as they were sent (RFC 7143 §7.2, §7.8, §11.16): at ErrorRecoveryLevel 1 and 2
//! the rest of a sequence with a gap is swallowed, and what is missing asked for by another R2T. Nothing that is here is
//! asked for twice.
//!
//! With DataSequenceInOrder one R2T of a task is outstanding at a time (§13.19), so a gap is always in the latest one.

use iscsi_proto::{Itt, Ttt};

use super::{Answering, DataOutBook, Effect, OutTask, Unsolicited};
use crate::datamover::{GetData, Numbering, Unsent};

/// What a connection that is gone leaves of a task's Data-Out, for another to go on with.
#[derive(Debug, Default)]
pub struct OutRemains {
    r2t_sn: u32,
    get: Option<GetData>,
    unsolicited: Option<Unsolicited>,
}

impl DataOutBook {
    /// No data have come for a task for a while: asks for what is missing, unless some came since it was last looked at.
    pub fn look_after(&mut self, itt: Itt) {
        if self.is_landing(itt) {
            return;
        }
        let task = self.tasks.get_mut(&itt.0);
        let Some(active) = task.and_then(|task| task.get.as_mut()) else {
            return;
        };
        let came = active.looked_at != Some(active.get.filled);
        active.looked_at = Some(active.get.filled);
        let numbering = active.get.numbering;
        if came || self.end_of_unsolicited(itt) {
            return;
        }
        let waiting = self
            .r2ts
            .iter_mut()
            .filter(|(_, r2t)| r2t.itt == itt && r2t.is_live());
        let mut again = Vec::new();
        for (ttt, r2t) in waiting {
            // It may have been lost itself; an initiator that has it takes no notice of it a second time.
            let may_be_lost = r2t.data_sn == 0 && !std::mem::replace(&mut r2t.is_repeated, true);
            again.push((Ttt(*ttt), r2t.r2t_sn, may_be_lost));
        }
        for (ttt, r2t_sn, may_be_lost) in again {
            if !may_be_lost || self.repeat_r2ts(itt, r2t_sn, 1, numbering).is_err() {
                self.ask_again(ttt);
            }
        }
    }

    /// Repeats the R2Ts from number `begin` on, `count` of them or, with 0, all. An R2T that has been answered cannot be.
    pub fn repeat_r2ts(
        &mut self,
        itt: Itt,
        begin: u32,
        count: u32,
        numbering: Numbering,
    ) -> Result<(), Unsent> {
        let Some(task) = self.tasks.get(&itt.0) else {
            return Err(Unsent::Unknown);
        };
        let Some(active) = &task.get else {
            return Err(Unsent::Unknown);
        };
        let end = if count == 0 {
            task.r2t_sn
        } else {
            begin.saturating_add(count)
        };
        let wanted = self
            .r2ts
            .iter()
            .filter(|(_, r2t)| r2t.itt == itt && r2t.is_live() && begin <= r2t.r2t_sn && r2t.r2t_sn < end);
        let mut found = false;
        for (ttt, r2t) in wanted {
            if let Answering::Live(span) | Answering::Gap(span) = r2t.state {
                let pdu = r2t.pdu(Ttt(*ttt), span, &active.get, numbering);
                self.effects.push_back(Effect::Send(pdu));
                found = true;
            }
        }
        if found { Ok(()) } else { Err(Unsent::Unknown) }
    }

    /// Takes a task out of a connection that is gone, after [`take_back`](Self::take_back) if a payload was on its way.
    pub fn surrender(&mut self, itt: Itt) -> OutRemains {
        let Some(task) = self.tasks.remove(&itt.0) else {
            return OutRemains::default();
        };
        OutRemains {
            r2t_sn: task.r2t_sn,
            get: task.get.map(|active| active.get),
            unsolicited: task.unsolicited.map(|unsolicited| Unsolicited {
                // What has not come by the old connection is asked for by the new one.
                complete: true,
                ..unsolicited
            }),
        }
    }

    /// Goes on with a task of another connection. What is missing is asked for.
    pub fn adopt(&mut self, itt: Itt, remains: OutRemains, numbering: Numbering) {
        let task = OutTask {
            r2t_sn: remains.r2t_sn,
            unsolicited: remains.unsolicited,
            ..OutTask::default()
        };
        self.tasks.insert(itt.0, task);
        if let Some(get) = remains.get {
            self.get(GetData { numbering, ..get });
        }
    }

    /// Unsolicited data have ended, all of them or not. Whether they had not yet.
    pub(super) fn end_of_unsolicited(&mut self, itt: Itt) -> bool {
        let task = self.tasks.get_mut(&itt.0);
        let unsolicited = task.and_then(|task| task.unsolicited.as_mut());
        if let Some(unsolicited) = unsolicited
            && self.rules.recovers
            && !unsolicited.complete
        {
            unsolicited.complete = true;
            self.advance(itt);
            return true;
        }
        false
    }

    /// Asks for the rest of a sequence by another R2T.
    pub(super) fn ask_again(&mut self, ttt: Ttt) {
        let Some(r2t) = self.r2ts.get_mut(&ttt.0) else {
            return;
        };
        let (Answering::Live(span) | Answering::Gap(span)) = r2t.state else {
            return;
        };
        r2t.state = Answering::Superseded;
        let itt = r2t.itt;
        let task = self.tasks.get_mut(&itt.0);
        if let Some(active) = task.and_then(|task| task.get.as_mut()) {
            active.asked = span.next;
            active.outstanding -= 1;
            self.ask(itt);
        }
    }

    /// What is left of superseded sequences of a task that is over goes where all strays go.
    pub(super) fn forget_superseded(&mut self, itt: Itt) {
        self.r2ts
            .retain(|_, r2t| r2t.itt != itt || !matches!(r2t.state, Answering::Superseded));
    }
}
