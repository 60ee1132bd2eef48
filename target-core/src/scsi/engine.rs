//! The way of a command: found in the table, checked as the table says, entered in the task set, run, concluded.
//!
//! Everything up to the task set happens when the command is handed over, not when its future is first polled. So
//! tasks enter in the order in which they were handed over, and a task management function that comes later finds
//! them all.

use std::sync::Arc;

use iscsi_proto::Lun;

use super::access_state::{AccessState, GroupView};
use super::cdb::{Cdb, LbaRange};
use super::table::{AttentionRule, COMMANDS, CommandSpec, ErasureRule};
use super::task_set::{Claim, TaskIdentity, TaskTicket};
use super::{Failure, LogicalUnit, ScsiTask, Sense, SenseKey, TargetDevice, TaskAttribute, UnitAttention};
use crate::metrics::{CommandKind, Ended};
use crate::nexus::NexusId;
use crate::transfer::{AbortSignal, Transfer};

/// What a command runs on.
#[derive(Debug)]
pub(crate) struct CommandContext<'a> {
    device: &'a Arc<TargetDevice>,
    nexus: &'a Arc<NexusId>,
    unit: Option<&'a Arc<LogicalUnit>>,
    lun: Lun,
    range: Option<LbaRange>,
    ticket: Option<&'a TaskTicket>,
    tag: u32,
}

impl CommandContext<'_> {
    /// The nexus that the command came by.
    pub(crate) fn nexus(&self) -> &Arc<NexusId> {
        self.nexus
    }

    /// The LUN as it was addressed.
    pub(crate) fn lun(&self) -> Lun {
        self.lun
    }

    /// The logical unit, for commands that need one.
    pub(crate) fn unit(&self) -> &LogicalUnit {
        self.unit.expect("the command's entry in the table needs a unit")
    }

    /// The logical unit, for what goes on after the command.
    pub(crate) fn shared_unit(&self) -> &Arc<LogicalUnit> {
        self.unit.expect("the command's entry in the table needs a unit")
    }

    /// The target device.
    pub(crate) fn device(&self) -> &Arc<TargetDevice> {
        self.device
    }

    /// Task tag, for the log.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// The first unit like this among those that the nexus can reach.
    pub(crate) fn find_unit(&self, wanted: impl Fn(&LogicalUnit) -> bool) -> Option<Arc<LogicalUnit>> {
        self.device.find_unit(wanted)
    }

    /// The logical unit, for commands that also answer when the LUN names none.
    pub(crate) fn addressed_unit(&self) -> Option<&LogicalUnit> {
        self.unit.map(Arc::as_ref)
    }

    /// The blocks named by the CDB. They are all on the medium.
    pub(crate) fn range(&self) -> LbaRange {
        self.range.expect("the command's entry in the table has a range")
    }

    /// Claims blocks that are named outside the CDB, before they are touched.
    pub(crate) async fn claim(&self, claim: Claim) -> Result<(), Failure> {
        self.ticket().claim(claim).await?;
        // Formatting or sanitizing may have begun since the command did.
        self.unit().erasure().check(ErasureRule::Refuse)
    }

    /// Gives back the blocks that the command claimed; nobody has to wait for it any more.
    pub(crate) fn release(&self) {
        self.ticket().release();
    }

    fn ticket(&self) -> &TaskTicket {
        self.ticket
            .expect("the command's entry in the table needs a unit")
    }

    /// Aborts the tasks of other commands whose nexus is `concerned`. Returns the nexuses that lost tasks.
    pub(crate) fn abort_others(&self, concerned: impl Fn(&Arc<NexusId>) -> bool) -> Vec<Arc<NexusId>> {
        self.ticket().abort_others(concerned)
    }

    /// The next unit attention of this nexus, which is thereby told.
    pub(crate) fn take_attention(&self) -> Option<Sense> {
        self.unit?.take_attention(self.nexus).map(UnitAttention::sense)
    }

    /// Tells all other nexuses of the unit something.
    pub(crate) fn raise_for_others(&self, attention: UnitAttention) {
        self.unit().raise(attention, Some(self.nexus));
    }

    /// RELATIVE TARGET PORT IDENTIFIER of the port that the command came in by.
    pub(crate) fn relative_port(&self) -> u16 {
        self.device.relative_port(self.nexus.target.tpgt)
    }

    /// The target port groups by which the unit can be reached.
    pub(crate) fn port_groups(&self) -> Vec<GroupView> {
        self.device.port_groups()
    }

    /// Puts target port groups into asymmetric access states, durably; the other nexuses are told.
    pub(crate) async fn set_access_states(
        &self,
        wanted: &[(u16, AccessState)],
        abort: &AbortSignal,
    ) -> Result<(), Failure> {
        self.device.set_access_states(wanted, self.nexus, abort).await
    }

    /// Where the device is managed over the network, if anywhere.
    pub(crate) fn management_url(&self) -> Option<&str> {
        self.device.management_url()
    }

    /// All LUNs that this nexus can use, ascending.
    pub(crate) fn lun_numbers(&self) -> Vec<u16> {
        self.device.numbers()
    }

    /// Whether this nexus may use the task management functions of RFC 7144.
    pub(crate) fn offers_queries(&self) -> bool {
        self.device.offers_queries(self.nexus)
    }
}

