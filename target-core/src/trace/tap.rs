//! The place on a connection where it is listened in on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_proto::{BHS_LEN, IscsiName};

use super::TraceSubject;
use super::recording::{Digests, Trace, TraceLimits, TracedLink, TracedPdu, What, Whose};
use super::veil::Veil;
use crate::control::NamePattern;
use crate::iscsi::{CloseReason, LinkInfo};

/// Shared by a connection's mover, which tells what comes and goes, and the registry, which begins traces.
#[derive(Debug)]
pub struct Tap {
    is_on: AtomicBool,
    link: Arc<TracedLink>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    traces: Vec<Arc<Trace>>,
    /// Traces of initiators of certain names, until this one has said its name.
    undecided: Vec<(NamePattern, Arc<Trace>)>,
    from_initiator: Veil,
    from_target: Veil,
}

impl Tap {
    pub(crate) fn new(number: u64, info: LinkInfo) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            link: Arc::new(TracedLink { number, info }),
            inner: Mutex::default(),
        }
    }

    /// A tap without a node that is on from the start, and what it is open to: a mover by itself can be listened in on.
    #[must_use]
    pub fn alone(info: LinkInfo, limits: TraceLimits) -> (Arc<Self>, Arc<Trace>) {
        let subject = TraceSubject::Logins {
            initiator: None,
            network: None,
        };
        let trace = Arc::new(Trace::new(1, subject, limits, None));
        let tap = Self::new(1, info);
        tap.open_to(&trace);
        (Arc::new(tap), trace)
    }

    /// Whether anybody listens. All the rest is for when somebody does.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A PDU came: its header, additional segments, and its data segment as far as there is any.
    pub fn received(
        &self,
        header: &[u8; BHS_LEN],
        ahs: &[u8],
        data: &[u8],
        digests: Digests,
        is_damaged: bool,
    ) {
        let mut inner = self.inner();
        inner.decide(&self.link, header, data);
        let pdu = TracedPdu {
            whose: Whose::Initiator,
            header: *header,
            ahs: ahs.into(),
            data: Box::default(),
            digests,
            is_damaged,
        };
        self.keep(&mut inner, &pdu, data);
    }

    /// A PDU is about to be sent.
    pub fn sent(&self, header: &[u8; BHS_LEN], data: &[u8], digests: Digests) {
        let pdu = TracedPdu {
            whose: Whose::Target,
            header: *header,
            ahs: Box::default(),
            data: Box::default(),
            digests,
            is_damaged: false,
        };
        self.keep(&mut self.inner(), &pdu, data);
    }

    /// The connection has ended.
    pub(crate) fn closed(&self, reason: &CloseReason) {
        if self.is_on() {
            self.tell_each(&mut self.inner(), |_| What::Closed(reason.to_string()));
        }
    }

    /// Whoever else listens, this trace does from now on.
    pub(crate) fn open_to(&self, trace: &Arc<Trace>) {
        self.inner().traces.push(Arc::clone(trace));
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// A connection that has just been accepted: its first PDU is still to come.
    pub(super) fn open_from_the_start_to(&self, trace: &Arc<Trace>, initiator: Option<&NamePattern>) {
        let mut inner = self.inner();
        match initiator {
            Some(pattern) => inner.undecided.push((pattern.clone(), Arc::clone(trace))),
            None if trace.add(&self.link, What::Opened) => inner.traces.push(Arc::clone(trace)),
            None => return,
        }
        self.is_on.store(true, Ordering::Relaxed);
    }

    fn keep(&self, inner: &mut Inner, pdu: &TracedPdu, data: &[u8]) {
        let veil = match pdu.whose {
            Whose::Initiator => &mut inner.from_initiator,
            Whose::Target => &mut inner.from_target,
        };
        let opcode = pdu.header[0] & OPCODE;
        let mut covered;
        let (data, is_payload) = match Content::of(opcode) {
            Content::Payload => (data, true),
            Content::Status => (data, false),
            Content::Text { is_payload } => {
                covered = data.to_vec();
                veil.cover(&mut covered);
                (&*covered, is_payload)
            }
        };
        self.tell_each(inner, |trace| {
            let limit = if is_payload {
                trace.limits().payload
            } else {
                usize::MAX
            };
            What::Pdu(TracedPdu {
                whose: pdu.whose,
                header: pdu.header,
                ahs: pdu.ahs.clone(),
                data: data[..data.len().min(limit)].into(),
                digests: pdu.digests,
                is_damaged: pdu.is_damaged,
            })
        });
    }

    fn tell_each(&self, inner: &mut Inner, what: impl Fn(&Trace) -> What) {
        inner.traces.retain(|trace| trace.add(&self.link, what(trace)));
        if inner.traces.is_empty() && inner.undecided.is_empty() {
            self.is_on.store(false, Ordering::Relaxed);
        }
    }

    /// A panic under the lock would leave a trace without a PDU.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The initiator says its name in its first login request (§12.4), or, when that is continued, in one of the next.
    fn decide(&mut self, link: &Arc<TracedLink>, header: &[u8; BHS_LEN], data: &[u8]) {
        if self.undecided.is_empty() {
            return;
        }
        let is_login = header[0] & OPCODE == LOGIN_REQUEST;
        let name = initiator_name(data).filter(|_| is_login);
        if name.is_none() && is_login && header[1] & CONTINUES != 0 {
            return;
        }
        for (pattern, trace) in std::mem::take(&mut self.undecided) {
            let is_wanted = name.as_ref().is_some_and(|name| pattern.matches(name));
            if is_wanted && trace.add(link, What::Opened) {
                self.traces.push(trace);
            }
        }
    }
}

