//! The initiator's end of a socket. It keeps the counters right unless told otherwise, and waits for nothing longer than
//! five seconds.

use std::time::Duration;

use iscsi_proto::pdu::{
    DataOut, Function, LoginRequest, LoginResponse, LoginStage, LoginStatus, LogoutReason, LogoutRequest,
    NopOut, R2t, Request, Response, ScsiCommand, ScsiResponse, TaskAttribute, TaskManagementRequest,
    TextRequest, TmfResponse,
};
use iscsi_proto::{BHS_LEN, Cid, Frame, Isid, Itt, Lun, Sn, Tsih, Ttt, crc32c, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Target;

/// What a login offers beside names: keys and values, as they go over the wire.
pub type Offer<'a> = &'a [(&'a str, &'a str)];

/// The initiator.
#[derive(Debug)]
pub struct Initiator {
    socket: TcpStream,
    isid: u8,
    next_itt: u32,
    /// CmdSN of the next command.
    pub cmd_sn: Sn,
    /// ExpStatSN to tell.
    pub exp_stat_sn: Sn,
    /// Send and expect header digests.
    pub header_digest: bool,
    /// Send and expect data digests.
    pub data_digest: bool,
}

impl Initiator {
    /// Connects and says nothing. `isid` is the last byte of the ISID.
    ///
    /// # Panics
    /// When the target does not listen.
    pub async fn connect(target: &Target, isid: u8) -> Self {
        let socket = TcpStream::connect(target.address)
            .await
            .expect("the target listens");
        socket.set_nodelay(true).expect("a TCP socket");
        Self {
            socket,
            isid,
            next_itt: 1,
            cmd_sn: Sn(100),
            exp_stat_sn: Sn(0),
            header_digest: false,
            data_digest: false,
        }
    }

    /// Connects and logs in to a normal session.
    ///
    /// # Panics
    /// When the login does not succeed at once.
    pub async fn log_in(target: &Target, isid: u8, offer: Offer<'_>) -> Self {
        let mut initiator = Self::connect(target, isid).await;
        let (response, _) = initiator
            .login(LoginStage::Operational, LoginStage::FullFeature, offer)
            .await;
        assert_eq!(response.status, LoginStatus::Success);
        assert_eq!(
            (response.transit, response.next_stage),
            (true, LoginStage::FullFeature)
        );
        let wants = |key| offer.contains(&(key, "CRC32C"));
        (initiator.header_digest, initiator.data_digest) = (wants("HeaderDigest"), wants("DataDigest"));
        initiator
    }

    /// The names that a login to a normal session begins with.
    #[must_use]
    pub fn names() -> Vec<(&'static str, &'static str)> {
        vec![
            ("InitiatorName", "iqn.2026-11.org.example:scripted"),
            ("TargetName", Target::NAME),
        ]
    }

    /// One Login Request that wants to go on to `next`, with names and these keys, and its answer.
    pub async fn login(
        &mut self,
        stage: LoginStage,
        next: LoginStage,
        offer: Offer<'_>,
    ) -> (LoginResponse, String) {
        let keys: Vec<_> = Self::names().into_iter().chain(offer.iter().copied()).collect();
        self.login_keys(stage, next, &keys).await
    }

    /// One Login Request with exactly these keys, and its answer.
    ///
    /// # Panics
    /// When something else than a Login Response comes.
    pub async fn login_keys(
        &mut self,
        stage: LoginStage,
        next: LoginStage,
        keys: Offer<'_>,
    ) -> (LoginResponse, String) {
        let request = LoginRequest {
            transit: true,
            continues: false,
            current_stage: stage,
            next_stage: next,
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0, 0, 0, 0, self.isid]),
            tsih: Tsih::NEW,
            itt: Itt(0x1000),
            cid: Cid(0),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        let mut data = Vec::new();
        keys.iter()
            .for_each(|(key, value)| text::push_pair(&mut data, key, value));
        self.send(&Request::Login(request), &data).await;
        match self.receive().await {
            (Response::Login(response), text) => {
                self.exp_stat_sn = response.stat_sn.next();
                (response, String::from_utf8(text).expect("text"))
            }
            other => panic!("no Login Response but {other:?}"),
        }
    }

    /// The next unused task tag.
    pub fn itt(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
    }

    /// A command with the next CmdSN, its immediate data beside it.
    pub async fn command(&mut self, cdb: [u8; 16], expected: i64, immediate: &[u8]) -> Itt {
        let pdu = self.prepare(cdb, expected);
        let itt = pdu.itt;
        self.send(&Request::ScsiCommand(pdu), immediate).await;
        itt
    }

    /// The PDU of a command. `expected` is positive for Data-In, negative for Data-Out, bytes.
    pub fn prepare(&mut self, cdb: [u8; 16], expected: i64) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: expected > 0,
            write: expected < 0,
            attribute: TaskAttribute::Simple,
            priority: 0,
            lun: Lun::ZERO,
            itt: self.itt(),
            expected_len: u32::try_from(expected.unsigned_abs()).expect("small"),
            cmd_sn: self.cmd_sn.advance(),
            exp_stat_sn: self.exp_stat_sn,
            cdb,
        }
    }

    /// Answers an R2T, or sends unsolicited data with the reserved tag, in PDUs of at most `max` bytes.
    pub async fn data_out(&mut self, itt: Itt, ttt: Ttt, offset: usize, data: &[u8], max: usize) {
        let count = data.len().div_ceil(max);
        for (index, piece) in data.chunks(max).enumerate() {
            let pdu = DataOut {
                is_final: index + 1 == count,
                lun: Lun::ZERO,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: u32::try_from(index).expect("small"),
                offset: u32::try_from(offset + index * max).expect("small"),
            };
            self.send(&Request::DataOut(pdu), piece).await;
        }
    }

    /// A task management request for immediate delivery.
    pub async fn manage(&mut self, function: Function, referenced: Itt, ref_cmd_sn: Sn) -> Itt {
        let itt = self.itt();
        let pdu = TaskManagementRequest {
            immediate: true,
            function,
            lun: Lun::ZERO,
            itt,
            referenced_itt: referenced,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn,
            exp_data_sn: 0,
        };
        self.send(&Request::TaskManagement(pdu), b"").await;
        itt
    }

    /// A ping for immediate delivery.
    pub async fn ping(&mut self, data: &[u8]) -> Itt {
        let itt = self.itt();
        let pdu = NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt,
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(&Request::NopOut(pdu), data).await;
        itt
    }

    /// A Text Request for immediate delivery.
    pub async fn text(&mut self, is_final: bool, continues: bool, ttt: Ttt, data: &[u8]) -> Itt {
        let pdu = TextRequest {
            immediate: true,
            is_final,
            continues,
            lun: Lun::ZERO,
            itt: Itt(0x2000),
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(&Request::Text(pdu), data).await;
        Itt(0x2000)
    }

    /// Asks to close the session.
    pub async fn log_out(&mut self) {
        let pdu = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt: self.itt(),
            cid: Cid(0),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(&Request::Logout(pdu), b"").await;
    }

    /// Any PDU, with digests where agreed.
    pub async fn send(&mut self, request: &Request, data: &[u8]) {
        let mut bhs = request.encode();
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        frame.stamp(&mut bhs);
        let mut bytes = bhs.to_vec();
        if self.header_digest {
            bytes.extend(crc32c(&bhs));
        }
        let mut padded = data.to_vec();
        padded.resize(data.len() + frame.padding(), 0);
        bytes.extend(&padded);
        if self.data_digest && !data.is_empty() {
            bytes.extend(crc32c(&padded));
        }
        self.raw(&bytes).await;
    }

    /// Any bytes. The target may have closed already, which a later receive shows.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.socket.write_all(bytes))
            .await
            .expect("the target takes what it is sent");
    }

    /// Sends until the target takes nothing more for half a second; how many bytes it took.
    pub async fn flood(&mut self, bytes: &[u8], limit: usize) -> usize {
        let mut taken = 0;
        while taken < limit {
            match timeout(Duration::from_millis(500), self.socket.write(bytes)).await {
                Ok(Ok(n)) => taken += n,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        taken
    }

    /// The next PDU with its data, digests checked.
    ///
    /// # Panics
    /// When none comes within five seconds.
    pub async fn receive(&mut self) -> (Response, Vec<u8>) {
        self.next().await.expect("the target closed the connection")
    }

    /// The next PDU, or `None` when the target has closed.
    ///
    /// # Panics
    /// When nothing happens within five seconds, or a digest is wrong.
    pub async fn next(&mut self) -> Option<(Response, Vec<u8>)> {
        let mut bhs = [0; BHS_LEN];
        if timeout(PATIENCE, self.socket.read_exact(&mut bhs))
            .await
            .expect("silence")
            .is_err()
        {
            return None;
        }
        let frame = Frame::of(&bhs);
        let digest = |wanted: bool| if wanted { 4 } else { 0 };
        let padded = frame.data_len + frame.padding();
        let header_digest = digest(self.header_digest);
        let data_digest = digest(self.data_digest && frame.data_len > 0);
        let mut rest = vec![0; header_digest + padded + data_digest];
        timeout(PATIENCE, self.socket.read_exact(&mut rest))
            .await
            .expect("silence")
            .expect("a whole PDU");
        if self.header_digest {
            assert_eq!(rest[..4], crc32c(&bhs), "header digest");
        }
        let data = &rest[header_digest..header_digest + padded];
        if data_digest > 0 {
            assert_eq!(rest[header_digest + padded..], crc32c(data), "data digest");
        }
        Some((
            Response::decode(&bhs).expect("a PDU"),
            data[..frame.data_len].to_vec(),
        ))
    }

    /// The R2T that must come next.
    ///
    /// # Panics
    /// When something else comes.
    pub async fn r2t(&mut self) -> R2t {
        match self.receive().await {
            (Response::R2t(r2t), _) => r2t,
            other => panic!("no R2T but {other:?}"),
        }
    }

    /// The SCSI Response that must come next, and its sense data.
    ///
    /// # Panics
    /// When something else comes.
    pub async fn response(&mut self) -> (ScsiResponse, Vec<u8>) {
        match self.receive().await {
            (Response::ScsiResponse(response), data) => {
                self.exp_stat_sn = response.stat_sn.next();
                (response, data)
            }
            other => panic!("no SCSI Response but {other:?}"),
        }
    }

    /// The answer to a task management request, which must come next.
    ///
    /// # Panics
    /// When something else comes.
    pub async fn managed(&mut self, itt: Itt) -> TmfResponse {
        match self.receive().await {
            (Response::TaskManagement(response), _) if response.itt == itt => {
                self.exp_stat_sn = response.stat_sn.next();
                response.response
            }
            other => panic!("no answer to the task management request but {other:?}"),
        }
    }

    /// Runs commands until the unit has told all it has to tell.
    pub async fn clear_attentions(&mut self) {
        loop {
            self.command([0; 16], 0, b"").await;
            if self.response().await.0.status == 0 {
                return;
            }
        }
    }

    /// All Data-In of the only command under way; its bytes and its status.
    ///
    /// # Panics
    /// When offsets or DataSN leave a gap.
    pub async fn data_in(&mut self) -> (Vec<u8>, u8) {
        let (mut joined, mut next_sn) = (Vec::new(), 0);
        loop {
            match self.receive().await {
                (Response::DataIn(pdu), data) => {
                    assert_eq!((pdu.offset as usize, pdu.data_sn), (joined.len(), next_sn));
                    next_sn += 1;
                    joined.extend(data);
                    if let Some(status) = pdu.status {
                        self.exp_stat_sn = status.stat_sn.next();
                        return (joined, status.status);
                    }
                }
                (Response::ScsiResponse(response), _) => {
                    self.exp_stat_sn = response.stat_sn.next();
                    return (joined, response.status);
                }
                other => panic!("no Data-In but {other:?}"),
            }
        }
    }
}

/// READ (10).
#[must_use]
pub fn read_10(lba: u32, blocks: u16) -> [u8; 16] {
    ten(0x28, lba, blocks)
}

/// WRITE (10).
#[must_use]
pub fn write_10(lba: u32, blocks: u16) -> [u8; 16] {
    ten(0x2a, lba, blocks)
}

fn ten(opcode: u8, lba: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

const PATIENCE: Duration = Duration::from_secs(5);
