//! As little of an initiator as a process test needs: a login, and one SCSI command after the other with its data.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use iscsi_proto::pdu::{
    LoginRequest, LoginStage, LoginStatus, Request, Response, ScsiCommand, TaskAttribute,
};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih, text};

/// A session in full feature phase.
pub(crate) struct Initiator {
    socket: TcpStream,
    cmd_sn: Sn,
    exp_stat_sn: Sn,
    /// The number that its commands are sent to.
    pub(crate) lun: u16,
}

/// What came of a command.
#[derive(Debug)]
#[allow(dead_code, reason = "each test program uses some of it")]
pub(crate) struct End {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    sense: Vec<u8>,
}

impl Initiator {
    /// Logs in to a target as a session that `isid` tells apart.
    pub(crate) fn log_in(portal: &str, target: &str, isid: u8) -> Self {
        let socket = TcpStream::connect(portal).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut initiator = Self {
            socket,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(0),
            lun: 0,
        };
        let login = LoginRequest {
            transit: true,
            continues: false,
            current_stage: LoginStage::Operational,
            next_stage: LoginStage::FullFeature,
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0, 0, 0, 0, isid]),
            tsih: Tsih::NEW,
            itt: Itt(0x100),
            cid: Cid(1),
            cmd_sn: initiator.cmd_sn,
            exp_stat_sn: initiator.exp_stat_sn,
        };
        let mut keys = Vec::new();
        for (key, value) in [
            ("InitiatorName", "iqn.2026-11.org.example:host"),
            ("TargetName", target),
            ("SessionType", "Normal"),
        ] {
            text::push_pair(&mut keys, key, value);
        }
        initiator.send(&Request::Login(login), &keys);
        match initiator.receive() {
            (Response::Login(response), _) if response.status == LoginStatus::Success => {
                initiator.exp_stat_sn = response.stat_sn.next();
            }
            other => panic!("not let in: {other:?}"),
        }
        initiator
    }

    /// A command to its LUN that may give up to so many bytes, or sends these at once.
    pub(crate) fn command(&mut self, cdb: &[u8], room: u32, out: &[u8]) -> End {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            immediate: false,
            is_final: true,
            read: room > 0,
            write: !out.is_empty(),
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::from_number(self.lun).unwrap(),
            itt: Itt(self.cmd_sn.0),
            expected_len: room.max(u32::try_from(out.len()).unwrap()),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: padded,
        };
        self.cmd_sn = self.cmd_sn.next();
        self.send(&Request::ScsiCommand(command), out);
        let mut data = Vec::new();
        loop {
            match self.receive() {
                (Response::DataIn(piece), bytes) => {
                    data.extend(bytes);
                    if let Some(end) = piece.status {
                        self.exp_stat_sn = end.stat_sn.next();
                        return End {
                            status: end.status,
                            data,
                            sense: Vec::new(),
                        };
                    }
                }
                (Response::ScsiResponse(response), sense) => {
                    self.exp_stat_sn = response.stat_sn.next();
                    return End {
                        status: response.status,
                        data,
                        sense,
                    };
                }
                other => panic!("no answer to a command: {other:?}"),
            }
        }
    }

    fn send(&mut self, request: &Request, data: &[u8]) {
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        let mut bhs = request.encode();
        frame.stamp(&mut bhs);
        let mut bytes = bhs.to_vec();
        bytes.extend(data);
        bytes.resize(bytes.len() + frame.padding(), 0);
        self.socket.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> (Response, Vec<u8>) {
        let mut bhs = [0; BHS_LEN];
        self.socket.read_exact(&mut bhs).unwrap();
        let frame = Frame::of(&bhs);
        let mut data = vec![0; frame.data_len + frame.padding()];
        self.socket.read_exact(&mut data).unwrap();
        data.truncate(frame.data_len);
        (Response::decode(&bhs).unwrap(), data)
    }
}

impl End {
    /// Sense key, additional sense code and qualifier of a CHECK CONDITION in fixed format.
    pub(crate) fn sense(&self) -> (u8, u8, u8) {
        assert_eq!(self.status, 0x02, "{self:?}");
        // Two bytes of length come first.
        let sense = &self.sense[2..];
        (sense[2] & 0x0f, sense[12], sense[13])
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
