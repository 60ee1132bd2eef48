//! CmdSN: what runs when, what is ignored, what is rejected (§4.2.2.1, §7.3).

use super::*;

/// ExpCmdSN and MaxCmdSN as a ping shows them, counted from the session's first CmdSN.
fn window(peer: &mut Peer) -> (u32, u32) {
    let ping = Event::Notify(
        LinkId::LEADING,
        Notify::Control {
            pdu: nop(Itt(0x999), Ttt::RESERVED, true, 0),
            data: Bytes::new(),
        },
    );
    match peer.actions(ping).as_slice() {
        [Action::Send(_, Response::NopIn(nop), _)] => (
            nop.exp_cmd_sn.distance_from(Sn(FIRST)),
            nop.max_cmd_sn.distance_from(Sn(FIRST)),
        ),
        other => panic!("a ping led to {other:?}"),
    }
}

fn small_window(command_window: u16) -> Peer {
    Peer::logged_in_with(Parameters {
        command_window,
        ..Parameters::default()
    })
}

#[test]
fn the_window_opens_by_what_has_ended_and_never_goes_back() {
    let mut peer = small_window(4);
    assert_eq!(window(&mut peer), (0, 3));
    for itt in 0..4 {
        assert_eq!(peer.read(itt, itt), [format!("start {itt:#x}")]);
    }
    assert_eq!(window(&mut peer), (4, 3), "closed");
    let done = status::good(peer.task(2));
    assert_eq!(peer.event(done), ["status 0x00 of 0x2", "end 0x2"]);
    assert_eq!(window(&mut peer), (4, 4));
}

#[test]
fn a_command_outside_the_window_is_ignored_and_leaves_nothing_behind() {
    let mut peer = small_window(4);
    for cmd_sn in [4, 5, 1000, 0x7fff_ffff] {
        assert_eq!(peer.read(0x10, cmd_sn), ["end 0x10"], "{cmd_sn}");
    }
    peer.read(0x11, 0);
    assert_eq!(peer.read(0x10, 0), ["end 0x10"], "received before");
    assert_eq!(window(&mut peer), (1, 3));
}

#[test]
fn a_retry_of_a_running_command_is_ignored_and_does_not_disturb_it() {
    let mut peer = small_window(4);
    peer.read(0x10, 0);
    assert_eq!(peer.read(0x10, 0), [""; 0]);
}

#[test]
fn commands_behind_a_hole_run_once_it_is_filled() {
    let mut peer = small_window(8);
    assert_eq!(peer.read(0x12, 2), [""; 0]);
    assert_eq!(
        peer.control(nop(Itt(0x91), Ttt::RESERVED, false, 1), &[]),
        [""; 0]
    );
    assert_eq!(peer.read(0x10, 0), ["start 0x10", "nop 0x91", "start 0x12"]);
    assert_eq!(window(&mut peer), (3, 8), "two run, the ping was answered");
}

#[test]
fn an_immediate_command_runs_at_once_and_takes_no_number() {
    let mut peer = small_window(4);
    let immediate = ScsiCommand {
        immediate: true,
        ..command(0x10, 0)
    };
    assert_eq!(peer.control(Request::ScsiCommand(immediate), &[]), ["start 0x10"]);
    assert_eq!(window(&mut peer), (0, 3));
    let done = status::good(peer.task(0x10));
    peer.event(done);
    assert_eq!(window(&mut peer), (0, 3));
}

#[test]
fn immediate_commands_have_a_bound() {
    let mut peer = Peer::logged_in();
    let immediate = |itt| {
        Request::ScsiCommand(ScsiCommand {
            immediate: true,
            ..command(itt, 0)
        })
    };
    for itt in 0..16 {
        assert_eq!(peer.control(immediate(itt), &[]), [format!("start {itt:#x}")]);
    }
    assert_eq!(
        peer.control(immediate(0x50), &[]),
        ["reject ImmediateCommandReject", "end 0x50"]
    );
}

