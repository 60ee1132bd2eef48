//! The initiator's half of iSER over a queue pair in memory, for tests: PDUs in and out, memory opened and closed.

use std::collections::HashMap;
use std::task::{Context, Poll, ready};

use backstores::IoBuf;
use iscsi_proto::pdu::{Response, ScsiResponse};
use iscsi_proto::{BHS_LEN, Frame};

use crate::fabric::{LinkEvent, QueuePair, Work, WorkId};
use crate::header::{HEADER_LEN, Hello, HelloReply, IserHeader};
use crate::sim::SimQueuePair;

/// An initiator's end of a connection.
#[derive(Debug)]
pub struct Initiator {
    qp: SimQueuePair,
    tags: HashMap<u32, Tags>,
    next_id: u64,
    in_flight: usize,
    backlog: std::collections::VecDeque<(Work, u64)>,
    /// Announce the place of Data-Out behind what goes unasked, as Linux does.
    pub solicited_only: bool,
}

/// What arrived.
#[derive(Debug)]
pub enum Message {
    /// A PDU.
    Pdu {
        /// Its header.
        bhs: [u8; BHS_LEN],
        /// Its data segment.
        data: Vec<u8>,
        /// With a SCSI Response: the memory that was open for Data-In, as the target left it.
        data_in: Option<Vec<u8>>,
    },
    /// An iSER HelloReply.
    HelloReply(HelloReply),
}

/// Memory opened for a task.
#[derive(Clone, Copy, Debug, Default)]
struct Tags {
    read: Option<u32>,
    write: Option<u32>,
}

/// Memory to be opened with a SCSI Command.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Bytes of room for Data-In.
    pub room: usize,
    /// All Data-Out of the command.
    pub data_out: Vec<u8>,
    /// Bytes of it that go unasked: they are not fetched.
    pub unasked: usize,
}

impl Initiator {
    /// An initiator with receives for `receives` messages.
    #[must_use]
    pub fn new(mut qp: SimQueuePair, receives: usize) -> Self {
        for _ in 0..receives {
            qp.post_receive(IoBuf::from_heap(RECEIVE));
        }
        Self {
            qp,
            tags: HashMap::new(),
            next_id: 0,
            in_flight: 0,
            backlog: std::collections::VecDeque::new(),
            solicited_only: true,
        }
    }

    /// Sends a PDU.
    pub fn send(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        let header = IserHeader::Control {
            read: None,
            write: None,
        };
        self.send_with(header, bhs, data);
    }

    /// Sends a SCSI Command with memory opened for it.
    pub fn command(&mut self, bhs: [u8; BHS_LEN], data: &[u8], opened: Opened) {
        let itt = itt_of(&bhs);
        self.forget(itt);
        let Opened {
            room,
            data_out,
            unasked,
        } = opened;
        let read = (room > 0).then(|| self.qp.register(vec![UNTOUCHED; room]));
        let write = (unasked < data_out.len()).then(|| {
            if self.solicited_only {
                self.qp.register(data_out[unasked..].to_vec())
            } else {
                self.qp.register(data_out)
            }
        });
        let tags = Tags {
            read: read.map(|place| place.stag),
            write: write.map(|place| place.stag),
        };
        self.tags.insert(itt, tags);
        self.send_with(IserHeader::Control { read, write }, bhs, data);
    }

    /// Sends an iSER Hello.
    pub fn hello(&mut self, hello: Hello) {
        self.post(&IserHeader::Hello(hello).encode());
    }

    /// Sends any bytes as a message.
    pub fn send_raw(&mut self, message: &[u8]) {
        self.post(message);
    }

    /// Closes the memory of a task: nothing must touch it any more.
    pub fn forget(&mut self, itt: u32) -> Option<Vec<u8>> {
        let tags = self.tags.remove(&itt)?;
        if let Some(stag) = tags.write {
            self.qp.deregister(stag);
        }
        self.qp.deregister(tags.read?)
    }

    /// Whether the response of a task has made the tag of its Data-In invalid.
    #[must_use]
    pub fn was_invalidated(&self, itt: u32) -> bool {
        let tags = self.tags.get(&itt).copied().unwrap_or_default();
        tags.read
            .or(tags.write)
            .is_some_and(|stag| self.qp.is_invalid(stag))
    }

    /// The next message; `None` when the connection is gone.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        loop {
            match ready!(self.qp.poll_event(cx)) {
                LinkEvent::Lost(_) => return Poll::Ready(None),
                LinkEvent::Done(_) => {
                    self.in_flight -= 1;
                    self.pump();
                }
                LinkEvent::Received(mut buf) => {
                    let message = self.understand(&buf);
                    buf.set_len(RECEIVE);
                    self.qp.post_receive(buf);
                    return Poll::Ready(Some(message));
                }
            }
        }
    }

    /// The next message, when it is there.
    pub async fn message(&mut self) -> Option<Message> {
        std::future::poll_fn(|cx| self.poll_message(cx)).await
    }

    /// The queue pair, to disturb it.
    pub fn queue_pair(&mut self) -> &mut SimQueuePair {
        &mut self.qp
    }

    fn understand(&mut self, message: &[u8]) -> Message {
        match IserHeader::decode(message).expect("the target sends iSER headers") {
            IserHeader::HelloReply(reply) => return Message::HelloReply(reply),
            IserHeader::Hello(_) => unreachable!("a target sends no Hello"),
            IserHeader::Control { .. } => {}
        }
        let (bhs, data) = message[HEADER_LEN..]
            .split_first_chunk::<BHS_LEN>()
            .expect("the target sends whole PDUs");
        let data = data[..Frame::of(bhs).data_len].to_vec();
        let answers = matches!(
            Response::decode(bhs),
            Ok(Response::ScsiResponse(ScsiResponse { .. }))
        );
        let data_in = if answers { self.forget(itt_of(bhs)) } else { None };
        Message::Pdu {
            bhs: *bhs,
            data,
            data_in,
        }
    }

    fn send_with(&mut self, header: IserHeader, mut bhs: [u8; BHS_LEN], data: &[u8]) {
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        frame.stamp(&mut bhs);
        self.post(&[&header.encode()[..], &bhs, data].concat());
    }

    fn post(&mut self, message: &[u8]) {
        let mut buf = IoBuf::from_heap(message.len());
        buf.copy_from_slice(message);
        self.next_id += 1;
        let work = Work::Send {
            buf,
            invalidate: None,
        };
        self.backlog.push_back((work, self.next_id));
        self.pump();
    }

    fn pump(&mut self) {
        while self.in_flight < self.qp.capabilities().send_depth
            && let Some((work, id)) = self.backlog.pop_front()
        {
            self.in_flight += 1;
            self.qp.post(WorkId(id), work);
        }
    }
}

fn itt_of(bhs: &[u8; BHS_LEN]) -> u32 {
    u32::from_be_bytes([bhs[16], bhs[17], bhs[18], bhs[19]])
}

/// What memory for Data-In holds before the target writes into it.
const UNTOUCHED: u8 = 0xa5;
/// The login's longest response fits.
const RECEIVE: usize = 16 * 1024;
