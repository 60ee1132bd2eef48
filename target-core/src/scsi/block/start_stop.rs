//! START STOP UNIT (SBC-4): loads and ejects a removable medium; on any unit a stop flushes.
//!
//! There is nothing to spin up or down: START alone changes nothing, and neither does a power condition, which every
//! state of a disk without moving parts satisfies.

use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::self_test::SelfTestEnd;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::scsi::{Failure, UnitAttention};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x1b,
    service_action: None,
    name: "START STOP UNIT",
    usage: &[
        0x1b,
        IMMED,
        0,
        MODIFIER,
        POWER_CONDITION | NO_FLUSH | LOEJ | START,
        0,
    ],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::WritesUnless {
            byte: 4,
            mask: POWER_CONDITION | START,
            value: START,
        },
        ..Needs::UNIT
    },
    timeout_s: 60,
    operation: Operation::StartStop,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    let unit = context.unit();
    unit.self_tests().abort(SelfTestEnd::AbortedOtherwise);
    let flags = cdb.u8_at(4);
    if flags & POWER_CONDITION != 0 {
        // START and LOEJ are ignored then: above all, nothing is ejected.
        return Ok(());
    }
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
/// POWER CONDITION MODIFIER.
const MODIFIER: u8 = 0x0f;
/// POWER CONDITION; 0 is START_VALID.
const POWER_CONDITION: u8 = 0xf0;
const NO_FLUSH: u8 = 0x04;
/// Load or eject, as START says.
const LOEJ: u8 = 0x02;
const START: u8 = 0x01;
