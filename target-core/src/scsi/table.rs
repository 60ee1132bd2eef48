//! The commands we know: one entry per operation code and service action, in which everything is said that can be
//! checked without running it. A command cannot forget a check, because it does not make them (engine.rs does).
//! The same entries answer REPORT SUPPORTED OPERATION CODES.

use super::access_state::Answered;
use super::cdb::{Cdb, LbaRange};
use super::engine::CommandContext;
use super::primary::vpd::{AtomicLimits, is_thin};
use super::{DeviceType, Failure, LogicalUnit, block, copy, multimedia, primary};
use crate::metrics::CommandKind;
use crate::transfer::Transfer;

/// One command.
#[derive(Debug)]
pub(crate) struct CommandSpec {
    /// OPERATION CODE.
    pub(crate) opcode: u8,
    /// SERVICE ACTION, for operation codes that have some.
    pub(crate) service_action: Option<u16>,
    /// The standard's name, for the log.
    pub(crate) name: &'static str,
    /// CDB USAGE DATA as SPC-4 §6.35.3 defines it: as long as the CDB, the operation code first, the service action
    /// at its place, and a one for each bit that we look at.
    pub(crate) usage: &'static [u8],
    /// On which units it exists.
    pub(crate) offer: Offer,
    /// What must hold before it may run.
    pub(crate) needs: Needs,
    /// How long it may take under ordinary load, seconds (SPC-4 §6.35.4); 0 is unspecified.
    pub(crate) timeout_s: u32,
    /// Its code.
    pub(crate) operation: Operation,
}

/// On which units a command exists. On the others it is as unknown as any code that is not in the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Offer {
    /// On all.
    Always,
    /// On those whose store can write some length as a whole or not at all.
    Atomic,
    /// On those whose contents are encrypted with a key that can be replaced.
    KeyErase,
    /// On those that can give space back.
    Thin,
    /// On those whose medium can be taken out.
    Removable,
    /// On those that keep something over restarts.
    Keeps,
}

impl Offer {
    /// Whether this unit is among them as it is now.
    fn includes(self, unit: &LogicalUnit) -> bool {
        match self {
            Self::Always => true,
            Self::Atomic => AtomicLimits::new(&unit.store().geometry(), unit.store().abilities()).most > 0,
            Self::KeyErase => unit.store().abilities().key_erase,
            Self::Thin => is_thin(unit.config(), &unit.store().geometry()),
            Self::Removable => unit.config().removable,
            Self::Keeps => unit.can_keep(),
        }
    }
}

impl CommandSpec {
    /// Whether the command exists on this unit as the unit is now.
    pub(crate) fn exists_on(&self, unit: &LogicalUnit) -> bool {
        self.needs.devices.include(unit.config().device_type) && self.offer.includes(unit)
    }

    /// A byte of [`usage`](Self::usage) as it is on a unit whose blocks have protection information, or have none.
    pub(crate) fn usage_at(&self, byte: usize, is_protected: bool) -> u8 {
        let with_field = byte == 1 && is_protected && self.needs.protection;
        self.usage[byte] | if with_field { PROTECT_FIELD } else { 0 }
    }
}

/// Which types of device have a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Devices {
    /// All.
    All,
    /// CD and DVD drives.
    Cdrom,
    /// Disks.
    Disk,
}

impl Devices {
    /// Whether this type is among them.
    pub(crate) const fn include(self, device_type: DeviceType) -> bool {
        match (self, device_type) {
            (Self::All, _) | (Self::Cdrom, DeviceType::Cdrom) | (Self::Disk, DeviceType::Disk) => true,
            (Self::Cdrom, DeviceType::Disk) | (Self::Disk, DeviceType::Cdrom) => false,
        }
    }
}

