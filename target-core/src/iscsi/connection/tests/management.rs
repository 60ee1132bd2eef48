//! Task management: what is aborted, what is only on its way, and that no answer waits for ever (§11.5, §11.6).

use std::time::Duration;

use iscsi_proto::pdu::TmfResponse;

use super::status::{aborted, get, good, put};
use super::*;

fn managed(response: TmfResponse) -> Event {
    Event::Managed {
        itt: Itt(0x900),
        outcome: response.into(),
    }
}

fn released(itt: u32) -> Event {
    Event::Notify(LinkId::LEADING, Notify::Released(Itt(itt)))
}

#[test]
fn abort_task_answers_when_the_mover_has_let_go() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    assert_eq!(
        peer.control(tmf(Function::AbortTask, 0x10, 1, 0), &[]),
        ["release 0x10"]
    );
    assert_eq!(peer.event(released(0x10)), ["tmf Complete"]);
}

#[test]
fn abort_task_answers_after_a_second_even_if_the_initiator_owes_data() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    peer.event(get(task));
    peer.control(tmf(Function::AbortTask, 0x10, 1, 0), &[]);
    assert_eq!(peer.wait(Duration::from_millis(999)), [""; 0]);
    assert_eq!(peer.wait(Duration::from_millis(1)), ["tmf Complete"]);
}

#[test]
fn nothing_of_an_aborted_task_is_sent() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let task = peer.task(0x10);
    peer.event(put(task, 256, true));
    peer.control(tmf(Function::AbortTask, 0x10, 1, 0), &[]);
    peer.event(released(0x10));
    assert_eq!(peer.read(0x10, 1), ["start 0x10"], "the tag names a new task");
    for event in [put(task, 0, false), get(task), good(task), aborted(task)] {
        assert_eq!(peer.event(event), [""; 0]);
    }
    let task = peer.task(0x10);
    assert_eq!(peer.event(good(task)), ["status 0x00 of 0x10", "end 0x10"]);
}

#[test]
fn a_command_still_on_its_way_counts_as_received_and_never_runs() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.read(0x11, 1), [""; 0]);
    assert_eq!(
        peer.control(tmf(Function::AbortTask, 0x10, 2, 0), &[]),
        ["tmf Complete", "start 0x11"]
    );
    assert_eq!(peer.read(0x10, 0), ["end 0x10"]);
}

#[test]
fn a_command_behind_a_hole_can_be_aborted_and_takes_no_other_with_it() {
    let mut peer = Peer::logged_in();
    peer.read(0x11, 1);
    peer.read(0x12, 2);
    // The tag decides, whatever RefCmdSN says.
    assert_eq!(
        peer.control(tmf(Function::AbortTask, 0x11, 3, 2), &[]),
        ["end 0x11", "tmf Complete"]
    );
    // A RefCmdSN whose command is here under another tag.
    assert_eq!(
        peer.control(tmf(Function::AbortTask, 0x44, 3, 2), &[]),
        ["tmf TaskDoesNotExist"]
    );
    assert_eq!(peer.read(0x10, 0), ["start 0x10", "start 0x12"]);
}

#[test]
fn the_number_that_the_next_command_will_have_is_not_taken() {
    let mut peer = Peer::logged_in();
    // The task was sent for immediate delivery, and has ended: RefCmdSN is the request's own CmdSN (§11.5.5).
    assert_eq!(
        peer.control(tmf(Function::AbortTask, 0x10, 0, 0), &[]),
        ["tmf TaskDoesNotExist"]
    );
    assert_eq!(peer.read(0x11, 0), ["start 0x11"]);
}

