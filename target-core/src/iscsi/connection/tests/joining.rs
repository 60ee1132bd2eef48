//! Connections that join a session: what they have of it.

use super::*;
use crate::iscsi::SessionParams;

const WINDOW: u16 = 4;

/// A session of up to two connections with this much of its window in use.
fn busy(commands: u32) -> Peer {
    let mut peer = Peer::new(parameters());
    let mut text = login_text("Normal");
    push_pair(&mut text, "MaxConnections", "2");
    assert_eq!(peer.control(login(), &text), ["login Success", "enable"]);
    for itt in 0..commands {
        assert_eq!(peer.read(itt, itt), [format!("start {itt:#x}")]);
    }
    peer
}

fn parameters() -> Parameters {
    Parameters {
        max_connections: 2,
        command_window: WINDOW,
        ..Parameters::default()
    }
}

/// A second connection, as far as the door of its session.
fn at_the_door(cmd_sn: u32) -> JoiningLogin {
    let mut second = Peer::new(parameters());
    let Request::Login(request) = login() else {
        unreachable!("it is a login")
    };
    let request = Request::Login(LoginRequest {
        tsih: Tsih(1),
        cid: Cid(1),
        cmd_sn: Sn(FIRST + cmd_sn),
        ..request
    });
    let notify = Notify::Control {
        pdu: request,
        data: login_text("Normal").into(),
    };
    second
        .connection
        .handle(second.now, Event::Notify(LinkId::LEADING, notify));
    let action = second.connection.poll_action();
    assert!(matches!(action, Some(Action::Admit(_))), "{action:?}");
    second.connection.into_joining().expect("it waits for admission")
}

/// What the session says of its window when another connection joins: the numbers, and what is for the mover.
fn joins(peer: &mut Peer, cmd_sn: u32) -> (u32, u32, SessionParams) {
    match peer
        .actions(Event::Join(LinkId(1), at_the_door(cmd_sn)))
        .as_slice()
    {
        [
            Action::Send(LinkId(1), Response::Login(response), _),
            Action::Enable(LinkId(1), params),
        ] => (
            response.exp_cmd_sn.distance_from(Sn(FIRST)),
            response.max_cmd_sn.distance_from(Sn(FIRST)),
            params.clone(),
        ),
        other => panic!("the join led to {other:?}"),
    }
}

#[test]
fn a_mover_is_told_the_whole_window_however_much_of_it_is_in_use() {
    for used in [0, 2, 4] {
        let (exp, max, params) = joins(&mut busy(used), used);
        assert_eq!((exp, max), (used, 3));
        assert_eq!(params.command_window, 4, "with {used} commands");
    }
}
