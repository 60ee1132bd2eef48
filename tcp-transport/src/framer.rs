//! The receive side without a socket: bytes in, PDUs out (RFC 7143 §11.2).
//!
//! Headers are read ahead; a data segment goes straight into the place its header names, but for the part that had
//! been read ahead already. What a header means is not decided here.

use backstores::IoBuf;
use iscsi_proto::{BHS_LEN, Crc32c, Frame, crc32c};
use target_core::trace::Digests;

/// Cuts a byte stream into PDUs. Between two calls the owner reads bytes into [`spare`](Self::spare) and reports them
/// with [`filled`](Self::filled).
#[derive(Debug)]
pub(crate) struct Framer {
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much may be read ahead now; small while large data segments come, so that they are not copied.
    ahead_limit: usize,
    state: State,
    rules: FramingRules,
}

/// What the negotiation decided about the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FramingRules {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// MaxRecvDataSegmentLength that we declared, bytes.
    pub(crate) max_data_len: usize,
}

#[derive(Debug)]
enum State {
    /// Waiting for a complete header.
    Header,
    /// A header was given out; its owner has not yet named a place for the data.
    Named(Frame),
    /// Filling the place.
    Payload { frame: Frame, place: Place, have: usize },
}

/// Where a data segment goes.
#[derive(Debug)]
pub(crate) enum Place {
    /// Into a buffer, from this byte on.
    Buffer { buf: IoBuf, at: usize },
    /// A small segment of a control PDU.
    Control(Vec<u8>),
    /// Nowhere.
    Discard,
}

impl Place {
    /// The buffer, if it is one.
    pub(crate) fn into_buffer(self) -> Option<IoBuf> {
        match self {
            Self::Buffer { buf, .. } => Some(buf),
            Self::Control(_) | Self::Discard => None,
        }
    }

    /// The data segment of this length that is here now; nothing if it went nowhere.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            Self::Buffer { buf, at } => &buf[*at..*at + len],
            Self::Control(data) => data,
            Self::Discard => &[],
        }
    }
}

/// What [`Framer::step`] found.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing complete: more bytes are needed.
    NeedBytes,
    /// A header and its additional segments. [`Framer::place`] must be called next.
    Header {
        bhs: [u8; BHS_LEN],
        ahs: Vec<u8>,
        frame: Frame,
    },
    /// The data segment is in its place; whether its digest matched.
    Payload { place: Place, digest_ok: bool },
}

/// The stream can no longer be cut: there is no way to find the next header (§7.3, §7.7).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("header digest does not match: computed {computed:02x?}, received {received:02x?}")]
    HeaderDigest { computed: [u8; 4], received: [u8; 4] },
    #[error("data segment of {len} bytes, although MaxRecvDataSegmentLength is {max}")]
    Oversize { len: usize, max: usize },
}