#[test]
fn a_rejected_command_does_not_count_as_received() {
    let mut peer = small_window(8);
    peer.read(0x10, 0);
    assert_eq!(
        peer.read(0x10, 1),
        ["reject TaskInProgress"],
        "the running command keeps its data"
    );
    assert_eq!(window(&mut peer), (1, 7));
    assert_eq!(peer.read(0x11, 2), [""; 0], "there is a hole");
    assert_eq!(
        peer.read(0x11, 1),
        ["reject TaskInProgress"],
        "the tag waits behind the hole"
    );
    assert_eq!(peer.read(0x12, 1), ["start 0x12", "start 0x11"]);
    assert_eq!(
        peer.read(0xffff_ffff, 3),
        ["reject InvalidPduField", "end 0xffffffff"]
    );
}

#[test]
fn what_is_rejected_does_not_count_as_received_whatever_it_asks_for() {
    let mut peer = small_window(8);
    peer.read(0x10, 0);
    let Request::TaskManagement(reset) = tmf(Function::LogicalUnitReset, 0, 1, 0) else {
        panic!()
    };
    let tag_in_use = Request::TaskManagement(TaskManagementRequest {
        immediate: false,
        itt: Itt(0x10),
        ..reset
    });
    let Request::Text(question) = text(1) else {
        panic!()
    };
    let of_no_exchange = Request::Text(TextRequest {
        immediate: false,
        ttt: Ttt(5),
        ..question
    });
    assert_eq!(peer.control(tag_in_use, &[]), ["reject TaskInProgress"]);
    assert_eq!(window(&mut peer), (1, 7));
    assert_eq!(
        peer.control(of_no_exchange.clone(), &[]),
        ["reject ProtocolError"]
    );
    assert_eq!(window(&mut peer), (1, 7));
    assert_eq!(peer.read(0x12, 2), [""; 0], "there is a hole");
    assert_eq!(peer.control(of_no_exchange, &[]), ["reject ProtocolError"]);
    assert_eq!(
        peer.control(nop(Itt(0x91), Ttt::RESERVED, false, 1), &[]),
        ["nop 0x91", "start 0x12"]
    );
    assert_eq!(window(&mut peer), (3, 8));
}

#[test]
fn what_is_rejected_when_its_turn_comes_holds_up_what_follows() {
    let mut peer = small_window(8);
    let Request::Text(question) = text(1) else {
        panic!()
    };
    let of_no_exchange = Request::Text(TextRequest {
        immediate: false,
        ttt: Ttt(5),
        ..question
    });
    assert_eq!(peer.read(0x12, 2), [""; 0]);
    assert_eq!(
        peer.control(of_no_exchange, &[]),
        [""; 0],
        "it waits for its turn"
    );
    assert_eq!(peer.read(0x10, 0), ["start 0x10", "reject ProtocolError"]);
    assert_eq!(window(&mut peer), (1, 7));
    assert_eq!(peer.read(0x11, 1), ["start 0x11", "start 0x12"]);
}

#[test]
fn status_numbers_have_no_gap() {
    let mut peer = Peer::logged_in();
    peer.read(0x10, 0);
    let done = status::good(peer.task(0x10));
    let events = [
        Event::Notify(LinkId::LEADING, Notify::OutOfPlace { bhs: [5; 48] }),
        Event::Notify(
            LinkId::LEADING,
            Notify::Control {
                pdu: nop(Itt(0x91), Ttt::RESERVED, true, 1),
                data: Bytes::new(),
            },
        ),
        done,
        Event::Order(Order::Logout {
            within: std::time::Duration::from_secs(5),
        }),
        Event::Notify(
            LinkId::LEADING,
            Notify::Control {
                pdu: logout(LogoutReason::CloseConnection, 3, true, 1),
                data: Bytes::new(),
            },
        ),
    ];
    let mut numbers = Vec::new();
    for event in events {
        for action in peer.actions(event) {
            numbers.extend(match action {
                Action::Send(_, Response::Reject(pdu), _) => Some(pdu.stat_sn.0),
                Action::Send(_, Response::NopIn(pdu), _) => Some(pdu.stat_sn.0),
                Action::Send(_, Response::ScsiResponse(pdu), _) => Some(pdu.stat_sn.0),
                Action::Send(_, Response::AsyncMessage(pdu), _) => Some(pdu.stat_sn.0),
                Action::Send(_, Response::Logout(pdu), _) => Some(pdu.stat_sn.0),
                _ => None,
            });
        }
    }
    // The login took the number that the initiator expected first.
    assert_eq!(numbers, [51, 52, 53, 54, 55]);
}
