//! Formatting and sanitizing as a unit knows of them: what goes on, how far it is, how it ended, and which commands may
//! run meanwhile (SBC-4, FORMAT UNIT and sanitize operations). Either goes on when its command has been answered,
//! aborted or reset. What is done to the medium is in `block/erase.rs`.
//!
//! A sanitize operation that the end of the process interrupts begins anew with the next one: the mark that it left
//! (`sanitize_mark.rs`) says what is to be done. The mark of one that failed closes the medium until another one has
//! succeeded. Formatting does not outlive the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{oneshot, watch};

use super::table::ErasureRule;
use super::{Failure, MarkKeeper, MarkRequest, SanitizeMark, Sense};

/// Which of the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ErasureKind {
    /// FORMAT UNIT.
    Format,
    /// SANITIZE.
    Sanitize {
        /// AUSE: after a failure the medium may be used again without a sanitize operation that succeeds.
        unrestricted: bool,
    },
}

/// The erasure of one unit: at most one at a time.
#[derive(Debug)]
pub(crate) struct Erasure {
    /// The usual answer, for the commands, which all ask.
    at_rest: AtomicBool,
    state: watch::Sender<State>,
    /// Where marks go, and the unit's name there.
    keeper: OnceLock<(MarkKeeper, String)>,
}

/// What goes on, or how the last one failed, for who administers the unit. Shares are 65536ths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErasureView {
    /// FORMAT UNIT is so far.
    Formatting(u16),
    /// FORMAT UNIT did not come to its end.
    FormatFailed,
    /// SANITIZE is so far.
    Sanitizing(u16),
    /// SANITIZE did not come to its end.
    SanitizeFailed,
}

/// How it was before an erasure began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(State);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    AtRest,
    /// With the progress in 65536ths.
    Running(ErasureKind, u16),
    Failed(ErasureKind),
}

impl Erasure {
    /// From now on sanitizing leaves marks; `left` is the one from before. The medium is closed until somebody goes on with
    /// what is left.
    pub(super) fn keep(&self, keeper: MarkKeeper, unit: String, left: Option<&SanitizeMark>) {
        if self.keeper.set((keeper, unit)).is_err() {
            return;
        }
        if let Some(&SanitizeMark { unrestricted, .. }) = left {
            self.change(|state| {
                *state = State::Failed(ErasureKind::Sanitize { unrestricted });
                true
            });
        }
    }

    /// 02/04/1B or 02/04/04 with the progress while one goes on, 03/31/03 or 03/31/01 after it failed, as far as `rule`
    /// does not let the command run.
    pub(crate) fn check(&self, rule: ErasureRule) -> Result<(), Failure> {
        if self.at_rest.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = *self.state.borrow();
        match (rule, state) {
            (ErasureRule::Run, _) | (_, State::AtRest) | (ErasureRule::Restart, State::Failed(_)) => Ok(()),
            (ErasureRule::Refuse, State::Failed(_)) | (_, State::Running(..)) => {
                state.sense().map_or(Ok(()), |sense| Err(sense.into()))
            }
        }
    }

    /// What REQUEST SENSE has to tell of it.
    pub(crate) fn sense(&self) -> Option<Sense> {
        self.state.borrow().sense()
    }

    /// What there is to tell of it.
    pub(super) fn view(&self) -> Option<ErasureView> {
        Some(match *self.state.borrow() {
            State::AtRest => return None,
            State::Running(ErasureKind::Format, share) => ErasureView::Formatting(share),
            State::Running(ErasureKind::Sanitize { .. }, share) => ErasureView::Sanitizing(share),
            State::Failed(ErasureKind::Format) => ErasureView::FormatFailed,
            State::Failed(ErasureKind::Sanitize { .. }) => ErasureView::SanitizeFailed,
        })
    }

    /// The kind of the last one if it failed.
    pub(crate) fn failed(&self) -> Option<ErasureKind> {
        match *self.state.borrow() {
            State::Failed(kind) => Some(kind),
            State::AtRest | State::Running(..) => None,
        }
    }

    /// Begins one; how it was before, or `None` while another goes on.
    pub(crate) fn begin(&self, kind: ErasureKind) -> Option<Before> {
        let mut before = None;
        self.change(|state| {
            if matches!(state, State::Running(..)) {
                return false;
            }
            before = Some(Before(std::mem::replace(state, State::Running(kind, 0))));
            true
        });
        before
    }

