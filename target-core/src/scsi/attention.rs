//! Unit attention conditions (SAM-5 §5.14), queued per I_T nexus and logical unit.

use super::Sense;

/// A condition that an initiator must be told of before its next command runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnitAttention {
    /// 29/01
    PowerOn,
    /// 29/00: power on, reset or bus device reset.
    Reset,
    /// 29/03: logical unit reset.
    LogicalUnitReset,
    /// 29/07
    NexusLoss,
    /// 28/00: not-ready-to-ready change, medium may have changed.
    MediumChanged,
    /// 2a/01
    ModeParametersChanged,
    /// 2a/02
    LogParametersChanged,
    /// 2a/10
    TimestampChanged,
    /// 2a/06
    AccessStateChanged,
    /// 2a/03: CLEAR.
    ReservationsPreempted,
    /// 2a/04
    ReservationsReleased,
    /// 2a/05
    RegistrationsPreempted,
    /// 2a/09
    CapacityChanged,
    /// 38/07
    SoftThresholdReached,
    /// 2f/00: commands cleared by another initiator.
    CommandsCleared,
    /// 47/7f: some commands ended with their connection.
    CommandsClearedByProtocol,
    /// 3f/0e
    ReportedLunsChanged,
    /// 3f/03
    InquiryDataChanged,
    /// 3f/05
    IdentifierChanged,
}

impl UnitAttention {
    /// The sense that tells it.
    #[must_use]
    pub const fn sense(self) -> Sense {
        match self {
            Self::PowerOn => Sense::POWER_ON_OCCURRED,
            Self::Reset => Sense::POWER_ON_OR_RESET_OCCURRED,
            Self::LogicalUnitReset => Sense::DEVICE_RESET_FUNCTION_OCCURRED,
            Self::NexusLoss => Sense::I_T_NEXUS_LOSS_OCCURRED,
            Self::MediumChanged => Sense::NOT_READY_TO_READY_CHANGE,
            Self::ModeParametersChanged => Sense::MODE_PARAMETERS_CHANGED,
            Self::LogParametersChanged => Sense::LOG_PARAMETERS_CHANGED,
            Self::TimestampChanged => Sense::TIMESTAMP_CHANGED,
            Self::AccessStateChanged => Sense::ASYMMETRIC_ACCESS_STATE_CHANGED,
            Self::SoftThresholdReached => Sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
            Self::IdentifierChanged => Sense::DEVICE_IDENTIFIER_CHANGED,
            Self::ReservationsPreempted => Sense::RESERVATIONS_PREEMPTED,
            Self::ReservationsReleased => Sense::RESERVATIONS_RELEASED,
            Self::RegistrationsPreempted => Sense::REGISTRATIONS_PREEMPTED,
            Self::CapacityChanged => Sense::CAPACITY_DATA_HAS_CHANGED,
            Self::CommandsCleared => Sense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            Self::CommandsClearedByProtocol => Sense::COMMANDS_CLEARED_BY_PROTOCOL_EVENT,
            Self::ReportedLunsChanged => Sense::REPORTED_LUNS_DATA_HAS_CHANGED,
            Self::InquiryDataChanged => Sense::INQUIRY_DATA_HAS_CHANGED,
        }
    }

    /// A condition of the unit's whole state, which includes every lesser one that was pending (SAM-5 §5.14).
    const fn is_reset(self) -> bool {
        match self {
            Self::PowerOn | Self::Reset | Self::LogicalUnitReset | Self::NexusLoss => true,
            Self::MediumChanged
            | Self::ModeParametersChanged
            | Self::LogParametersChanged
            | Self::TimestampChanged
            | Self::AccessStateChanged
            | Self::SoftThresholdReached
            | Self::IdentifierChanged
            | Self::ReservationsPreempted
            | Self::ReservationsReleased
            | Self::RegistrationsPreempted
            | Self::CapacityChanged
            | Self::CommandsCleared
            | Self::CommandsClearedByProtocol
            | Self::ReportedLunsChanged
            | Self::InquiryDataChanged => false,
        }
    }

    /// News about persistent reservations, which neither a reset nor the loss of a nexus undoes.
    pub(crate) const fn is_of_reservations(self) -> bool {
        matches!(
            self,
            Self::ReservationsPreempted | Self::ReservationsReleased | Self::RegistrationsPreempted
        )
    }

    /// Lower is told first. Among resets the more comprehensive one stays: 29/01 includes 29/00, that one 29/03, and
    /// each of them the loss of a nexus.
    const fn rank(self) -> u8 {
        match self {
            Self::PowerOn => 0,
            Self::Reset => 1,
            Self::LogicalUnitReset => 2,
            Self::NexusLoss => 3,
            Self::MediumChanged
            | Self::ModeParametersChanged
            | Self::LogParametersChanged
            | Self::TimestampChanged
            | Self::AccessStateChanged
            | Self::SoftThresholdReached
            | Self::IdentifierChanged
            | Self::ReservationsPreempted
            | Self::ReservationsReleased
            | Self::RegistrationsPreempted
            | Self::CapacityChanged
            | Self::CommandsCleared
            | Self::CommandsClearedByProtocol
            | Self::ReportedLunsChanged
            | Self::InquiryDataChanged => 4,
        }
    }
}

