//! Limits of negotiation, time-outs and switches of a target: what `--set KEY=VALUE` and the API change.

use std::time::Duration;

/// All of them, with our defaults.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parameters {
    /// Digests we accept for headers, best first: `true` is CRC32C, `false` None.
    pub header_digest: Vec<bool>,
    /// The same for data.
    pub data_digest: Vec<bool>,
    /// MaxRecvDataSegmentLength that we declare, bytes.
    pub max_recv_data_segment_len: u32,
    /// Largest MaxBurstLength we agree to, bytes.
    pub max_burst_len: u32,
    /// Largest FirstBurstLength we agree to, bytes.
    pub first_burst_len: u32,
    /// Our InitialR2T (OR: Yes decides).
    pub initial_r2t: bool,
    /// Our ImmediateData (AND: No decides).
    pub immediate_data: bool,
    /// Largest MaxOutstandingR2T we agree to.
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait, seconds.
    pub time_to_wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time_to_retain: u16,
    /// Highest iSCSIProtocolLevel (RFC 7144 §7.1) we agree to.
    pub protocol_level: u8,
    /// Commands an initiator may have outstanding (the window MaxCmdSN opens).
    pub command_window: u16,
    /// Sessions a target serves at once.
    pub max_sessions: u32,
    /// From the accepted connection to full feature phase.
    pub login_timeout: Duration,
    /// Quiet time after which we send a NOP-In; zero never.
    pub nop_interval: Duration,
    /// How long a NOP-In may stay unanswered.
    pub nop_timeout: Duration,
    /// How long an R2T may stay without progress.
    pub data_out_timeout: Duration,
    /// How long the peer may refuse to take what we send.
    pub response_timeout: Duration,
}

/// A key or value that cannot be set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key}={value}: {problem}")]
pub struct ParameterError {
    /// Key as given.
    pub key: String,
    /// Value as given.
    pub value: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            header_digest: vec![false, true],
            data_digest: vec![false, true],
            max_recv_data_segment_len: 256 * 1024,
            max_burst_len: 1024 * 1024,
            first_burst_len: 256 * 1024,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 8,
            time_to_wait: 2,
            time_to_retain: 0,
            protocol_level: 1,
            command_window: 128,
            max_sessions: 1024,
            login_timeout: Duration::from_secs(15),
            nop_interval: Duration::from_secs(15),
            nop_timeout: Duration::from_secs(15),
            data_out_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(60),
        }
    }
}

impl Parameters {
    /// Sets one by its name: RFC 7143's key where there is one (`InitialR2T`), else ours (`login-timeout`, seconds).
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        let _ = (key, value);
        todo!()
    }
}
