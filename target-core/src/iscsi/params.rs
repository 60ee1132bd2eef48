//! What a login agreed on (RFC 7143 §13).

/// Kind of session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionType {
    /// SendTargets only.
    Discovery,
    /// SCSI.
    Normal,
}

/// Negotiated and declared values of a session and its connection, and what holds beside them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionParams {
    /// Discovery or normal.
    pub session_type: SessionType,
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data.
    pub data_digest: bool,
    /// Longest data segment we take, bytes (ours).
    pub max_recv_data_segment_len: u32,
    /// Longest data segment the initiator takes, bytes (its MaxRecvDataSegmentLength).
    pub max_send_data_segment_len: u32,
    /// MaxBurstLength, bytes.
    pub max_burst_len: u32,
    /// FirstBurstLength, bytes.
    pub first_burst_len: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
    /// MaxConnections.
    pub max_connections: u16,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// DefaultTime2Wait, seconds.
    pub time_to_wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time_to_retain: u16,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// iSCSIProtocolLevel.
    pub protocol_level: u8,
    /// Commands that the initiator may have under way at once, over all connections of the session together. Not negotiated:
    /// it is told by MaxCmdSN (§4.2.2.1), which shows only what is left of it at the time.
    pub command_window: u16,
    /// Values of the transport's own keys, as they were agreed, for the transport to read back. Numbers are decimal, however
    /// the initiator wrote them (§6.1).
    pub transport: Vec<(&'static str, String)>,
}

impl SessionParams {
    /// PDUs that a command may come in, with the data that come unasked.
    #[must_use]
    pub fn pdus_per_command(&self) -> u16 {
        let unsolicited = if self.initial_r2t {
            0
        } else {
            self.first_burst_len.div_ceil(self.max_recv_data_segment_len)
        };
        u16::try_from(1 + unsolicited).expect("lengths are between 512 bytes and 16 MiB")
    }
}

/// The iSCSIProtocolLevel that brings QUERY TASK, QUERY TASK SET, QUERY ASYNCHRONOUS EVENT and I_T NEXUS RESET
/// (RFC 7144 §5).
pub(super) const QUERIES_SINCE: u8 = 2;

impl Default for SessionParams {
    /// What holds before negotiation (§13's defaults).
    fn default() -> Self {
        Self {
            session_type: SessionType::Normal,
            header_digest: false,
            data_digest: false,
            max_recv_data_segment_len: 8192,
            max_send_data_segment_len: 8192,
            max_burst_len: 262_144,
            first_burst_len: 65_536,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            max_connections: 1,
            error_recovery_level: 0,
            time_to_wait: 2,
            time_to_retain: 20,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            protocol_level: 1,
            command_window: 1,
            transport: Vec::new(),
        }
    }
}
