//! An initiator that logs in, and stays until it is dropped or sent away.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus, Request, Response};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Sn, Tsih, text};

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
        match receive(&mut socket).unwrap() {
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

fn receive(socket: &mut TcpStream) -> io::Result<Response> {
    let mut bhs = [0; BHS_LEN];
    socket.read_exact(&mut bhs)?;
    let frame = Frame::of(&bhs);
    let mut data = vec![0; frame.ahs_len + frame.data_len + frame.padding()];
    socket.read_exact(&mut data)?;
    Response::decode(&bhs).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
