//! An initiator that logs in, and stays until it is dropped or sent away; or asks for the targets there are.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus, Request, Response, TextRequest};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih, Ttt, text};

use super::PATIENCE;

/// Who logs in by default.
pub(crate) const NAME: &str = "iqn.2026-11.org.example:host";

/// A session.
pub(crate) struct Session {
    socket: TcpStream,
}

/// What a login asks for.
pub(crate) struct Login<'a> {
    pub(crate) initiator: &'a str,
    pub(crate) target: &'a str,
    pub(crate) more: &'a [(&'a str, &'a str)],
}

impl<'a> Login<'a> {
    pub(crate) fn to(target: &'a str) -> Self {
        Self {
            initiator: NAME,
            target,
            more: &[],
        }
    }

    /// Logs in; the status when that is refused.
    pub(crate) fn at(&self, portal: SocketAddr) -> Result<Session, LoginStatus> {
        let mut socket = TcpStream::connect(portal).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut keys = vec![
            ("InitiatorName", self.initiator),
            ("TargetName", self.target),
            ("SessionType", "Normal"),
        ];
        keys.extend(self.more);
        let mut data = Vec::new();
        for (key, value) in keys {
            text::push_pair(&mut data, key, value);
        }
        send(&mut socket, &Request::Login(request()), &data).unwrap();
        match receive(&mut socket).unwrap().0 {
            Response::Login(login) if login.status == LoginStatus::Success => Ok(Session { socket }),
            Response::Login(login) => Err(login.status),
            other => panic!("unexpected answer to a login: {other:?}"),
        }
    }
}

impl Session {
    /// Whether the target closes the connection, after whatever it says before.
    pub(crate) fn was_closed(mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// A login that proves a CHAP name by a response that no secret gives; how it ends.
pub(crate) fn prove_wrongly(portal: SocketAddr, target: &str, name: &str) -> LoginStatus {
    let mut socket = TcpStream::connect(portal).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let response = format!("0x{}", "00".repeat(16));
    let steps: [&[(&str, &str)]; 3] = [
        &[
            ("InitiatorName", NAME),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("AuthMethod", "CHAP"),
        ],
        &[("CHAP_A", "5")],
        &[("CHAP_N", name), ("CHAP_R", &response)],
    ];
    let mut request = LoginRequest {
        transit: false,
        current_stage: LoginStage::Security,
        next_stage: LoginStage::Security,
        ..request()
    };
    for keys in steps {
        let mut data = Vec::new();
        for (key, value) in keys {
            text::push_pair(&mut data, key, value);
        }
        send(&mut socket, &Request::Login(request.clone()), &data).unwrap();
        match receive(&mut socket).unwrap().0 {
            Response::Login(login) if login.status == LoginStatus::Success => {
                request.exp_stat_sn = login.stat_sn.next();
            }
            Response::Login(login) => return login.status,
            other => panic!("unexpected answer to a login: {other:?}"),
        }
    }
    panic!("a wrong response was taken for a right one");
}

/// The TargetName and TargetAddress records that a portal gives.
pub(crate) fn discover(portal: SocketAddr) -> Vec<String> {
    let mut socket = TcpStream::connect(portal).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut asked = Vec::new();
    for (key, value) in [("InitiatorName", NAME), ("SessionType", "Discovery")] {
        text::push_pair(&mut asked, key, value);
    }
    send(&mut socket, &Request::Login(request()), &asked).unwrap();
    let mut next = match receive(&mut socket).unwrap().0 {
        Response::Login(login) if login.status == LoginStatus::Success => login.stat_sn.next(),
        other => panic!("not let in: {other:?}"),
    };
    asked.clear();
    text::push_pair(&mut asked, "SendTargets", "All");
    let (mut ttt, mut answer) = (Ttt::RESERVED, Vec::new());
    loop {
        let request = TextRequest {
            immediate: true,
            is_final: true,
            continues: false,
            lun: Lun::ZERO,
            itt: Itt(2),
            ttt,
            cmd_sn: Sn(1),
            exp_stat_sn: next,
        };
        send(&mut socket, &Request::Text(request), &asked).unwrap();
        let (Response::Text(response), piece) = receive(&mut socket).unwrap() else {
            panic!("no answer to SendTargets");
        };
        answer.extend(piece);
        if response.is_final {
            break;
        }
        (ttt, next) = (response.ttt, response.stat_sn.next());
        asked.clear();
    }
    let pairs = text::parse_pairs(&answer).unwrap();
    pairs
        .iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .collect()
}

fn request() -> LoginRequest {
    LoginRequest {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(1),
        cmd_sn: Sn(1),
        exp_stat_sn: Sn(0),
    }
}

fn send(socket: &mut TcpStream, request: &Request, data: &[u8]) -> io::Result<()> {
    let frame = Frame {
        ahs_len: 0,
        data_len: data.len(),
    };
    let mut bhs = request.encode();
    frame.stamp(&mut bhs);
    let mut bytes = bhs.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len() + frame.padding(), 0);
    socket.write_all(&bytes)
}

fn receive(socket: &mut TcpStream) -> io::Result<(Response, Vec<u8>)> {
    let mut bhs = [0; BHS_LEN];
    socket.read_exact(&mut bhs)?;
    let frame = Frame::of(&bhs);
    let mut data = vec![0; frame.ahs_len + frame.data_len + frame.padding()];
    socket.read_exact(&mut data)?;
    data.truncate(frame.ahs_len + frame.data_len);
    let response = Response::decode(&bhs)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    Ok((response, data))
}