/// What must hold before a command may run. Start from a constant below and name the differences.
#[derive(Debug)]
pub(crate) struct Needs {
    /// The unit is of this type. Commands that touch a medium are those of disks unless they say otherwise; the others
    /// are everybody's.
    pub(crate) devices: Devices,
    /// It addresses a logical unit that exists. The few commands that answer without one say `false`.
    pub(crate) unit: bool,
    /// A medium is loaded.
    pub(crate) medium: bool,
    /// It takes RDPROTECT, WRPROTECT or VRPROTECT where blocks have protection information. On other units, and of other
    /// commands, the field must be 0.
    pub(crate) protection: bool,
    /// It changes the medium, so that the medium must not be write-protected.
    pub(crate) writes: bool,
    /// The blocks that the CDB names.
    pub(crate) range: Option<RangeField>,
    /// What a reservation of another nexus does to it.
    pub(crate) reservation: ReservationClass,
    /// What a pending unit attention does to it.
    pub(crate) attention: AttentionRule,
    /// It waits for no task, whatever its attribute: it may be there to end those it would wait for.
    pub(crate) overtakes: bool,
    /// The worst state of the target port in which it is answered.
    pub(crate) answered: Answered,
    /// What formatting or sanitizing of the medium does to it.
    pub(crate) erasure: ErasureRule,
}

/// Blocks named by a CDB, and what happens to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeField {
    /// Reads them off the CDB; the second argument is the capacity in blocks.
    pub(crate) extract: fn(Cdb<'_>, u64) -> LbaRange,
    /// What happens to the blocks; `None` when they need only be on the medium, and nobody has to wait.
    pub(crate) access: Option<Access>,
}

/// What a command does to the blocks of its range, as far as others must wait for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
    /// Reads and writes them in one step that nobody else may see half done.
    Exclusive,
    /// Reads them while nobody writes them.
    ReadStill,
}

impl Access {
    /// Whether the blocks may differ afterwards.
    pub(crate) const fn writes(self) -> bool {
        match self {
            Self::Exclusive | Self::Write => true,
            Self::Read | Self::ReadStill => false,
        }
    }
}

/// Rows of the tables "commands allowed in the presence of reservations" (SPC-4 table 65, SBC-4 table 13). A reservation
/// of SPC-2 keeps out all but the first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReservationClass {
    /// Runs whatever is reserved.
    Always,
    /// Runs beside every persistent reservation.
    Persistent,
    /// Reads the medium or what it says: conflicts with exclusive access.
    Reads,
    /// Changes the medium or the unit: conflicts with write exclusive too.
    Writes,
    /// `Always` when these bits of the CDB have this value, else `Writes`.
    WritesUnless {
        /// Byte of the CDB.
        byte: u8,
        /// Its bits.
        mask: u8,
        /// Their value.
        value: u8,
    },
}

impl ReservationClass {
    /// The class of one CDB.
    pub(crate) fn of(self, cdb: Cdb<'_>) -> Self {
        match self {
            Self::WritesUnless { byte, mask, value } if cdb.u8_at(byte.into()) & mask == value => {
                Self::Always
            }
            Self::WritesUnless { .. } => Self::Writes,
            Self::Always | Self::Persistent | Self::Reads | Self::Writes => self,
        }
    }
}

/// What a pending unit attention does to a command (SAM-5 §5.14).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AttentionRule {
    /// It ends with CHECK CONDITION and the attention is told.
    Report,
    /// It runs, the attention stays (INQUIRY).
    Keep,
    /// It runs, and REPORTED LUNS DATA HAS CHANGED is done with (REPORT LUNS).
    ClearReportedLuns,
    /// It runs and tells the attention itself (REQUEST SENSE).
    Deliver,
}

/// What formatting or sanitizing of the medium does to a command (SBC-4, FORMAT UNIT and sanitize operations).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ErasureRule {
    /// It is refused while that goes on, and after it failed.
    Refuse,
    /// It is refused while that goes on, and may do it again after it failed.
    Restart,
    /// It runs.
    Run,
}

