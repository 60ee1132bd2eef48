//! A data mover with a planted defect: it changes what the target submits, now and then.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use backstores::BufPool;
use bytes::Bytes;
use iscsi_proto::pdu::{
    NopOut, Request, Residual, Response, ScsiResponse, ScsiResponseCode, Snack, SnackType, TmfResponse,
};
use iscsi_proto::{Itt, Lun, Sn, Ttt};
use target_core::data_out::OutRemains;
use target_core::datamover::{
    DataMover, GetData, Notify, Numbering, PutData, TaskRemains, TransportClosed, Unsent,
};
use target_core::iscsi::SessionParams;
use target_core::replay::SentTask;

use super::defects::Defect;
use super::scene::Scene;
use super::spoiled_session::{Ear, cmd_sn};

/// The mover around a sound one.
#[derive(Debug)]
pub(crate) struct SpoiledMover<M> {
    inner: M,
    scene: Arc<Scene>,
    defect: Defect,
    /// Chances to do harm so far; every few of them is taken.
    chances: u32,
    /// Added to every StatSN, so that a response more or less shows only as what it is.
    shift: u32,
    /// Slots of the command window that are lost.
    leaked: u32,
    released: Option<Itt>,
    /// Tasks of which the target is told at once that nothing moves for them any more.
    early: VecDeque<Itt>,
    /// Task management requests that came by this connection and were not answered.
    managing: usize,
    ear: Ear,
    /// What tells it from other movers.
    id: u64,
    /// Of its session, once it has one.
    tsih: u16,
    /// Responses sent.
    responses: u32,
    /// Tasks that were taken up here.
    adopted: BTreeSet<u32>,
    /// What waits until the store goes on.
    waiting: VecDeque<Submission>,
    /// The connection is gone, and nobody is told.
    haunted: bool,
    pongs: VecDeque<Ttt>,
}

#[derive(Debug)]
enum Submission {
    Control(Response, Bytes),
    Put(PutData),
    Get(GetData),
    Release(Itt),
    End(Itt),
    Enable(SessionParams),
}

impl<M: DataMover> SpoiledMover<M> {
    pub(crate) fn new(inner: M, scene: Arc<Scene>, defect: Defect) -> Self {
        let id = scene.tick();
        Self {
            inner,
            scene,
            defect,
            chances: 0,
            shift: 0,
            leaked: 0,
            released: None,
            early: VecDeque::new(),
            managing: 0,
            ear: Ear::new(),
            id,
            tsih: 0,
            responses: 0,
            adopted: BTreeSet::new(),
            waiting: VecDeque::new(),
            haunted: false,
            pongs: VecDeque::new(),
        }
    }

    /// Whether this is the defect, and this the occasion.
    fn strikes(&mut self, defect: Defect) -> bool {
        if self.defect != defect {
            return false;
        }
        self.chances += 1;
        self.chances.is_multiple_of(3)
    }

    fn submit(&mut self, submission: Submission) {
        if !self.waiting.is_empty() || self.must_wait(&submission) {
            return self.waiting.push_back(submission);
        }
        match submission {
            Submission::Control(pdu, data) => self.control(pdu, data),
            Submission::Put(put) => self.put(put),
            Submission::Get(get) => self.inner.get_data(get),
            Submission::Release(itt) => self.inner.release_task(itt),
            Submission::End(itt) => self.inner.end_task(itt),
            Submission::Enable(params) => self.inner.enable(&params),
        }
    }

    fn must_wait(&self, submission: &Submission) -> bool {
        let waits = match submission {
            Submission::Control(Response::TaskManagement(_), _) => self.defect == Defect::AbortWaitsForStore,
            Submission::Control(Response::Login(_), _) => self.defect == Defect::LoginWaitsForStore,
            _ => false,
        };
        waits && self.scene.is_held()
    }

