//! Connections as scripts: an event goes in, the actions come out as lines of text.

use bytes::Bytes;
use iscsi_proto::pdu::{DataOut, LoginRequest, LoginStage};
use iscsi_proto::pdu::{
    Function, LogoutReason, LogoutRequest, NopOut, Request, Response, ScsiCommand, Snack, SnackType,
    TaskAttribute, TaskManagementRequest, TextRequest,
};
use iscsi_proto::text::push_pair;
use iscsi_proto::{Ahs, Cid, DecodeError, IscsiName, Isid, Itt, Lun, Sn, Tpgt, Tsih, Ttt};

use super::*;
use crate::control::{Access, ChapPolicy, Directory, Parameters, Target};
use crate::iscsi::registry::Admitted;
use crate::iscsi::{JoiningLogin, LinkId, LinkInfo, TransportKeys};
use crate::nexus::{InitiatorPort, NexusId, TargetPort};
use crate::scsi::TargetDevice;
use crate::transfer::TaskId;

mod endings;
mod joining;
mod management;
mod matrix;
mod order;
mod status;

const TARGET: &str = "iqn.2024-01.org.example:disk";
const INITIATOR: &str = "iqn.2024-01.org.example:host";
/// The first CmdSN of a session.
const FIRST: u32 = 100;

/// The initiator's end, and time.
struct Peer {
    connection: Connection,
    now: Instant,
    begin: Instant,
    /// Tasks handed to the device, by tag.
    started: Vec<(Itt, TaskId)>,
}

impl Peer {
    /// A connection that has just been accepted.
    fn new(parameters: Parameters) -> Self {
        let node = Node::new(directory(parameters), |bytes| bytes.fill(7), Vec::new);
        let begin = Instant::now();
        Self {
            connection: Connection::new(link(), node, begin),
            now: begin,
            begin,
            started: Vec::new(),
        }
    }

    /// One in full feature phase, with everything the target's defaults.
    fn logged_in() -> Self {
        Self::logged_in_with(Parameters::default())
    }

    fn logged_in_with(parameters: Parameters) -> Self {
        let mut peer = Self::new(parameters);
        let lines = peer.control(login(), &login_text("Normal"));
        assert_eq!(lines, ["login Success", "enable"]);
        peer
    }

    fn discovering() -> Self {
        let mut peer = Self::new(Parameters::default());
        let lines = peer.control(login(), &login_text("Discovery"));
        assert_eq!(lines, ["login Success", "enable"]);
        peer
    }

    /// What an event leads to.
    fn event(&mut self, event: Event) -> Vec<String> {
        self.actions(event).iter().map(show).collect()
    }

    fn actions(&mut self, event: Event) -> Vec<Action> {
        self.connection.handle(self.now, event);
        let mut done = Vec::new();
        while let Some(action) = self.connection.poll_action() {
            match action {
                Action::Admit(admission) => {
                    let admitted = admitted(admission.target.clone());
                    self.connection.handle(self.now, Event::Admission(Ok(admitted)));
                }
                Action::Start(start) => {
                    self.started.push((start.pdu.itt, start.task));
                    done.push(Action::Start(start));
                }
                action => done.push(action),
            }
        }
        done
    }

    fn control(&mut self, pdu: Request, data: &[u8]) -> Vec<String> {
        self.event(Event::Notify(
            LinkId::LEADING,
            match pdu {
                Request::ScsiCommand(pdu) => Notify::Command {
                    pdu,
                    ahs: Ahs::default(),
                    immediate: None,
                },
                pdu => Notify::Control {
                    pdu,
                    data: Bytes::copy_from_slice(data),
                },
            },
        ))
    }

    /// A read of 512 bytes, CmdSN counted from the session's first.
    fn read(&mut self, itt: u32, cmd_sn: u32) -> Vec<String> {
        self.control(Request::ScsiCommand(command(itt, cmd_sn)), &[])
    }

    /// The name of the latest task with this tag.
    fn task(&self, itt: u32) -> TaskId {
        let found = self.started.iter().rev().find(|(started, _)| started.0 == itt);
        found.expect("the command was started").1
    }

    /// Time passes, and the connection is told where it asked to be.
    fn wait(&mut self, time: std::time::Duration) -> Vec<String> {
        let end = self.now + time;
        let mut lines = Vec::new();
        while let Some(due) = self.connection.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            lines.extend(self.event(Event::Timeout));
            assert!(
                self.connection.poll_timeout() != Some(due),
                "a deadline that is over must not stay"
            );
        }
        self.now = end;
        lines
    }
}

fn directory(parameters: Parameters) -> Directory {
    let name: IscsiName = TARGET.parse().unwrap();
    let target = Target {
        name: name.clone(),
        alias: None,
        tpgt: Tpgt(1),
        access: Access::Everyone,
        chap: ChapPolicy::Open,
        parameters,
        device: TargetDevice::new(name.clone(), &[Tpgt(1)]),
    };
    Directory {
        targets: [(name, Arc::new(target))].into(),
        ..Directory::default()
    }
}

fn link() -> LinkInfo {
    LinkInfo {
        local: "192.0.2.1:3260".parse().unwrap(),
        peer: "192.0.2.9:40000".parse().unwrap(),
        transport: "tcp",
        keys: TransportKeys::default(),
    }
}

fn admitted(target: Option<Arc<Target>>) -> Admitted {
    let nexus = target.map(|target| {
        let nexus = NexusId {
            initiator: InitiatorPort {
                name: INITIATOR.parse().unwrap(),
                isid: Isid([0x80, 0, 0, 0, 0, 1]),
            },
            target: TargetPort {
                name: target.name.clone(),
                tpgt: target.tpgt,
            },
        };
        (Arc::new(nexus), target)
    });
    Admitted { tsih: Tsih(1), nexus }
}

