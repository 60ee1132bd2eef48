//! Asymmetric access states of target port groups (SPC-4 §5.15.2): how well a group of ports reaches the logical units.
//!
//! Each portal group is a target port, alone in a target port group whose number is the portal group's tag. A state
//! counts for all logical units of the device. Which commands a port answers in which state is a column of the table of
//! commands; here are the states, what they refuse with, and the ports that are in them.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};

use iscsi_proto::Tpgt;

use super::kept_states::KeptState;
use super::{Failure, Sense};

/// State of a target port group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum AccessState {
    /// Every command, at full speed.
    ActiveOptimized = 0x0,
    /// Every command; another path is to be preferred.
    ActiveNonOptimized = 0x1,
    /// What manages the unit and its paths; nothing that touches the medium.
    Standby = 0x2,
    /// What tells of the unit and its paths.
    Unavailable = 0x3,
}

/// The worst state in which a command is still answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answered {
    /// In the active states.
    Active,
    /// In standby too.
    Standby,
    /// In every state.
    Always,
}

/// Why the state of a group is what it is (SPC-4 §6.37, STATUS CODE).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum StateCause {
    /// It always was.
    None = 0,
    /// SET TARGET PORT GROUPS.
    Explicit = 1,
    /// The administrator.
    Implicit = 2,
}

/// The target ports of a device and the states of their groups.
#[derive(Debug)]
pub(crate) struct PortGroups {
    /// Places for ports, of which some are free: commands look without a lock while ports come and go.
    places: Box<[Port]>,
    /// What initiators said of the states, also of groups that are not there now. Locked while ports or states are changed, so
    /// that of two changes one comes after the other as a whole.
    kept: Mutex<Vec<KeptState>>,
}

/// A target port and its group.
#[derive(Debug, Default)]
struct Port {
    /// The portal group's tag; 0 when the place is free.
    tag: AtomicU16,
    /// An [`AccessState`]; read by every command.
    state: AtomicU8,
    /// The [`AccessState`] that the administrator gave it.
    configured: AtomicU8,
    cause: AtomicU8,
}

/// A group as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupView {
    /// TARGET PORT GROUP, which is also the RELATIVE TARGET PORT IDENTIFIER of its one port and the portal group's tag.
    pub number: u16,
    /// How well it reaches the units.
    pub state: AccessState,
    /// Who said so.
    pub cause: StateCause,
}

impl AccessState {
    /// The state of a code that this device supports.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0x0 => Some(Self::ActiveOptimized),
            0x1 => Some(Self::ActiveNonOptimized),
            0x2 => Some(Self::Standby),
            0x3 => Some(Self::Unavailable),
            _ => None,
        }
    }
}

impl Answered {
    /// 02/04/0B or 02/04/0C when a port in `state` does not answer such a command (SPC-4 §5.15.2.4).
    pub(crate) fn check(self, state: AccessState) -> Result<(), Failure> {
        match (state, self) {
            (AccessState::ActiveOptimized | AccessState::ActiveNonOptimized, _)
            | (AccessState::Standby, Self::Standby | Self::Always)
            | (AccessState::Unavailable, Self::Always) => Ok(()),
            (AccessState::Standby, Self::Active) => Err(Sense::TARGET_PORT_IN_STANDBY_STATE.into()),
            (AccessState::Unavailable, Self::Active | Self::Standby) => {
                Err(Sense::TARGET_PORT_IN_UNAVAILABLE_STATE.into())
            }
        }
    }
}

impl PortGroups {
    /// All of them active and optimized.
    pub(crate) fn new(ports: &[Tpgt]) -> Self {
        let places = (0..PORTS_MAX.max(ports.len())).map(|_| Port::default());
        let groups = Self {
            places: places.collect(),
            kept: Mutex::default(),
        };
        groups.replace(ports);
        groups
    }

    /// Makes these the ports. Those that stay keep their states; new ones are active and optimized, or as an initiator had set
    /// them when they were here before. `true` when that changed anything. Ports beyond [`PORTS_MAX`] are left out.
    pub(crate) fn replace(&self, wanted: &[Tpgt]) -> bool {
        let kept = self.kept();
        let mut changed = false;
        for port in self.ports() {
            if !wanted.contains(&port.tpgt()) {
                port.tag.store(0, Ordering::Release);
                changed = true;
            }
        }
        for tpgt in wanted {
            if self.port(*tpgt).is_some() {
                continue;
            }
            if let Some(free) = self.places.iter().find(|port| port.tpgt() == Tpgt(0)) {
                let first = AccessState::ActiveOptimized as u8;
                free.state.store(first, Ordering::Relaxed);
                free.configured.store(first, Ordering::Relaxed);
                free.cause.store(StateCause::None as u8, Ordering::Relaxed);
                free.tag.store(tpgt.0, Ordering::Release);
                self.apply(kept.iter().filter(|kept| kept.number == tpgt.0));
                changed = true;
            }
        }
        changed
    }

