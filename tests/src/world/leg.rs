//! An initiator's end of one connection of a session: its pipes, and the numbers that count on it alone. What happens on
//! the way is in `wire.rs`.

use std::collections::BTreeSet;
use std::task::{Context, Poll};

use iscsi_proto::Sn;
use iscsi_proto::pdu::Request;
use tokio::time::Instant;

use super::pipe::{Pdu, Receiver, Sender};
use super::wire::{Fate, Wire};

/// A connection in full feature phase.
#[derive(Debug)]
pub(crate) struct Leg {
    /// CID.
    pub(crate) cid: u16,
    sender: Sender,
    receiver: Receiver,
    wire: Wire,
    /// Longest data segment that we take.
    pub(crate) max_recv: usize,
    /// The next response's StatSN: everything before it was received.
    pub(crate) exp_stat_sn: Sn,
    /// Responses received behind the first that is missing.
    pub(crate) ahead: BTreeSet<u32>,
    /// Behind the last response known to have been sent.
    pub(crate) stat_sn_sent: Sn,
    /// When what is missing was last asked for.
    pub(crate) asked_at: Instant,
    /// ExpCmdSN and MaxCmdSN as they came last on this connection.
    pub(crate) window: (Sn, Sn),
    /// The target will close it, as we asked.
    pub(crate) is_closing: bool,
    /// The target will close it, because of what the wire made of something that we said.
    pub(crate) is_spoiled: bool,
}

impl Leg {
    pub(crate) fn new(
        cid: u16,
        (sender, receiver): (Sender, Receiver),
        wire: Wire,
        max_recv: usize,
        exp_stat_sn: Sn,
        window: (Sn, Sn),
    ) -> Self {
        Self {
            cid,
            sender,
            receiver,
            wire,
            max_recv,
            exp_stat_sn,
            ahead: BTreeSet::new(),
            stat_sn_sent: exp_stat_sn,
            asked_at: Instant::now(),
            window,
            is_closing: false,
            is_spoiled: false,
        }
    }

    pub(crate) fn send(&mut self, request: &Request, data: Vec<u8>) -> Fate {
        self.put(Pdu::new(request.encode(), data))
    }

    /// Sends a PDU with all that belongs to it.
    pub(crate) fn put(&mut self, pdu: Pdu) -> Fate {
        let fate = self.wire.send(&mut self.sender, pdu);
        self.is_spoiled |= fate == Fate::HeaderDamaged;
        fate
    }

    /// See [`Wire::calm`].
    pub(crate) fn calm(&mut self, is_calm: bool) {
        self.wire.calm(is_calm);
    }

    /// The next PDU; `None` at the end of the stream.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Pdu>> {
        self.wire.poll_recv(&mut self.receiver, cx)
    }

    /// What was overtaken by the PDU that came last.
    pub(crate) fn overtaken(&mut self) -> Option<Pdu> {
        self.wire.overtaken()
    }

    /// Takes note of a response. Whether it is one that was not received before.
    pub(crate) fn receive(&mut self, stat_sn: Sn) -> bool {
        self.know_of(stat_sn.next());
        if stat_sn.precedes(self.exp_stat_sn) || !self.ahead.insert(stat_sn.0) {
            return false;
        }
        while self.ahead.remove(&self.exp_stat_sn.0) {
            self.exp_stat_sn.advance();
        }
        true
    }

    /// Whether a response was received before.
    pub(crate) fn has(&self, stat_sn: Sn) -> bool {
        stat_sn.precedes(self.exp_stat_sn) || self.ahead.contains(&stat_sn.0)
    }

    /// Responses up to this one were sent.
    pub(crate) fn know_of(&mut self, stat_sn: Sn) {
        if self.stat_sn_sent.precedes(stat_sn) {
            self.stat_sn_sent = stat_sn;
        }
    }

    /// Responses that were sent and not received: the first, and how many until one that was.
    pub(crate) fn missing(&self) -> Option<(Sn, u32)> {
        let first = self.exp_stat_sn;
        let mut end = first;
        while end.precedes(self.stat_sn_sent) && !self.ahead.contains(&end.0) {
            end.advance();
        }
        (end != first).then(|| (first, end.distance_from(first)))
    }
}
