//! Self-tests of a unit as it knows of them (SPC-4, SEND DIAGNOSTIC and the Self-Test Results log page): the one that goes on,
//! and how the last twenty ended. What is tested is in `primary/send_diagnostic.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::task::AbortHandle;

use super::table::Operation;
use super::{Sense, SenseKey};

/// Which one: its SELF-TEST CODE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum SelfTestKind {
    /// A few seconds at most, while other commands go on.
    BackgroundShort = 0b001,
    /// Everything that takes space, while other commands go on.
    BackgroundExtended = 0b010,
    /// The short one, as a part of its command.
    ForegroundShort = 0b101,
    /// The extended one, as a part of its command.
    ForegroundExtended = 0b110,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SelfTestEnd {
    /// Nothing was found.
    Passed,
    /// SEND DIAGNOSTIC ended it.
    AbortedBySendDiagnostic,
    /// A reset or a task management function ended it.
    AbortedOtherwise,
    /// Something was found.
    Failed {
        /// The first block that could not be read, where it is one block.
        block: Option<u64>,
        /// What was found.
        sense: (SenseKey, (u8, u8)),
    },
    /// It has not.
    InProgress,
}

/// One of the results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelfTestResult {
    id: u64,
    kind: SelfTestKind,
    end: SelfTestEnd,
}

/// The self-tests of one unit: at most one goes on.
#[derive(Debug, Default)]
pub(crate) struct SelfTests {
    /// The usual answer, for the commands, which all ask.
    in_foreground: AtomicBool,
    /// Of the one that goes on, in 65536ths.
    progress: AtomicU16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// The latest first.
    results: VecDeque<SelfTestResult>,
    /// The one in the background.
    task: Option<AbortHandle>,
}

/// One that goes on. Dropped without a result, it counts as aborted.
#[derive(Debug)]
pub(crate) struct Running {
    tests: Arc<SelfTests>,
    id: u64,
}

impl SelfTestKind {
    /// The kind of a SELF-TEST CODE that begins one.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0b001 => Some(Self::BackgroundShort),
            0b010 => Some(Self::BackgroundExtended),
            0b101 => Some(Self::ForegroundShort),
            0b110 => Some(Self::ForegroundExtended),
            _ => None,
        }
    }

    /// Whether everything is read.
    pub(crate) const fn is_extended(self) -> bool {
        matches!(self, Self::BackgroundExtended | Self::ForegroundExtended)
    }

    /// Whether the command is answered before.
    pub(crate) const fn is_in_background(self) -> bool {
        matches!(self, Self::BackgroundShort | Self::BackgroundExtended)
    }
}

impl SelfTestResult {
    /// The value of its log parameter.
    pub(crate) fn to_parameter(self) -> [u8; 16] {
        let mut value = [0; 16];
        let (result, block, sense) = match self.end {
            SelfTestEnd::Passed => (0x0, None, None),
            SelfTestEnd::AbortedBySendDiagnostic => (0x1, None, None),
            SelfTestEnd::AbortedOtherwise => (0x2, None, None),
            SelfTestEnd::Failed { block, sense } => (0x4, block, Some(sense)),
            SelfTestEnd::InProgress => (0xf, None, None),
        };
        value[0] = (self.kind as u8) << 5 | result;
        // ACCUMULATED POWER ON HOURS are not counted and stay 0.
        value[4..12].copy_from_slice(&block.unwrap_or(u64::MAX).to_be_bytes());
        if let Some((key, code)) = sense {
            value[12..15].copy_from_slice(&[key as u8, code.0, code.1]);
        }
        value
    }
}

impl SelfTests {
    /// Begins one. 02/04/09 while another goes on.
    pub(crate) fn begin(self: &Arc<Self>, kind: SelfTestKind) -> Result<Running, Sense> {
        let mut state = self.state();
        if state.is_running() {
            return Err(Sense::SELF_TEST_IN_PROGRESS);
        }
        let id = state.next_id;
        state.next_id += 1;
        state.task = None;
        state.results.push_front(SelfTestResult {
            id,
            kind,
            end: SelfTestEnd::InProgress,
        });
        state.results.truncate(RESULTS_KEPT);
        self.progress.store(0, Ordering::Relaxed);
        self.in_foreground
            .store(!kind.is_in_background(), Ordering::Release);
        Ok(Running {
            tests: Arc::clone(self),
            id,
        })
    }