    /// What was begun has done nothing, and does nothing any more.
    pub(crate) fn withdraw(&self, Before(before): Before) {
        self.change(|state| {
            *state = before;
            true
        });
    }

    /// Makes a mark durable, or its absence. 04/44/00 when that fails.
    pub(crate) async fn mark(&self, mark: Option<SanitizeMark>) -> Result<(), Failure> {
        let Some((keeper, unit)) = self.keeper.get() else {
            // Nothing of the medium outlives the process either.
            return Ok(());
        };
        let (done, answer) = oneshot::channel();
        let request = MarkRequest {
            unit: unit.clone(),
            mark,
            done,
        };
        let problem = match keeper.send(request) {
            Ok(()) => match answer.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(problem)) => problem,
                Err(_) => "it was not answered".to_owned(),
            },
            Err(_) => "nobody keeps it any more".to_owned(),
        };
        tracing::warn!(
            unit,
            problem,
            "the mark of a sanitize operation could not be changed"
        );
        Err(Sense::INTERNAL_TARGET_FAILURE.into())
    }

    /// It has done `done` of `total` bytes.
    pub(crate) fn advance(&self, done: u64, total: u64) {
        let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
        self.change(|state| {
            if let State::Running(_, progress) = state {
                *progress = u16::try_from(share).unwrap_or(u16::MAX);
            }
            false
        });
    }

    /// It has ended. Nothing happens when none goes on.
    pub(crate) fn end(&self, succeeded: bool) {
        self.change(|state| {
            let State::Running(kind, _) = *state else {
                return false;
            };
            *state = if succeeded {
                State::AtRest
            } else {
                State::Failed(kind)
            };
            true
        });
    }

    /// Waits until none goes on; the sense of a failure if the last one failed.
    pub(crate) async fn ended(&self) -> Result<(), Failure> {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| !matches!(state, State::Running(..))).await;
        let sense = ended.ok().and_then(|state| state.sense());
        sense.map_or(Ok(()), |sense| Err(sense.into()))
    }

    /// SANITIZE with EXIT FAILURE MODE: the medium may be used again, unless the operation that failed forbade it.
    pub(crate) async fn exit_failure_mode(&self) -> Result<(), Failure> {
        let Some(ErasureKind::Sanitize { unrestricted }) = self.failed() else {
            return Ok(());
        };
        if !unrestricted {
            return Err(Sense::INVALID_FIELD_IN_CDB.in_cdb(1, Some(4)).into());
        }
        self.mark(None).await?;
        self.change(|state| {
            let is_failed = matches!(state, State::Failed(ErasureKind::Sanitize { .. }));
            if is_failed {
                *state = State::AtRest;
            }
            is_failed
        });
        Ok(())
    }

    /// Changes the state; `change` says whether somebody may wait for this.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        self.state.send_if_modified(|state| {
            let told = change(state);
            self.at_rest.store(*state == State::AtRest, Ordering::Release);
            told
        })
    }
}

impl Default for Erasure {
    fn default() -> Self {
        Self {
            at_rest: AtomicBool::new(true),
            state: watch::Sender::new(State::AtRest),
            keeper: OnceLock::new(),
        }
    }
}

