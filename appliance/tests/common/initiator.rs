//! An initiator that logs in, and stays until it is dropped or sent away.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use iscsi_proto::pdu::{LoginRequest, LoginStage, LoginStatus, Request, Response, TextRequest};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih, Ttt, crc32c, text};

use super::PATIENCE;

/// Who logs in by default.
pub(crate) const NAME: &str = "iqn.2026-11.org.example:host";

/// A session.
pub(crate) struct Session {
    socket: TcpStream,
    has_digests: bool,
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
        let mut session = Session::connect(portal);
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
        session.say(&Request::Login(login_request()), &data);
        match session.hear().0 {
            Response::Login(login) if login.status == LoginStatus::Success => {
                session.has_digests = self.more.contains(&("HeaderDigest", "CRC32C"));
                Ok(session)
            }
            Response::Login(login) => Err(login.status),
            other => panic!("unexpected answer to a login: {other:?}"),
        }
    }
}

impl Session {
    /// A connection on which nothing was said yet.
    pub(crate) fn connect(portal: SocketAddr) -> Self {
        let socket = TcpStream::connect(portal).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            has_digests: false,
        }
    }

    /// Sends a PDU.
    pub(crate) fn say(&mut self, request: &Request, data: &[u8]) {
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        let mut bhs = request.encode();
        frame.stamp(&mut bhs);
        let mut bytes = bhs.to_vec();
        if self.has_digests {
            bytes.extend(crc32c(&bhs));
        }
        let mut data = data.to_vec();
        data.resize(data.len() + frame.padding(), 0);
        bytes.extend(&data);
        if self.has_digests && !data.is_empty() {
            bytes.extend(crc32c(&data));
        }
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next PDU, and its data segment.
    pub(crate) fn hear(&mut self) -> (Response, Vec<u8>) {
        let mut bhs = [0; BHS_LEN];
        self.socket.read_exact(&mut bhs).unwrap();
        let frame = Frame::of(&bhs);
        self.skip_digest(true);
        let mut data = vec![0; frame.data_len + frame.padding()];
        self.socket.read_exact(&mut data).unwrap();
        self.skip_digest(frame.data_len > 0);
        data.truncate(frame.data_len);
        (Response::decode(&bhs).unwrap(), data)
    }

    fn skip_digest(&mut self, is_there: bool) {
        if self.has_digests && is_there {
            self.socket.read_exact(&mut [0; 4]).unwrap();
        }
    }

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
    let mut session = Session::connect(portal);
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
        ..login_request()
    };
    for keys in steps {
        session.say(&Request::Login(request.clone()), &pairs(keys));
        match session.hear().0 {
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
    let mut session = Session::connect(portal);
    let names = pairs(&[("InitiatorName", NAME), ("SessionType", "Discovery")]);
    session.say(&Request::Login(login_request()), &names);
    let mut next = match session.hear().0 {
        Response::Login(login) if login.status == LoginStatus::Success => login.stat_sn.next(),
        other => panic!("not let in: {other:?}"),
    };
    let (mut asked, mut answer) = (pairs(&[("SendTargets", "All")]), Vec::new());
    let mut ttt = Ttt::RESERVED;
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
        session.say(&Request::Text(request), &asked);
        let (Response::Text(response), piece) = session.hear() else {
            panic!("no answer to SendTargets");
        };
        answer.extend(piece);
        if response.is_final {
            break;
        }
        (ttt, next) = (response.ttt, response.stat_sn.next());
        asked.clear();
    }
    let records = text::parse_pairs(&answer).unwrap();
    let lines = records.iter().map(|pair| format!("{}={}", pair.key, pair.value));
    lines.collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text::push_pair(&mut text, key, value);
    }
    text
}

/// The one request of a login without CHAP.
pub(crate) fn login_request() -> LoginRequest {
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