    fn control(&mut self, mut pdu: Response, data: Bytes) {
        if let Response::Login(login) = &pdu {
            self.tsih = login.tsih.0;
            self.scene.strays.begin(self.tsih, self.ear.login_cmd_sn);
        }
        while let Some((pdu, data)) = self.scene.strays.find(self.tsih, self.id) {
            self.shift = self.shift.wrapping_add(1);
            self.send(pdu, data);
        }
        if let Response::NopIn(nop) = &pdu
            && self.haunted
            && nop.ttt != Ttt::RESERVED
        {
            self.pongs.push_back(nop.ttt);
        }
        if let Response::ScsiResponse(response) = &mut pdu {
            if self.strikes(Defect::LostResponse) {
                self.shift = self.shift.wrapping_sub(1);
                return;
            }
            if self.strikes(Defect::StrayResponse) {
                self.shift = self.shift.wrapping_sub(1);
                return self.scene.strays.leave(self.tsih, self.id, pdu, data);
            }
            if self.defect == Defect::LostStatusOfReassigned && self.adopted.contains(&response.itt.0) {
                return;
            }
            if self.strikes(Defect::WrongResidual) {
                response.residual = Residual::Underflow(17);
            }
            if self.strikes(Defect::DoubledResponse) {
                let again = pdu.clone();
                self.send(again, data.clone());
                self.shift = self.shift.wrapping_add(1);
            }
        }
        if let Response::TaskManagement(response) = &mut pdu
            && self.defect == Defect::ReassignedTwice
            && response.response == TmfResponse::TaskStillAllegiant
        {
            response.response = TmfResponse::Complete;
        }
        if matches!(pdu, Response::TaskManagement(_)) {
            self.managing = self.managing.saturating_sub(1);
        }
        let after = match &pdu {
            Response::TaskManagement(response) => self.released.take().map(|itt| {
                good(
                    itt,
                    Numbering {
                        stat_sn: response.stat_sn,
                        exp_cmd_sn: response.exp_cmd_sn,
                        max_cmd_sn: response.max_cmd_sn,
                    },
                    Residual::None,
                )
            }),
            _ => None,
        };
        self.send(pdu, data);
        if let Some(after) = after {
            self.shift = self.shift.wrapping_add(1);
            self.send(after, Bytes::new());
        }
    }

