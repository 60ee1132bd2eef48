//! [`SimMover`]: a data mover over two simulated pipes. PDUs travel as headers and data, so everything that is said is
//! encoded and decoded as on a real wire; only framing and digests are left to the real transports' own tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstores::{BufPool, CHUNK, IoBuf};
use bytes::Bytes;
use iscsi_proto::pdu::{DataIn, DataInStatus, Request, Response, Snack, SnackType};
use iscsi_proto::{Ahs, Itt, Ttt};
use target_core::data_out::{DataOutBook, Effect, OutRules};
use target_core::datamover::{
    DataMover, GetData, Notify, Numbering, PutData, TaskRemains, TransportClosed, Unsent,
};
use target_core::iscsi::SessionParams;
use target_core::replay::{Replay, ReplayRules, Segment};
use tokio::sync::OwnedSemaphorePermit;

use super::pipe::{Damage, Pdu, Receiver, Sender};

/// The target's end of a simulated connection.
#[derive(Debug)]
pub(crate) struct SimMover {
    sender: Sender,
    receiver: Receiver,
    pool: Arc<BufPool>,
    params: SessionParams,
    queue: VecDeque<Queued>,
    data_in_sn: BTreeMap<u32, u32>,
    data_out: DataOutBook,
    replay: Option<Replay>,
    notices: VecDeque<Notify>,
}

/// A PDU that waits for room. A piece of Data-In keeps its buffer, and its share of the bytes in flight, till then.
#[derive(Debug)]
struct Queued {
    pdu: Pdu,
    #[expect(dead_code, reason = "held for its drop")]
    holds: Option<Arc<(Option<IoBuf>, Option<OwnedSemaphorePermit>)>>,
}

impl SimMover {
    /// A mover that sends into one pipe and receives from another.
    #[must_use]
    pub(crate) fn new(sender: Sender, receiver: Receiver, pool: Arc<BufPool>) -> Self {
        Self {
            sender,
            receiver,
            pool,
            params: SessionParams::default(),
            queue: VecDeque::new(),
            data_in_sn: BTreeMap::new(),
            data_out: DataOutBook::new(out_rules(&SessionParams::default())),
            replay: None,
            notices: VecDeque::new(),
        }
    }

    fn push(&mut self, pdu: &Response, data: Vec<u8>) {
        let pdu = Pdu::new(pdu.encode(), data);
        self.queue.push_back(Queued { pdu, holds: None });
    }

    fn send_segments(&mut self, segments: Vec<Segment>, share: Option<OwnedSemaphorePermit>) {
        let holds = Some(Arc::new((None, share)));
        for Segment { header, data } in segments {
            let pdu = Pdu::new(Response::DataIn(header).encode(), data.to_vec());
            let holds = holds.clone();
            self.queue.push_back(Queued { pdu, holds });
        }
    }

