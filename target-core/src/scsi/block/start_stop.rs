//! START STOP UNIT (SBC-4 §5.31): loads and ejects a removable medium; on any unit a stop flushes.
//!
//! There is nothing to spin up or down, so that START alone changes nothing, and the only power condition is the
//! active one.

use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Operation};
use crate::scsi::{Failure, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x1b,
    service_action: None,
    name: "START STOP UNIT",
    // POWER CONDITION and its modifier must be 0 (START_VALID).
    usage: &[0x1b, IMMED, 0, 0, NO_FLUSH | LOEJ | START, 0],
    needs: Needs::UNIT,
    timeout_s: 60,
    operation: Operation::StartStop,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    let flags = cdb.u8_at(4);
    let (start, load_or_eject) = (flags & START != 0, flags & LOEJ != 0);
    if load_or_eject && !unit.config().removable {
        return Err(Cdb::invalid_bit(4, 1));
    }
    if load_or_eject {
        unit.medium().check_removable()?;
    }
    if !start && flags & NO_FLUSH == 0 {
        data.check()?;
        unit.store().flush().await?;
    }
    if !load_or_eject {
        return Ok(());
    }
    data.check()?;
    if !start {
        let mut medium = unit.medium();
        // Somebody may have prevented the removal during the flush.
        medium.check_removable()?;
        medium.eject();
        return Ok(());
    }
    let changed = unit.medium().load();
    if changed {
        context.raise_for_others(UnitAttention::MediumChanged);
    }
    Ok(())
}

const IMMED: u8 = 0x01;
const NO_FLUSH: u8 = 0x04;
/// Load or eject, as START says.
const LOEJ: u8 = 0x02;
const START: u8 = 0x01;
