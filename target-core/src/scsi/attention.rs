//! Unit attention conditions (SAM-5 §5.14), queued per I_T nexus and logical unit.

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
    /// 2a/09
    CapacityChanged,
    /// 2f/00: commands cleared by another initiator.
    CommandsCleared,
    /// 3f/0e
    ReportedLunsChanged,
    /// 3f/03
    InquiryDataChanged,
}
