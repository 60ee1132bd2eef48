//! States into which initiators put target port groups, in the form in which they outlive the program: a state that an
//! application client set holds until another is set, whatever happens in between.

use super::access_state::AccessState;

/// The state of one group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KeptState {
    /// TARGET PORT GROUP.
    pub(crate) number: u16,
    /// As the initiator set it.
    pub(crate) state: AccessState,
    /// As the administrator had it. When that is another one at a later start, it is the administrator who spoke last.
    pub(crate) configured: AccessState,
}

/// The form in which they are kept: `7=2/0` for group 7, in standby, configured as active and optimized.
pub(crate) fn to_text(states: &[KeptState]) -> String {
    let words = states.iter().map(|kept| {
        format!(
            "{}={:x}/{:x}",
            kept.number, kept.state as u8, kept.configured as u8
        )
    });
    words.collect::<Vec<_>>().join(" ")
}

/// From that form; `None` for what is none.
pub(crate) fn from_text(text: &str) -> Option<Vec<KeptState>> {
    let state = |digit: &str| AccessState::from_code(u8::from_str_radix(digit, 16).ok()?);
    let words = text.split_whitespace().map(|word| {
        let (number, states) = word.split_once('=')?;
        let (now, configured) = states.split_once('/')?;
        Some(KeptState {
            number: number.parse().ok()?,
            state: state(now)?,
            configured: state(configured)?,
        })
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_taken_back() {
        let states = [
            KeptState {
                number: 7,
                state: AccessState::Standby,
                configured: AccessState::ActiveOptimized,
            },
            KeptState {
                number: 65535,
                state: AccessState::ActiveNonOptimized,
                configured: AccessState::Unavailable,
            },
        ];
        assert_eq!(to_text(&states), "7=2/0 65535=1/3");
        for some in [&states[..], &states[..1], &[]] {
            assert_eq!(from_text(&to_text(some)).as_deref(), Some(some));
        }
        for damaged in ["7", "7=2", "7=2/", "7=4/0", "70000=2/0", "7=2/0,8=2/0", "{"] {
            assert_eq!(from_text(damaged), None, "{damaged}");
        }
    }
}