/// A command that passed all checks the CDB alone decides.
struct Admitted {
    spec: &'static CommandSpec,
    range: Option<LbaRange>,
    ticket: Option<TaskTicket>,
}

/// Takes a command and gives the future of the rest of its life.
pub(super) fn start(
    device: Arc<TargetDevice>,
    nexus: Arc<NexusId>,
    task: ScsiTask,
    mut data: Transfer,
) -> impl Future<Output = Ended> + Send + 'static {
    let unit = task.lun.number().and_then(|number| device.unit(number));
    let spec = find(Cdb::new(&task.cdb), unit.as_deref());
    let kind = spec
        .as_ref()
        .map_or(CommandKind::Other, |spec| spec.operation.kind());
    let admitted = admit(&device, &nexus, unit.as_ref(), &task, spec, &data);
    async move {
        let mut result = match admitted {
            Ok(admitted) => run(&device, &nexus, unit.as_ref(), admitted, &task, &mut data).await,
            Err(failure) => Err(failure),
        };
        if !matches!(result, Err(Failure::Aborted)) {
            result = data.settle().await.and(result);
        }
        let ended = data.finish(result.map_err(|failure| conclude(failure, unit.as_deref())));
        Ended { kind, ..ended }
    }
}

fn admit(
    device: &TargetDevice,
    nexus: &Arc<NexusId>,
    unit: Option<&Arc<LogicalUnit>>,
    task: &ScsiTask,
    spec: Result<&'static CommandSpec, Failure>,
    data: &Transfer,
) -> Result<Admitted, Failure> {
    let cdb = Cdb::new(&task.cdb);
    let Some(unit) = unit else {
        // Only commands that say so answer for a unit that is not there (SPC-4 §6.6, §6.33, §6.39).
        return match spec {
            Ok(spec) if !spec.needs.unit => {
                check_usage(spec, cdb, false)?;
                Ok(Admitted {
                    spec,
                    range: None,
                    ticket: None,
                })
            }
            Ok(_) | Err(_) => Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into()),
        };
    };
    if task.attribute == TaskAttribute::Aca {
        // There is never an ACA condition that such a task could belong to (SAM-5 §8.6.5).
        return Err(Sense::INVALID_MESSAGE_ERROR.into());
    }
    // A command that we do not know reports an attention like most of those that we know (SAM-5 §5.14).
    let rule = spec
        .as_ref()
        .map_or(AttentionRule::Report, |spec| spec.needs.attention);
    // A reset is told before a conflict, any other attention after it (SAM-5 §5.3.3).
    if rule == AttentionRule::Report
        && let Some(reset) = unit.take_reset(nexus)
    {
        return Err(reset.sense().into());
    }
    if let Ok(spec) = &spec {
        check_reservation(spec, cdb, unit, nexus)?;
    }
    match rule {
        AttentionRule::Report => {
            if let Some(attention) = unit.take_attention(nexus) {
                return Err(attention.sense().into());
            }
        }
        AttentionRule::ClearReportedLuns => device.clear_reported_luns(nexus),
        AttentionRule::Deliver | AttentionRule::Keep => {}
    }
    let spec = spec?;
    spec.needs
        .answered
        .check(device.access_state(nexus.target.tpgt))?;
    unit.erasure().check(spec.needs.erasure)?;
    unit.self_tests().check(spec.operation)?;
    check_usage(spec, cdb, unit.is_protected())?;
    let range = match spec.needs.range {
        Some(field) => Some(check_range((field.extract)(cdb, unit.blocks()), unit)?),
        None => None,
    };
    let access = spec.needs.range.and_then(|field| field.access);
    let claim = access.zip(range).map(|(access, range)| Claim {
        blocks: range.lba..range.lba + range.blocks,
        access,
    });
    let who = TaskIdentity {
        nexus: Arc::clone(nexus),
        tag: task.tag,
        attribute: if spec.needs.overtakes {
            TaskAttribute::HeadOfQueue
        } else {
            task.attribute
        },
        abort: data.abort_signal().clone(),
    };
    Ok(Admitted {
        spec,
        range,
        ticket: Some(unit.tasks().enter(who, claim)?),
    })
}