/// What the data segment of a PDU is.
enum Content {
    /// SCSI data.
    Payload,
    /// Sense data, or the header of a PDU that was rejected: part of what happened.
    Status,
    /// What may be text, with secrets in it. It is payload all the same where the initiator decides what it is.
    Text { is_payload: bool },
}

impl Content {
    fn of(opcode: u8) -> Self {
        match opcode {
            // SCSI Command, Data-Out, Data-In.
            0x01 | 0x05 | 0x25 => Self::Payload,
            // SCSI Response, Asynchronous Message, Reject.
            0x21 | 0x32 | 0x3f => Self::Status,
            // Text Request and Response, Login Request and Response.
            0x04 | 0x24 | LOGIN_REQUEST | 0x23 => Self::Text { is_payload: false },
            // NOP, and what has no data if it is as it should be.
            _ => Self::Text { is_payload: true },
        }
    }
}

/// The name in the text of a login request, if it is there as a whole.
fn initiator_name(text: &[u8]) -> Option<IscsiName> {
    let value = text.split_inclusive(|&byte| byte == 0).find_map(|pair| {
        let pair = pair.strip_suffix(b"\0")?;
        pair.strip_prefix(b"InitiatorName=")
    })?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Opcodes: §11.2.1.2.
const OPCODE: u8 = 0x3f;
const LOGIN_REQUEST: u8 = 0x03;
/// C bit of a login request (§11.12.2).
const CONTINUES: u8 = 0x40;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn trace(payload: usize) -> Arc<Trace> {
        let limits = TraceLimits {
            duration: Duration::from_secs(60),
            payload,
            stops_when_full: false,
        };
        let subject = TraceSubject::Logins {
            initiator: None,
            network: None,
        };
        Arc::new(Trace::new(1, subject, limits, None))
    }

    fn tap() -> Tap {
        Tap::new(1, super::super::testing::link().info.clone())
    }

    fn header(opcode: u8, flags: u8) -> [u8; BHS_LEN] {
        let mut header = [0; BHS_LEN];
        (header[0], header[1]) = (opcode, flags);
        header
    }

    fn login(tap: &Tap, flags: u8, text: &[u8]) {
        tap.received(&header(0x43, flags), &[], text, Digests::default(), false);
    }

    fn kept(trace: &Trace) -> Vec<(u8, Vec<u8>)> {
        let entries = trace.entries(0, usize::MAX);
        let pdus = entries.iter().filter_map(|entry| match &entry.what {
            What::Pdu(pdu) => Some((pdu.header[0], pdu.data.to_vec())),
            What::Closed(_) | What::Opened => None,
        });
        pdus.collect()
    }

    fn wants(name: &str) -> Option<NamePattern> {
        Some(name.parse().unwrap())
    }

    #[tokio::test]
    async fn an_initiator_is_recognised_by_its_first_login_request() {
        let (ours, other) = (trace(0), trace(0));
        let tap = tap();
        tap.open_from_the_start_to(&ours, wants("iqn.2026-11.org.example:a").as_ref());
        tap.open_from_the_start_to(&other, wants("iqn.2026-11.org.example:b").as_ref());
        login(
            &tap,
            0,
            b"AuthMethod=None\0InitiatorName=iqn.2026-11.org.example:a\0",
        );
        tap.sent(&header(0x23, 0), b"", Digests::default());
        assert_eq!(kept(&ours).len(), 2);
        assert!(matches!(ours.entries(0, 1)[0].what, What::Opened));
        assert_eq!(other.extent().0, 0);
    }

    #[tokio::test]
    async fn nobody_listens_any_more_when_the_initiator_is_another() {
        let tap = tap();
        tap.open_from_the_start_to(&trace(0), wants("iqn.2026-11.org.example:b").as_ref());
        login(&tap, CONTINUES, b"AuthMethod=No");
        assert!(tap.is_on());
        login(&tap, 0, b"ne\0InitiatorName=iqn.2026-11.org.example:a\0");
        assert!(!tap.is_on());
    }

    #[tokio::test]
    async fn data_are_kept_only_as_far_as_asked_for_and_status_always() {
        let (without, some) = (trace(0), trace(3));
        let tap = tap();
        tap.open_to(&without);
        tap.open_to(&some);
        for opcode in [0x01, 0x05, 0x00] {
            tap.received(&header(opcode, 0), &[], b"data", Digests::default(), false);
        }
        tap.sent(&header(0x25, 0), b"data", Digests::default());
        tap.sent(&header(0x21, 0), b"sense", Digests::default());
        assert!(kept(&without)[..4].iter().all(|(_, data)| data.is_empty()));
        assert!(kept(&some)[..4].iter().all(|(_, data)| data == b"dat"));
        assert_eq!(kept(&without)[4].1, b"sense");
    }

    #[tokio::test]
    async fn secrets_are_blanked_in_what_is_kept_even_where_they_do_not_belong() {
        let trace = trace(1000);
        let tap = tap();
        tap.open_to(&trace);
        login(&tap, CONTINUES, b"CHAP_N=joe\0CHAP_R=0x5e");
        login(&tap, 0, b"c7e7\0");
        tap.received(
            &header(0x40, 0),
            &[],
            b"CHAP_R=0x5ec7e7",
            Digests::default(),
            false,
        );
        let data: Vec<_> = kept(&trace)
            .into_iter()
            .map(|(_, data)| String::from_utf8(data).unwrap())
            .collect();
        assert_eq!(data, ["CHAP_N=***\0CHAP_R=****", "****\0", "CHAP_R=********"]);
    }

    #[tokio::test]
    async fn a_trace_that_has_ended_lets_go_of_the_connection() {
        let trace = trace(0);
        let tap = tap();
        tap.open_to(&trace);
        trace.discard();
        tap.sent(&header(0x20, 0), b"", Digests::default());
        assert!(!tap.is_on());
        assert_eq!(trace.extent().0, 0);
    }
}
