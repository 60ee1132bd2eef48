//! One direction of a task's data: what was announced, what the CDB calls for, what moved, and the residual of it.

use iscsi_proto::pdu::Residual;

/// One direction of a task's data, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    /// What the initiator announced.
    pub(super) expected: u32,
    /// What the CDB calls for, once that is known.
    pub(super) wanted: Option<u64>,
    /// What was moved.
    pub(super) moved: u32,
}

impl Direction {
    pub(super) const fn expecting(expected: u32) -> Self {
        Self {
            expected,
            wanted: None,
            moved: 0,
        }
    }

    pub(super) fn want(&mut self, len: u64) -> u64 {
        debug_assert!(self.wanted.is_none(), "a command states its length once");
        self.wanted = Some(len);
        self.room()
    }

    /// Bytes that will move if all goes well.
    pub(super) fn room(&self) -> u64 {
        u64::from(self.expected).min(self.wanted.unwrap_or(0))
    }

    /// Bytes of them that have not moved yet.
    pub(super) fn rest(&self) -> usize {
        usize::try_from(self.room().saturating_sub(u64::from(self.moved))).unwrap_or(usize::MAX)
    }

    /// RFC 7143 §11.4.5: what was announced against what the CDB calls for, or, when the command failed on the way,
    /// against what really moved.
    pub(super) fn residual(&self, failed: bool) -> Residual {
        let wanted = self.wanted.unwrap_or(0);
        let expected = u64::from(self.expected);
        let moved = if failed { u64::from(self.moved) } else { wanted };
        let clip = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match (wanted > expected, moved < expected) {
            (_, true) => Residual::Underflow(clip(expected - moved)),
            (true, false) if !failed || expected != 0 => Residual::Overflow(clip(wanted - expected)),
            _ => Residual::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_compare_what_was_announced_with_what_is_called_for() {
        use Residual::{None, Overflow, Underflow};
        // expected, wanted, moved, failed
        const CASES: [(u32, Option<u64>, u32, bool, Residual); 9] = [
            (512, Some(512), 512, false, None),
            (1024, Some(512), 512, false, Underflow(512)),
            (512, Some(1024), 512, false, Overflow(512)),
            (0, Some(512), 0, false, Overflow(512)),
            (512, Option::None, 0, false, Underflow(512)),
            (0, Option::None, 0, false, None),
            (512, Some(512), 0, true, Underflow(512)),
            (512, Option::None, 0, true, Underflow(512)),
            (0, Some(1 << 40), 0, false, Overflow(u32::MAX)),
        ];
        for case in CASES {
            let (expected, wanted, moved, failed, residual) = case;
            let direction = Direction {
                expected,
                wanted,
                moved,
            };
            assert_eq!(direction.residual(failed), residual, "{case:?}");
        }
    }
}