impl Needs {
    /// Nothing but a logical unit.
    pub(crate) const UNIT: Self = Self {
        devices: Devices::All,
        unit: true,
        medium: false,
        protection: false,
        writes: false,
        range: None,
        reservation: ReservationClass::Always,
        attention: AttentionRule::Report,
        overtakes: false,
        answered: Answered::Active,
        erasure: ErasureRule::Refuse,
    };

    /// A unit with a medium, whose contents or size are asked for.
    pub(crate) const MEDIUM: Self = Self {
        devices: Devices::Disk,
        medium: true,
        reservation: ReservationClass::Reads,
        ..Self::UNIT
    };

    /// The same with a field for protection information.
    pub(crate) const fn protected(self) -> Self {
        Self {
            protection: true,
            ..self
        }
    }

    /// A unit with a medium that has the blocks of `extract`, which are not touched.
    pub(crate) const fn named(extract: fn(Cdb<'_>, u64) -> LbaRange) -> Self {
        Self {
            range: Some(RangeField {
                extract,
                access: None,
            }),
            ..Self::MEDIUM
        }
    }

    /// A unit with a medium, from which the blocks of `extract` are read.
    pub(crate) const fn read(extract: fn(Cdb<'_>, u64) -> LbaRange) -> Self {
        Self {
            range: Some(RangeField {
                extract,
                access: Some(Access::Read),
            }),
            ..Self::MEDIUM
        }
    }

    /// A unit with a medium, on which the blocks of `extract` are written.
    pub(crate) const fn write(extract: fn(Cdb<'_>, u64) -> LbaRange) -> Self {
        Self {
            writes: true,
            range: Some(RangeField {
                extract,
                access: Some(Access::Write),
            }),
            reservation: ReservationClass::Writes,
            ..Self::MEDIUM
        }
    }

    /// A unit with a medium, on which the blocks of `extract` are written while nobody else sees or changes them.
    pub(crate) const fn exclusive(extract: fn(Cdb<'_>, u64) -> LbaRange) -> Self {
        Self {
            range: Some(RangeField {
                extract,
                access: Some(Access::Exclusive),
            }),
            ..Self::write(extract)
        }
    }
}

/// The code of a command: one variant for each `run` function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    CompareAndWrite,
    CopyOperatingParameters,
    CopyOperationAbort,
    CopyStatus,
    ExtendedCopy,
    FailedSegmentDetails,
    FormatUnit,
    GetConfiguration,
    GetEventStatus,
    GetLbaStatus,
    Inquiry,
    LogSelect,
    LogSense,
    MechanismStatus,
    ModeSelect,
    ModeSense,
    OrWrite,
    PersistentReserveIn,
    PersistentReserveOut,
    PopulateToken,
    PreFetch,
    PreventAllow,
    Read,
    ReadCapacity10,
    ReadCapacity16,
    ReadCd,
    ReceiveDiagnostic,
    ReportIdentifying,
    ReadDefectData,
    ReadDiscInformation,
    ReadDiscStructure,
    ReadSubChannel,
    ReadToc,
    ReadTrackInformation,
    Release,
    ReportLuns,
    ReportOpcodes,
    ReportPortGroups,
    ReportTimestamp,
    ReportTmfs,
    RequestSense,
    SendDiagnostic,
    SetIdentifying,
    SetPortGroups,
    SetTimestamp,
    Reserve,
    RodTokenInformation,
    Sanitize,
    SetCdSpeed,
    StartStop,
    SynchronizeCache,
    TestUnitReady,
    Unmap,
    Verify,
    Write,
    WriteAndVerify,
    WriteAtomic,
    WriteSame,
    WriteUsingToken,
}

impl Operation {
    /// As what it is counted.
    pub(crate) const fn kind(self) -> CommandKind {
        match self {
            Self::Read | Self::ReadCd => CommandKind::Read,
            Self::CompareAndWrite
            | Self::OrWrite
            | Self::Write
            | Self::WriteAndVerify
            | Self::WriteAtomic
            | Self::WriteSame => CommandKind::Write,
            _ => CommandKind::Other,
        }
    }

    /// Runs the command, whose entry in the table has been checked.
    pub(crate) async fn run(
        self,
        context: &CommandContext<'_>,
        cdb: Cdb<'_>,
        data: &mut Transfer,
    ) -> Result<(), Failure> {
        match self {
            Self::CompareAndWrite => block::compare_and_write::run(context, cdb, data).await,
            Self::CopyOperatingParameters => copy::operating_parameters::run(context, cdb, data).await,
            Self::CopyOperationAbort => copy::operation_abort::run(context, cdb, data).await,
            Self::CopyStatus => copy::copy_status::run(context, cdb, data).await,
            // Boxed: all other commands would carry the size of these.
            Self::ExtendedCopy => Box::pin(copy::extended_copy::run(context, cdb, data)).await,
            Self::FailedSegmentDetails => copy::failed_segment::run(context, cdb, data).await,
            Self::FormatUnit => block::format_unit::run(context, cdb, data).await,
            Self::GetConfiguration => multimedia::get_configuration::run(context, cdb, data).await,
            Self::GetEventStatus => multimedia::get_event_status::run(context, cdb, data).await,
            Self::GetLbaStatus => block::get_lba_status::run(context, cdb, data).await,
            Self::Inquiry => primary::inquiry::run(context, cdb, data).await,
            Self::LogSelect => primary::log_select::run(context, cdb, data).await,
            Self::LogSense => primary::log_sense::run(context, cdb, data).await,
            Self::MechanismStatus => multimedia::mechanism_status::run(context, cdb, data).await,
            Self::ModeSelect => primary::mode_select::run(context, cdb, data).await,
            Self::ModeSense => primary::mode_sense::run(context, cdb, data).await,
            Self::OrWrite => block::or_write::run(context, cdb, data).await,
            Self::PersistentReserveIn => primary::persistent_reserve_in::run(context, cdb, data).await,
            Self::PersistentReserveOut => primary::persistent_reserve_out::run(context, cdb, data).await,
            Self::PopulateToken => Box::pin(copy::populate_token::run(context, cdb, data)).await,
            Self::PreFetch => block::pre_fetch::run(context, cdb, data).await,
            Self::PreventAllow => block::prevent_allow::run(context, cdb, data).await,
            Self::Read => block::read::run(context, cdb, data).await,
            Self::ReadCapacity10 => block::read_capacity::run_10(context, cdb, data).await,
            Self::ReadCapacity16 => block::read_capacity::run_16(context, cdb, data).await,
            Self::ReadCd => multimedia::read_cd::run(context, cdb, data).await,
            Self::ReceiveDiagnostic => primary::receive_diagnostic::run(context, cdb, data).await,
            Self::ReportIdentifying => primary::report_identifying::run(context, cdb, data).await,
            Self::ReadDefectData => block::read_defect_data::run(context, cdb, data).await,
            Self::ReadDiscInformation => multimedia::read_disc_information::run(context, cdb, data).await,
            Self::ReadDiscStructure => multimedia::read_disc_structure::run(context, cdb, data).await,
            Self::ReadSubChannel => multimedia::read_sub_channel::run(context, cdb, data).await,
            Self::ReadToc => multimedia::read_toc::run(context, cdb, data).await,
            Self::ReadTrackInformation => multimedia::read_track_information::run(context, cdb, data).await,
            Self::Release => primary::release::run(context, cdb, data).await,
            Self::ReportLuns => primary::report_luns::run(context, cdb, data).await,
            Self::ReportOpcodes => primary::report_opcodes::run(context, cdb, data).await,
            Self::ReportPortGroups => primary::report_port_groups::run(context, cdb, data).await,
            Self::ReportTimestamp => primary::report_timestamp::run(context, cdb, data).await,
            Self::ReportTmfs => primary::report_tmfs::run(context, cdb, data).await,
            Self::RequestSense => primary::request_sense::run(context, cdb, data).await,
            Self::SendDiagnostic => primary::send_diagnostic::run(context, cdb, data).await,
            Self::SetIdentifying => primary::set_identifying::run(context, cdb, data).await,
            Self::SetPortGroups => primary::set_port_groups::run(context, cdb, data).await,
            Self::SetTimestamp => primary::set_timestamp::run(context, cdb, data).await,
            Self::Reserve => primary::reserve::run(context, cdb, data).await,
            Self::RodTokenInformation => copy::rod_token_information::run(context, cdb, data).await,
            Self::Sanitize => block::sanitize::run(context, cdb, data).await,
            Self::SetCdSpeed => multimedia::set_cd_speed::run(context, cdb, data).await,
            Self::StartStop => block::start_stop::run(context, cdb, data).await,
            Self::SynchronizeCache => block::sync_cache::run(context, cdb, data).await,
            Self::TestUnitReady => primary::test_unit_ready::run(context, cdb, data).await,
            Self::Unmap => block::unmap::run(context, cdb, data).await,
            Self::Verify => block::verify::run(context, cdb, data).await,
            Self::Write => block::write::run(context, cdb, data).await,
            Self::WriteAndVerify => block::write_and_verify::run(context, cdb, data).await,
            Self::WriteAtomic => block::write_atomic::run(context, cdb, data).await,
            Self::WriteSame => block::write_same::run(context, cdb, data).await,
            Self::WriteUsingToken => Box::pin(copy::write_using_token::run(context, cdb, data)).await,
        }
    }
}

/// RDPROTECT, WRPROTECT and VRPROTECT: the same bits in all commands of ten bytes and more.
const PROTECT_FIELD: u8 = 0xe0;

/// All commands, in the order of operation code and service action.
pub(crate) static COMMANDS: &[&CommandSpec] = &[
    &primary::test_unit_ready::SPEC,
    &primary::request_sense::SPEC,
    &block::format_unit::SPEC,
    &block::read::READ_6,
    &block::write::WRITE_6,
    &primary::inquiry::SPEC,
    &primary::mode_select::MODE_SELECT_6,
    &primary::reserve::RESERVE_6,
    &primary::release::RELEASE_6,
    &primary::mode_sense::MODE_SENSE_6,
    &block::start_stop::SPEC,
    &primary::receive_diagnostic::SPEC,
    &primary::send_diagnostic::SPEC,
    &block::prevent_allow::SPEC,
    &block::read_capacity::READ_CAPACITY_10,
    &block::read::READ_10,
    &block::write::WRITE_10,
    &block::write_and_verify::WRITE_AND_VERIFY_10,
    &block::verify::VERIFY_10,
    &block::pre_fetch::PRE_FETCH_10,
    &block::sync_cache::SYNCHRONIZE_CACHE_10,
    &block::read_defect_data::READ_DEFECT_DATA_10,
    &block::write_same::WRITE_SAME_10,
    &block::unmap::SPEC,
    &multimedia::read_sub_channel::SPEC,
    &multimedia::read_toc::SPEC,
    &multimedia::get_configuration::SPEC,
    &block::sanitize::OVERWRITE,
    &block::sanitize::BLOCK_ERASE,
    &block::sanitize::CRYPTOGRAPHIC_ERASE,
    &block::sanitize::EXIT_FAILURE_MODE,
    &multimedia::get_event_status::SPEC,
    &primary::log_select::SPEC,
    &primary::log_sense::SPEC,
    &multimedia::read_disc_information::SPEC,
    &multimedia::read_track_information::SPEC,
    &primary::mode_select::MODE_SELECT_10,
    &primary::reserve::RESERVE_10,
    &primary::release::RELEASE_10,
    &primary::mode_sense::MODE_SENSE_10,
    &primary::persistent_reserve_in::READ_KEYS,
    &primary::persistent_reserve_in::READ_RESERVATION,
    &primary::persistent_reserve_in::REPORT_CAPABILITIES,
    &primary::persistent_reserve_in::READ_FULL_STATUS,
    &primary::persistent_reserve_out::REGISTER,
    &primary::persistent_reserve_out::RESERVE,
    &primary::persistent_reserve_out::RELEASE,
    &primary::persistent_reserve_out::CLEAR,
    &primary::persistent_reserve_out::PREEMPT,
    &primary::persistent_reserve_out::PREEMPT_AND_ABORT,
    &primary::persistent_reserve_out::REGISTER_AND_IGNORE,
    &primary::persistent_reserve_out::REGISTER_AND_MOVE,
    &primary::persistent_reserve_out::REPLACE_LOST,
    &copy::extended_copy::SPEC,
    &copy::populate_token::SPEC,
    &copy::write_using_token::SPEC,
    &copy::operation_abort::SPEC,
    &copy::copy_status::COPY_STATUS_LID1,
    &copy::operating_parameters::SPEC,
    &copy::failed_segment::SPEC,
    &copy::copy_status::COPY_STATUS_LID4,
    &copy::rod_token_information::SPEC,
    &block::read::READ_16,
    &block::compare_and_write::SPEC,
    &block::write::WRITE_16,
    &block::or_write::SPEC,
    &block::write_and_verify::WRITE_AND_VERIFY_16,
    &block::verify::VERIFY_16,
    &block::pre_fetch::PRE_FETCH_16,
    &block::sync_cache::SYNCHRONIZE_CACHE_16,
    &block::write_same::WRITE_SAME_16,
    &block::write_atomic::SPEC,
    &block::read_capacity::READ_CAPACITY_16,
    &block::get_lba_status::SPEC,
    &primary::report_luns::SPEC,
    &primary::report_identifying::SPEC,
    &primary::report_port_groups::SPEC,
    &primary::report_opcodes::SPEC,
    &primary::report_tmfs::SPEC,
    &primary::report_timestamp::SPEC,
    &primary::set_identifying::SPEC,
    &primary::set_port_groups::SPEC,
    &primary::set_timestamp::SPEC,
    &block::read::READ_12,
    &block::write::WRITE_12,
    &multimedia::read_disc_structure::SPEC,
    &block::write_and_verify::WRITE_AND_VERIFY_12,
    &block::verify::VERIFY_12,
    &block::read_defect_data::READ_DEFECT_DATA_12,
    &multimedia::read_cd::READ_CD_MSF,
    &multimedia::set_cd_speed::SPEC,
    &multimedia::mechanism_status::SPEC,
    &multimedia::read_cd::READ_CD,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_agree_with_themselves() {
        let key = |command: &CommandSpec| (command.opcode, command.service_action);
        for pair in COMMANDS.windows(2) {
            // Types of device may have different commands by the same code.
            let apart = [DeviceType::Cdrom, DeviceType::Disk]
                .iter()
                .all(|device| !pair.iter().all(|command| command.needs.devices.include(*device)));
            let (first, second) = (key(pair[0]), key(pair[1]));
            assert!(
                first < second || (apart && first == second),
                "{} {}",
                pair[0].name,
                pair[1].name
            );
        }
        for command in COMMANDS {
            let length = match command.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                _ => 12,
            };
            assert_eq!(command.usage.len(), length, "{}", command.name);
            assert_eq!(command.usage[0], command.opcode, "{}", command.name);
            if let Some(action) = command.service_action {
                assert_eq!(u16::from(command.usage[1] & 0x1f), action, "{}", command.name);
            }
        }
    }

    #[test]
    fn a_running_command_can_move_between_threads() {
        fn check<T: Send>(
            _: fn(Operation, &'static CommandContext<'static>, Cdb<'static>, &'static mut Transfer) -> T,
        ) {
        }
        check(Operation::run);
    }
}
