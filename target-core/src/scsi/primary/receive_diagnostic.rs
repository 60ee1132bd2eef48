//! RECEIVE DIAGNOSTIC RESULTS (SPC-4 §6.28): the list of diagnostic pages, which has itself alone on it.

use crate::scsi::Failure;
use crate::scsi::access_state::Answered;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{CommandSpec, Needs, Offer, Operation, ReservationClass};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x1c,
    service_action: None,
    name: "RECEIVE DIAGNOSTIC RESULTS",
    usage: &[0x1c, PCV, 0xff, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        reservation: ReservationClass::Reads,
        answered: Answered::Standby,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::ReceiveDiagnostic,
};

pub(crate) async fn run(
    _context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    // Without PCV the page asked for last by SEND DIAGNOSTIC is meant, which can only have been this one.
    if cdb.u8_at(1) & PCV != 0 && cdb.u8_at(2) != SUPPORTED_PAGES {
        return Err(Cdb::invalid_field(2));
    }
    let page = [SUPPORTED_PAGES, 0, 0, 1, SUPPORTED_PAGES];
    data.put_parameters(&page, usize::from(cdb.u16_at(3))).await
}

/// Diagnostic page 00h.
pub(super) const SUPPORTED_PAGES: u8 = 0x00;
/// Page code valid.
const PCV: u8 = 0x01;

#[cfg(test)]
mod tests {
    use crate::scsi::testing::{device, run, sense, unit};

    #[tokio::test]
    async fn the_list_of_pages_is_the_one_page() {
        let device = device(&[unit(64)]);
        for valid in [0, 1] {
            let (_, page) = run(&device, 0, &[0x1c, valid, 0, 0, 64, 0], &[]).await;
            assert_eq!(page, [0, 0, 0, 1, 0]);
        }
        let (outcome, _) = run(&device, 0, &[0x1c, 1, 2, 0, 64, 0], &[]).await;
        assert_eq!(sense(&outcome).code, (0x24, 0));
    }
}