impl State {
    fn sense(self) -> Option<Sense> {
        let with = |progress| {
            move |sense| Sense {
                progress: Some(progress),
                ..sense
            }
        };
        match self {
            Self::AtRest => None,
            Self::Running(ErasureKind::Format, progress) => {
                Some(Sense::FORMAT_IN_PROGRESS).map(with(progress))
            }
            Self::Running(ErasureKind::Sanitize { .. }, progress) => {
                Some(Sense::SANITIZE_IN_PROGRESS).map(with(progress))
            }
            Self::Failed(ErasureKind::Format) => Some(Sense::FORMAT_COMMAND_FAILED),
            Self::Failed(ErasureKind::Sanitize { .. }) => Some(Sense::SANITIZE_COMMAND_FAILED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SANITIZE: ErasureKind = ErasureKind::Sanitize { unrestricted: false };
    const WITH_AUSE: ErasureKind = ErasureKind::Sanitize { unrestricted: true };

    fn code(result: Result<(), Failure>) -> Option<(u8, u8)> {
        match result {
            Ok(()) => None,
            Err(Failure::Check(sense)) => Some(sense.code),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn answers(erasure: &Erasure) -> [Option<(u8, u8)>; 3] {
        [ErasureRule::Refuse, ErasureRule::Restart, ErasureRule::Run].map(|rule| code(erasure.check(rule)))
    }

    #[test]
    fn while_it_goes_on_only_those_run_that_may() {
        let erasure = Erasure::default();
        assert_eq!(answers(&erasure), [None, None, None]);
        for (kind, told) in [(SANITIZE, (0x04, 0x1b)), (ErasureKind::Format, (0x04, 0x04))] {
            assert!(erasure.begin(kind).is_some());
            assert!(erasure.begin(kind).is_none(), "one at a time");
            assert_eq!(answers(&erasure), [Some(told), Some(told), None]);
            erasure.end(true);
            assert_eq!(answers(&erasure), [None, None, None]);
        }
    }

    #[test]
    fn progress_is_told_in_65536ths() {
        let erasure = Erasure::default();
        assert!(erasure.begin(SANITIZE).is_some());
        for (done, progress) in [(0, 0), (1 << 39, 0x8000), (1 << 40, 0xffff)] {
            erasure.advance(done, 1 << 40);
            assert_eq!(erasure.sense().unwrap().progress, Some(progress));
        }
        erasure.end(true);
        erasure.advance(1, 2);
        assert_eq!(erasure.sense(), None);
    }

    #[test]
    fn a_failure_stays_until_another_attempt_succeeds() {
        let erasure = Erasure::default();
        for (kind, told) in [(SANITIZE, (0x31, 0x03)), (ErasureKind::Format, (0x31, 0x01))] {
            assert!(erasure.begin(kind).is_some());
            erasure.end(false);
            assert_eq!(answers(&erasure), [Some(told), None, None]);
            assert!(erasure.begin(kind).is_some());
            erasure.end(true);
            assert_eq!(answers(&erasure), [None, None, None]);
        }
    }

    #[tokio::test]
    async fn failure_mode_is_left_only_where_that_was_allowed_before() {
        let erasure = Erasure::default();
        assert_eq!(code(erasure.exit_failure_mode().await), None);
        for (kind, refused) in [(WITH_AUSE, None), (SANITIZE, Some((0x24, 0x00)))] {
            assert!(erasure.begin(kind).is_some());
            erasure.end(false);
            assert_eq!(code(erasure.exit_failure_mode().await), refused);
            assert_eq!(erasure.failed(), refused.map(|_| kind));
        }
    }

    #[test]
    fn what_is_withdrawn_leaves_everything_as_it_was() {
        let erasure = Erasure::default();
        let before = erasure.begin(SANITIZE).unwrap();
        erasure.withdraw(before);
        assert_eq!(answers(&erasure), [None, None, None]);
        erasure.begin(WITH_AUSE).unwrap();
        erasure.end(false);
        let before = erasure.begin(SANITIZE).unwrap();
        erasure.withdraw(before);
        assert_eq!(erasure.failed(), Some(WITH_AUSE));
    }

    #[test]
    fn a_mark_from_before_closes_the_medium() {
        for unrestricted in [false, true] {
            let erasure = Erasure::default();
            let (keeper, _requests) = tokio::sync::mpsc::unbounded_channel();
            let mark = SanitizeMark {
                unrestricted,
                work: None,
            };
            erasure.keep(keeper, "60aa".into(), Some(&mark));
            assert_eq!(answers(&erasure), [Some((0x31, 0x03)), None, None]);
            assert_eq!(erasure.failed(), Some(ErasureKind::Sanitize { unrestricted }));
        }
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_end() {
        let erasure = Erasure::default();
        assert!(erasure.ended().await.is_ok());
        for succeeded in [true, false] {
            assert!(erasure.begin(SANITIZE).is_some());
            let end = async { erasure.end(succeeded) };
            let (result, ()) = tokio::join!(erasure.ended(), end);
            assert_eq!(result.is_ok(), succeeded);
        }
    }
}
