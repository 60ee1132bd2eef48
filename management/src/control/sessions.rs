//! Sessions and half-open logins, as they are this moment.

use iscsi_proto::Tsih;
use serde::{Deserialize, Serialize};
use serde_json::json;
use target_core::iscsi::{Order, SessionParams, SessionType, SessionView};
use utoipa::ToSchema;

use super::Control;
use crate::access::Actor;
use crate::events::{Event, EventKind};

/// A session with everything that was agreed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct SessionStatus {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's name.
    pub initiator: String,
    /// ISID, hexadecimal.
    pub isid: String,
    /// The target; left out for discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `normal` or `discovery`.
    pub session_type: String,
    /// The CHAP name that was proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_as: Option<String>,
    /// The initiator's address.
    pub peer: String,
    /// The portal it came in by.
    pub local: String,
    /// How data are moved.
    pub transport: String,
    /// What was agreed.
    pub negotiated: Negotiated,
}

/// Negotiated and declared values, by the names of RFC 7143.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[expect(missing_docs, reason = "each is the key of that name")]
pub struct Negotiated {
    pub header_digest: String,
    pub data_digest: String,
    /// Ours.
    pub max_recv_data_segment_length: u32,
    /// The initiator's MaxRecvDataSegmentLength.
    pub max_send_data_segment_length: u32,
    pub max_burst_length: u32,
    pub first_burst_length: u32,
    #[serde(rename = "InitialR2T")]
    pub initial_r2t: bool,
    pub immediate_data: bool,
    #[serde(rename = "MaxOutstandingR2T")]
    pub max_outstanding_r2t: u16,
    pub max_connections: u16,
    pub error_recovery_level: u8,
    #[serde(rename = "DefaultTime2Wait")]
    pub time_to_wait: u16,
    #[serde(rename = "DefaultTime2Retain")]
    pub time_to_retain: u16,
    #[serde(rename = "DataPDUInOrder")]
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    #[serde(rename = "iSCSIProtocolLevel")]
    pub protocol_level: u8,
}

/// A connection that has not come to a session yet.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct HalfOpenLogin {
    /// The initiator's address.
    pub peer: String,
    /// The portal it came in by.
    pub local: String,
    /// How data are moved.
    pub transport: String,
}

impl Control {
    /// Every session alive, by handle.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.node.sessions().iter().map(SessionStatus::of).collect()
    }

    /// Connections in their login.
    #[must_use]
    pub fn half_open_logins(&self) -> Vec<HalfOpenLogin> {
        let logins = self.node.logins();
        let half_open = logins.into_iter().map(|link| HalfOpenLogin {
            peer: link.peer.to_string(),
            local: link.local.to_string(),
            transport: link.transport.to_owned(),
        });
        half_open.collect()
    }

    /// Notes that somebody was shown the secrets of the configuration.
    pub fn secrets_shown(&self, actor: &Actor) {
        self.events.record(
            Event::new(
                EventKind::SecretsShown,
                "the configuration was shown with its secrets",
            )
            .by(actor),
        );
    }

    /// Closes a session: its initiator is told, nobody is waited for. `false` when there is none. It may log in again;
    /// who must not, needs another access rule.
    pub fn kick(&self, actor: &Actor, tsih: u16) -> bool {
        let session = self
            .node
            .sessions()
            .into_iter()
            .find(|session| session.tsih.0 == tsih);
        if !self.node.order_session(Tsih(tsih), Order::Close) {
            return false;
        }
        if let Some(session) = session {
            let text = format!("session {tsih} of {} closed by hand", session.initiator.name);
            let status = SessionStatus::of(&session);
            self.events
                .record(Event::new(EventKind::Kicked, text).by(actor).with(json!(status)));
        }
        true
    }
}

impl SessionStatus {
    pub(crate) fn of(session: &SessionView) -> Self {
        Self {
            tsih: session.tsih.0,
            initiator: session.initiator.name.to_string(),
            isid: session
                .initiator
                .isid
                .0
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            target: session.target.as_ref().map(ToString::to_string),
            session_type: match session.params.session_type {
                SessionType::Discovery => "discovery".to_owned(),
                SessionType::Normal => "normal".to_owned(),
            },
            authenticated_as: session.authenticated_as.clone(),
            peer: session.peer.to_string(),
            local: session.local.to_string(),
            transport: session.transport.to_owned(),
            negotiated: Negotiated::of(&session.params),
        }
    }
}

impl Negotiated {
    fn of(params: &SessionParams) -> Self {
        let digest = |on: bool| if on { "CRC32C" } else { "None" }.to_owned();
        Self {
            header_digest: digest(params.header_digest),
            data_digest: digest(params.data_digest),
            max_recv_data_segment_length: params.max_recv_data_segment_len,
            max_send_data_segment_length: params.max_send_data_segment_len,
            max_burst_length: params.max_burst_len,
            first_burst_length: params.first_burst_len,
            initial_r2t: params.initial_r2t,
            immediate_data: params.immediate_data,
            max_outstanding_r2t: params.max_outstanding_r2t,
            max_connections: params.max_connections,
            error_recovery_level: params.error_recovery_level,
            time_to_wait: params.time_to_wait,
            time_to_retain: params.time_to_retain,
            data_pdu_in_order: params.data_pdu_in_order,
            data_sequence_in_order: params.data_sequence_in_order,
            protocol_level: params.protocol_level,
        }
    }
}