    /// The one that was begun last is done by this task.
    pub(crate) fn is_done_by(&self, task: AbortHandle) {
        self.state().task = Some(task);
    }

    /// Ends the one in the background. `false` when there is none.
    pub(crate) fn abort(&self, end: SelfTestEnd) -> bool {
        let mut state = self.state();
        let Some(task) = state.task.take().filter(|_| state.is_running()) else {
            return false;
        };
        task.abort();
        if let Some(latest) = state.results.front_mut() {
            latest.end = end;
        }
        true
    }

    /// 02/04/09 while one goes on in the foreground, which nothing runs beside but what tells of the unit.
    pub(crate) fn check(&self, operation: Operation) -> Result<(), Sense> {
        let tells = matches!(
            operation,
            Operation::Inquiry | Operation::ReportLuns | Operation::RequestSense
        );
        if tells || !self.in_foreground.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Sense::SELF_TEST_IN_PROGRESS)
    }

    /// What REQUEST SENSE has to tell of the one that goes on.
    pub(crate) fn sense(&self) -> Option<Sense> {
        self.state().is_running().then(|| Sense {
            progress: Some(self.progress.load(Ordering::Relaxed)),
            ..Sense::SELF_TEST_IN_PROGRESS
        })
    }

    /// The one that goes on has looked at the first `done` of `total` bytes.
    pub(crate) fn advance(&self, done: u64, total: u64) {
        let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
        self.progress
            .store(u16::try_from(share).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// The last twenty at most, the latest first.
    pub(crate) fn results(&self) -> Vec<SelfTestResult> {
        self.state().results.iter().copied().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("plain data")
    }
}

impl State {
    fn is_running(&self) -> bool {
        self.results
            .front()
            .is_some_and(|latest| latest.end == SelfTestEnd::InProgress)
    }
}

impl Running {
    /// It has ended.
    pub(crate) fn ended(self, end: SelfTestEnd) {
        self.set(end);
    }

    fn set(&self, end: SelfTestEnd) {
        let mut state = self.tests.state();
        let latest = state.results.front_mut();
        // Somebody may have ended it already.
        if let Some(latest) = latest.filter(|latest| latest.id == self.id)
            && latest.end == SelfTestEnd::InProgress
        {
            latest.end = end;
            self.tests.in_foreground.store(false, Ordering::Release);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.set(SelfTestEnd::AbortedOtherwise);
    }
}

/// How many results the log page has.
pub(crate) const RESULTS_KEPT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_latest_first() {
        let tests = Arc::new(SelfTests::default());
        let first = tests.begin(SelfTestKind::ForegroundShort).unwrap();
        assert_eq!(
            tests.begin(SelfTestKind::BackgroundShort).unwrap_err(),
            Sense::SELF_TEST_IN_PROGRESS
        );
        assert_eq!(tests.results()[0].to_parameter()[0], 0xaf);
        first.ended(SelfTestEnd::Passed);
        drop(tests.begin(SelfTestKind::ForegroundExtended).unwrap());
        let failed = tests.begin(SelfTestKind::BackgroundExtended).unwrap();
        failed.ended(SelfTestEnd::Failed {
            block: Some(0x0102),
            sense: (SenseKey::MediumError, (0x11, 0x00)),
        });
        let parameters: Vec<_> = tests
            .results()
            .into_iter()
            .map(SelfTestResult::to_parameter)
            .collect();
        assert_eq!(parameters.len(), 3);
        assert_eq!(
            parameters[0],
            [0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0x03, 0x11, 0, 0]
        );
        assert_eq!((parameters[1][0], parameters[2][0]), (0xc2, 0xa0));
        assert_eq!(parameters[2][4..12], [0xff; 8]);
    }

    #[test]
    fn twenty_are_remembered() {
        let tests = Arc::new(SelfTests::default());
        for _ in 0..25 {
            let running = tests.begin(SelfTestKind::ForegroundShort).unwrap();
            running.ended(SelfTestEnd::Passed);
        }
        assert_eq!(tests.results().len(), 20);
        assert!(!tests.abort(SelfTestEnd::AbortedOtherwise));
    }
}