async fn run(
    device: &Arc<TargetDevice>,
    nexus: &Arc<NexusId>,
    unit: Option<&Arc<LogicalUnit>>,
    mut admitted: Admitted,
    task: &ScsiTask,
    data: &mut Transfer,
) -> Result<(), Failure> {
    if let Some(ticket) = &mut admitted.ticket {
        ticket.ready().await?;
    }
    data.begins();
    // What other commands change is looked at when it is this one's turn.
    if let Some(unit) = unit {
        check_reservation(admitted.spec, Cdb::new(&task.cdb), unit, nexus)?;
        unit.erasure().check(admitted.spec.needs.erasure)?;
        if admitted.spec.needs.medium {
            unit.check_medium()?;
        }
        if admitted.spec.needs.writes {
            unit.check_writable()?;
        }
    }
    let context = CommandContext {
        device,
        nexus,
        unit,
        lun: task.lun,
        range: admitted.range,
        ticket: admitted.ticket.as_ref(),
        tag: task.tag,
    };
    data.check()?;
    tracing::trace!(command = admitted.spec.name, tag = task.tag, lun = %task.lun, "runs");
    let operation = admitted.spec.operation;
    operation.run(&context, Cdb::new(&task.cdb), data).await?;
    if let (Some(unit), Some(range)) = (unit, context.range) {
        unit.statistics().count(operation, range.blocks);
    }
    Ok(())
}

/// RESERVATION CONFLICT when a reservation keeps the command out.
fn check_reservation(
    spec: &CommandSpec,
    cdb: Cdb<'_>,
    unit: &LogicalUnit,
    nexus: &Arc<NexusId>,
) -> Result<(), Failure> {
    unit.reservations().check(spec.needs.reservation.of(cdb), nexus)
}

/// Makes the sense complete with what only the unit knows.
fn conclude(failure: Failure, unit: Option<&LogicalUnit>) -> Failure {
    let sense = match (failure, unit) {
        (Failure::Check(sense), _) => sense,
        (Failure::Store(error), unit) => {
            tracing::warn!(serial = unit.map(|unit| &*unit.config().serial), %error, "store failed");
            let sense = Sense::from_store(&error);
            match unit {
                // The medium failed, or a block and its protection information do not fit each other.
                Some(unit) if matches!(sense.key, SenseKey::MediumError | SenseKey::AbortedCommand) => {
                    sense.at(error.at / u64::from(unit.store().geometry().block_size))
                }
                Some(_) | None => sense,
            }
        }
        (other, _) => return other,
    };
    Failure::Check(Sense {
        descriptor_format: unit.is_some_and(|unit| unit.mode_parameters().descriptor_sense),
        ..sense
    })
}

