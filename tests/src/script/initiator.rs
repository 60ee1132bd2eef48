//! The scripted initiator: it says what its script says, and holds what it hears against the rules of every conversation.

use std::time::Duration;

use iscsi_proto::pdu::{
    AsyncMessage, DataIn, Function, LoginRequest, LoginResponse, LoginStage, LoginStatus, LogoutReason,
    LogoutRequest, LogoutResponse, LogoutResponseCode, NopIn, NopOut, R2t, Reject, Request, Response,
    ScsiResponse, TaskManagementRequest, TaskManagementResponse, TextRequest, TextResponse, TmfResponse,
};
use iscsi_proto::text::{KeyValue, parse_pairs};
use iscsi_proto::{BHS_LEN, Cid, Isid, Itt, Lun, Sn, Tsih, Ttt};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::command::Command;
use super::wire::{self, Digests, Pdu};
use super::{Keys, Target, cdb};

/// The initiator's name.
pub const INITIATOR: &str = "iqn.2026-11.org.example:host";

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One connection at the initiator's end.
#[derive(Debug)]
pub struct Initiator {
    /// The socket, for bytes that are no PDU.
    pub socket: TcpStream,
    /// Digests in use.
    pub digests: Digests,
    /// The next command's CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN: what every request acknowledges.
    pub exp_stat_sn: Sn,
    /// What came last.
    pub exp_cmd_sn: Sn,
    /// What came last.
    pub max_cmd_sn: Sn,
    /// Initiator part of the session identifier.
    pub isid: Isid,
    /// The session's handle.
    pub tsih: Tsih,
    /// The connection's number.
    pub cid: Cid,
    /// Where commands go.
    pub lun: Lun,
    next_itt: u32,
}

/// A kind of PDU that can be expected.
pub trait FromResponse: Sized {
    /// The PDU, if it is of this kind.
    fn from_response(response: Response) -> Result<Self, Response>;
}

impl Initiator {
    /// A connection on which nothing has been said.
    pub async fn connect(target: &Target) -> Self {
        Self::connect_by(target, 1).await
    }

    /// The same by the portal of a group: 1, 2, …
    pub async fn connect_by(target: &Target, group: u16) -> Self {
        Self {
            socket: target.connect(group).await,
            digests: Digests::default(),
            cmd_sn: Sn(0xffff_fffe),
            exp_stat_sn: Sn(0xffff_fffd),
            exp_cmd_sn: Sn(0),
            max_cmd_sn: Sn(0),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih::NEW,
            cid: Cid(0),
            lun: Lun::ZERO,
            next_itt: 1,
        }
    }

    /// A session in full feature phase, whose unit attentions have been heard.
    pub async fn log_in(target: &Target) -> Self {
        Self::log_in_with(target, 1, Keys::normal()).await
    }

    /// The same with other keys, and another ISID.
    pub async fn log_in_with(target: &Target, isid: u8, keys: Keys) -> Self {
        let mut initiator = Self::connect(target).await;
        initiator.isid = Isid([0x80, 0, 0, 0, 0, isid]);
        initiator.login(keys).await;
        initiator.clear_attentions().await;
        initiator
    }

    /// Another connection of a session, in full feature phase. The next command's CmdSN is the one that `leading` would
    /// use; from then on whoever sends the next one has to be told.
    pub async fn join(target: &Target, leading: &Self, cid: u16) -> Self {
        let mut initiator = Self::connect(target).await;
        initiator.join_request(leading, cid);
        initiator.login(Keys::normal()).await;
        initiator
    }

    /// The next login is to the session of `leading`.
    pub fn join_request(&mut self, leading: &Self, cid: u16) {
        (self.isid, self.tsih, self.cid) = (leading.isid, leading.tsih, Cid(cid));
        self.cmd_sn = leading.cmd_sn;
        // Tags are unique within a session.
        self.next_itt = (u32::from(cid) + 1) << 16;
    }