    fn apply_data_out(&mut self) {
        while let Some(effect) = self.data_out.next_effect() {
            match effect {
                Effect::Send(r2t) => self.push(&Response::R2t(r2t), Vec::new()),
                Effect::Tell(notify) => self.notices.push_back(notify),
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.queue.is_empty() {
            ready!(self.sender.poll_room(cx));
            let queued = self.queue.pop_front().expect("not empty");
            self.sender.send(queued.pdu);
        }
        Poll::Ready(())
    }

    fn arrived(&mut self, pdu: Pdu) {
        let Pdu {
            bhs, data, damage, ..
        } = pdu;
        if damage == Damage::Header {
            let closed = TransportClosed::Framing("a header digest does not match".into());
            return self.notices.push_back(Notify::Closed(closed));
        }
        let damaged = damage == Damage::Data;
        match Request::decode(&bhs) {
            Err(error) => self.notices.push_back(Notify::Malformed { bhs, error }),
            Ok(Request::DataOut(pdu)) => {
                self.notices.push_back(Notify::ExpStatSn(pdu.exp_stat_sn));
                let place = self.data_out.header(&bhs, &pdu, data.len());
                let place = place.expect("no initiator of this world leaves so much unfinished");
                let buf = place.map(|mut place| {
                    place.buf[place.at..place.at + data.len()].copy_from_slice(&data);
                    place.buf
                });
                self.data_out.landed(buf, !damaged);
                self.apply_data_out();
            }
            Ok(_) if damaged => self.notices.push_back(Notify::DataDigestError { bhs }),
            Ok(Request::ScsiCommand(pdu)) => {
                self.data_out.begin_command(&pdu, data.len());
                let immediate = (!data.is_empty()).then(|| self.immediate(pdu.expected_len as usize, &data));
                let ahs = Ahs::default();
                self.notices.push_back(Notify::Command { pdu, ahs, immediate });
            }
            Ok(pdu) => {
                let data = Bytes::from(data);
                self.notices.push_back(Notify::Control { pdu, data });
            }
        }
    }

    /// A block with room for the first chunk; the heap when the pool is dry.
    fn immediate(&self, expected: usize, data: &[u8]) -> IoBuf {
        let room = expected.max(data.len()).min(CHUNK);
        let mut buf = self
            .pool
            .try_acquire(room)
            .unwrap_or_else(|| IoBuf::from_heap(data.len()));
        buf.set_len(data.len());
        buf.copy_from_slice(data);
        buf
    }
}

impl DataMover for SimMover {
    fn move_to(&mut self, pool: &Arc<BufPool>) -> Result<(), TransportClosed> {
        self.pool = Arc::clone(pool);
        Ok(())
    }

    fn enable(&mut self, params: &SessionParams) {
        self.params = params.clone();
        self.data_out.set_rules(out_rules(params));
        if params.error_recovery_level > 0 {
            let rules = ReplayRules {
                max_data_len: params.max_send_data_segment_len as usize,
                max_burst_len: params.max_burst_len as usize,
            };
            let replay = self.replay.get_or_insert_with(|| Replay::new(rules));
            replay.set_rules(rules);
        }
    }

    fn send_control(&mut self, mut pdu: Response, data: Bytes) {
        if let Response::ScsiResponse(response) = &mut pdu {
            let data_ins = self.data_in_sn.get(&response.itt.0).copied().unwrap_or(0);
            response.exp_data_sn = data_ins + self.data_out.r2ts_sent(response.itt);
            if let Some(replay) = &self.replay {
                replay.complete(response, self.data_out.r2ts_sent(response.itt));
            }
        }
        self.push(&pdu, data.to_vec());
    }

    fn put_data(&mut self, put: PutData) {
        if let Some(replay) = &mut self.replay {
            let segments = replay.send(&put);
            return self.send_segments(segments, put.budget);
        }
        let segment = self.params.max_send_data_segment_len as usize;
        let burst = self.params.max_burst_len as usize;
        let data_sn = self.data_in_sn.entry(put.itt.0).or_default();
        let (buf, holds) = (put.buf.to_vec(), Arc::new((Some(put.buf), put.budget)));
        let (mut at, mut burst_left) = (0, burst);
        loop {
            let len = (buf.len() - at).min(segment).min(burst_left);
            let ends = at + len == buf.len();
            burst_left -= len;
            let status = put.last.filter(|_| ends).map(|last| DataInStatus {
                status: last.status,
                stat_sn: put.numbering.stat_sn,
                residual: last.residual,
            });
            let header = DataIn {
                is_final: ends || burst_left == 0,
                acknowledge: false,
                status,
                lun: put.lun,
                itt: put.itt,
                ttt: Ttt::RESERVED,
                exp_cmd_sn: put.numbering.exp_cmd_sn,
                max_cmd_sn: put.numbering.max_cmd_sn,
                data_sn: *data_sn,
                offset: put.offset.wrapping_add(at as u32),
            };
            *data_sn += 1;
            let pdu = Pdu::new(Response::DataIn(header).encode(), buf[at..at + len].to_vec());
            let holds = Some(Arc::clone(&holds));
            self.queue.push_back(Queued { pdu, holds });
            at += len;
            if burst_left == 0 {
                burst_left = burst;
            }
            if ends {
                break;
            }
        }
    }

    fn get_data(&mut self, get: GetData) {
        self.data_out.get(get);
        self.apply_data_out();
    }

    fn release_task(&mut self, itt: Itt) {
        self.forget_task(itt);
        self.data_in_sn.remove(&itt.0);
        self.data_out.release(itt);
        self.apply_data_out();
    }

    fn end_task(&mut self, itt: Itt) {
        if let Some(replay) = &mut self.replay {
            replay.end(itt, self.data_out.r2ts_sent(itt));
        }
        self.data_in_sn.remove(&itt.0);
        self.data_out.end(itt);
    }

    fn snack(&mut self, snack: &Snack, numbering: Numbering) -> Result<(), Unsent> {
        let Some(replay) = &mut self.replay else {
            return Err(Unsent::Unknown);
        };
        let again = match snack.kind {
            SnackType::DataAck if replay.acknowledge(snack.ttt, snack.begin_run) => Vec::new(),
            SnackType::DataAck | SnackType::Status => return Err(Unsent::Unknown),
            SnackType::RData => replay.cut_anew(snack.itt, snack.ttt.0, numbering)?,
            SnackType::DataOrR2t if replay.sent(snack.itt) > 0 => {
                replay.again(snack.itt, snack.begin_run, snack.run_length, numbering)?
            }
            SnackType::DataOrR2t => {
                let (begin, count) = (snack.begin_run, snack.run_length);
                self.data_out.repeat_r2ts(snack.itt, begin, count, numbering)?;
                Vec::new()
            }
        };
        self.send_segments(again, None);
        self.apply_data_out();
        Ok(())
    }

    fn forget_task(&mut self, itt: Itt) {
        if let Some(replay) = &mut self.replay {
            replay.forget(itt);
        }
    }

    fn look_after(&mut self, itt: Itt) {
        self.data_out.look_after(itt);
        self.apply_data_out();
    }

    fn surrender(&mut self, itt: Itt) -> TaskRemains {
        TaskRemains {
            sent: self.replay.as_mut().map(|replay| replay.surrender(itt)),
            out: self.data_out.surrender(itt),
        }
    }

    fn adopt(
        &mut self,
        itt: Itt,
        remains: TaskRemains,
        next_data_sn: u32,
        numbering: Numbering,
    ) -> Result<(), Unsent> {
        let (Some(replay), Some(sent)) = (&mut self.replay, remains.sent) else {
            return Err(Unsent::Unknown);
        };
        let again = replay.adopt(itt, sent, next_data_sn, numbering)?;
        self.data_out.adopt(itt, remains.out, numbering);
        self.send_segments(again, None);
        self.apply_data_out();
        Ok(())
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_send(cx)
    }

    fn poll_notify(&mut self, cx: &mut Context<'_>) -> Poll<Notify> {
        loop {
            // Pending means that the peer takes nothing just now; receiving goes on all the same.
            let _sent_all = self.poll_send(cx);
            if let Some(notify) = self.notices.pop_front() {
                return Poll::Ready(notify);
            }
            match ready!(self.receiver.poll_recv(cx)) {
                Some(pdu) => self.arrived(pdu),
                None => return Poll::Ready(Notify::Closed(TransportClosed::Eof)),
            }
        }
    }

    fn queued_bytes(&self) -> usize {
        let waiting = self.queue.iter().map(|queued| 48 + queued.pdu.data.len());
        waiting.sum::<usize>() + self.sender.bytes()
    }

    fn progress(&self) -> u64 {
        self.sender.taken()
    }
}

fn out_rules(params: &SessionParams) -> OutRules {
    OutRules {
        max_burst_len: params.max_burst_len as usize,
        first_burst_len: params.first_burst_len as usize,
        max_outstanding_r2t: usize::from(params.max_outstanding_r2t.max(1)),
        recovers: params.error_recovery_level > 0,
    }
}