    fn send(&mut self, mut pdu: Response, data: Bytes) {
        let is_ping = matches!(&pdu, Response::NopIn(nop) if nop.ttt != Ttt::RESERVED);
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = match &mut pdu {
            Response::AsyncMessage(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Logout(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::NopIn(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::Reject(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::ScsiResponse(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::TaskManagement(pdu) => (&mut pdu.stat_sn, &mut pdu.exp_cmd_sn, &mut pdu.max_cmd_sn),
            Response::DataIn(_) | Response::Login(_) | Response::R2t(_) | Response::Text(_) => {
                return self.inner.send_control(pdu, data);
            }
        };
        if !is_ping {
            self.responded();
        }
        self.spoil(stat_sn, exp_cmd_sn, max_cmd_sn);
        self.inner.send_control(pdu, data);
    }

    /// A response is about to be sent.
    fn responded(&mut self) {
        if self.defect == Defect::SharedStatSn {
            self.responses += 1;
            let all = self.scene.strays.count(self.tsih);
            self.shift = all.wrapping_sub(self.responses);
        }
    }

    fn spoil(&mut self, stat_sn: &mut Sn, exp_cmd_sn: &mut Sn, max_cmd_sn: &mut Sn) {
        if self.strikes(Defect::SkippedStatSn) {
            self.shift = self.shift.wrapping_add(1);
        }
        if self.strikes(Defect::ReturningExpCmdSn) {
            *exp_cmd_sn = exp_cmd_sn.minus(2);
        }
        if self.strikes(Defect::ShrinkingWindow) {
            self.leaked = 1;
        }
        self.ear.stat_sn = stat_sn.next();
        self.ear.exp_cmd_sn = *exp_cmd_sn;
        *stat_sn = stat_sn.plus(self.shift);
        *max_cmd_sn = max_cmd_sn.minus(self.leaked);
    }

    fn put(&mut self, mut put: PutData) {
        if put.last.is_some() {
            self.responded();
        }
        let Numbering {
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
        } = &mut put.numbering;
        self.spoil(stat_sn, exp_cmd_sn, max_cmd_sn);
        if self.strikes(Defect::WrongDataInOffset) {
            put.offset += 512;
        }
        if put.buf.len() > 512 && self.strikes(Defect::ShortDataIn) {
            let short = put.buf.len() - 512;
            put.buf.set_len(short);
        }
        if self.strikes(Defect::LeakedBuffer) {
            std::mem::forget(self.scene.pool.try_acquire(512));
        }
        if let Some(last) = &mut put.last
            && self.strikes(Defect::WrongResidual)
        {
            last.residual = Residual::Underflow(17);
        }
        if let Some(last) = put.last
            && self.strikes(Defect::StatusBeforeData)
        {
            put.last = None;
            self.inner
                .send_control(good(put.itt, put.numbering, last.residual), Bytes::new());
        }
        self.inner.put_data(put);
    }
}

impl<M: DataMover> DataMover for SpoiledMover<M> {
    fn move_to(&mut self, pool: &Arc<BufPool>) -> Result<(), TransportClosed> {
        self.inner.move_to(pool)
    }

    fn enable(&mut self, params: &SessionParams) {
        self.submit(Submission::Enable(params.clone()));
    }

    fn send_control(&mut self, pdu: Response, data: Bytes) {
        self.submit(Submission::Control(pdu, data));
    }

    fn put_data(&mut self, put: PutData) {
        self.submit(Submission::Put(put));
    }

    fn get_data(&mut self, mut get: GetData) {
        if self.strikes(Defect::WrongR2tOffset) {
            get.offset += 512;
        }
        self.submit(Submission::Get(get));
    }

    fn release_task(&mut self, itt: Itt) {
        if self.defect == Defect::ResponseAfterAbort {
            self.released = Some(itt);
        }
        if self.defect == Defect::AbortOutrunsOtherConnections && self.managing == 0 {
            self.early.push_back(itt);
        }
        self.submit(Submission::Release(itt));
    }

    fn end_task(&mut self, itt: Itt) {
        self.submit(Submission::End(itt));
    }

    fn snack(&mut self, snack: &Snack, numbering: Numbering) -> Result<(), Unsent> {
        if self.defect == Defect::GreedyDataAck && snack.kind == SnackType::DataAck {
            for more in (1..8).rev() {
                let begin_run = snack.begin_run + more;
                let snack = snack.clone();
                if self.inner.snack(&Snack { begin_run, ..snack }, numbering).is_ok() {
                    return Ok(());
                }
            }
        }
        self.inner.snack(snack, numbering)
    }

    fn forget_task(&mut self, itt: Itt) {
        self.inner.forget_task(itt);
    }

    fn look_after(&mut self, itt: Itt) {
        if self.defect != Defect::DataOutNotLookedAfter {
            self.inner.look_after(itt);
        }
    }

    fn surrender(&mut self, itt: Itt) -> TaskRemains {
        self.inner.surrender(itt)
    }

    fn adopt(
        &mut self,
        itt: Itt,
        remains: TaskRemains,
        next_data_sn: u32,
        numbering: Numbering,
    ) -> Result<(), Unsent> {
        self.adopted.insert(itt.0);
        if self.defect == Defect::ForgottenDataOut {
            let nothing = TaskRemains {
                out: OutRemains::default(),
                ..remains
            };
            return self.inner.adopt(itt, nothing, next_data_sn, numbering);
        }
        if self.defect == Defect::ForgottenRemains {
            // As if nothing had been sent.
            let nothing = TaskRemains {
                sent: Some(SentTask::default()),
                ..remains
            };
            return self.inner.adopt(itt, nothing, next_data_sn, numbering);
        }
        self.inner.adopt(itt, remains, next_data_sn, numbering)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_close(cx)
    }

    fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<Notify> {
        if !self.waiting.is_empty() && !self.scene.is_held() {
            for submission in std::mem::take(&mut self.waiting) {
                self.submit(submission);
            }
        }
        if self.haunted {
            let Some(ttt) = self.pongs.pop_front() else {
                return Poll::Pending;
            };
            return Poll::Ready(pong(ttt));
        }
        if let Some(itt) = self.early.pop_front() {
            return Poll::Ready(Notify::Released(itt));
        }
        match self.inner.poll_notify(cx) {
            Poll::Ready(Notify::Closed(_)) if self.defect == Defect::GhostSession => {
                self.haunted = true;
                Poll::Pending
            }
            Poll::Ready(mut notify) => {
                self.ear.mishear(self.defect, &mut notify);
                let is_tmf = matches!(
                    &notify,
                    Notify::Control {
                        pdu: Request::TaskManagement(_),
                        ..
                    }
                );
                self.managing += usize::from(is_tmf);
                if self.defect == Defect::OrderOfArrival
                    && let Some(cmd_sn) = cmd_sn(&mut notify)
                    && let Some(next) = self.scene.strays.arrive(self.tsih)
                {
                    *cmd_sn = next;
                }
                Poll::Ready(notify)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn queued_bytes(&self) -> usize {
        if self.haunted {
            0
        } else {
            self.inner.queued_bytes()
        }
    }

    fn progress(&self) -> u64 {
        self.inner.progress()
    }
}

/// GOOD for a task.
fn good(itt: Itt, numbering: Numbering, residual: Residual) -> Response {
    Response::ScsiResponse(ScsiResponse {
        itt,
        response: ScsiResponseCode::CompletedAtTarget,
        status: 0,
        residual,
        bidi_read_residual: Residual::None,
        snack_tag: 0,
        stat_sn: numbering.stat_sn,
        exp_cmd_sn: numbering.exp_cmd_sn,
        max_cmd_sn: numbering.max_cmd_sn,
        exp_data_sn: 0,
    })
}

/// An answer to a NOP-In, from nobody.
fn pong(ttt: Ttt) -> Notify {
    Notify::Control {
        pdu: Request::NopOut(NopOut {
            immediate: true,
            lun: Lun::ZERO,
            itt: Itt::RESERVED,
            ttt,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
        }),
        data: Bytes::new(),
    }
}