    /// A session by the portal of a group, whose unit attentions have been heard.
    pub async fn log_in_by(target: &Target, group: u16) -> Self {
        let mut initiator = Self::connect_by(target, group).await;
        initiator.login(Keys::normal()).await;
        initiator.clear_attentions().await;
        initiator
    }

    /// A discovery session in full feature phase.
    pub async fn discover(target: &Target) -> Self {
        let mut initiator = Self::connect(target).await;
        initiator.login(Keys::discovery()).await;
        initiator
    }

    /// Logs in with one request, straight to full feature phase; what the target answered.
    ///
    /// # Panics
    /// When the target does not let it in.
    pub async fn login(&mut self, keys: Keys) -> Vec<KeyValue> {
        let stages = (LoginStage::Operational, Some(LoginStage::FullFeature));
        let (response, pairs) = self.login_step(stages, keys).await;
        assert_eq!(response.status, LoginStatus::Success, "{pairs:?}");
        assert!(response.transit, "{response:?}");
        self.enter(&response, &pairs);
        pairs
    }

    /// One Login Request and its response. `stages` are the current one and, to leave it, the next.
    pub async fn login_step(
        &mut self,
        stages: (LoginStage, Option<LoginStage>),
        keys: Keys,
    ) -> (LoginResponse, Vec<KeyValue>) {
        let request = self.login_request(stages);
        self.send(Request::Login(request), &keys.encode()).await;
        let (response, data) = self.expect::<LoginResponse>().await;
        (
            response,
            parse_pairs(&data).expect("a target's text can be taken apart"),
        )
    }

    /// A Login Request as it would be next.
    #[must_use]
    pub fn login_request(&self, (current, next): (LoginStage, Option<LoginStage>)) -> LoginRequest {
        LoginRequest {
            transit: next.is_some(),
            continues: false,
            current_stage: current,
            next_stage: next.unwrap_or(LoginStage::Security),
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            itt: Itt(0x1001),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// The last response of a login holds from here on.
    pub fn enter(&mut self, response: &LoginResponse, pairs: &[KeyValue]) {
        let crc = |key| pairs.iter().any(|pair| pair.key == key && pair.value == "CRC32C");
        self.digests = Digests {
            header: crc("HeaderDigest"),
            data: crc("DataDigest"),
        };
        self.tsih = response.tsih;
    }

    /// Sends a request with its data segment.
    pub async fn send(&mut self, request: Request, data: &[u8]) {
        self.send_bhs(request.encode(), &[], data).await;
    }

    /// Sends a header, additional header segments and data, whatever they are.
    pub async fn send_bhs(&mut self, bhs: [u8; BHS_LEN], ahs: &[u8], data: &[u8]) {
        let bytes = wire::encode(bhs, ahs, data, self.digests);
        self.send_raw(&bytes).await;
    }

    /// The bytes of a PDU, for a script that spoils them.
    #[must_use]
    pub fn encode(&self, request: &Request, data: &[u8]) -> Vec<u8> {
        wire::encode(request.encode(), &[], data, self.digests)
    }

    /// Sends bytes. That the target has closed already is for the next `expect` to find out.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        drop(self.socket.write_all(bytes).await);
    }

    /// The next PDU; `None` when the target has closed the connection.
    ///
    /// # Panics
    /// When nothing comes, or what comes breaks a rule.
    pub async fn hear(&mut self) -> Option<Pdu> {
        let pdu = self.hear_again().await?;
        self.check(&pdu.response);
        Some(pdu)
    }

    /// The next PDU where one is expected that came before: its numbers are not held against anything.
    ///
    /// # Panics
    /// When nothing comes.
    pub async fn hear_again(&mut self) -> Option<Pdu> {
        let read = timeout(PATIENCE, wire::read(&mut self.socket, self.digests)).await;
        let read = read.expect("the target says nothing and does not close either");
        // A reset is an end like any other: it comes when the target closed with bytes of ours unread.
        read.ok().flatten()
    }

    /// The next PDU, which is of this kind; with its data.
    ///
    /// # Panics
    /// When it is another, or the connection is closed.
    pub async fn expect<P: FromResponse>(&mut self) -> (P, Vec<u8>) {
        let wanted = std::any::type_name::<P>();
        let Some(Pdu { response, data }) = self.hear().await else {
            panic!("the target closed the connection instead of sending {wanted}");
        };
        match P::from_response(response) {
            Ok(pdu) => (pdu, data),
            Err(other) => panic!("{wanted} expected, {other:?} came"),
        }
    }

    /// The target closes the connection without another word.
    ///
    /// # Panics
    /// When it says something.
    pub async fn expect_closed(&mut self) {
        if let Some(pdu) = self.hear().await {
            panic!("the connection should be closed, but {pdu:?} came");
        }
    }

    /// Asks for a sign of life and gets it: the session is alive and in step.
    pub async fn ping(&mut self) {
        let itt = self.itt();
        let request = NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt,
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(Request::NopOut(request), b"are you there?").await;
        let (nop, data) = loop {
            let (nop, data) = self.expect::<NopIn>().await;
            // A question of the target, from a time when nothing was said for long: ours is a sign of life as well.
            if nop.itt != Itt::RESERVED {
                break (nop, data);
            }
        };
        assert_eq!((nop.itt, data.as_slice()), (itt, &b"are you there?"[..]));
    }

    /// A command, to be described further and then run.
    pub fn command(&mut self, cdb: [u8; 16]) -> Command<'_> {
        Command::new(self, cdb)
    }