    /// All portal groups, ascending.
    pub(crate) fn tags(&self) -> Vec<Tpgt> {
        let mut tags: Vec<_> = self.ports().map(Port::tpgt).collect();
        tags.sort();
        tags
    }

    /// Whether this is one of them.
    pub(crate) fn contains(&self, tpgt: Tpgt) -> bool {
        self.port(tpgt).is_some()
    }

    fn ports(&self) -> impl Iterator<Item = &Port> {
        self.places.iter().filter(|port| port.tpgt() != Tpgt(0))
    }

    fn kept(&self) -> MutexGuard<'_, Vec<KeptState>> {
        self.kept.lock().expect("nothing panics while it is held")
    }

    fn port(&self, tpgt: Tpgt) -> Option<&Port> {
        self.ports().find(|port| port.tpgt() == tpgt)
    }

    /// How well commands of this port reach the units. A port that is not one of these is not restricted.
    pub(crate) fn state(&self, tpgt: Tpgt) -> AccessState {
        self.port(tpgt).map_or(AccessState::ActiveOptimized, Port::state)
    }

    /// All groups, ascending.
    pub(crate) fn view(&self) -> Vec<GroupView> {
        let _whole = self.kept();
        let view = |port: &Port| GroupView {
            number: port.tpgt().0,
            state: port.state(),
            cause: port.cause(),
        };
        let mut view: Vec<_> = self.ports().map(view).collect();
        view.sort_by_key(|group| group.number);
        view
    }

    /// Puts groups into states. `true` when that changed any; groups that are not here are ignored.
    pub(crate) fn set(&self, wanted: &[(u16, AccessState)], cause: StateCause) -> bool {
        let mut kept = self.kept();
        let mut changed = false;
        for (number, state) in wanted {
            let Some(port) = self.port(Tpgt(*number)) else {
                continue;
            };
            if cause == StateCause::Implicit {
                port.configured.store(*state as u8, Ordering::Relaxed);
            }
            if port.state.swap(*state as u8, Ordering::AcqRel) != *state as u8 {
                port.cause.store(cause as u8, Ordering::Relaxed);
                changed = true;
            }
        }
        *kept = self.kept_with(&kept, &[]);
        changed
    }

    /// What of the states is an initiator's will, once these were set by one.
    pub(crate) fn kept_after(&self, wanted: &[(u16, AccessState)]) -> Vec<KeptState> {
        self.kept_with(&self.kept(), wanted)
    }

    fn kept_with(&self, before: &[KeptState], wanted: &[(u16, AccessState)]) -> Vec<KeptState> {
        let absent = before.iter().filter(|kept| !self.contains(Tpgt(kept.number)));
        let here = self.ports().filter_map(|port| {
            let number = port.tpgt().0;
            let last = wanted.iter().rfind(|(group, _)| *group == number);
            let state = last.map_or_else(|| port.state(), |(_, state)| *state);
            let is_set = state != port.state() || port.cause() == StateCause::Explicit;
            is_set.then(|| KeptState {
                number,
                state,
                configured: port.configured(),
            })
        });
        let mut kept: Vec<_> = here.chain(absent.copied()).collect();
        kept.sort_by_key(|kept| kept.number);
        kept
    }

    /// Puts groups back into the states that initiators set. One that is configured otherwise than then keeps what it has.
    pub(crate) fn restore(&self, kept: &[KeptState]) {
        let mut before = self.kept();
        self.apply(kept.iter());
        *before = kept.to_vec();
    }

    fn apply<'a>(&self, kept: impl Iterator<Item = &'a KeptState>) {
        for kept in kept {
            if let Some(port) = self.port(Tpgt(kept.number))
                && port.configured() == kept.configured
            {
                port.state.store(kept.state as u8, Ordering::Release);
                port.cause.store(StateCause::Explicit as u8, Ordering::Relaxed);
            }
        }
    }

    /// Puts every group whose state an initiator set back into the one that the administrator gave it. `true` when that
    /// changed any.
    pub(crate) fn reset(&self) -> bool {
        let mut kept = self.kept();
        kept.clear();
        let mut changed = false;
        for port in self.ports().filter(|port| port.cause() == StateCause::Explicit) {
            let configured = port.configured() as u8;
            changed |= port.state.swap(configured, Ordering::AcqRel) != configured;
            port.cause.store(StateCause::Implicit as u8, Ordering::Relaxed);
        }
        changed
    }
}

impl Port {
    fn tpgt(&self) -> Tpgt {
        Tpgt(self.tag.load(Ordering::Acquire))
    }

    fn state(&self) -> AccessState {
        AccessState::from_code(self.state.load(Ordering::Acquire)).expect("only states are stored")
    }

    fn configured(&self) -> AccessState {
        AccessState::from_code(self.configured.load(Ordering::Relaxed)).expect("only states are stored")
    }

    fn cause(&self) -> StateCause {
        match self.cause.load(Ordering::Relaxed) {
            1 => StateCause::Explicit,
            2 => StateCause::Implicit,
            _ => StateCause::None,
        }
    }
}

