//! Defects that show between several connections of a session, or where PDUs are lost: what a spoiled mover makes of
//! requests before the target hears them, and what the movers of one session share.

use std::collections::BTreeMap;
use std::sync::Mutex;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{Function, LogoutReason, Request, Response, SnackType};
use iscsi_proto::{Ahs, BHS_LEN, Cid, Sn};
use target_core::datamover::Notify;

use super::defects::Defect;

/// What movers of one session have to do with each other, by TSIH.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    counts: Mutex<BTreeMap<u16, u32>>,
    numbers: Mutex<BTreeMap<u16, Sn>>,
    responses: Mutex<Vec<(u16, u64, Response, Bytes)>>,
}

impl Strays {
    /// Counts a response of a session. How many there were.
    pub(crate) fn count(&self, tsih: u16) -> u32 {
        let mut counts = self.counts.lock().expect("plain data");
        let count = counts.entry(tsih).or_default();
        *count += 1;
        *count
    }

    /// A connection of a session has logged in. A new session's first request will have this CmdSN.
    pub(crate) fn begin(&self, tsih: u16, cmd_sn: Sn) {
        let mut numbers = self.numbers.lock().expect("plain data");
        numbers.entry(tsih).or_insert(cmd_sn);
    }

    /// The CmdSN of the next request of a session that arrives, if they went by arrival.
    pub(crate) fn arrive(&self, tsih: u16) -> Option<Sn> {
        let mut numbers = self.numbers.lock().expect("plain data");
        numbers.get_mut(&tsih).map(Sn::advance)
    }

    /// A mover leaves a response to another one of its session.
    pub(crate) fn leave(&self, tsih: u16, mover: u64, pdu: Response, data: Bytes) {
        self.responses
            .lock()
            .expect("plain data")
            .push((tsih, mover, pdu, data));
    }

    /// A response that another mover of the session left.
    pub(crate) fn find(&self, tsih: u16, mover: u64) -> Option<(Response, Bytes)> {
        let mut responses = self.responses.lock().expect("plain data");
        let mut places = responses.iter();
        let place = places.position(|(of, by, ..)| *of == tsih && *by != mover)?;
        let (_, _, pdu, data) = responses.remove(place);
        Some((pdu, data))
    }
}

/// What a connection is to a mover that mishears.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ear {
    cid: Cid,
    /// Behind all responses sent.
    pub(crate) stat_sn: Sn,
    /// ExpCmdSN as it was said last.
    pub(crate) exp_cmd_sn: Sn,
    /// CmdSN of the login.
    pub(crate) login_cmd_sn: Sn,
}

impl Ear {
    pub(crate) fn new() -> Self {
        Self {
            cid: Cid(0),
            stat_sn: Sn(0),
            exp_cmd_sn: Sn(0),
            login_cmd_sn: Sn(0),
        }
    }

    /// What the target hears instead of what was said.
    pub(crate) fn mishear(&mut self, defect: Defect, notify: &mut Notify) {
        if let Notify::DataDigestError { bhs } = notify {
            if defect == Defect::DamagedDataTaken
                && let Some(taken) = take(bhs)
            {
                *notify = taken;
            }
            return;
        }
        if matches!(
            defect,
            Defect::ImaginedAcknowledgement | Defect::ForgottenResponses
        ) {
            return self.imagine(notify);
        }
        let Notify::Control { pdu, .. } = notify else {
            return;
        };
        match (defect, pdu) {
            (_, Request::Login(login)) => {
                self.cid = login.cid;
                self.login_cmd_sn = login.cmd_sn;
                if defect == Defect::NotReinstated && login.tsih.0 != 0 {
                    login.cid.0 ^= 0x4000;
                }
            }
            (Defect::WrongConnectionClosed, Request::Logout(logout))
                if logout.reason == LogoutReason::CloseConnection =>
            {
                logout.cid = self.cid;
            }
            (Defect::RecoveryIsClosing, Request::Logout(logout))
                if logout.reason == LogoutReason::RemoveConnectionForRecovery =>
            {
                logout.reason = LogoutReason::CloseConnection;
            }
            (Defect::HastyReset, Request::TaskManagement(tmf))
                if matches!(
                    tmf.function,
                    Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset
                ) =>
            {
                tmf.cmd_sn = self.exp_cmd_sn;
            }
            (Defect::WrongRunOfStatus, Request::Snack(snack)) if snack.kind == SnackType::Status => {
                snack.begin_run = snack.begin_run.wrapping_add(1);
            }
            _ => {}
        }
    }

    /// Everything is acknowledged.
    fn imagine(self, notify: &mut Notify) {
        match notify {
            Notify::Command { pdu, .. } => pdu.exp_stat_sn = self.stat_sn,
            Notify::Control {
                pdu: Request::NopOut(pdu),
                ..
            } => pdu.exp_stat_sn = self.stat_sn,
            Notify::ExpStatSn(exp_stat_sn) => *exp_stat_sn = self.stat_sn,
            _ => {}
        }
    }
}

/// The CmdSN of a request that waits its turn.
pub(crate) fn cmd_sn(notify: &mut Notify) -> Option<&mut Sn> {
    let (cmd_sn, is_immediate) = match notify {
        Notify::Command { pdu, .. } => (&mut pdu.cmd_sn, pdu.immediate),
        Notify::Control { pdu, .. } => match pdu {
            Request::NopOut(pdu) => (&mut pdu.cmd_sn, pdu.immediate),
            Request::Text(pdu) => (&mut pdu.cmd_sn, pdu.immediate),
            Request::Logout(pdu) => (&mut pdu.cmd_sn, pdu.immediate),
            Request::TaskManagement(pdu) => (&mut pdu.cmd_sn, pdu.immediate),
            _ => return None,
        },
        _ => return None,
    };
    (!is_immediate).then_some(cmd_sn)
}

/// A command whose immediate data did not arrive as they were sent, taken as it is.
fn take(bhs: &[u8; BHS_LEN]) -> Option<Notify> {
    let Ok(Request::ScsiCommand(pdu)) = Request::decode(bhs) else {
        return None;
    };
    let len = usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
    Some(Notify::Command {
        pdu,
        ahs: Ahs::default(),
        immediate: Some(IoBuf::from_heap(len)),
    })
}
