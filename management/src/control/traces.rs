//! Traces of PDUs: begun and ended by people, and noted with who they are.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use iscsi_proto::Tsih;
use serde::{Deserialize, Serialize};
use serde_json::json;
use target_core::trace::{Trace, TraceEnd, TraceLimits, TraceRefusal, TraceSubject};
use utoipa::ToSchema;

use super::Control;
use crate::access::Actor;
use crate::events::{Event, EventKind};
use crate::model::{Cidr, Pattern, Problem};

/// What to trace: one session, or logins to come.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceWish {
    /// Handle of a session, of which all connections are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 65535)]
    pub session: Option<u16>,
    /// Name of an initiator, with * and ? as in access rules: its next connections are traced, from their first PDU on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<Pattern>,
    /// Address or network of initiators, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Cidr>,
    /// How long, seconds: 1 to 3600.
    #[serde(default = "default_seconds")]
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: u32,
    /// Bytes of data to keep of each PDU: 0 to 262144. Without them a trace shows who asked for what, and no contents.
    #[serde(default)]
    #[schema(maximum = 262144)]
    pub payload: u32,
    /// End when there is no more room (10,000 PDUs, 8 MiB), and keep the beginning; otherwise the end is kept.
    #[serde(default)]
    pub stop_when_full: bool,
}

/// A trace.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TraceStatus {
    /// Its number.
    pub id: u32,
    /// What was asked for.
    pub wish: TraceWish,
    /// When it began, milliseconds since 1970.
    pub began: u64,
    /// `running`, or why it ended: `full`, `session-ended`, `stopped`, `time-over`.
    pub state: TraceState,
    /// Entries that are kept.
    pub entries: usize,
    /// Bytes of memory they take.
    pub bytes: usize,
    /// Entries that gave way to newer ones.
    pub lost: u64,
}

/// Whether a trace runs, or why it ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "told by their names")]
pub enum TraceState {
    Full,
    Running,
    SessionEnded,
    Stopped,
    TimeOver,
}

/// Why a trace does not begin.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// What was asked for makes no sense.
    #[error("{}: {}", .0.path, .0.problem)]
    Invalid(Problem),
    /// The node refuses.
    #[error(transparent)]
    Refused(TraceRefusal),
}

impl Control {
    /// All traces, oldest first.
    #[must_use]
    pub fn traces(&self) -> Vec<TraceStatus> {
        let traces = self.node.traces().all();
        traces.iter().map(|trace| TraceStatus::of(trace)).collect()
    }

    /// One trace with what it holds.
    #[must_use]
    pub fn trace(&self, id: u32) -> Option<Arc<Trace>> {
        self.node.traces().find(id)
    }

    /// Begins one.
    pub fn begin_trace(&self, actor: &Actor, wish: &TraceWish) -> Result<TraceStatus, TraceError> {
        let (subject, limits) = wish.check().map_err(TraceError::Invalid)?;
        let trace = self.node.trace(subject, limits).map_err(TraceError::Refused)?;
        let payload = match wish.payload {
            0 => "without data".to_owned(),
            bytes => format!("with {bytes} bytes of data of each PDU"),
        };
        let text = format!("trace {} of {} began, {payload}", trace.number(), wish.subject());
        self.note(actor, EventKind::TraceBegan, text, wish);
        Ok(TraceStatus::of(&trace))
    }

    /// Ends one that runs; what it holds stays.
    #[must_use]
    pub fn stop_trace(&self, actor: &Actor, id: u32) -> Option<TraceStatus> {
        let trace = self.trace(id)?;
        if trace.end().is_none() {
            trace.stop();
            let wish = TraceWish::of(&trace);
            let text = format!("trace {id} of {} was stopped", wish.subject());
            self.note(actor, EventKind::TraceEnded, text, &wish);
        }
        Some(TraceStatus::of(&trace))
    }

    /// Ends one and forgets what it holds; nothing happens when there is none.
    pub fn delete_trace(&self, actor: &Actor, id: u32) {
        let Some(trace) = self.trace(id) else { return };
        if self.node.traces().remove(id) {
            let wish = TraceWish::of(&trace);
            let text = format!("trace {id} of {} was deleted", wish.subject());
            self.note(actor, EventKind::TraceEnded, text, &wish);
        }
    }