impl Framer {
    pub(crate) fn new(rules: FramingRules) -> Self {
        Self {
            ahead: vec![0; AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            ahead_limit: AHEAD,
            state: State::Header,
            rules,
        }
    }

    /// New rules from the next header on.
    pub(crate) fn set_rules(&mut self, rules: FramingRules) {
        self.rules = rules;
    }

    /// Digests that PDUs have now.
    pub(crate) const fn digests(&self) -> Digests {
        Digests {
            header: self.rules.header_digest,
            data: self.rules.data_digest,
        }
    }

    /// Whether the stream stands between two PDUs.
    pub(crate) fn is_at_boundary(&self) -> bool {
        matches!(self.state, State::Header) && self.start == self.end
    }

    /// Where the next bytes off the wire belong; never empty after [`Step::NeedBytes`].
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        if let State::Payload {
            frame,
            place: Place::Buffer { buf, at },
            have,
        } = &mut self.state
            && *have < frame.data_len
            && self.start == self.end
        {
            return &mut buf[*at + *have..*at + frame.data_len];
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.ahead.len() || self.start > self.ahead.len() / 2 {
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let limit = self.ahead_limit.max(self.end + MIN_READ).min(self.ahead.len());
        &mut self.ahead[self.end..limit]
    }

    /// `n` bytes were read into [`spare`](Self::spare).
    pub(crate) fn filled(&mut self, n: usize) {
        if let State::Payload {
            frame,
            place: Place::Buffer { .. },
            have,
        } = &mut self.state
            && *have < frame.data_len
            && self.start == self.end
        {
            *have += n;
            return;
        }
        self.end += n;
    }

    /// Names the place for the data segment of the header given out last.
    pub(crate) fn place(&mut self, place: Place) {
        let State::Named(frame) = self.state else {
            unreachable!("place follows a header")
        };
        self.ahead_limit = if frame.data_len >= LARGE { MIN_READ } else { AHEAD };
        self.state = State::Payload {
            frame,
            place,
            have: 0,
        };
    }

    /// Takes back the place that a data segment was being read into. Nothing more is read then.
    pub(crate) fn take_place(&mut self) -> Option<Place> {
        match std::mem::replace(&mut self.state, State::Header) {
            State::Payload { place, .. } => Some(place),
            State::Header | State::Named(_) => None,
        }
    }

    /// The next thing the bytes at hand amount to.
    pub(crate) fn step(&mut self) -> Result<Step, FrameError> {
        match &self.state {
            State::Header => self.step_header(),
            State::Named(_) => unreachable!("place follows a header"),
            State::Payload { .. } => Ok(self.step_payload()),
        }
    }

    fn step_header(&mut self) -> Result<Step, FrameError> {
        let at_hand = &self.ahead[self.start..self.end];
        let Some(bhs) = at_hand.first_chunk::<BHS_LEN>() else {
            return Ok(Step::NeedBytes);
        };
        let frame = Frame::of(bhs);
        let header_len = BHS_LEN + frame.ahs_len;
        let digest_len = if self.rules.header_digest { DIGEST_LEN } else { 0 };
        if at_hand.len() < header_len + digest_len {
            return Ok(Step::NeedBytes);
        }
        if self.rules.header_digest {
            let received = *at_hand[header_len..]
                .first_chunk::<DIGEST_LEN>()
                .expect("length checked above");
            let computed = crc32c(&at_hand[..header_len]);
            if computed != received {
                return Err(FrameError::HeaderDigest { computed, received });
            }
        }
        if frame.data_len > self.rules.max_data_len {
            return Err(FrameError::Oversize {
                len: frame.data_len,
                max: self.rules.max_data_len,
            });
        }
        let step = Step::Header {
            bhs: *bhs,
            ahs: at_hand[BHS_LEN..header_len].to_vec(),
            frame,
        };
        self.start += header_len + digest_len;
        self.state = State::Named(frame);
        Ok(step)
    }

    fn step_payload(&mut self) -> Step {
        let State::Payload { frame, place, have } = &mut self.state else {
            unreachable!("checked by step")
        };
        let take = (frame.data_len - *have).min(self.end - self.start);
        let bytes = &self.ahead[self.start..self.start + take];
        match place {
            Place::Buffer { buf, at } => buf[*at + *have..*at + *have + take].copy_from_slice(bytes),
            Place::Control(data) => data.extend_from_slice(bytes),
            Place::Discard => {}
        }
        *have += take;
        self.start += take;

        let has_digest = self.rules.data_digest && frame.data_len > 0;
        let trailer_len = frame.padding() + if has_digest { DIGEST_LEN } else { 0 };
        if *have < frame.data_len || self.end - self.start < trailer_len {
            return Step::NeedBytes;
        }
        let trailer = &self.ahead[self.start..self.start + trailer_len];
        let digest_ok = !has_digest || data_digest_matches(place, frame, trailer);
        self.start += trailer_len;
        let State::Payload { place, .. } = std::mem::replace(&mut self.state, State::Header) else {
            unreachable!("checked by step")
        };
        Step::Payload { place, digest_ok }
    }
}

/// The data digest covers data and padding (§11.2.3). Discarded data have nothing left to check and nobody to tell.
fn data_digest_matches(place: &Place, frame: &Frame, trailer: &[u8]) -> bool {
    if matches!(place, Place::Discard) {
        return true;
    }
    let data = place.bytes(frame.data_len);
    let (padding, digest) = trailer.split_at(frame.padding());
    let mut crc = Crc32c::new();
    crc.update(data);
    crc.update(padding);
    crc.wire_bytes() == digest
}

const DIGEST_LEN: usize = 4;
/// Room for a full window of small commands in one read, and for the longest header (48 + 1020 + 4 bytes).
const AHEAD: usize = 64 * 1024;
/// From this length on, a data segment is worth a read of its own.
const LARGE: usize = 32 * 1024;
/// Always offered: room for the longest header and trailer.
const MIN_READ: usize = 2048;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pdu(opcode: u8, ahs_words: u8, data: &[u8], rules: FramingRules) -> Vec<u8> {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode;
        Frame {
            ahs_len: usize::from(ahs_words) * 4,
            data_len: data.len(),
        }
        .stamp(&mut bhs);
        let mut out = bhs.to_vec();
        out.extend(std::iter::repeat_n(0xa5, usize::from(ahs_words) * 4));
        if rules.header_digest {
            out.extend(crc32c(&out.clone()));
        }
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        out.extend(&padded);
        if rules.data_digest && !data.is_empty() {
            out.extend(crc32c(&padded));
        }
        out
    }

    /// Feeds `stream` in pieces of the given sizes (repeated) and lists what comes out.
    fn cut(
        rules: FramingRules,
        stream: &[u8],
        sizes: &[usize],
    ) -> Result<Vec<(u8, usize, Vec<u8>)>, FrameError> {
        let mut framer = Framer::new(rules);
        let (mut out, mut rest, mut turn) = (Vec::new(), stream, 0);
        loop {
            match framer.step()? {
                Step::NeedBytes if rest.is_empty() => return Ok(out),
                Step::NeedBytes => {
                    let spare = framer.spare();
                    assert!(!spare.is_empty());
                    let n = sizes[turn % sizes.len()].min(spare.len()).min(rest.len());
                    turn += 1;
                    spare[..n].copy_from_slice(&rest[..n]);
                    framer.filled(n);
                    rest = &rest[n..];
                }
                Step::Header { bhs, ahs, frame } => {
                    out.push((bhs[0], ahs.len(), Vec::new()));
                    let place = match bhs[0] % 3 {
                        0 => Place::Buffer {
                            buf: IoBuf::from_heap(frame.data_len + 8),
                            at: 8,
                        },
                        1 => Place::Control(Vec::new()),
                        _ => Place::Discard,
                    };
                    framer.place(place);
                }
                Step::Payload { place, digest_ok } => {
                    assert!(digest_ok);
                    out.last_mut().unwrap().2 = match place {
                        Place::Buffer { buf, at } => buf[at..].to_vec(),
                        Place::Control(data) => data,
                        Place::Discard => Vec::new(),
                    };
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_split_of_the_stream_gives_the_same_pdus(
            header_digest: bool,
            data_digest: bool,
            pdus in prop::collection::vec((0_u8..63, 0_u8..4, prop_oneof![0_usize..40, 30_000_usize..70_000]), 1..6),
            sizes in prop::collection::vec(prop_oneof![1_usize..8, 1_usize..80_000], 1..5),
        ) {
            let rules = FramingRules { header_digest, data_digest, max_data_len: 70_000 };
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (opcode, ahs, len) in pdus {
                let data: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
                stream.extend(pdu(opcode, ahs, &data, rules));
                let kept = if opcode % 3 == 2 { Vec::new() } else { data };
                expected.push((opcode, usize::from(ahs) * 4, kept));
            }
            prop_assert_eq!(cut(rules, &stream, &sizes).unwrap(), expected);
        }
    }

    #[test]
    fn a_damaged_header_digest_ends_the_stream() {
        let rules = FramingRules {
            header_digest: true,
            data_digest: false,
            max_data_len: 8192,
        };
        let mut stream = pdu(1, 0, b"", rules);
        stream[9] ^= 1;
        assert!(matches!(
            cut(rules, &stream, &[1000]),
            Err(FrameError::HeaderDigest { .. })
        ));
    }

    #[test]
    fn a_damaged_data_digest_is_told_and_the_stream_goes_on() {
        let rules = FramingRules {
            header_digest: false,
            data_digest: true,
            max_data_len: 8192,
        };
        let mut stream = pdu(1, 0, b"abcde", rules);
        stream[49] ^= 1;
        let mut framer = Framer::new(rules);
        framer.spare()[..stream.len()].copy_from_slice(&stream);
        framer.filled(stream.len());
        assert!(matches!(framer.step(), Ok(Step::Header { .. })));
        framer.place(Place::Control(Vec::new()));
        assert!(matches!(
            framer.step(),
            Ok(Step::Payload { digest_ok: false, .. })
        ));
        assert!(framer.is_at_boundary());
    }

    #[test]
    fn a_data_segment_longer_than_declared_is_refused_before_memory_is_spent() {
        let rules = FramingRules {
            header_digest: false,
            data_digest: false,
            max_data_len: 512,
        };
        let stream = pdu(1, 0, &[0; 513], rules);
        assert_eq!(
            cut(rules, &stream, &[4096]),
            Err(FrameError::Oversize { len: 513, max: 512 })
        );
    }
}
