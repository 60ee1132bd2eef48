//! What a session keeps for each of its connections: numbers of responses, digests and lengths, signs of life, an
//! unfinished text (RFC 7143 §4.2.2.2, §4.4.3.1). What all connections share is in `full_feature.rs`.

use std::time::Instant;

use iscsi_proto::{Cid, Sn};

use super::event::LinkId;
use super::keepalive::Keepalive;
use super::retained::Retained;
use super::text_exchange::TextExchange;
use super::{LinkInfo, SessionParams, SessionType};
use crate::control::Parameters;

/// One connection in full feature phase.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) cid: Cid,
    pub(super) info: LinkInfo,
    /// What was agreed; what concerns the whole session is the same for all its connections.
    pub(super) params: SessionParams,
    /// The next response's.
    pub(super) stat_sn: Sn,
    /// ExpStatSN: the initiator has every response before it.
    pub(super) acknowledged: Sn,
    /// Responses that are not acknowledged; at level 0 none are kept.
    pub(super) retained: Option<Retained>,
    pub(super) text: TextExchange,
    pub(super) keepalive: Keepalive,
}

/// The connections of a session: few, and usually one.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Link {
    pub(super) fn new(
        id: LinkId,
        cid: Cid,
        info: LinkInfo,
        params: SessionParams,
        stat_sn: Sn,
        limits: &Parameters,
        now: Instant,
    ) -> Self {
        let keepalive = match params.session_type {
            SessionType::Discovery => Keepalive::of_discovery,
            SessionType::Normal => Keepalive::new,
        };
        Self {
            id,
            cid,
            info,
            retained: (params.error_recovery_level > 0).then(|| Retained::new(stat_sn)),
            params,
            stat_sn,
            acknowledged: stat_sn,
            text: TextExchange::default(),
            keepalive: keepalive(limits.nop_interval, limits.nop_timeout, now),
        }
    }

    /// Takes an ExpStatSN; one that acknowledges what was never sent says nothing.
    pub(super) fn acknowledge(&mut self, exp_stat_sn: Sn) {
        if self.acknowledged.precedes(exp_stat_sn) && !self.stat_sn.precedes(exp_stat_sn) {
            self.acknowledged = exp_stat_sn;
        }
    }

    /// Longest data segment that the initiator takes on this connection, bytes.
    pub(super) fn max_send(&self) -> usize {
        usize::try_from(self.params.max_send_data_segment_len).expect("32 bits fit")
    }
}

impl Links {
    pub(super) fn add(&mut self, link: Link) {
        self.0.push(link);
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let place = self.0.iter().position(|link| link.id == id)?;
        Some(self.0.remove(place))
    }

    /// The connection, unless it is gone.
    pub(super) fn find(&mut self, id: LinkId) -> Option<&mut Link> {
        self.0.iter_mut().find(|link| link.id == id)
    }

    /// A connection that something is allegiant to, and that is there therefore.
    pub(super) fn get(&self, id: LinkId) -> &Link {
        self.0.iter().find(|link| link.id == id).expect(ALLEGIANCE)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: LinkId) -> &mut Link {
        self.find(id).expect(ALLEGIANCE)
    }

    pub(super) fn by_cid(&self, cid: Cid) -> Option<LinkId> {
        let link = self.0.iter().find(|link| link.cid == cid)?;
        Some(link.id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.0.iter_mut()
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.0.iter().map(|link| link.id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Tasks, task management requests and early arrivals go with their connection.
const ALLEGIANCE: &str = "whatever is allegiant to a connection leaves with it";
