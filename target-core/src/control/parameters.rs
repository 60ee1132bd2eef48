//! Limits of negotiation, time-outs and switches of a target: what `--set KEY=VALUE` and the API change.

use std::time::Duration;

use super::Redirect;

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
    /// DefaultTime2Retain, seconds; `None` for what suits the other values, see [`retains`](Self::retains).
    pub time_to_retain: Option<u16>,
    /// Largest MaxConnections we agree to.
    pub max_connections: u16,
    /// Highest ErrorRecoveryLevel we agree to.
    pub error_recovery_level: u8,
    /// Highest iSCSIProtocolLevel (RFC 7144 §7.1) we agree to.
    pub protocol_level: u8,
    /// Where initiators are sent instead of being let in.
    pub redirect: Option<Redirect>,
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
            time_to_retain: None,
            max_connections: 1,
            error_recovery_level: 0,
            protocol_level: 2,
            redirect: None,
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
    /// Sets one by its name: RFC 7143's key where there is one (`InitialR2T`), else ours (`login-timeout`). Case does
    /// not matter. Nothing changes on an error.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        let refused = |problem| ParameterError {
            key: key.to_owned(),
            value: value.to_owned(),
            problem,
        };
        let Some(parameter) = PARAMETERS
            .iter()
            .find(|parameter| parameter.name.eq_ignore_ascii_case(key))
        else {
            let names: Vec<_> = Self::names().map(|(name, _)| name).collect();
            return Err(refused(format!(
                "no such parameter; there are {}",
                names.join(", ")
            )));
        };
        let mut changed = self.clone();
        (parameter.set)(&mut changed, value.trim()).map_err(refused)?;
        *self = changed;
        Ok(())
    }

    /// DefaultTime2Retain, seconds: as it was set, else the standard's 20 where something can be taken up again, and 0
    /// with one connection and level 0, where nothing can.
    #[must_use]
    pub fn retains(&self) -> u16 {
        let anything = self.max_connections > 1 || self.error_recovery_level > 0;
        self.time_to_retain.unwrap_or(if anything { 20 } else { 0 })
    }

    /// Every name that [`set`](Self::set) knows, with a line of help.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        PARAMETERS
            .iter()
            .map(|parameter| (parameter.name, parameter.help))
    }
}

/// One settable value.
struct Parameter {
    name: &'static str,
    help: &'static str,
    set: fn(&mut Parameters, &str) -> Result<(), String>,
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "HeaderDigest",
        help: "digests accepted for headers: None, CRC32C or both; CRC32C alone makes it a must",
        set: |p, v| digests(v).map(|digests| p.header_digest = digests),
    },
    Parameter {
        name: "DataDigest",
        help: "digests accepted for data: None, CRC32C or both; CRC32C alone makes it a must",
        set: |p, v| digests(v).map(|digests| p.data_digest = digests),
    },
    Parameter {
        name: "MaxRecvDataSegmentLength",
        help: "longest data segment we take, 512 to 16777215 bytes",
        set: |p, v| size(v).map(|len| p.max_recv_data_segment_len = len),
    },
    Parameter {
        name: "MaxBurstLength",
        help: "largest burst of solicited data, 512 to 16777215 bytes",
        set: |p, v| size(v).map(|len| p.max_burst_len = len),
    },
    Parameter {
        name: "FirstBurstLength",
        help: "largest amount of unsolicited data, 512 to 16777215 bytes",
        set: |p, v| size(v).map(|len| p.first_burst_len = len),
    },
    Parameter {
        name: "InitialR2T",
        help: "Yes: data beyond immediate data wait for an R2T",
        set: |p, v| boolean(v).map(|yes| p.initial_r2t = yes),
    },
    Parameter {
        name: "ImmediateData",
        help: "Yes: data may come along with the command",
        set: |p, v| boolean(v).map(|yes| p.immediate_data = yes),
    },
    Parameter {
        name: "MaxOutstandingR2T",
        help: "R2Ts that one command may have outstanding, 1 to 65535",
        set: |p, v| integer(v, 1, u16::MAX).map(|count| p.max_outstanding_r2t = count),
    },
    Parameter {
        name: "DefaultTime2Wait",
        help: "seconds an initiator waits before it reconnects, 0 to 3600",
        set: |p, v| integer(v, 0, 3600).map(|seconds| p.time_to_wait = seconds),
    },
    Parameter {
        name: "DefaultTime2Retain",
        help: "seconds a session without a connection and, at level 2, a lost connection's tasks are kept, 0 to 3600",
        set: |p, v| integer(v, 0, 3600).map(|seconds| p.time_to_retain = Some(seconds)),
    },
    Parameter {
        name: "MaxConnections",
        help: "connections one session may have, 1 to 64",
        set: |p, v| integer(v, 1, 64).map(|count| p.max_connections = count),
    },
    Parameter {
        name: "ErrorRecoveryLevel",
        help: "highest level of error recovery agreed to: 0, 1 (lost PDUs) or 2 (lost connections)",
        set: |p, v| integer(v, 0, 2).map(|level| p.error_recovery_level = level),
    },
    Parameter {
        name: "iSCSIProtocolLevel",
        help: "highest protocol level agreed to: 1, or 2 for RFC 7144",
        set: |p, v| integer(v, 1, 2).map(|level| p.protocol_level = level),
    },
    Parameter {
        name: "redirect",
        help: "where initiators are sent instead of being let in: ADDR:PORT, ADDR:PORT,permanent, or none",
        set: |p, v| redirect(v).map(|redirect| p.redirect = redirect),
    },
    Parameter {
        name: "command-window",
        help: "commands an initiator may have outstanding, 1 to 4096",
        set: |p, v| integer(v, 1, 4096).map(|count| p.command_window = count),
    },
    Parameter {
        name: "max-sessions",
        help: "sessions served at once, 1 to 65535",
        set: |p, v| integer(v, 1, 65535).map(|count| p.max_sessions = count),
    },
    Parameter {
        name: "login-timeout",
        help: "time from connection to full feature phase, 1s to 1h",
        set: |p, v| duration(v, SECOND).map(|time| p.login_timeout = time),
    },
    Parameter {
        name: "nop-interval",
        help: "quiet time after which the initiator is asked whether it lives, 0 (never) to 1h",
        set: |p, v| duration(v, Duration::ZERO).map(|time| p.nop_interval = time),
    },
    Parameter {
        name: "nop-timeout",
        help: "how long that question may stay unanswered, 1s to 1h",
        set: |p, v| duration(v, SECOND).map(|time| p.nop_timeout = time),
    },
    Parameter {
        name: "data-out-timeout",
        help: "how long an R2T may stay without progress, 1s to 1h",
        set: |p, v| duration(v, SECOND).map(|time| p.data_out_timeout = time),
    },
    Parameter {
        name: "response-timeout",
        help: "how long the initiator may refuse to take what we send, 1s to 1h",
        set: |p, v| duration(v, SECOND).map(|time| p.response_timeout = time),
    },
];

