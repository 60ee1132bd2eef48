//! The command window of a session: which CmdSN may arrive, which is next (RFC 7143 §4.2.2.1).
//!
//! Pure bookkeeping. It also keeps what arrived too early, at most a window's worth, until the hole before it is filled.

use std::collections::BTreeMap;

use iscsi_proto::Sn;

/// The window, and what waits in it.
#[derive(Debug)]
pub(super) struct CommandWindow<T> {
    exp: Sn,
    max: Sn,
    /// Arrived behind a hole, by distance from the CmdSN the session began with. `None` is a number whose command was
    /// aborted before it arrived, or was refused: it counts as received.
    early: BTreeMap<u64, Option<T>>,
    /// Commands received since the session began, so that positions never wrap.
    base: u64,
}

/// What becomes of an arrival.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Arrival<T> {
    /// It is next.
    Next(T),
    /// It is kept until the hole before it is filled.
    Early,
    /// It was received before, or lies outside the window: silently ignored.
    Ignored,
}

impl<T> CommandWindow<T> {
    /// A window of `size` commands from `first` on.
    pub(super) fn new(first: Sn, size: u16) -> Self {
        Self {
            exp: first,
            max: first.plus(u32::from(size)).minus(1),
            early: BTreeMap::new(),
            base: 0,
        }
    }

    /// ExpCmdSN.
    pub(super) fn exp_cmd_sn(&self) -> Sn {
        self.exp
    }

    /// MaxCmdSN. It never goes back.
    pub(super) fn max_cmd_sn(&self) -> Sn {
        self.max
    }

    /// A command has ended: one more may come.
    pub(super) fn open(&mut self) {
        self.max = self.max.next();
    }

    /// Something with a CmdSN arrived, not for immediate delivery.
    pub(super) fn arrive(&mut self, cmd_sn: Sn, item: T) -> Arrival<T> {
        let Some(position) = self.position(cmd_sn) else {
            return Arrival::Ignored;
        };
        if self.early.contains_key(&position) {
            // Sent twice, or already given up by an ABORT TASK: the second does not run.
            return Arrival::Ignored;
        }
        if position == self.base {
            self.step();
            return Arrival::Next(item);
        }
        self.early.insert(position, Some(item));
        Arrival::Early
    }

    /// The next early arrival that nothing holds back any more. Numbers that were given up are passed over.
    pub(super) fn next_ready(&mut self) -> Option<T> {
        while let Some(slot) = self.early.remove(&self.base) {
            self.step();
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// Counts a number as received although its command will not run. Returns whether it was still to come, and the
    /// command if it waited here already.
    pub(super) fn give_up(&mut self, cmd_sn: Sn) -> (bool, Option<T>) {
        let Some(position) = self.position(cmd_sn) else {
            return (false, None);
        };
        if position == self.base {
            self.step();
            self.open();
            return (true, None);
        }
        let waiting = self.early.insert(position, None).flatten();
        self.open();
        (true, waiting)
    }

    /// What waits behind a hole.
    pub(super) fn early(&self) -> impl Iterator<Item = &T> {
        self.early.values().flatten()
    }

    fn step(&mut self) {
        self.exp = self.exp.next();
        self.base += 1;
    }

    fn position(&self, cmd_sn: Sn) -> Option<u64> {
        let inside = !cmd_sn.precedes(self.exp) && !self.max.precedes(cmd_sn);
        inside.then(|| self.base + u64::from(cmd_sn.distance_from(self.exp)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_window_and_duplicates_are_ignored() {
        let mut window = CommandWindow::new(Sn(0xffff_fffe), 4);
        assert_eq!(window.max_cmd_sn(), Sn(1));
        assert_eq!(window.arrive(Sn(0xffff_fffd), 'x'), Arrival::Ignored);
        assert_eq!(window.arrive(Sn(2), 'x'), Arrival::Ignored);
        assert_eq!(window.arrive(Sn(0xffff_fffe), 'a'), Arrival::Next('a'));
        assert_eq!(window.arrive(Sn(0xffff_fffe), 'x'), Arrival::Ignored);
        assert_eq!(
            (window.exp_cmd_sn(), window.max_cmd_sn()),
            (Sn(0xffff_ffff), Sn(1))
        );
        window.open();
        assert_eq!(window.max_cmd_sn(), Sn(2));
    }

    #[test]
    fn what_is_early_runs_in_order_once_the_hole_is_filled() {
        let mut window = CommandWindow::new(Sn(10), 8);
        assert_eq!(window.arrive(Sn(12), 'c'), Arrival::Early);
        assert_eq!(window.arrive(Sn(11), 'b'), Arrival::Early);
        assert_eq!(window.arrive(Sn(12), 'x'), Arrival::Ignored);
        assert_eq!(window.next_ready(), None);
        assert_eq!(window.arrive(Sn(10), 'a'), Arrival::Next('a'));
        assert_eq!(window.next_ready(), Some('b'));
        assert_eq!(window.next_ready(), Some('c'));
        assert_eq!(window.next_ready(), None);
        assert_eq!(window.exp_cmd_sn(), Sn(13));
    }

    #[test]
    fn a_number_given_up_leaves_no_hole() {
        let mut window = CommandWindow::new(Sn(10), 8);
        assert_eq!(window.arrive(Sn(11), 'b'), Arrival::Early);
        assert_eq!(window.arrive(Sn(12), 'c'), Arrival::Early);
        assert_eq!(window.give_up(Sn(11)), (true, Some('b')));
        assert_eq!(window.give_up(Sn(10)), (true, None));
        assert_eq!(window.next_ready(), Some('c'));
        assert_eq!(window.exp_cmd_sn(), Sn(13));
        assert_eq!(window.give_up(Sn(10)), (false, None));
    }
}
