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

    /// The latest arrival whose turn it was is refused, and nothing was said since that it ended: its number does not count
    /// as received, and is waited for.
    pub(super) fn take_back(&mut self) {
        self.exp = self.exp.minus(1);
        self.max = self.max.minus(1);
        self.base -= 1;
    }

    /// Whether a number is one that may still arrive: inside the window and not received yet.
    pub(super) fn expects(&self, cmd_sn: Sn) -> bool {
        self.position(cmd_sn)
            .is_some_and(|position| !self.early.contains_key(&position))
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

    /// The next early arrival that nothing holds back any more. Numbers that were given up are passed over; their
    /// place in the window is free again only now, so that giving up never widens it.
    pub(super) fn next_ready(&mut self) -> Option<T> {
        while let Some(slot) = self.early.remove(&self.base) {
            self.step();
            if slot.is_some() {
                return slot;
            }
            self.open();
        }
        None
    }

    /// Counts a number as received although its command has not arrived and will not run. `false` when it is none that
    /// may still arrive.
    pub(super) fn give_up(&mut self, cmd_sn: Sn) -> bool {
        match self.position(cmd_sn) {
            Some(position) if self.expects(cmd_sn) => {
                self.early.insert(position, None);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes early arrivals back out. Their numbers count as received.
    pub(super) fn withdraw(&mut self, unwanted: impl Fn(Sn, &T) -> bool) -> Vec<T> {
        let (exp, base) = (self.exp, self.base);
        let number = |position: u64| {
            let distance = u32::try_from(position - base).expect("a window is shorter than 2^16");
            exp.plus(distance)
        };
        self.early
            .iter_mut()
            .filter_map(|(position, slot)| slot.take_if(|item| unwanted(number(*position), item)))
            .collect()
    }

    /// Takes early arrivals back out as if they had never arrived: their numbers are waited for.
    pub(super) fn forget(&mut self, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut forgotten = Vec::new();
        self.early.retain(|_, slot| {
            let taken = slot.take_if(|item| unwanted(item));
            let stays = taken.is_none();
            forgotten.extend(taken);
            stays
        });
        forgotten
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
        assert_eq!(window.withdraw(|sn, item| sn == Sn(11) && *item == 'b'), ['b']);
        assert!(window.give_up(Sn(10)));
        assert_eq!(window.next_ready(), Some('c'));
        assert_eq!(window.exp_cmd_sn(), Sn(13));
        assert_eq!(window.max_cmd_sn(), Sn(19), "one command runs, two never will");
    }

    #[test]
    fn only_a_number_still_to_come_can_be_given_up_and_only_once() {
        let mut window = CommandWindow::new(Sn(10), 4);
        assert_eq!(window.arrive(Sn(12), 'c'), Arrival::Early);
        assert!(!window.give_up(Sn(9)));
        assert!(!window.give_up(Sn(14)));
        assert!(!window.give_up(Sn(12)), "its command waits, and will run");
        assert!(window.give_up(Sn(11)));
        assert!(!window.give_up(Sn(11)));
        assert!(!window.expects(Sn(11)));
        assert_eq!(window.arrive(Sn(11), 'x'), Arrival::Ignored);
    }

    #[test]
    fn what_is_forgotten_may_arrive_again() {
        let mut window = CommandWindow::new(Sn(10), 8);
        assert_eq!(window.arrive(Sn(11), 'b'), Arrival::Early);
        assert_eq!(window.arrive(Sn(12), 'c'), Arrival::Early);
        assert_eq!(window.forget(|item| *item == 'b'), ['b']);
        assert!(window.expects(Sn(11)));
        assert_eq!(window.arrive(Sn(10), 'a'), Arrival::Next('a'));
        assert_eq!(window.next_ready(), None);
        assert_eq!(window.arrive(Sn(11), 'b'), Arrival::Next('b'));
        assert_eq!(window.next_ready(), Some('c'));
    }

    #[test]
    fn what_is_refused_leaves_a_hole() {
        let mut window = CommandWindow::new(Sn(10), 8);
        assert_eq!(window.arrive(Sn(11), 'b'), Arrival::Early);
        assert_eq!(window.arrive(Sn(10), 'a'), Arrival::Next('a'));
        window.open();
        window.take_back();
        assert_eq!(window.next_ready(), None);
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (Sn(10), Sn(17)));
        assert_eq!(window.arrive(Sn(10), 'c'), Arrival::Next('c'));
        assert_eq!(window.next_ready(), Some('b'));
    }

    #[test]
    fn giving_up_behind_a_hole_never_widens_the_window() {
        let mut window = CommandWindow::<char>::new(Sn(0), 4);
        assert!((1..4).all(|sn| window.give_up(Sn(sn))));
        assert_eq!(window.max_cmd_sn(), Sn(3));
        assert!((4..64).all(|sn| !window.give_up(Sn(sn))));
        assert!(window.give_up(Sn(0)));
        assert_eq!(window.next_ready(), None);
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (Sn(4), Sn(7)));
    }
}
