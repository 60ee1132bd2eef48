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
    /// A task management request is answered while data still move for its tasks on another connection.
    AbortOutrunsOtherConnections,
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
    /// StatSN counts across all connections of a session, as CmdSN does.
    SharedStatSn,
    /// A response goes by another connection of its session.
    StrayResponse,
    /// A connection that asks for the end of another one is closed itself.
    WrongConnectionClosed,
    /// Task management does not wait for commands that were sent before it.
    HastyReset,
    /// A SNACK for responses is answered from the one behind it on.
    WrongRunOfStatus,
    /// Responses are let go of before they are acknowledged, so that they cannot come again.
    ForgottenResponses,
    /// A DataACK lets go of more than it names.
    GreedyDataAck,
    /// Immediate data are taken although their digest does not match.
    DamagedDataTaken,
    /// Tasks of a connection that is removed for recovery end.
    RecoveryIsClosing,
    /// What had come and was owed of the Data-Out of a task that is taken up is forgotten.
    ForgottenDataOut,
    /// A task that is taken up is never answered.
    LostStatusOfReassigned,
    /// A connection that takes another's place leaves that one alive.
    NotReinstated,
    /// Nobody asks for Data-Out that were lost.
    DataOutNotLookedAfter,
    /// What a lost connection had kept of its tasks is forgotten.
    ForgottenRemains,
    /// Commands of several connections run as they arrive, whatever their numbers are.
    OrderOfArrival,
    /// A task that a living connection has is reassigned nevertheless.
    ReassignedTwice,
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
    pub const ALL: [Self; 42] = [
        Self::SkippedStatSn,
        Self::ResponseAfterAbort,
        Self::AbortOutrunsOtherConnections,
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
        Self::SharedStatSn,
        Self::StrayResponse,
        Self::WrongConnectionClosed,
        Self::HastyReset,
        Self::WrongRunOfStatus,
        Self::ForgottenResponses,
        Self::GreedyDataAck,
        Self::DamagedDataTaken,
        Self::RecoveryIsClosing,
        Self::ForgottenDataOut,
        Self::LostStatusOfReassigned,
        Self::NotReinstated,
        Self::DataOutNotLookedAfter,
        Self::ForgottenRemains,
        Self::OrderOfArrival,
        Self::ReassignedTwice,
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
            Self::DamagedDataTaken
            | Self::DataOutNotLookedAfter
            | Self::ForgottenResponses
            | Self::GreedyDataAck
            | Self::HastyReset
            | Self::WrongRunOfStatus => 1,
            Self::ForgottenDataOut
            | Self::ForgottenRemains
            | Self::LostStatusOfReassigned
            | Self::NotReinstated
            | Self::ReassignedTwice
            | Self::RecoveryIsClosing => 2,
            _ => 0,
        }
    }

    /// The rule that it breaks.
    #[must_use]
    pub const fn breaks(self) -> Check {
        match self {
            Self::SharedStatSn | Self::SkippedStatSn => Check::StatSn,
            Self::HastyReset | Self::ImaginedAcknowledgement | Self::ResponseAfterAbort => {
                Check::SilentAfterAbort
            }
            Self::AbortOutrunsOtherConnections => Check::OpenMemory,
            Self::ReassignedTwice | Self::StrayResponse => Check::Allegiance,
            Self::WrongDataInOffset | Self::StatusBeforeData | Self::ShortDataIn => Check::DataIn,
            Self::WrongResidual => Check::Residual,
            Self::DoubledResponse
            | Self::ForgottenResponses
            | Self::GreedyDataAck
            | Self::LostResponse
            | Self::LostStatusOfReassigned
            | Self::NotReinstated
            | Self::RecoveryIsClosing
            | Self::WrongRunOfStatus => Check::AnsweredOnce,
            Self::DataOutNotLookedAfter | Self::ForgottenDataOut | Self::WrongConnectionClosed => {
                Check::Liveness
            }
            Self::ForgottenRemains => Check::DataIn,
            Self::OrderOfArrival => Check::Order,
            Self::ReturningExpCmdSn | Self::ShrinkingWindow => Check::CommandWindow,
            Self::WrongR2tOffset => Check::DataOut,
            Self::AbortWaitsForStore => Check::TaskManagementInTime,
            Self::LoginWaitsForStore => Check::LoginInTime,
            Self::LeakedBuffer => Check::PoolFull,
            Self::GhostSession => Check::NoSessionLeft,
            Self::DamagedDataTaken
            | Self::LostWrite
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