    /// Reads blocks of 512 bytes.
    pub async fn read(&mut self, lba: u32, blocks: u16) -> Vec<u8> {
        let len = u32::from(blocks) * 512;
        let end = self.command(cdb::read_10(lba, blocks)).read(len).run().await;
        end.good().data
    }

    /// Writes blocks of 512 bytes.
    pub async fn write(&mut self, lba: u32, data: &[u8]) {
        let blocks = u16::try_from(data.len() / 512).expect("a short write");
        self.command(cdb::write_10(lba, blocks))
            .write(data)
            .run()
            .await
            .good();
    }

    /// Hears every unit attention of the LUN.
    pub async fn clear_attentions(&mut self) {
        for _ in 0..8 {
            if self.command(cdb::test_unit_ready()).run().await.status == 0 {
                return;
            }
        }
        panic!("unit attentions do not end");
    }

    /// A task management request for immediate delivery, sent; its tag.
    pub async fn manage(&mut self, function: Function, referenced: Option<(Itt, Sn)>) -> Itt {
        let itt = self.itt();
        let (referenced_itt, ref_cmd_sn) = referenced.unwrap_or((Itt::RESERVED, Sn(0)));
        let request = TaskManagementRequest {
            immediate: true,
            function,
            lun: self.lun,
            itt,
            referenced_itt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn,
            exp_data_sn: 0,
        };
        self.send(Request::TaskManagement(request), &[]).await;
        itt
    }

    /// The next PDU is the answer to this task management request.
    pub async fn managed(&mut self, itt: Itt) -> TmfResponse {
        let (response, _) = self.expect::<TaskManagementResponse>().await;
        assert_eq!(response.itt, itt);
        response.response
    }

    /// A Text Request that is complete, and its answer, of however many pieces.
    pub async fn text(&mut self, keys: Keys) -> Vec<KeyValue> {
        let mut request = self.text_request();
        self.send(Request::Text(request.clone()), &keys.encode()).await;
        let mut text = Vec::new();
        loop {
            let (response, data) = self.expect::<TextResponse>().await;
            assert_eq!(response.itt, request.itt);
            text.extend(data);
            if response.is_final {
                return parse_pairs(&text).expect("a target's text can be taken apart");
            }
            request.ttt = response.ttt;
            request.exp_stat_sn = self.exp_stat_sn;
            self.send(Request::Text(request.clone()), &[]).await;
        }
    }

