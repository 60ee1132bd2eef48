//! GET EVENT STATUS NOTIFICATION (MMC-6 §6.7): what happened to the medium since this nexus last asked. Polled only.

use crate::scsi::Failure;
use crate::scsi::cdb::Cdb;
use crate::scsi::engine::CommandContext;
use crate::scsi::table::{AttentionRule, CommandSpec, Devices, Needs, Offer, Operation};
use crate::transfer::Transfer;

pub(crate) const SPEC: CommandSpec = CommandSpec {
    opcode: 0x4a,
    service_action: None,
    name: "GET EVENT STATUS NOTIFICATION",
    usage: &[0x4a, POLLED, 0, 0, 0xff, 0, 0, 0xff, 0xff, 0],
    offer: Offer::Always,
    needs: Needs {
        devices: Devices::Cdrom,
        attention: AttentionRule::Keep,
        ..Needs::UNIT
    },
    timeout_s: 10,
    operation: Operation::GetEventStatus,
};

pub(crate) async fn run(
    context: &CommandContext<'_>,
    cdb: Cdb<'_>,
    data: &mut Transfer,
) -> Result<(), Failure> {
    if cdb.u8_at(1) & POLLED == 0 {
        // An answer that waits for an event would take a place in the task set for days.
        return Err(Cdb::invalid_bit(1, 0));
    }
    let allocation = usize::from(cdb.u16_at(7));
    let class = Class::first_of(cdb.u8_at(4));
    let reply = match class {
        None => header(NO_EVENT_AVAILABLE, 0).to_vec(),
        Some(class) => {
            let event = match class {
                Class::OperationalChange | Class::DeviceBusy => [0; 4],
                Class::PowerManagement => [0, POWER_ACTIVE, 0, 0],
                // Where there is no room for an event, it is not told.
                Class::Media => media(context, allocation > HEADER_LEN),
            };
            [&header(class as u8, event.len())[..], &event].concat()
        }
    };
    data.put_parameters(&reply, allocation).await
}

/// MEDIA EVENT and MEDIA STATUS.
fn media(context: &CommandContext<'_>, told: bool) -> [u8; 4] {
    let mut medium = context.unit().medium();
    let event = if told {
        medium.take_event(context.nexus()) as u8
    } else {
        0
    };
    let status = if medium.is_loaded() {
        MEDIA_PRESENT
    } else {
        TRAY_OPEN
    };
    [event, status, 0, 0]
}

/// NOTIFICATION CLASS. Their bits in a request are `1 << class`; lower ones go first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Class {
    OperationalChange = 1,
    PowerManagement = 2,
    Media = 4,
    DeviceBusy = 6,
}

impl Class {
    const ALL: [Self; 4] = [
        Self::OperationalChange,
        Self::PowerManagement,
        Self::Media,
        Self::DeviceBusy,
    ];

    fn first_of(request: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| request & class.bit() != 0)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// EVENT DATA LENGTH counts from behind itself.
fn header(class: u8, event_len: usize) -> [u8; HEADER_LEN] {
    let supported = Class::ALL.iter().fold(0, |bits, class| bits | class.bit());
    let length = u8::try_from(event_len + 2).expect("events are short");
    [0, length, class, supported]
}

const POLLED: u8 = 0x01;
const HEADER_LEN: usize = 4;
/// NEA, and no class: none that was asked for is supported.
const NO_EVENT_AVAILABLE: u8 = 0x80;
const POWER_ACTIVE: u8 = 1;
const MEDIA_PRESENT: u8 = 0x02;
const TRAY_OPEN: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_class_that_is_supported_is_told() {
        for (request, class) in [
            (0x10, Some(Class::Media)),
            (0xff, Some(Class::OperationalChange)),
            (0x58, Some(Class::Media)),
            (0x41, Some(Class::DeviceBusy)),
            (0x29, None),
            (0, None),
        ] {
            assert_eq!(Class::first_of(request), class, "{request:#04x}");
        }
        assert_eq!(header(4, 4), [0, 6, 4, 0x56]);
        assert_eq!(header(NO_EVENT_AVAILABLE, 0), [0, 2, 0x80, 0x56]);
    }
}
