//! The send side without a socket: responses and Data-In in, slices for one `writev` out (RFC 7143 §11.2, §11.7).
//!
//! Digests are computed when work is queued, so a change of rules touches only what is queued afterwards.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use backstores::IoBuf;
use bytes::Bytes;
use iscsi_proto::pdu::{DataIn, DataInStatus, Response};
use iscsi_proto::{BHS_LEN, Crc32c, Frame, Ttt, crc32c};
use target_core::datamover::PutData;
use target_core::trace::{Digests, Tap};
use tokio::sync::OwnedSemaphorePermit;

/// First in, first out.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: VecDeque<Entry>,
    /// Bytes of the front entry that the socket has already taken.
    consumed: usize,
    bytes: usize,
    rules: SendRules,
    tap: Option<Arc<Tap>>,
}

/// What the negotiation decided about the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SendRules {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// The initiator's MaxRecvDataSegmentLength, bytes.
    pub(crate) max_data_len: usize,
    /// MaxBurstLength, bytes: the longest Data-In sequence between two F bits.
    pub(crate) max_burst_len: usize,
}

/// One body and the PDUs that carry it.
#[derive(Debug)]
struct Entry {
    body: Body,
    pdus: Vec<Pdu>,
    len: usize,
}

#[derive(Debug)]
enum Body {
    /// Bytes that somebody else may keep as well, and, of Data-In, the share of the connection's bytes in flight.
    Bytes(
        Bytes,
        #[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>,
    ),
    /// The buffer and its share of the connection's bytes in flight, both given back when the entry goes.
    Buffer(
        IoBuf,
        #[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>,
    ),
}

/// Header with its digest, a range of the body, padding with the data digest.
#[derive(Debug)]
struct Pdu {
    head: [u8; BHS_LEN + 4],
    head_len: usize,
    data: Range<usize>,
    tail: [u8; 8],
    tail_len: usize,
}

impl SendQueue {
    pub(crate) fn new(rules: SendRules) -> Self {
        Self {
            entries: VecDeque::new(),
            consumed: 0,
            bytes: 0,
            rules,
            tap: None,
        }
    }

    /// Where what is queued is told.
    pub(crate) fn listen_in(&mut self, tap: Arc<Tap>) {
        self.tap = Some(tap);
    }

    /// New rules for what is queued from now on.
    pub(crate) fn set_rules(&mut self, rules: SendRules) {
        self.rules = rules;
    }

    /// Bytes not yet taken by the socket.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Queues one PDU.
    pub(crate) fn push_control(&mut self, pdu: &Response, data: Bytes) {
        self.push_kept(pdu, data, None);
    }

    /// Queues one PDU of Data-In that was cut already.
    pub(crate) fn push_kept(&mut self, pdu: &Response, data: Bytes, share: Option<OwnedSemaphorePermit>) {
        let pdus = vec![Pdu::new(pdu, &data, 0..data.len(), self.rules)];
        self.push(Body::Bytes(data, share), pdus);
    }

    /// Queues Data-In PDUs for a buffer, numbered from `data_sn` on; returns how many.
    pub(crate) fn push_data_in(&mut self, put: PutData, data_sn: u32) -> u32 {
        let PutData {
            itt,
            lun,
            offset,
            buf,
            last,
            numbering,
            budget,
        } = put;
        let mut pdus = Vec::with_capacity(buf.len().div_ceil(self.rules.max_data_len).max(1));
        let mut header = DataIn {
            is_final: false,
            acknowledge: false,
            status: None,
            lun,
            itt,
            ttt: Ttt::RESERVED,
            exp_cmd_sn: numbering.exp_cmd_sn,
            max_cmd_sn: numbering.max_cmd_sn,
            data_sn,
            offset,
        };
        let (mut at, mut burst_left) = (0, self.rules.max_burst_len);
        loop {
            let len = (buf.len() - at).min(self.rules.max_data_len).min(burst_left);
            let ends = at + len == buf.len();
            burst_left -= len;
            // A sequence may end anywhere up to MaxBurstLength (§11.7.1); every buffer ends one.
            header.is_final = ends || burst_left == 0;
            if ends {
                header.status = last.map(|last| DataInStatus {
                    status: last.status,
                    stat_sn: numbering.stat_sn,
                    residual: last.residual,
                });
            }
            let response = Response::DataIn(header);
            pdus.push(Pdu::new(&response, &buf, at..at + len, self.rules));
            let Response::DataIn(sent) = response else {
                unreachable!("built above")
            };
            header = sent;
            if ends {
                break;
            }
            if header.is_final {
                burst_left = self.rules.max_burst_len;
            }
            at += len;
            header.data_sn = header.data_sn.wrapping_add(1);
            header.offset += u32::try_from(len).expect("a segment is at most 2^24 bytes");
        }
        let count = u32::try_from(pdus.len()).expect("a buffer has few segments");
        self.push(Body::Buffer(buf, budget), pdus);
        count
    }