    /// Notes that somebody took the capture file of a trace.
    pub fn trace_taken(&self, actor: &Actor, trace: &Trace) {
        let wish = TraceWish::of(trace);
        let text = format!("trace {} of {} was downloaded", trace.number(), wish.subject());
        self.note(actor, EventKind::TraceTaken, text, &wish);
    }

    fn note(&self, actor: &Actor, kind: EventKind, text: String, wish: &TraceWish) {
        self.events
            .record(Event::new(kind, text).by(actor).with(json!(wish)));
    }
}

impl TraceWish {
    fn check(&self) -> Result<(TraceSubject, TraceLimits), Problem> {
        let by_login = self.initiator.is_some() || self.address.is_some();
        let subject = match self.session {
            Some(_) if by_login => {
                let fix = "leave out session, or initiator and address";
                return Err(Problem::new(
                    "session",
                    "a trace follows either a session or logins",
                    fix,
                ));
            }
            Some(tsih) => TraceSubject::Session(Tsih(tsih)),
            None if by_login => TraceSubject::Logins {
                initiator: self.initiator.as_ref().map(|pattern| pattern.0.clone()),
                network: self.address.map(|cidr| cidr.0),
            },
            None => {
                let fix = "give session, or initiator or address; the initiator * is everyone";
                return Err(Problem::new("session", "it is not said what to trace", fix));
            }
        };
        if !(1..=SECONDS_MAX).contains(&self.seconds) {
            let problem = format!("a trace of {} seconds is not possible", self.seconds);
            return Err(Problem::new("seconds", problem, "use 1 to 3600"));
        }
        if self.payload > PAYLOAD_MAX {
            let problem = format!("{} bytes of each PDU are too many", self.payload);
            return Err(Problem::new("payload", problem, "use 0 to 262144"));
        }
        let limits = TraceLimits {
            duration: Duration::from_secs(self.seconds.into()),
            payload: usize::try_from(self.payload).unwrap_or(0),
            stops_when_full: self.stop_when_full,
        };
        Ok((subject, limits))
    }

    fn of(trace: &Trace) -> Self {
        let limits = trace.limits();
        let mut wish = Self {
            seconds: u32::try_from(limits.duration.as_secs()).unwrap_or(SECONDS_MAX),
            payload: u32::try_from(limits.payload).unwrap_or(PAYLOAD_MAX),
            stop_when_full: limits.stops_when_full,
            ..Self::default()
        };
        match trace.subject() {
            TraceSubject::Logins { initiator, network } => {
                wish.initiator = initiator.clone().map(Pattern);
                wish.address = network.map(Cidr);
            }
            TraceSubject::Session(tsih) => wish.session = Some(tsih.0),
        }
        wish
    }

    /// In words.
    #[must_use]
    pub fn subject(&self) -> String {
        match (self.session, &self.initiator, self.address) {
            (Some(tsih), ..) => format!("session {tsih}"),
            (None, Some(pattern), Some(cidr)) => format!("logins of {} from {}", pattern.0, cidr.0),
            (None, Some(pattern), None) => format!("logins of {}", pattern.0),
            (None, None, Some(cidr)) => format!("logins from {}", cidr.0),
            (None, None, None) => "nothing".to_owned(),
        }
    }
}

impl TraceStatus {
    /// As it is now.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let (entries, bytes, lost) = trace.extent();
        let began = trace.began().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: trace.number(),
            wish: TraceWish::of(trace),
            began: u64::try_from(began.as_millis()).unwrap_or(u64::MAX),
            state: match trace.end() {
                None => TraceState::Running,
                Some(TraceEnd::Full) => TraceState::Full,
                Some(TraceEnd::SessionEnded) => TraceState::SessionEnded,
                Some(TraceEnd::Stopped) => TraceState::Stopped,
                Some(TraceEnd::TimeOver) => TraceState::TimeOver,
            },
            entries,
            bytes,
            lost,
        }
    }
}

const fn default_seconds() -> u32 {
    60
}

const SECONDS_MAX: u32 = 3600;
const PAYLOAD_MAX: u32 = 256 * 1024;
