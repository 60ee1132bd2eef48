//! Defects that can be planted in a world, and the rule by which each must be noticed. They live in wrappers around
//! the mover (`spoiled_mover.rs`) and the stores (`spoiled_store.rs`): the target itself stays as it is.

use super::Check;

/// A defect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Defect {
    /// A StatSN is skipped.
    SkippedStatSn,
    /// A command is answered although its abort was.
    ResponseAfterAbort,
    /// A Data-In names a place that is not its own.
    WrongDataInOffset,
    /// A status comes with a residual that is not true.
    WrongResidual,
    /// A response is never sent.
    LostResponse,
    /// A response is sent twice.
    DoubledResponse,
    /// An ExpCmdSN goes back.
    ReturningExpCmdSn,
    /// Commands that ended do not open the window again.
    ShrinkingWindow,
    /// GOOD overtakes the data.
    StatusBeforeData,
    /// The last bytes of a read are missing.
    ShortDataIn,
    /// An R2T skips bytes.
    WrongR2tOffset,
    /// Responses count as acknowledged that have not been: task management overtakes them on another connection.
    ImaginedAcknowledgement,
    /// A SNACK leads to nothing.
    UnansweredSnack,
    /// Nobody asks for Data-Out that were lost.
    DataOutNotLookedAfter,
    /// What a lost connection had kept of its tasks is forgotten.
    ForgottenRemains,
    /// Task management waits for the store.
    AbortWaitsForStore,
    /// A login waits for the store.
    LoginWaitsForStore,
    /// A buffer is forgotten.
    LeakedBuffer,
    /// A session outlives its connection.
    GhostSession,
    /// A write is acknowledged and not done.
    LostWrite,
    /// Only the first half of a write's blocks is written.
    TornWrite,
    /// Half a block is written.
    TornBlock,
    /// Two blocks of a write change places.
    SwappedBlocks,
    /// A read returns what was there once.
    StaleRead,
    /// An acknowledged write lands after a later one.
    LateWrite,
    /// UNMAP leaves the data where they are.
    UnmapKeepsData,
    /// A flush does nothing.
    IgnoredFlush,
    /// FUA does nothing.
    IgnoredFua,
}

impl Defect {
    /// Every defect there is.
    pub const ALL: [Self; 28] = [
        Self::SkippedStatSn,
        Self::ResponseAfterAbort,
        Self::WrongDataInOffset,
        Self::WrongResidual,
        Self::LostResponse,
        Self::DoubledResponse,
        Self::ReturningExpCmdSn,
        Self::ShrinkingWindow,
        Self::StatusBeforeData,
        Self::ShortDataIn,
        Self::WrongR2tOffset,
        Self::ImaginedAcknowledgement,
        Self::UnansweredSnack,
        Self::DataOutNotLookedAfter,
        Self::ForgottenRemains,
        Self::AbortWaitsForStore,
        Self::LoginWaitsForStore,
        Self::LeakedBuffer,
        Self::GhostSession,
        Self::LostWrite,
        Self::TornWrite,
        Self::TornBlock,
        Self::SwappedBlocks,
        Self::StaleRead,
        Self::LateWrite,
        Self::UnmapKeepsData,
        Self::IgnoredFlush,
        Self::IgnoredFua,
    ];

    /// ErrorRecoveryLevel of the sessions that it shows in.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::UnansweredSnack | Self::DataOutNotLookedAfter => 1,
            Self::ForgottenRemains => 2,
            _ => 0,
        }
    }

    /// The rule that it breaks.
    #[must_use]
    pub const fn breaks(self) -> Check {
        match self {
            Self::SkippedStatSn => Check::StatSn,
            Self::ImaginedAcknowledgement | Self::ResponseAfterAbort => Check::SilentAfterAbort,
            Self::WrongDataInOffset | Self::StatusBeforeData | Self::ShortDataIn => Check::DataIn,
            Self::WrongResidual => Check::Residual,
            Self::LostResponse | Self::DoubledResponse | Self::UnansweredSnack => Check::AnsweredOnce,
            Self::DataOutNotLookedAfter => Check::Liveness,
            Self::ForgottenRemains => Check::DataIn,
            Self::ReturningExpCmdSn | Self::ShrinkingWindow => Check::CommandWindow,
            Self::WrongR2tOffset => Check::DataOut,
            Self::AbortWaitsForStore => Check::TaskManagementInTime,
            Self::LoginWaitsForStore => Check::LoginInTime,
            Self::LeakedBuffer => Check::PoolFull,
            Self::GhostSession => Check::NoSessionLeft,
            Self::LostWrite
            | Self::TornWrite
            | Self::TornBlock
            | Self::SwappedBlocks
            | Self::StaleRead
            | Self::LateWrite
            | Self::UnmapKeepsData => Check::DiskModel,
            Self::IgnoredFlush | Self::IgnoredFua => Check::Durability,
        }
    }
}