    fn push(&mut self, body: Body, pdus: Vec<Pdu>) {
        if let Some(tap) = self.tap.as_ref().filter(|tap| tap.is_on()) {
            let digests = Digests {
                header: self.rules.header_digest,
                data: self.rules.data_digest,
            };
            for pdu in &pdus {
                let header = pdu.head.first_chunk().expect("a header is in front");
                tap.sent(header, &body.bytes()[pdu.data.clone()], digests);
            }
        }
        let len = pdus.iter().map(Pdu::len).sum();
        self.bytes += len;
        self.entries.push_back(Entry { body, pdus, len });
    }

    /// Appends what is to be sent next, up to `slices_max` slices and about `bytes_max` bytes.
    pub(crate) fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>, slices_max: usize, bytes_max: usize) {
        let (mut skip, mut total) = (self.consumed, 0);
        for entry in &self.entries {
            for piece in entry.pieces() {
                if skip >= piece.len() {
                    skip -= piece.len();
                    continue;
                }
                if out.len() == slices_max || total >= bytes_max {
                    return;
                }
                let piece = &piece[skip..];
                skip = 0;
                total += piece.len();
                out.push(IoSlice::new(piece));
            }
        }
    }

    /// The socket took `n` bytes: drops what is done.
    pub(crate) fn consume(&mut self, n: usize) {
        self.bytes -= n;
        self.consumed += n;
        while let Some(front) = self.entries.front()
            && self.consumed >= front.len
        {
            self.consumed -= front.len;
            self.entries.pop_front();
        }
    }
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes, _) => bytes,
            Self::Buffer(buf, _) => buf,
        }
    }
}

impl Entry {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let body = self.body.bytes();
        self.pdus
            .iter()
            .flat_map(move |pdu| {
                [
                    &pdu.head[..pdu.head_len],
                    &body[pdu.data.clone()],
                    &pdu.tail[..pdu.tail_len],
                ]
            })
            .filter(|piece| !piece.is_empty())
    }
}

impl Pdu {
    fn new(response: &Response, body: &[u8], data: Range<usize>, rules: SendRules) -> Self {
        let frame = Frame {
            ahs_len: 0,
            data_len: data.len(),
        };
        let mut bhs = response.encode();
        frame.stamp(&mut bhs);
        let mut head = [0; BHS_LEN + 4];
        head[..BHS_LEN].copy_from_slice(&bhs);
        let mut head_len = BHS_LEN;
        if rules.header_digest {
            head[BHS_LEN..].copy_from_slice(&crc32c(&bhs));
            head_len += 4;
        }
        let mut tail = [0; 8];
        let mut tail_len = frame.padding();
        if rules.data_digest && !data.is_empty() {
            let mut crc = Crc32c::new();
            crc.update(&body[data.clone()]);
            crc.update(&tail[..tail_len]);
            tail[tail_len..tail_len + 4].copy_from_slice(&crc.wire_bytes());
            tail_len += 4;
        }
        Self {
            head,
            head_len,
            data,
            tail,
            tail_len,
        }
    }

    fn len(&self) -> usize {
        self.head_len + self.data.len() + self.tail_len
    }
}

#[cfg(test)]
mod tests {
    use iscsi_proto::pdu::{NopIn, Residual};
    use iscsi_proto::{Itt, Lun, Sn};
    use proptest::prelude::*;
    use target_core::datamover::{FinalStatus, Numbering};

    use super::*;