/// Portal groups that a device has room for. As many fit into one answer to REPORT TARGET PORT GROUPS that initiators ask
/// for.
pub(crate) const PORTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(result: Result<(), Failure>) -> Option<(u8, u8)> {
        match result {
            Ok(()) => None,
            Err(Failure::Check(sense)) => Some(sense.code),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_state_refuses_what_it_does_not_answer() {
        use AccessState::{ActiveNonOptimized, ActiveOptimized, Standby, Unavailable};
        let cases = [
            (ActiveOptimized, [None, None, None]),
            (ActiveNonOptimized, [None, None, None]),
            (Standby, [Some((0x04, 0x0b)), None, None]),
            (Unavailable, [Some((0x04, 0x0c)), Some((0x04, 0x0c)), None]),
        ];
        for (state, expected) in cases {
            let found = [Answered::Active, Answered::Standby, Answered::Always]
                .map(|answered| sense(answered.check(state)));
            assert_eq!(found, expected, "{state:?}");
        }
    }

    #[test]
    fn ports_come_and_go_and_the_others_keep_their_states() {
        let groups = PortGroups::new(&[Tpgt(1), Tpgt(7)]);
        groups.set(&[(7, AccessState::Standby)], StateCause::Implicit);
        assert!(!groups.replace(&[Tpgt(7), Tpgt(1)]));
        assert!(groups.replace(&[Tpgt(7), Tpgt(3)]));
        assert_eq!(groups.tags(), [Tpgt(3), Tpgt(7)]);
        assert!(!groups.contains(Tpgt(1)) && !groups.contains(Tpgt(0)));
        assert_eq!(groups.state(Tpgt(7)), AccessState::Standby);
        groups.replace(&[]);
        groups.replace(&[Tpgt(7)]);
        assert_eq!(
            groups.state(Tpgt(7)),
            AccessState::ActiveOptimized,
            "it is a new one"
        );
    }

    #[test]
    fn a_change_is_one_only_when_a_state_differs() {
        let groups = PortGroups::new(&[Tpgt(1), Tpgt(7)]);
        assert!(!groups.set(&[(7, AccessState::ActiveOptimized)], StateCause::Explicit));
        assert!(groups.set(&[(7, AccessState::Standby)], StateCause::Explicit));
        assert!(!groups.set(&[(9, AccessState::Standby)], StateCause::Explicit));
        assert_eq!(groups.state(Tpgt(1)), AccessState::ActiveOptimized);
        assert_eq!(groups.state(Tpgt(7)), AccessState::Standby);
        let causes: Vec<_> = groups.view().iter().map(|group| group.cause).collect();
        assert_eq!(causes, [StateCause::None, StateCause::Explicit]);
    }

    #[test]
    fn what_initiators_set_comes_back_unless_the_administrator_changed_his_mind() {
        let start = |seventh| {
            let groups = PortGroups::new(&[Tpgt(1), Tpgt(7)]);
            groups.set(&[(7, seventh)], StateCause::Implicit);
            groups
        };
        let groups = start(AccessState::Standby);
        assert_eq!(groups.kept_after(&[]), []);
        let wanted = [(7, AccessState::Unavailable), (7, AccessState::ActiveOptimized)];
        let kept = groups.kept_after(&wanted);
        groups.set(&wanted, StateCause::Explicit);
        assert_eq!(groups.kept_after(&[]), kept);
        let again = start(AccessState::Standby);
        again.restore(&kept);
        assert_eq!(again.view(), groups.view());
        assert_eq!(again.state(Tpgt(7)), AccessState::ActiveOptimized);
        let otherwise = start(AccessState::ActiveNonOptimized);
        otherwise.restore(&kept);
        assert_eq!(otherwise.state(Tpgt(7)), AccessState::ActiveNonOptimized);
        assert!(again.reset());
        assert_eq!(again.state(Tpgt(7)), AccessState::Standby);
        assert!(!again.reset());
        assert_eq!(again.kept_after(&[]), []);
    }

    #[test]
    fn a_group_that_comes_back_is_as_an_initiator_left_it() {
        let groups = PortGroups::new(&[Tpgt(1), Tpgt(7)]);
        groups.set(&[(7, AccessState::Standby)], StateCause::Explicit);
        groups.replace(&[Tpgt(1)]);
        groups.set(&[(1, AccessState::Unavailable)], StateCause::Explicit);
        let kept: Vec<_> = groups.kept_after(&[]).iter().map(|kept| kept.number).collect();
        assert_eq!(kept, [1, 7], "of the absent one too");
        groups.replace(&[Tpgt(7)]);
        assert_eq!(groups.state(Tpgt(7)), AccessState::Standby);
        assert_eq!(groups.view()[0].cause, StateCause::Explicit);
        groups.reset();
        groups.replace(&[Tpgt(1)]);
        assert_eq!(groups.state(Tpgt(1)), AccessState::ActiveOptimized);
    }
}
