//! Asymmetric access states of target port groups (SPC-4 §5.15.2): how well a group of ports reaches the logical units.
//!
//! Each portal group is a target port, alone in a target port group whose number is the portal group's tag. A state
//! counts for all logical units of the device. Which commands a port answers in which state is a column of the table of
//! commands; here are the states, what they refuse with, and the ports that are in them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use iscsi_proto::Tpgt;

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
pub(crate) enum StateCause {
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
    ports: Vec<Port>,
    /// Held while states are changed, so that of two changes one comes after the other as a whole.
    changing: Mutex<()>,
}

/// A target port and its group.
#[derive(Debug)]
struct Port {
    tpgt: Tpgt,
    /// An [`AccessState`]; read by every command.
    state: AtomicU8,
    cause: AtomicU8,
}

/// A group as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GroupView {
    /// TARGET PORT GROUP, which is also the RELATIVE TARGET PORT IDENTIFIER of its one port and the portal group's tag.
    pub(crate) number: u16,
    pub(crate) state: AccessState,
    pub(crate) cause: StateCause,
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
        let ports = ports.iter().map(|tpgt| Port {
            tpgt: *tpgt,
            state: AtomicU8::new(AccessState::ActiveOptimized as u8),
            cause: AtomicU8::new(StateCause::None as u8),
        });
        Self {
            ports: ports.collect(),
            changing: Mutex::default(),
        }
    }

    /// All portal groups, in the order they were given.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tpgt> {
        self.ports.iter().map(|port| port.tpgt)
    }

    /// How well commands of this port reach the units. A port that is not one of these is not restricted.
    pub(crate) fn state(&self, tpgt: Tpgt) -> AccessState {
        let port = self.ports.iter().find(|port| port.tpgt == tpgt);
        port.map_or(AccessState::ActiveOptimized, Port::state)
    }

    /// All groups.
    pub(crate) fn view(&self) -> Vec<GroupView> {
        let _whole = self.changing.lock().expect("nothing panics while it is held");
        let view = |port: &Port| GroupView {
            number: port.tpgt.0,
            state: port.state(),
            cause: match port.cause.load(Ordering::Relaxed) {
                1 => StateCause::Explicit,
                2 => StateCause::Implicit,
                _ => StateCause::None,
            },
        };
        self.ports.iter().map(view).collect()
    }

    /// Puts groups into states. `true` when that changed any; groups that are not here are ignored.
    pub(crate) fn set(&self, wanted: &[(u16, AccessState)], cause: StateCause) -> bool {
        let _whole = self.changing.lock().expect("nothing panics while it is held");
        let mut changed = false;
        for (number, state) in wanted {
            for port in self.ports.iter().filter(|port| port.tpgt.0 == *number) {
                if port.state.swap(*state as u8, Ordering::AcqRel) != *state as u8 {
                    port.cause.store(cause as u8, Ordering::Relaxed);
                    changed = true;
                }
            }
        }
        changed
    }
}

impl Port {
    fn state(&self) -> AccessState {
        AccessState::from_code(self.state.load(Ordering::Acquire)).expect("only states are stored")
    }
}

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
}
