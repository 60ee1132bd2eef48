//! Ethernet, IP and TCP headers for bytes that never had them: what a capture file needs around the PDUs of a connection,
//! be it one over RDMA.
//!
//! Numbers of a connection begin at 0 on both sides, each segment acknowledges all before it. Checksums are right; where
//! bytes were not kept they are computed as if these were zeros, which nobody can check.

use std::net::{IpAddr, SocketAddr};

use target_core::trace::Whose;

/// One connection's numbers.
#[derive(Debug)]
pub(super) struct Stream {
    initiator: SocketAddr,
    target: SocketAddr,
    /// Next sequence number, the initiator's and ours.
    next: [u32; 2],
}

/// A frame: what is there of it, and how long it would be as a whole.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
}

impl Stream {
    pub(super) fn new(initiator: SocketAddr, target: SocketAddr) -> Self {
        Self {
            initiator: canonical(initiator),
            target: canonical(target),
            next: [1, 1],
        }
    }

    /// The three segments that open a connection.
    pub(super) fn open(&mut self) -> Vec<Frame> {
        self.next = [0, 0];
        let syn = self.segment(Whose::Initiator, SYN, &[], 0);
        self.next[0] = 1;
        let answer = self.segment(Whose::Target, SYN | ACK, &[], 0);
        self.next[1] = 1;
        let ack = self.segment(Whose::Initiator, ACK, &[], 0);
        vec![syn, answer, ack]
    }

    /// Segments that carry `len` bytes, of which the first are there.
    pub(super) fn carry(&mut self, whose: Whose, bytes: &[u8], len: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut at = 0;
        while at < len {
            let size = (len - at).min(SEGMENT_MAX);
            let here = bytes.get(at..).unwrap_or_default();
            let flags = if at + size == len { ACK | PSH } else { ACK };
            frames.push(self.segment(whose, flags, &here[..here.len().min(size)], size));
            at += size;
            let next = &mut self.next[side(whose)];
            *next = next.wrapping_add(u32::try_from(size).expect("a segment is at most 64 KiB"));
        }
        frames
    }

    /// The segments that close it, the target's first.
    pub(super) fn close(&mut self) -> Vec<Frame> {
        let ours = self.segment(Whose::Target, FIN | ACK, &[], 0);
        self.next[1] = self.next[1].wrapping_add(1);
        let theirs = self.segment(Whose::Initiator, FIN | ACK, &[], 0);
        self.next[0] = self.next[0].wrapping_add(1);
        let last = self.segment(Whose::Target, ACK, &[], 0);
        vec![ours, theirs, last]
    }

    fn segment(&self, whose: Whose, flags: u8, here: &[u8], len: usize) -> Frame {
        let (from, to) = match whose {
            Whose::Initiator => (self.initiator, self.target),
            Whose::Target => (self.target, self.initiator),
        };
        let (own, other) = (self.next[side(whose)], self.next[1 - side(whose)]);
        let ack = if flags & ACK == 0 { 0 } else { other };
        let mut tcp = Vec::with_capacity(TCP_LEN + here.len());
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(own.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([0x50, flags]);
        tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(here);
        let whole = TCP_LEN + len;
        let sum = checksum([pseudo_header(from.ip(), to.ip(), whole).as_slice(), &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());

        let mut bytes = ethernet(whose, from.ip());
        bytes.extend(ip_header(from.ip(), to.ip(), whole));
        let len = bytes.len() + whole;
        bytes.extend(tcp);
        Frame { bytes, len }
    }
}

/// Both ends of one family: an IPv4 address that came in by an IPv6 socket counts as IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

const fn side(whose: Whose) -> usize {
    match whose {
        Whose::Initiator => 0,
        Whose::Target => 1,
    }
}

/// Locally administered addresses: 2 is the target's, 1 the initiator's.
fn ethernet(whose: Whose, ip: IpAddr) -> Vec<u8> {
    let (from, to) = match whose {
        Whose::Initiator => (1, 2),
        Whose::Target => (2, 1),
    };
    let mut header = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    header.extend(if ip.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
    header
}

fn ip_header(from: IpAddr, to: IpAddr, payload_len: usize) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let len = u16::try_from(IPV4_LEN + payload_len).expect("a segment fits into a packet");
            let mut header = vec![0x45, 0];
            header.extend(len.to_be_bytes());
            // No identification, do not fragment, 64 hops, TCP.
            header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = checksum([header.as_slice(), &[]]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        _ => {
            let len = u16::try_from(payload_len).expect("a segment fits into a packet");
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(len.to_be_bytes());
            header.extend([6, 64]);
            header.extend(octets(from));
            header.extend(octets(to));
            header
        }
    }
}

/// RFC 9293 §3.1, RFC 8200 §8.1.
fn pseudo_header(from: IpAddr, to: IpAddr, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).expect("a segment is at most 64 KiB");
    let mut header = Vec::with_capacity(40);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend(from.octets());
            header.extend(to.octets());
        }
        _ => {
            header.extend(octets(from));
            header.extend(octets(to));
        }
    }
    header.extend(len.to_be_bytes());
    header.extend([0, 0, 0, 6]);
    header
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// RFC 1071, over two parts of which the first has an even length.
fn checksum(parts: [&[u8]; 2]) -> u16 {
    let mut sum = 0_u32;
    for word in parts.iter().flat_map(|part| part.chunks(2)) {
        let low = word.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([word[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded above")
}

const TCP_LEN: usize = 20;
const IPV4_LEN: usize = 20;
/// Bytes of a segment: with all headers it fits into an IP packet.
const SEGMENT_MAX: usize = 60 * 1024;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream::new(
            "192.0.2.1:50000".parse().unwrap(),
            "[::ffff:192.0.2.2]:3260".parse().unwrap(),
        )
    }

    #[test]
    fn checksums_verify_to_zero() {
        let frames = stream().carry(Whose::Initiator, b"odd", 3);
        let frame = &frames[0].bytes;
        assert_eq!(checksum([&frame[14..34], &[]]), 0);
        let addresses = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let pseudo = pseudo_header(addresses.0, addresses.1, 23);
        assert_eq!(checksum([&pseudo, &frame[34..]]), 0);
    }

    #[test]
    fn a_long_pdu_takes_segments_that_follow_each_other() {
        let mut stream = stream();
        drop(stream.open());
        let frames = stream.carry(Whose::Target, &[7; 48], 100_000);
        let sequence: Vec<_> = frames
            .iter()
            .map(|frame| u32::from_be_bytes(frame.bytes[38..42].try_into().unwrap()))
            .collect();
        assert_eq!(sequence, [1, 61_441]);
        let lens: Vec<_> = frames
            .iter()
            .map(|frame| (frame.bytes.len(), frame.len))
            .collect();
        assert_eq!(lens, [(102, 61_494), (54, 38_614)]);
        assert_eq!(stream.next, [1, 100_001]);
    }

    #[test]
    fn an_ipv6_connection_has_ipv6_headers() {
        let mut stream = Stream::new(
            "[2001:db8::1]:50000".parse().unwrap(),
            "[2001:db8::2]:3260".parse().unwrap(),
        );
        let frames = stream.carry(Whose::Initiator, b"data", 4);
        let frame = &frames[0].bytes;
        assert_eq!(frame[12..15], [0x86, 0xdd, 0x60]);
        let pseudo = pseudo_header("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), 24);
        assert_eq!(checksum([&pseudo, &frame[54..]]), 0);
    }
}