/// What one nexus has still to be told about one unit. Bounded by the number of conditions, each being there once.
#[derive(Debug, Default)]
pub(crate) struct AttentionQueue(Vec<UnitAttention>);

impl AttentionQueue {
    /// Adds a condition, unless it or one that includes it waits already.
    pub(crate) fn push(&mut self, attention: UnitAttention) {
        if self.0.contains(&attention) {
            return;
        }
        if !attention.is_reset() {
            self.0.push(attention);
            return;
        }
        match self.0.first() {
            Some(first) if first.rank() < attention.rank() => {}
            // A reset makes news about what was before it pointless. The LUN map and persistent reservations are no
            // part of what was reset.
            _ => {
                self.0.retain(|pending| {
                    *pending == UnitAttention::ReportedLunsChanged || pending.is_of_reservations()
                });
                self.0.insert(0, attention);
            }
        }
    }

    /// The next to be told, which is then done with.
    pub(crate) fn pop(&mut self) -> Option<UnitAttention> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// The next to be told if it is a reset (or the loss of a nexus), which is then done with.
    pub(crate) fn pop_reset(&mut self) -> Option<UnitAttention> {
        self.0.first()?.is_reset().then(|| self.0.remove(0))
    }

    /// Forgets all but the news of persistent reservations.
    pub(crate) fn keep_reservations(&mut self) {
        self.0.retain(|pending| pending.is_of_reservations());
    }

    /// The next to be told, which stays, and how many there are.
    pub(crate) fn first_of(&self) -> Option<(UnitAttention, usize)> {
        self.0.first().map(|first| (*first, self.0.len()))
    }

    /// One condition is done with, told or not.
    pub(crate) fn clear(&mut self, attention: UnitAttention) {
        self.0.retain(|pending| *pending != attention);
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::UnitAttention::*;
    use super::*;

    fn told(pushed: &[UnitAttention]) -> Vec<UnitAttention> {
        let mut queue = AttentionQueue::default();
        pushed.iter().for_each(|attention| queue.push(*attention));
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn conditions_are_told_once_and_in_order() {
        assert_eq!(
            told(&[CapacityChanged, ReportedLunsChanged, CapacityChanged]),
            [CapacityChanged, ReportedLunsChanged]
        );
    }

    #[test]
    fn a_reset_replaces_what_was_before_it_but_not_the_lun_map() {
        assert_eq!(
            told(&[ModeParametersChanged, ReportedLunsChanged, LogicalUnitReset]),
            [LogicalUnitReset, ReportedLunsChanged]
        );
    }

    #[test]
    fn a_reset_leaves_the_news_of_persistent_reservations() {
        assert_eq!(
            told(&[RegistrationsPreempted, MediumChanged, LogicalUnitReset]),
            [LogicalUnitReset, RegistrationsPreempted]
        );
    }

    #[test]
    fn the_more_comprehensive_reset_stays() {
        assert_eq!(told(&[LogicalUnitReset, Reset]), [Reset]);
        assert_eq!(told(&[Reset, LogicalUnitReset]), [Reset]);
        assert_eq!(told(&[NexusLoss, PowerOn]), [PowerOn]);
    }

    #[test]
    fn what_happens_after_a_reset_is_told_after_it() {
        assert_eq!(told(&[Reset, MediumChanged]), [Reset, MediumChanged]);
    }

    #[test]
    fn a_cleared_condition_is_not_told() {
        let mut queue = AttentionQueue::default();
        queue.push(Reset);
        queue.push(ReportedLunsChanged);
        queue.clear(ReportedLunsChanged);
        assert_eq!(queue.pop(), Some(Reset));
        assert!(queue.is_empty());
    }

    #[test]
    fn every_condition_has_its_code() {
        const CASES: [(UnitAttention, u8, u8); 18] = [
            (PowerOn, 0x29, 0x01),
            (Reset, 0x29, 0x00),
            (LogicalUnitReset, 0x29, 0x03),
            (NexusLoss, 0x29, 0x07),
            (MediumChanged, 0x28, 0x00),
            (ModeParametersChanged, 0x2a, 0x01),
            (LogParametersChanged, 0x2a, 0x02),
            (ReservationsPreempted, 0x2a, 0x03),
            (ReservationsReleased, 0x2a, 0x04),
            (RegistrationsPreempted, 0x2a, 0x05),
            (AccessStateChanged, 0x2a, 0x06),
            (CapacityChanged, 0x2a, 0x09),
            (TimestampChanged, 0x2a, 0x10),
            (SoftThresholdReached, 0x38, 0x07),
            (IdentifierChanged, 0x3f, 0x05),
            (CommandsCleared, 0x2f, 0x00),
            (ReportedLunsChanged, 0x3f, 0x0e),
            (InquiryDataChanged, 0x3f, 0x03),
        ];
        for (attention, asc, ascq) in CASES {
            let sense = attention.sense();
            assert_eq!((sense.key as u8, sense.code), (0x6, (asc, ascq)), "{attention:?}");
        }
    }
}