fn redirect(value: &str) -> Result<Option<Redirect>, String> {
    match value {
        "none" => Ok(None),
        _ => value.parse().map(Some),
    }
}

fn boolean(value: &str) -> Result<bool, String> {
    if ["yes", "true", "on", "1"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(value))
    {
        return Ok(true);
    }
    if ["no", "false", "off", "0"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(value))
    {
        return Ok(false);
    }
    Err("wants Yes or No".to_owned())
}

fn digests(value: &str) -> Result<Vec<bool>, String> {
    let mut digests = Vec::new();
    for word in value.split(',').map(str::trim) {
        let digest = match word {
            _ if word.eq_ignore_ascii_case("CRC32C") => true,
            _ if word.eq_ignore_ascii_case("None") => false,
            _ => return Err("wants CRC32C, None, or both with a comma between".to_owned()),
        };
        if digests.contains(&digest) {
            return Err(format!("names {word} twice"));
        }
        digests.push(digest);
    }
    Ok(digests)
}

fn integer<N>(value: &str, min: N, max: N) -> Result<N, String>
where
    N: Copy + std::fmt::Display + PartialOrd + std::str::FromStr,
{
    match value.parse() {
        Ok(number) if min <= number && number <= max => Ok(number),
        _ => Err(format!("wants a number from {min} to {max}")),
    }
}

/// Bytes, with K or M (powers of 1024) where wanted. The range of every length of RFC 7143 §13.
fn size(value: &str) -> Result<u32, String> {
    let problem = || "wants a size from 512 to 16777215 bytes, such as 65536, 256K or 1M".to_owned();
    let lower = value.to_ascii_lowercase();
    let lower = lower
        .strip_suffix("ib")
        .or_else(|| lower.strip_suffix('b'))
        .unwrap_or(&lower);
    let (digits, unit) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1024),
        Some(b'm') => (&lower[..lower.len() - 1], 1024 * 1024),
        _ => (lower, 1),
    };
    let number: u32 = digits.parse().map_err(|_| problem())?;
    let bytes = number.checked_mul(unit).ok_or_else(problem)?;
    // 16M is one byte too much, and what people mean by it is the largest there is.
    match bytes {
        0x0100_0000 => Ok(0x00ff_ffff),
        512..=0x00ff_ffff => Ok(bytes),
        _ => Err(problem()),
    }
}

/// Seconds, or a number with ms, s, m or h; at most an hour.
fn duration(value: &str, min: Duration) -> Result<Duration, String> {
    let unit_at = value
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(value.len());
    let (digits, unit) = value.split_at(unit_at);
    let millis_per_unit = match unit.trim() {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let time = number
        .zip(millis_per_unit)
        .and_then(|(number, millis)| number.checked_mul(millis))
        .map(Duration::from_millis);
    match time {
        Some(time) if min <= time && time <= HOUR => Ok(time),
        _ => Err(format!(
            "wants a time from {}s to 1h, such as 15, 500ms or 2m",
            min.as_secs()
        )),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
