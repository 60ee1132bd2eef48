//! An initiator's end of one connection of a session: its pipes, and the numbers that count on it alone.

use std::task::{Context, Poll};

use iscsi_proto::Sn;
use iscsi_proto::pdu::Request;

use super::pipe::{Pdu, Receiver, Sender};

/// A connection in full feature phase.
#[derive(Debug)]
pub(crate) struct Leg {
    /// CID.
    pub(crate) cid: u16,
    sender: Sender,
    receiver: Receiver,
    /// Longest data segment that we take.
    pub(crate) max_recv: usize,
    /// The next response's StatSN.
    pub(crate) exp_stat_sn: Sn,
    /// ExpCmdSN and MaxCmdSN as they came last on this connection.
    pub(crate) window: (Sn, Sn),
    /// The target will close it, as we asked.
    pub(crate) is_closing: bool,
}

impl Leg {
    pub(crate) fn new(
        cid: u16,
        (sender, receiver): (Sender, Receiver),
        max_recv: usize,
        exp_stat_sn: Sn,
        window: (Sn, Sn),
    ) -> Self {
        Self {
            cid,
            sender,
            receiver,
            max_recv,
            exp_stat_sn,
            window,
            is_closing: false,
        }
    }

    pub(crate) fn send(&mut self, request: &Request, data: Vec<u8>, damaged: bool) {
        self.sender.send(Pdu {
            bhs: request.encode(),
            data,
            damaged,
        });
    }

    /// The next PDU; `None` at the end of the stream.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Pdu>> {
        self.receiver.poll_recv(cx)
    }
}
