//! Every PDU in every state: nothing is left to chance, nothing panics.

use super::*;

/// What can arrive, by name.
fn arrivals() -> Vec<(&'static str, Event)> {
    let control = |pdu| {
        Event::Notify(
            LinkId::LEADING,
            Notify::Control {
                pdu,
                data: Bytes::new(),
            },
        )
    };
    vec![
        ("NOP-Out", control(nop(Itt(0x903), Ttt::RESERVED, true, 0))),
        (
            "SCSI Command",
            Event::Notify(
                LinkId::LEADING,
                Notify::Command {
                    pdu: command(0x10, 0),
                    ahs: Ahs::default(),
                    immediate: None,
                },
            ),
        ),
        ("task management", control(tmf(Function::AbortTask, 0x55, 0, 9))),
        ("Login Request", control(login())),
        ("Text Request", control(text(0))),
        (
            "Logout Request",
            control(logout(LogoutReason::CloseSession, 0, true, 0)),
        ),
        ("SNACK Request", control(snack())),
        (
            "stray Data-Out",
            Event::Notify(
                LinkId::LEADING,
                Notify::OutOfPlace {
                    bhs: Request::DataOut(data_out()).encode(),
                },
            ),
        ),
        (
            "unknown opcode",
            Event::Notify(
                LinkId::LEADING,
                Notify::Malformed {
                    bhs: [0x1f; 48],
                    error: DecodeError::Opcode(0x1f),
                },
            ),
        ),
        (
            "malformed field",
            Event::Notify(
                LinkId::LEADING,
                Notify::Malformed {
                    bhs: [0x01; 48],
                    error: DecodeError::Field {
                        pdu: "SCSI Command",
                        field: "ATTR",
                        value: 7,
                    },
                },
            ),
        ),
        (
            "bad data digest",
            Event::Notify(LinkId::LEADING, Notify::DataDigestError { bhs: [0x01; 48] }),
        ),
        (
            "released",
            Event::Notify(LinkId::LEADING, Notify::Released(Itt(0x10))),
        ),
        ("time", Event::Timeout),
    ]
}

fn in_login() -> Peer {
    let mut peer = Peer::new(Parameters::default());
    let Request::Login(request) = login() else {
        unreachable!("it is a login")
    };
    let lines = peer.control(
        Request::Login(LoginRequest {
            transit: false,
            ..request
        }),
        &login_text("Normal"),
    );
    assert_eq!(lines, ["login Success"]);
    peer
}

fn draining() -> Peer {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.read(0x20, 0), ["start 0x20"]);
    assert_eq!(peer.event(Event::Order(Order::Drain)), [""; 0]);
    peer
}

fn row(state: fn() -> Peer) -> String {
    let line = |(name, event)| {
        let lines = state().event(event);
        format!("{name}: {}\n", lines.join(", "))
    };
    arrivals().into_iter().map(line).collect()
}

#[test]
fn before_login_only_a_login_request_is_answered() {
    let misplaced = |name| format!("close: the first PDU was {name}, not a Login Request");
    let mut rows = row(|| Peer::new(Parameters::default()));
    // The login in the list has no text: it misses the initiator's name.
    let login = rows
        .lines()
        .find(|line| line.starts_with("Login Request"))
        .unwrap()
        .to_owned();
    assert!(
        login.starts_with("Login Request: login MissingParameter, close: login refused"),
        "{login}"
    );
    rows = rows.replace(&format!("{login}\n"), "");
    let expected = [
        format!("NOP-Out: {}", misplaced("NOP-Out")),
        format!("SCSI Command: {}", misplaced("SCSI Command")),
        format!(
            "task management: {}",
            misplaced("Task Management Function Request")
        ),
        format!("Text Request: {}", misplaced("Text Request")),
        format!("Logout Request: {}", misplaced("Logout Request")),
        format!("SNACK Request: {}", misplaced("SNACK Request")),
        format!("stray Data-Out: {}", misplaced("SCSI Data-Out")),
        "unknown opcode: close: during login: opcode 0x1f is not one we may receive".into(),
        "malformed field: close: during login: SCSI Command: ATTR is 0x7".into(),
        format!("bad data digest: {}", misplaced("a PDU with a data digest")),
        "released: ".into(),
        "time: ".into(),
    ];
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn during_login_what_is_no_login_request_is_told_so_and_ends_it() {
    let misplaced = |name| format!("login InvalidDuringLogin, close: {name} arrived during login");
    let rows = row(in_login);
    let expected = [
        format!("NOP-Out: {}", misplaced("NOP-Out")),
        format!("SCSI Command: {}", misplaced("SCSI Command")),
        format!(
            "task management: {}",
            misplaced("Task Management Function Request")
        ),
        "Login Request: login Success, enable".into(),
        format!("Text Request: {}", misplaced("Text Request")),
        format!("Logout Request: {}", misplaced("Logout Request")),
        format!("SNACK Request: {}", misplaced("SNACK Request")),
        format!("stray Data-Out: {}", misplaced("SCSI Data-Out")),
        "unknown opcode: login InitiatorError, close: during login: opcode 0x1f is not one we may receive"
            .into(),
        "malformed field: login InitiatorError, close: during login: SCSI Command: ATTR is 0x7".into(),
        format!("bad data digest: {}", misplaced("a PDU with a data digest")),
        "released: ".into(),
        "time: ".into(),
    ];
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn in_full_feature_phase_every_request_has_its_answer() {
    let expected = "\
NOP-Out: nop 0x903
SCSI Command: start 0x10
task management: tmf TaskDoesNotExist
Login Request: close: a Login Request arrived in full feature phase
Text Request: text
Logout Request: logout Success, close: the initiator logged out
SNACK Request: reject SnackReject
stray Data-Out: reject ProtocolError
unknown opcode: reject CommandNotSupported
malformed field: reject InvalidPduField
bad data digest: reject DataDigestError
released: 
time: 
";
    assert_eq!(row(Peer::logged_in), expected);
}

#[test]
fn a_discovery_session_takes_no_commands() {
    let expected = "\
NOP-Out: nop 0x903
SCSI Command: reject CommandNotSupported, end 0x10
task management: reject CommandNotSupported
Login Request: close: a Login Request arrived in full feature phase
Text Request: text
Logout Request: logout Success, close: the initiator logged out
SNACK Request: reject SnackReject
stray Data-Out: reject ProtocolError
unknown opcode: reject CommandNotSupported
malformed field: reject InvalidPduField
bad data digest: reject DataDigestError
released: 
time: 
";
    assert_eq!(row(Peer::discovering), expected);
}

#[test]
fn a_draining_session_still_answers_but_starts_nothing() {
    let mut peer = draining();
    assert_eq!(peer.read(0x21, 1), ["status 0x08 of 0x21", "end 0x21"]);
    let rows = row(draining);
    let begins = |name: &str| {
        rows.lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(begins("NOP-Out"), "NOP-Out: nop 0x903");
    assert_eq!(begins("task management"), "task management: tmf TaskDoesNotExist");
    assert_eq!(
        begins("Logout Request"),
        "Logout Request: logout Success, close: the initiator logged out"
    );
}

#[test]
fn a_closed_connection_does_nothing_whatever_comes() {
    let closed = || {
        let mut peer = Peer::logged_in();
        peer.control(logout(LogoutReason::CloseSession, 0, true, 0), &[]);
        peer
    };
    assert!(row(closed).lines().all(|line| line.ends_with(": ")));
    assert_eq!(closed().connection.poll_timeout(), None);
}