    /// A Text Request for immediate delivery, as it would be next.
    pub fn text_request(&mut self) -> TextRequest {
        TextRequest {
            immediate: true,
            is_final: true,
            continues: false,
            lun: Lun::ZERO,
            itt: self.itt(),
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// Logs out: it is answered, and the connection closed.
    pub async fn log_out(&mut self) {
        let request = self.logout_request(LogoutReason::CloseSession);
        self.send(Request::Logout(request), &[]).await;
        let (response, _) = self.expect::<LogoutResponse>().await;
        assert_eq!(response.response, LogoutResponseCode::Success);
        self.expect_closed().await;
    }

    /// A Logout Request for immediate delivery, as it would be next.
    pub fn logout_request(&mut self, reason: LogoutReason) -> LogoutRequest {
        LogoutRequest {
            immediate: true,
            reason,
            itt: self.itt(),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// A tag that is in use by nothing.
    pub fn itt(&mut self) -> Itt {
        self.next_itt += 1;
        Itt(self.next_itt)
    }

    /// The rules of every conversation (RFC 7143 §4.2.2).
    fn check(&mut self, response: &Response) {
        let (stat_sn, consumes, window) = counters(response);
        if let Some(stat_sn) = stat_sn {
            assert_eq!(stat_sn, self.exp_stat_sn, "StatSN of {response:?}");
            if consumes {
                self.exp_stat_sn.advance();
            }
        }
        if let Some((exp, max)) = window {
            let known = self.max_cmd_sn != self.exp_cmd_sn;
            assert!(
                !known || !exp.precedes(self.exp_cmd_sn),
                "ExpCmdSN went back: {response:?}"
            );
            assert!(
                !known || !max.precedes(self.max_cmd_sn),
                "MaxCmdSN went back: {response:?}"
            );
            (self.exp_cmd_sn, self.max_cmd_sn) = (exp, max);
        }
    }
}

/// StatSN, whether it is used up, and ExpCmdSN with MaxCmdSN.
fn counters(response: &Response) -> (Option<Sn>, bool, Option<(Sn, Sn)>) {
    macro_rules! of {
        ($pdu:ident, $consumes:expr) => {
            (
                Some($pdu.stat_sn),
                $consumes,
                Some(($pdu.exp_cmd_sn, $pdu.max_cmd_sn)),
            )
        };
    }
    match response {
        Response::AsyncMessage(pdu) => of!(pdu, true),
        Response::DataIn(pdu) => (
            pdu.status.map(|status| status.stat_sn),
            true,
            Some((pdu.exp_cmd_sn, pdu.max_cmd_sn)),
        ),
        // During a login the window says nothing.
        Response::Login(pdu) => (Some(pdu.stat_sn), true, None),
        Response::Logout(pdu) => of!(pdu, true),
        Response::NopIn(pdu) => of!(pdu, pdu.itt != Itt::RESERVED),
        Response::R2t(pdu) => of!(pdu, false),
        Response::Reject(pdu) => of!(pdu, true),
        Response::ScsiResponse(pdu) => of!(pdu, true),
        Response::TaskManagement(pdu) => of!(pdu, true),
        Response::Text(pdu) => of!(pdu, true),
    }
}

macro_rules! from_response {
    ($($pdu:ident $variant:ident),*) => {
        $(impl FromResponse for $pdu {
            fn from_response(response: Response) -> Result<Self, Response> {
                match response {
                    Response::$variant(pdu) => Ok(pdu),
                    other => Err(other),
                }
            }
        })*
    };
}

from_response!(
    AsyncMessage AsyncMessage,
    DataIn DataIn,
    LoginResponse Login,
    LogoutResponse Logout,
    NopIn NopIn,
    R2t R2t,
    Reject Reject,
    ScsiResponse ScsiResponse,
    TaskManagementResponse TaskManagement,
    TextResponse Text
);
