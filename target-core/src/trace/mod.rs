//! Traces: PDUs of chosen connections, kept in memory for people to look at. Movers tell a [`Tap`] what comes and goes;
//! while nobody traces, that is one look at a flag. What leaves here decoded, or as a file, is somebody else's.
//!
//! SCSI data are kept only when asked for. Values of CHAP are blanked before anything is kept, whatever was asked for.
//! Headers, texts of login and negotiation, and sense data are kept whole.

mod book;
mod recording;
mod tap;
mod veil;

pub use book::{TraceRefusal, TraceSubject, Traces};
pub use recording::{
    Digests, PDUS_MAX, Trace, TraceEnd, TraceEntry, TraceLimits, TracedLink, TracedPdu, What, Whose,
};
pub use tap::Tap;

#[cfg(test)]
mod testing {
    use std::sync::Arc;

    use super::TracedLink;
    use crate::iscsi::{LinkInfo, TransportKeys};

    /// A connection over loopback.
    pub(super) fn link() -> Arc<TracedLink> {
        let info = LinkInfo {
            local: "127.0.0.1:3260".parse().unwrap(),
            peer: "127.0.0.1:4000".parse().unwrap(),
            transport: "tcp",
            keys: TransportKeys::default(),
        };
        Arc::new(TracedLink { number: 1, info })
    }
}