    fn put(offset: u32, data: &[u8], last: bool) -> PutData {
        let mut buf = IoBuf::from_heap(data.len());
        buf.copy_from_slice(data);
        PutData {
            itt: Itt(7),
            lun: Lun::ZERO,
            offset,
            buf,
            last: last.then_some(FinalStatus {
                status: 0,
                residual: Residual::Underflow(3),
            }),
            numbering: Numbering {
                stat_sn: Sn(10),
                exp_cmd_sn: Sn(20),
                max_cmd_sn: Sn(30),
            },
            budget: None,
        }
    }

    /// Sends everything in writes of the given sizes and gives the stream back.
    fn drain(queue: &mut SendQueue, sizes: &[usize]) -> Vec<u8> {
        let (mut stream, mut turn) = (Vec::new(), 0);
        while !queue.is_empty() {
            let mut slices = Vec::new();
            queue.slices(&mut slices, 5, 10_000);
            let flat: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            assert!(!flat.is_empty());
            let n = sizes[turn % sizes.len()].min(flat.len());
            turn += 1;
            stream.extend(&flat[..n]);
            queue.consume(n);
        }
        assert_eq!(queue.queued_bytes(), 0);
        stream
    }

    /// Takes a stream without digests apart.
    fn data_ins(mut stream: &[u8]) -> Vec<(DataIn, Vec<u8>)> {
        let mut out = Vec::new();
        while let Some(bhs) = stream.first_chunk::<BHS_LEN>() {
            let frame = Frame::of(bhs);
            let Response::DataIn(pdu) = Response::decode(bhs).unwrap() else {
                panic!("not Data-In")
            };
            out.push((pdu, stream[BHS_LEN..BHS_LEN + frame.data_len].to_vec()));
            stream = &stream[BHS_LEN + frame.data_len + frame.padding()..];
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn segments_reassemble_to_the_data_under_all_limits(
            len in 1_usize..5000,
            max_data_len in 512_usize..2000,
            max_burst_len in 512_usize..3000,
            sizes in prop::collection::vec(1_usize..3000, 1..4),
        ) {
            let rules = SendRules { header_digest: false, data_digest: false, max_data_len, max_burst_len };
            let data: Vec<u8> = (0..len).map(|i| u8::try_from(i % 253).unwrap()).collect();
            let mut queue = SendQueue::new(rules);
            let count = queue.push_data_in(put(4096, &data, true), 5);
            let pdus = data_ins(&drain(&mut queue, &sizes));
            prop_assert_eq!(pdus.len(), usize::try_from(count).unwrap());
            let (mut joined, mut burst) = (Vec::<u8>::new(), 0);
            for (i, (pdu, bytes)) in pdus.iter().enumerate() {
                prop_assert_eq!(pdu.data_sn, 5 + u32::try_from(i).unwrap());
                prop_assert_eq!(pdu.offset, 4096 + u32::try_from(joined.len()).unwrap());
                prop_assert_eq!(pdu.status.is_some(), i + 1 == pdus.len());
                prop_assert!(bytes.len() <= max_data_len);
                joined.extend(bytes);
                burst += bytes.len();
                prop_assert!(burst <= max_burst_len);
                if pdu.is_final { burst = 0; }
            }
            prop_assert!(pdus.last().unwrap().0.is_final);
            prop_assert_eq!(joined, data);
        }
    }

    #[test]
    fn digests_follow_header_and_padded_data() {
        let rules = SendRules {
            header_digest: true,
            data_digest: true,
            max_data_len: 8192,
            max_burst_len: 8192,
        };
        let mut queue = SendQueue::new(rules);
        let nop = NopIn {
            lun: Lun::ZERO,
            itt: Itt(1),
            ttt: Ttt::RESERVED,
            stat_sn: Sn(1),
            exp_cmd_sn: Sn(1),
            max_cmd_sn: Sn(1),
        };
        queue.push_control(&Response::NopIn(nop), Bytes::from_static(b"hello"));
        let stream = drain(&mut queue, &[1000]);
        assert_eq!(stream.len(), 48 + 4 + 8 + 4);
        assert_eq!(stream[48..52], crc32c(&stream[..48]));
        assert_eq!(&stream[52..60], b"hello\0\0\0");
        assert_eq!(stream[60..], crc32c(b"hello\0\0\0"));
    }
}
