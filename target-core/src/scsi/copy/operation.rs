//! Copies of a unit by nexus and list identifier: how far they are, how they ended (SPC-4). A nexus can ask for
//! its own alone; they are forgotten with it, and when it gives the identifier to another copy.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use super::limits::REMEMBERED_COPIES;
use super::token::Token;
use crate::nexus::NexusId;
use crate::scsi::lu::same;
use crate::scsi::{Failure, Sense, Status};
use crate::transfer::AbortSignal;

/// LIST IDENTIFIER, in both its lengths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ListId {
    /// Of LID1 commands, one byte.
    Short(u8),
    /// Of LID4 and token commands, four bytes.
    Long(u32),
}

/// The copies that a unit was told to do.
#[derive(Debug, Default)]
pub(crate) struct CopyOperations {
    /// At most [`REMEMBERED_COPIES`] of each nexus, the oldest first.
    known: Mutex<Vec<Arc<Operation>>>,
}

/// One copy.
#[derive(Debug)]
pub(crate) struct Operation {
    nexus: Arc<NexusId>,
    list: ListId,
    /// SERVICE ACTION of the command that began it.
    pub(super) service_action: u8,
    /// The command has ended already.
    pub(super) background: AtomicBool,
    /// Bytes transferred, or represented by the token.
    pub(super) bytes: AtomicU64,
    /// Segments done.
    pub(super) segments: AtomicU16,
    state: Mutex<State>,
    /// Ends it by COPY OPERATION ABORT.
    pub(super) cancel: AbortSignal,
}

#[derive(Debug, Default)]
struct State {
    ending: Option<Ending>,
    token: Option<Token>,
}

/// How a copy ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    pub(super) how: Conclusion,
    /// Status of the command, or what it would have been.
    pub(super) status: u8,
    /// Sense data of the command, in fixed format.
    pub(super) sense: Vec<u8>,
}

/// In one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Conclusion {
    /// All is done.
    Complete,
    /// All is done that there was to be done; there was less than was asked for.
    Residual,
    /// It failed.
    Failed,
    /// It was aborted.
    Terminated,
}

/// The one who does a copy. Dropping it before [`conclude`](Self::conclude) means that the copy was aborted.
#[derive(Debug)]
pub(super) struct Doing(Arc<Operation>);

impl CopyOperations {
    /// A copy begins. OPERATION IN PROGRESS when one of the same identifier has not ended (SPC-4).
    pub(super) fn begin(
        &self,
        nexus: &Arc<NexusId>,
        list: ListId,
        service_action: u8,
        cancel: AbortSignal,
    ) -> Result<Doing, Failure> {
        let mut known = self.known();
        if let Some(place) = known.iter().position(|other| other.is(nexus, list)) {
            if known[place].ending().is_none() {
                return Err(Sense::OPERATION_IN_PROGRESS.into());
            }
            known.remove(place);
        }
        let of_nexus = known.iter().filter(|other| same(&other.nexus, nexus)).count();
        if of_nexus >= usize::from(REMEMBERED_COPIES) {
            let ended = |other: &Arc<Operation>| same(&other.nexus, nexus) && other.ending().is_some();
            let Some(oldest) = known.iter().position(ended) else {
                return Err(Sense::INSUFFICIENT_RESOURCES.into());
            };
            known.remove(oldest);
        }
        let operation = Arc::new(Operation {
            nexus: Arc::clone(nexus),
            list,
            service_action,
            background: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            segments: AtomicU16::new(0),
            state: Mutex::default(),
            cancel,
        });
        known.push(Arc::clone(&operation));
        Ok(Doing(operation))
    }

    /// The copy of a nexus with this identifier.
    pub(super) fn find(&self, nexus: &Arc<NexusId>, list: ListId) -> Option<Arc<Operation>> {
        self.known().iter().find(|known| known.is(nexus, list)).cloned()
    }

    /// Forgets one copy that has ended.
    pub(super) fn forget(&self, operation: &Arc<Operation>) {
        self.known().retain(|known| !Arc::ptr_eq(known, operation));
    }

    /// Forgets all copies of a nexus, which is gone.
    pub(crate) fn forget_nexus(&self, nexus: &Arc<NexusId>) {
        self.known().retain(|known| !same(&known.nexus, nexus));
    }

    /// Forgets all copies.
    pub(crate) fn forget_all(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, Vec<Arc<Operation>>> {
        self.known.lock().expect("nothing panics while it is held")
    }
}

impl Operation {
    /// How it ended, once it has.
    pub(super) fn ending(&self) -> Option<Ending> {
        self.state().ending.clone()
    }