/// A login that goes from operational negotiation straight to full feature phase.
fn login() -> Request {
    Request::Login(LoginRequest {
        transit: true,
        continues: false,
        current_stage: LoginStage::Operational,
        next_stage: LoginStage::FullFeature,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: Itt(1),
        cid: Cid(0),
        cmd_sn: Sn(FIRST),
        exp_stat_sn: Sn(50),
    })
}

fn login_text(session_type: &str) -> Vec<u8> {
    let mut text = Vec::new();
    push_pair(&mut text, "InitiatorName", INITIATOR);
    push_pair(&mut text, "SessionType", session_type);
    if session_type == "Normal" {
        push_pair(&mut text, "TargetName", TARGET);
    }
    text
}

fn command(itt: u32, cmd_sn: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: false,
        attribute: TaskAttribute::Simple,
        priority: 0,
        lun: Lun::ZERO,
        itt: Itt(itt),
        expected_len: 512,
        cmd_sn: Sn(FIRST + cmd_sn),
        exp_stat_sn: Sn(51),
        cdb: [0; 16],
    }
}

fn nop(itt: Itt, ttt: Ttt, immediate: bool, cmd_sn: u32) -> Request {
    Request::NopOut(NopOut {
        immediate,
        lun: Lun::ZERO,
        itt,
        ttt,
        cmd_sn: Sn(FIRST + cmd_sn),
        exp_stat_sn: Sn(51),
    })
}

fn tmf(function: Function, referenced: u32, cmd_sn: u32, ref_cmd_sn: u32) -> Request {
    Request::TaskManagement(TaskManagementRequest {
        immediate: true,
        function,
        lun: Lun::ZERO,
        itt: Itt(0x900),
        referenced_itt: Itt(referenced),
        cmd_sn: Sn(FIRST + cmd_sn),
        exp_stat_sn: Sn(51),
        ref_cmd_sn: Sn(FIRST + ref_cmd_sn),
        exp_data_sn: 0,
    })
}

fn logout(reason: LogoutReason, cid: u16, immediate: bool, cmd_sn: u32) -> Request {
    Request::Logout(LogoutRequest {
        immediate,
        reason,
        itt: Itt(0x901),
        cid: Cid(cid),
        cmd_sn: Sn(FIRST + cmd_sn),
        exp_stat_sn: Sn(51),
    })
}

fn text(cmd_sn: u32) -> Request {
    Request::Text(TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun::ZERO,
        itt: Itt(0x902),
        ttt: Ttt::RESERVED,
        cmd_sn: Sn(FIRST + cmd_sn),
        exp_stat_sn: Sn(51),
    })
}

fn snack() -> Request {
    Request::Snack(Snack {
        kind: SnackType::Status,
        lun: Lun::ZERO,
        itt: Itt::RESERVED,
        ttt: Ttt::RESERVED,
        exp_stat_sn: Sn(51),
        begin_run: 51,
        run_length: 0,
    })
}

fn data_out() -> DataOut {
    DataOut {
        is_final: true,
        lun: Lun::ZERO,
        itt: Itt(0x77),
        ttt: Ttt(3),
        exp_stat_sn: Sn(51),
        data_sn: 0,
        offset: 0,
    }
}

fn show(action: &Action) -> String {
    match action {
        Action::Enable(..) => "enable".into(),
        Action::Send(_, pdu, _) => show_response(pdu),
        Action::Put(_, put) => match put.last {
            Some(last) => format!("data {:#x} with status {:#04x}", put.itt.0, last.status),
            None => format!("data {:#x}", put.itt.0),
        },
        Action::Get(_, get) => format!("get {:#x}", get.itt.0),
        Action::Release(_, itt) => format!("release {:#x}", itt.0),
        Action::End(_, itt) => format!("end {:#x}", itt.0),
        Action::Start(start) => format!("start {:#x}", start.pdu.itt.0),
        Action::Manage { function, .. } => format!("manage {function:?}"),
        Action::Admit(_) => "admit".into(),
        Action::DropSessions => "drop sessions".into(),
        Action::Surrender(_, itts) => format!("surrender {}", itts.len()),
        Action::Adopt { itt, .. } => format!("adopt {:#x}", itt.0),
        Action::Discard(itt) => format!("discard {:#x}", itt.0),
        Action::Forget(_, itt) => format!("forget {:#x}", itt.0),
        Action::LookAfter(_, itt) => format!("look after {:#x}", itt.0),
        Action::Snack(_, snack, _) => format!("snack {:?}", snack.kind),
        Action::TellCleared(luns) => format!("tell of {}", luns.len()),
        Action::Disconnect(link, reason) => format!("disconnect {}: {reason}", link.0),
        Action::Close(reason) => format!("close: {reason}"),
    }
}

fn show_response(pdu: &Response) -> String {
    match pdu {
        Response::AsyncMessage(pdu) => format!("async {:?}", pdu.event),
        Response::Login(pdu) => format!("login {:?}", pdu.status),
        Response::Logout(pdu) => format!("logout {:?}", pdu.response),
        Response::NopIn(pdu) if pdu.itt == Itt::RESERVED => "ping".into(),
        Response::NopIn(pdu) => format!("nop {:#x}", pdu.itt.0),
        Response::Reject(pdu) => format!("reject {:?}", pdu.reason),
        Response::ScsiResponse(pdu) => format!("status {:#04x} of {:#x}", pdu.status, pdu.itt.0),
        Response::TaskManagement(pdu) => format!("tmf {:?}", pdu.response),
        Response::Text(_) => "text".into(),
        Response::DataIn(_) | Response::R2t(_) => unreachable!("the mover makes these"),
    }
}
