//! How commands end: status with the last data or by itself, sense, what is refused before it begins.

use backstores::IoBuf;
use iscsi_proto::pdu::Residual;

use super::*;
use crate::scsi::{Outcome, Sense, Status};
use crate::transfer::TaskEvent;

pub(super) fn done(task: TaskId, status: Status, sense: Option<Sense>, residual: Residual) -> Event {
    Event::Task(TaskEvent::Done {
        task,
        outcome: Outcome::Status {
            status,
            sense,
            residual,
        },
    })
}

pub(super) fn good(task: TaskId) -> Event {
    done(task, Status::Good, None, Residual::None)
}

pub(super) fn aborted(task: TaskId) -> Event {
    Event::Task(TaskEvent::Done {
        task,
        outcome: Outcome::Aborted,
    })
}

pub(super) fn put(task: TaskId, offset: u32, is_last: bool) -> Event {
    Event::Task(TaskEvent::Put {
        task,
        offset,
        buf: IoBuf::from_heap(256),
        is_last,
        budget: None,
    })
}

pub(super) fn get(task: TaskId) -> Event {
    Event::Task(TaskEvent::Get {
        task,
        offset: 0,
        buf: IoBuf::from_heap(512),
        filled: 0,
        reply: tokio::sync::oneshot::channel().0,
    })
}

#[test]
fn good_status_rides_on_the_last_data() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    assert_eq!(peer.event(put(task, 0, false)), ["data 0x10"]);
    assert_eq!(peer.event(put(task, 256, true)), [""; 0], "held back");
    let actions = peer.actions(done(task, Status::Good, None, Residual::Underflow(0x200)));
    let [Action::Put(_, put), Action::End(_, itt)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    let last = put.last.unwrap();
    assert_eq!((last.status, last.residual), (0, Residual::Underflow(0x200)));
    assert_eq!((put.offset, itt.0), (256, 0x10));
    assert_eq!(put.numbering.stat_sn, Sn(51));
    assert_eq!(
        peer.control(nop(Itt(0x91), Ttt::RESERVED, true, 1), &[]),
        ["nop 0x91"]
    );
}

#[test]
fn any_other_status_follows_the_data_in_a_response_of_its_own() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    peer.event(put(task, 0, true));
    let sense = Sense::DATA_PHASE_ERROR;
    let actions = peer.actions(done(task, Status::CheckCondition, Some(sense), Residual::None));
    let lines: Vec<_> = actions.iter().map(show).collect();
    assert_eq!(lines, ["data 0x10", "status 0x02 of 0x10", "end 0x10"]);
    let Action::Send(_, _, data) = &actions[1] else {
        unreachable!("it is the response")
    };
    // SenseLength, then fixed format sense data: 0B/4B/00.
    assert_eq!(data[..5], [0, 18, 0x70, 0, 0x0b]);
    assert_eq!((data[14], data[15], data.len()), (0x4b, 0x00, 20));
}

#[test]
fn unsolicited_data_against_the_agreement_fail_the_command_at_once() {
    let mut peer = Peer::logged_in();
    let write = ScsiCommand {
        read: false,
        write: true,
        is_final: false,
        ..command(0x10, 0)
    };
    let actions = peer.actions(Event::Notify(
        LinkId::LEADING,
        Notify::Command {
            pdu: write,
            ahs: Ahs::default(),
            immediate: None,
        },
    ));
    let [
        Action::Send(_, Response::ScsiResponse(response), data),
        Action::End(..),
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert_eq!(
        (response.status, response.residual),
        (2, Residual::Underflow(512))
    );
    assert_eq!((data[14], data[15]), (0x0c, 0x0c));
}

#[test]
fn a_task_aborted_by_another_nexus_is_let_go_of_without_a_status() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    assert_eq!(peer.event(aborted(task)), ["release 0x10"]);
    assert_eq!(peer.read(0x10, 1), ["start 0x10"], "the tag is free");
}

#[test]
fn a_ping_is_echoed_as_far_as_the_initiator_takes_data() {
    let mut peer = Peer::logged_in();
    let ping = Event::Notify(
        LinkId::LEADING,
        Notify::Control {
            pdu: nop(Itt(0x91), Ttt::RESERVED, true, 0),
            data: Bytes::from(vec![0xa5; 9000]),
        },
    );
    let actions = peer.actions(ping);
    let [Action::Send(_, Response::NopIn(answer), echo)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!((answer.itt, answer.ttt), (Itt(0x91), Ttt::RESERVED));
    // MaxRecvDataSegmentLength was not declared: 8192 (§13.12).
    assert_eq!(echo, &vec![0xa5; 8192]);
    assert_eq!(
        peer.control(nop(Itt::RESERVED, Ttt::RESERVED, true, 0), &[]),
        [""; 0]
    );
}
