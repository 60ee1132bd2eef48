//! The least initiator that there can be: one session, one command at a time, for tests of the process.

use std::io::{Read, Write};
use std::net::TcpStream;

use iscsi_proto::pdu::{
    LoginRequest, LoginStage, LoginStatus, Request, Response, ScsiCommand, TaskAttribute,
};
use iscsi_proto::text::push_pair;
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih};

use super::PATIENCE;

/// A session in full feature phase.
#[derive(Debug)]
pub(super) struct Initiator {
    socket: TcpStream,
    cmd_sn: Sn,
    exp_stat_sn: Sn,
}

impl Initiator {
    /// Logs in to the only target, as the port that `isid` tells apart, and hears its unit attention.
    pub(super) fn log_in(portal: &str, target: &str, isid: u8) -> Self {
        let socket = TcpStream::connect(portal).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut initiator = Self {
            socket,
            cmd_sn: Sn(1),
            exp_stat_sn: Sn(0),
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
            itt: Itt(1),
            cid: Cid(0),
            cmd_sn: initiator.cmd_sn,
            exp_stat_sn: initiator.exp_stat_sn,
        };
        let mut keys = Vec::new();
        push_pair(&mut keys, "InitiatorName", "iqn.2026-11.org.example:host");
        push_pair(&mut keys, "TargetName", target);
        push_pair(&mut keys, "SessionType", "Normal");
        initiator.send(&Request::Login(login), &keys);
        match initiator.hear() {
            (Response::Login(response), _) => {
                assert_eq!(response.status, LoginStatus::Success);
                initiator.exp_stat_sn = response.stat_sn.next();
            }
            other => panic!("{other:?}"),
        }
        let (status, _) = initiator.command(&[0x00], &[], 0);
        assert_eq!(status, 0x02, "a new nexus has a unit attention");
        initiator
    }

    /// Runs a command on LUN 0 with immediate data: its status and its Data-In.
    pub(super) fn command(&mut self, cdb: &[u8], out: &[u8], room: u32) -> (u8, Vec<u8>) {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            immediate: false,
            is_final: true,
            read: room > 0,
            write: !out.is_empty(),
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: Itt(self.cmd_sn.0),
            expected_len: room.max(u32::try_from(out.len()).unwrap()),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: padded,
        };
        self.cmd_sn.advance();
        self.send(&Request::ScsiCommand(command), out);
        let mut data_in = Vec::new();
        loop {
            match self.hear() {
                (Response::DataIn(pdu), data) => {
                    data_in.extend(data);
                    if let Some(status) = pdu.status {
                        self.exp_stat_sn.advance();
                        return (status.status, data_in);
                    }
                }
                (Response::ScsiResponse(pdu), _) => {
                    self.exp_stat_sn.advance();
                    return (pdu.status, data_in);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn send(&mut self, request: &Request, data: &[u8]) {
        let mut bhs = request.encode();
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        frame.stamp(&mut bhs);
        let padding = vec![0; frame.padding()];
        self.socket
            .write_all(&[&bhs[..], data, &padding].concat())
            .unwrap();
    }

    fn hear(&mut self) -> (Response, Vec<u8>) {
        let mut bhs = [0; BHS_LEN];
        self.socket.read_exact(&mut bhs).unwrap();
        let frame = Frame::of(&bhs);
        let mut data = vec![0; frame.data_len + frame.padding()];
        self.socket.read_exact(&mut data).unwrap();
        data.truncate(frame.data_len);
        (Response::decode(&bhs).unwrap(), data)
    }
}