#[test]
fn aborting_what_never_comes_does_not_widen_the_window() {
    let mut peer = Peer::logged_in_with(Parameters {
        command_window: 4,
        ..Parameters::default()
    });
    for _ in 0..3 {
        for cmd_sn in 1..40 {
            peer.control(tmf(Function::AbortTask, 0x10, 100, cmd_sn), &[]);
        }
    }
    assert_eq!(peer.read(0x11, 4), ["end 0x11"], "outside");
    assert_eq!(peer.read(0x11, 0), ["start 0x11"]);
    assert_eq!(peer.read(0x12, 1), ["end 0x12"], "given up");
    assert_eq!(peer.read(0x12, 4), ["start 0x12"]);
}

#[test]
fn a_task_on_another_unit_is_not_the_one_meant() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let Request::TaskManagement(request) = tmf(Function::AbortTask, 0x10, 1, 0) else {
        unreachable!("it is task management")
    };
    let elsewhere = TaskManagementRequest {
        lun: Lun::from_number(1).unwrap(),
        ..request
    };
    assert_eq!(
        peer.control(Request::TaskManagement(elsewhere), &[]),
        ["tmf TaskDoesNotExist"]
    );
}

#[test]
fn a_unit_reset_concerns_the_tasks_of_the_unit_even_behind_a_hole() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let other = ScsiCommand {
        lun: Lun::from_number(1).unwrap(),
        ..command(0x11, 1)
    };
    peer.control(Request::ScsiCommand(other), &[]);
    peer.read(0x13, 3);
    peer.read(0x15, 5);
    let reset = tmf(Function::LogicalUnitReset, 0xffff_ffff, 5, 0);
    assert_eq!(peer.control(reset, &[]), [""; 0], "what is missing may come");
    assert_eq!(
        peer.wait(Duration::from_secs(1)),
        ["end 0x13", "release 0x10", "manage LogicalUnitReset"]
    );
    assert_eq!(
        peer.event(managed(TmfResponse::Complete)),
        [""; 0],
        "not let go of yet"
    );
    assert_eq!(peer.event(released(0x10)), ["tmf Complete"]);
    assert_eq!(peer.read(0x12, 2), ["start 0x12"]);
    assert_eq!(
        peer.read(0x14, 4),
        ["start 0x14", "start 0x15"],
        "sent after the reset"
    );
}

#[test]
fn a_cold_reset_drops_the_sessions_only_if_it_was_done() {
    for (response, expected) in [
        (TmfResponse::Complete, &["tmf Complete", "drop sessions"][..]),
        (TmfResponse::Rejected, &["tmf Rejected"][..]),
    ] {
        let mut peer = Peer::logged_in();
        let request = tmf(Function::TargetColdReset, 0xffff_ffff, 0, 0);
        assert_eq!(peer.control(request, &[]), ["manage TargetColdReset"]);
        assert_eq!(peer.event(managed(response)), expected);
    }
}

#[test]
fn what_is_not_supported_is_said_to_be() {
    for (function, expected) in [
        (Function::TaskReassign, "tmf ReassignNotSupported"),
        (Function::QueryTask, "tmf NotSupported"),
        (Function::QueryTaskSet, "tmf NotSupported"),
        (Function::ITNexusReset, "tmf NotSupported"),
        (Function::QueryAsyncEvent, "tmf NotSupported"),
        (Function::Unknown(13), "tmf NotSupported"),
    ] {
        let mut peer = Peer::logged_in();
        assert_eq!(peer.control(tmf(function, 0x10, 0, 0), &[]), [expected]);
    }
}

#[test]
fn aborted_commands_that_still_run_have_a_bound() {
    let mut peer = Peer::logged_in_with(Parameters {
        command_window: 2,
        ..Parameters::default()
    });
    for itt in 0..2 {
        peer.read(itt, itt);
        peer.control(tmf(Function::AbortTask, itt, itt + 1, itt), &[]);
        peer.event(released(itt));
    }
    assert_eq!(peer.read(0x10, 2), ["status 0x08 of 0x10", "end 0x10"]);
    let task = peer.task(0);
    peer.event(aborted(task));
    assert_eq!(peer.read(0x10, 3), ["start 0x10"]);
}
