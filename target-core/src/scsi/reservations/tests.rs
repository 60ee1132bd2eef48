//! Reservations as initiators see them: through commands, each with its CDB and parameter list.

mod aptpl;
mod legacy;
mod model;
mod persistent;
mod walk;

use std::sync::Arc;

use futures_util::FutureExt;

use crate::nexus::NexusId;
use crate::scsi::testing::{Command, nexus};
use crate::scsi::{Outcome, Status, TargetDevice};

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Good,
    Conflict,
    /// CHECK CONDITION with this additional sense code.
    Check(u8, u8),
}

use Ended::{Check, Conflict, Good};

fn ended(outcome: &Outcome) -> Ended {
    match outcome {
        Outcome::Status {
            status: Status::Good, ..
        } => Good,
        Outcome::Status {
            status: Status::ReservationConflict,
            ..
        } => Conflict,
        Outcome::Status {
            sense: Some(sense), ..
        } => Check(sense.code.0, sense.code.1),
        other => panic!("{other:?}"),
    }
}

async fn run(device: &Arc<TargetDevice>, nexus: &Arc<NexusId>, command: Command) -> Ended {
    ended(&command.run(device, nexus).await.0)
}

/// Polls a command as often as it takes to get through everything that waits for nobody else; what came of it.
fn advance<F: Future + Unpin>(running: &mut F) -> Option<F::Output> {
    (0..POLLS).find_map(|_| (&mut *running).now_or_never())
}

/// PERSISTENT RESERVE OUT with any parameter list.
fn prout_list(action: u8, kind: u8, list: &[u8]) -> Command {
    let len = u8::try_from(list.len()).unwrap();
    Command::new(0, &[0x5f, action, kind, 0, 0, 0, 0, 0, len, 0]).sending(list)
}

/// PERSISTENT RESERVE OUT with the basic parameter list.
fn prout(action: u8, kind: u8, key: u64, action_key: u64, flags: u8) -> Command {
    prout_list(action, kind, &basic(key, action_key, flags))
}

fn basic(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

fn prin(action: u8) -> Command {
    Command::new(0, &[0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0]).expecting(0xffff)
}

fn test_unit_ready() -> Command {
    Command::new(0, &[0x00])
}

fn read() -> Command {
    Command::new(0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).expecting(512)
}

fn write(byte: u8) -> Command {
    Command::new(0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]).sending(&[byte; 512])
}

/// A nexus with a session, that has heard what a new nexus hears.
async fn session(device: &Arc<TargetDevice>, isid: u8) -> Arc<NexusId> {
    let nexus = nexus(isid);
    device.attach(&nexus);
    assert_eq!(run(device, &nexus, test_unit_ready()).await, Check(0x29, 0x00));
    nexus
}

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;
const REPLACE_LOST: u8 = 8;
const SPEC_I_PT: u8 = 0x08;
const APTPL: u8 = 0x01;
/// Far more than the steps of any command here.
const POLLS: usize = 32;