    /// The token it made.
    pub(super) fn token(&self) -> Option<Token> {
        self.state().token
    }

    fn is(&self, nexus: &Arc<NexusId>, list: ListId) -> bool {
        self.list == list && same(&self.nexus, nexus)
    }

    fn end(&self, ending: Ending) {
        self.state().ending.get_or_insert(ending);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }
}

impl Doing {
    /// The copy, for whoever counts its progress.
    pub(super) fn operation(&self) -> &Operation {
        &self.0
    }

    /// It made a token.
    pub(super) fn made(&self, token: Token) {
        self.0.state().token = Some(token);
    }

    /// It has ended, and the command with it or long before.
    pub(super) fn conclude(self, result: &Result<Conclusion, Failure>) {
        let (how, status, sense) = match result {
            Ok(how) => (*how, Status::Good, Vec::new()),
            Err(Failure::Aborted) => (Conclusion::Terminated, Status::Good, Vec::new()),
            Err(Failure::Check(sense)) => (Conclusion::Failed, Status::CheckCondition, sense.encode(false)),
            Err(Failure::Store(error)) => (
                Conclusion::Failed,
                Status::CheckCondition,
                Sense::from_store(error).encode(false),
            ),
            Err(Failure::ReservationConflict) => {
                (Conclusion::Failed, Status::ReservationConflict, Vec::new())
            }
            Err(Failure::Busy | Failure::ConditionMet | Failure::TaskSetFull) => {
                (Conclusion::Failed, Status::Busy, Vec::new())
            }
        };
        self.0.end(Ending {
            how,
            status: status as u8,
            sense,
        });
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        self.0.end(Ending {
            how: Conclusion::Terminated,
            status: Status::Good as u8,
            sense: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::testing::nexus;

    fn begin(copies: &CopyOperations, isid: u8, list: u32) -> Result<Doing, Failure> {
        let cancel = AbortSignal::default();
        copies.begin(&nexus(isid), ListId::Long(list), 0x11, cancel)
    }

    #[test]
    fn an_identifier_is_free_again_when_its_copy_has_ended() {
        let copies = CopyOperations::default();
        let first = begin(&copies, 1, 7).unwrap();
        let Err(Failure::Check(sense)) = begin(&copies, 1, 7) else {
            panic!("the first has not ended");
        };
        assert_eq!(sense.code, (0x00, 0x16));
        assert!(
            begin(&copies, 2, 7).is_ok(),
            "another nexus has its own identifiers"
        );
        let short = copies.begin(&nexus(1), ListId::Short(7), 0, AbortSignal::default());
        assert!(short.is_ok(), "so have commands of the other length");
        first.conclude(&Ok(Conclusion::Complete));
        let ending = copies.find(&nexus(1), ListId::Long(7)).unwrap().ending();
        assert_eq!(ending.unwrap().how, Conclusion::Complete);
        assert!(begin(&copies, 1, 7).is_ok());
    }

    #[test]
    fn a_copy_that_nobody_does_any_more_was_terminated() {
        let copies = CopyOperations::default();
        drop(begin(&copies, 1, 7).unwrap());
        let ending = copies.find(&nexus(1), ListId::Long(7)).unwrap().ending();
        assert_eq!(ending.unwrap().how, Conclusion::Terminated);
        copies.forget_nexus(&nexus(1));
        assert!(copies.find(&nexus(1), ListId::Long(7)).is_none());
    }

    #[test]
    fn the_oldest_that_ended_is_forgotten_first_and_one_under_way_never() {
        let copies = CopyOperations::default();
        let under_way = begin(&copies, 1, 0).unwrap();
        for list in 1..=128 {
            drop(begin(&copies, 1, list).unwrap());
        }
        assert!(copies.find(&nexus(1), ListId::Long(0)).is_some());
        assert!(copies.find(&nexus(1), ListId::Long(1)).is_none());
        assert!(copies.find(&nexus(1), ListId::Long(2)).is_some());
        drop(under_way);
        let all: Vec<_> = (200..328).map(|list| begin(&copies, 3, list).unwrap()).collect();
        let Err(Failure::Check(sense)) = begin(&copies, 3, 1) else {
            panic!("all are under way");
        };
        assert_eq!((all.len(), sense.code), (128, (0x55, 0x03)));
    }
}