/// The entry of a CDB's operation code and service action, as far as `unit` offers it (every entry, without a unit).
/// 05/20/00 for a code that is not there, 05/24/00 pointing at the service action when only that is not there.
fn find(cdb: Cdb<'_>, unit: Option<&LogicalUnit>) -> Result<&'static CommandSpec, Failure> {
    let first = usize::from(FIRST_OF_OPCODE[usize::from(cdb.opcode())]);
    let mut candidates = COMMANDS
        .get(first..)
        .unwrap_or_default()
        .iter()
        .take_while(|spec| spec.opcode == cdb.opcode())
        .filter(|spec| unit.is_none_or(|unit| spec.exists_on(unit)))
        .peekable();
    if candidates.peek().is_none() {
        return Err(Sense::INVALID_COMMAND_OPERATION_CODE.in_cdb(0, None).into());
    }
    candidates
        .copied()
        .find(|spec| {
            spec.service_action
                .is_none_or(|action| action == cdb.service_action())
        })
        .ok_or_else(|| match cdb.opcode() {
            super::cdb::VARIABLE_LENGTH => Cdb::invalid_field(8),
            _ => Cdb::invalid_bit(1, 4),
        })
}

/// The standard's name of the command in a CDB; `None` for one that we do not know.
#[must_use]
pub fn command_name(cdb: &[u8]) -> Option<&'static str> {
    find(Cdb::new(cdb), None).ok().map(|spec| spec.name)
}

/// 05/24/00, pointing at the first bit that is set and that the command does not know. That includes everything that we,
/// or this unit, do not offer.
fn check_usage(spec: &CommandSpec, cdb: Cdb<'_>, is_protected: bool) -> Result<(), Failure> {
    let len = spec.usage.len();
    if cdb.bytes().len() < len {
        // A CDB longer than sixteen bytes came without the header segment that carries its end.
        return Err(Cdb::invalid_field(7));
    }
    let control = if spec.opcode == super::cdb::VARIABLE_LENGTH {
        1
    } else {
        len - 1
    };
    for (byte, value) in cdb.bytes()[..len].iter().enumerate() {
        let mut unknown = value & !spec.usage_at(byte, is_protected);
        if byte == 0 {
            continue;
        }
        if byte == control {
            unknown &= !CONTROL_IGNORED;
        } else if byte == 1 && spec.service_action.is_some() {
            // The map shows the service action's value there, not a mask.
            unknown &= !0x1f;
        } else if (byte == 8 || byte == 9) && spec.opcode == super::cdb::VARIABLE_LENGTH {
            continue;
        }
        if unknown != 0 {
            let bit = 7 - unknown.leading_zeros();
            let byte = u16::try_from(byte).expect("no CDB is longer than 260 bytes");
            return Err(Cdb::invalid_bit(
                byte,
                u8::try_from(bit).expect("a bit of a byte"),
            ));
        }
    }
    Ok(())
}

/// 05/21/00 with the first block that is not there (SBC-4, READ and WRITE).
fn check_range(range: LbaRange, unit: &LogicalUnit) -> Result<LbaRange, Failure> {
    let capacity = unit.blocks();
    if range.fits(capacity) {
        return Ok(range);
    }
    Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE
        .at(range.first_outside(capacity))
        .into())
}

/// For each operation code, where its entries begin in [`COMMANDS`]; 0xff for none.
static FIRST_OF_OPCODE: [u8; 256] = {
    let mut first = [0xff; 256];
    assert!(COMMANDS.len() < 0xff);
    let mut i = 0_u8;
    while (i as usize) < COMMANDS.len() {
        let slot = &mut first[COMMANDS[i as usize].opcode as usize];
        if *slot == 0xff {
            *slot = i;
        }
        i += 1;
    }
    first
};

/// Bits of the CONTROL byte that mean nothing to us: vendor specific and obsolete ones. NACA (bit 2) would ask for auto
/// contingent allegiance, which there is not, and is refused like an unknown bit (SAM-5 §5.2).
const CONTROL_IGNORED: u8 = 0b1100_0011;

#[cfg(test)]
mod tests;
