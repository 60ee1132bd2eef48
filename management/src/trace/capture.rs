//! A trace as a capture file (pcapng), piece by piece: each PDU in TCP segments of its own, with the digests it had on the
//! wire, as far as they can be computed.
//!
//! What was not kept of a data segment is missing from its packet, as in a capture with a snapshot length; lengths are
//! those of the wire. Blocks are those of the pcapng draft (draft-ietf-opsawg-pcapng), little-endian.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use iscsi_proto::{Crc32c, crc32c};
use target_core::trace::{Trace, TraceEntry, TracedPdu, What};

use super::segments::{Frame, Stream};

/// The file, as an iterator over its pieces.
#[derive(Debug)]
pub struct Capture {
    /// The bytes that come first.
    head: Option<Vec<u8>>,
    entries: VecDeque<Arc<TraceEntry>>,
    streams: HashMap<u64, Stream>,
    began: Duration,
}

impl Capture {
    /// What the trace holds at this moment.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        Self::new(trace.began(), trace.entries(0, usize::MAX).into())
    }

    fn new(began: SystemTime, entries: VecDeque<Arc<TraceEntry>>) -> Self {
        Self {
            head: Some(head()),
            entries,
            streams: HashMap::new(),
            began: began.duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    fn frames(&mut self, entry: &TraceEntry) -> Vec<Frame> {
        let info = &entry.link.info;
        let stream = self
            .streams
            .entry(entry.link.number)
            .or_insert_with(|| Stream::new(info.peer, info.local));
        match &entry.what {
            What::Closed(_) => stream.close(),
            What::Opened => stream.open(),
            What::Pdu(pdu) => {
                let (bytes, len) = wire(pdu);
                stream.carry(pdu.whose, &bytes, len)
            }
        }
    }
}

impl Iterator for Capture {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            let time = self.began + entry.at;
            for frame in self.frames(&entry) {
                packet(&mut piece, time, &frame);
            }
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// A PDU as it is on the wire, up to where something was not kept, and its whole length.
fn wire(pdu: &TracedPdu) -> (Vec<u8>, usize) {
    let frame = pdu.frame();
    let mut bytes = pdu.header.to_vec();
    let header_digest_len = if pdu.digests.header { DIGEST_LEN } else { 0 };
    let has_data_digest = pdu.digests.data && frame.data_len > 0;
    let data_digest_len = if has_data_digest { DIGEST_LEN } else { 0 };
    let len =
        bytes.len() + frame.ahs_len + header_digest_len + frame.data_len + frame.padding() + data_digest_len;
    bytes.extend(&pdu.ahs);
    if pdu.ahs.len() < frame.ahs_len {
        return (bytes, len);
    }
    if pdu.digests.header {
        bytes.extend(crc32c(&bytes));
    }
    bytes.extend(&pdu.data);
    if pdu.data.len() < frame.data_len {
        return (bytes, len);
    }
    let padding = [0; 3];
    bytes.extend(&padding[..frame.padding()]);
    if has_data_digest {
        let mut crc = Crc32c::new();
        crc.update(&pdu.data);
        crc.update(&padding[..frame.padding()]);
        let mut digest = crc.wire_bytes();
        // What it was is not known, only that it did not match.
        if pdu.is_damaged {
            digest[0] ^= 0xff;
        }
        bytes.extend(digest);
    }
    (bytes, len)
}

/// Section header and interface description.
fn head() -> Vec<u8> {
    let mut out = Vec::new();
    let mut section = Vec::new();
    section.extend(BYTE_ORDER.to_le_bytes());
    // Version 1.0, length unknown.
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    option(&mut section, OPT_COMMENT, COMMENT.as_bytes());
    option(&mut section, SHB_USERAPPL, b"Lunaport");
    end_of_options(&mut section);
    block(&mut out, SECTION_HEADER, &section);

    let mut interface = Vec::new();
    interface.extend(LINKTYPE_ETHERNET.to_le_bytes());
    interface.extend([0; 2]);
    // No snapshot length: it is not the same for all packets.
    interface.extend([0; 4]);
    option(&mut interface, IF_NAME, b"lunaport");
    end_of_options(&mut interface);
    block(&mut out, INTERFACE_DESCRIPTION, &interface);
    out
}

/// A packet, its time in microseconds as is the default.
fn packet(out: &mut Vec<u8>, time: Duration, frame: &Frame) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let word = |n: usize| {
        u32::try_from(n)
            .expect("a packet is at most 64 KiB")
            .to_le_bytes()
    };
    let mut body = vec![0; 4];
    for half in [micros >> 32, micros & 0xffff_ffff] {
        body.extend(u32::try_from(half).expect("half of 64 bits").to_le_bytes());
    }
    body.extend(word(frame.bytes.len()));
    body.extend(word(frame.len));
    body.extend(&frame.bytes);
    pad(&mut body);
    block(out, ENHANCED_PACKET, &body);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = u32::try_from(body.len() + 12).expect("a block is little more than a packet");
    out.extend(kind.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(body);
    out.extend(len.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).expect("a short text").to_le_bytes());
    out.extend(value);
    pad(out);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend([0; 4]);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

const COMMENT: &str = "PDUs of iSCSI connections as Lunaport read and sent them. Ethernet, IP and TCP headers are made up. \
     Values of CHAP are blanked, and data are missing as far as they were not asked for.";
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_ETHERNET: u16 = 1;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const DIGEST_LEN: usize = 4;
/// Bytes of a piece, about.
const PIECE: usize = 64 * 1024;
