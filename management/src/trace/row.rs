//! An entry of a trace, decoded: the fields that a PDU has, by the names of RFC 7143 §11.

use std::fmt::Debug;
use std::fmt::Write as _;

use iscsi_proto::pdu::{Request, Response};
use iscsi_proto::{Itt, Lun, Sn, Ttt};
use serde::{Deserialize, Serialize};
use target_core::scsi::command_name;
use target_core::trace::{Trace, TraceEntry, TracedPdu, What, Whose};
use utoipa::ToSchema;

/// Something that happened on a connection that is traced. Fields that do not apply are left out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(default)]
pub struct TraceRow {
    /// Counts up from 1, over entries that gave way to newer ones as well.
    pub number: u64,
    /// When, microseconds since 1970.
    pub time_us: u64,
    /// On which connection of the node.
    pub connection: u64,
    /// The initiator's address.
    pub peer: String,
    /// Ours.
    pub local: String,
    /// `initiator` or `target`; left out when the connection opened or closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The PDU by its name, or `opened`, `closed`.
    pub name: String,
    /// Operation code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opcode: Option<u8>,
    /// Whether it is for immediate delivery.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub immediate: bool,
    /// Initiator task tag, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itt: Option<String>,
    /// Target transfer tag, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttt: Option<String>,
    /// CmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd_sn: Option<u32>,
    /// StatSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat_sn: Option<u32>,
    /// ExpStatSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_stat_sn: Option<u32>,
    /// ExpCmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_cmd_sn: Option<u32>,
    /// MaxCmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cmd_sn: Option<u32>,
    /// DataSN or R2TSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_sn: Option<u32>,
    /// Buffer offset, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
    /// The LUN's number, or its eight bytes when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<String>,
    /// The SCSI command by its name, as far as it is known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The CDB, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdb: Option<String>,
    /// Expected data transfer length, or desired length of an R2T, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_length: Option<u32>,
    /// How it ended, in words: SCSI status, login status, response or reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Sense key and additional sense code, such as 05/24/00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sense: Option<String>,
    /// Length of the data segment, bytes.
    pub data_length: usize,
    /// Bytes of it that are kept.
    pub kept: usize,
    /// Key=value text. Values of CHAP are blanked, long ones cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<TextPair>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A key and its value.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TextPair {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl TraceRow {
    /// Decodes an entry of a trace.
    #[must_use]
    pub fn of(trace: &Trace, entry: &TraceEntry) -> Self {
        let since_1970 = trace.began().duration_since(std::time::UNIX_EPOCH);
        let time = since_1970.unwrap_or_default() + entry.at;
        let mut row = Self {
            number: entry.number,
            time_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            connection: entry.link.number,
            peer: entry.link.info.peer.to_string(),
            local: entry.link.info.local.to_string(),
            ..Self::default()
        };
        match &entry.what {
            What::Closed(reason) => {
                "closed".clone_into(&mut row.name);
                row.note = Some(reason.clone());
            }
            What::Opened => {
                "opened".clone_into(&mut row.name);
                row.note = Some(format!("over {}", entry.link.info.transport));
            }
            What::Pdu(pdu) => row.read(pdu),
        }
        row
    }

    /// What there is to say of it beside time, direction and name, in one line. Without what could command a terminal: an
    /// initiator may have written it.
    #[must_use]
    pub fn details(&self) -> String {
        let number = |title: &str, value: Option<u32>| Some(format!("{title} {}", value?));
        let named = |title: &str, value: &Option<String>| Some(format!("{title} {}", value.as_ref()?));
        let told = [
            self.command.clone(),
            self.status.clone(),
            named("sense", &self.sense),
            named("LUN", &self.lun),
            named("ITT", &self.itt),
            named("TTT", &self.ttt),
            number("CmdSN", self.cmd_sn),
            number("StatSN", self.stat_sn),
            number("ExpStatSN", self.exp_stat_sn),
            number("DataSN", self.data_sn),
            number("offset", self.offset),
            number("expects", self.expected_length),
            (self.data_length > 0).then(|| format!("{} bytes", self.data_length)),
            self.note.clone(),
        ];
        let pairs = self
            .text
            .iter()
            .map(|pair| format!("{}={}", pair.key, pair.value));
        let words: Vec<String> = told.into_iter().flatten().chain(pairs).collect();
        let visible = |letter: char| if letter.is_control() { '·' } else { letter };
        words.join(", ").chars().map(visible).collect()
    }

    fn read(&mut self, pdu: &TracedPdu) {
        self.opcode = Some(pdu.header[0] & OPCODE);
        self.data_length = pdu.frame().data_len;
        self.kept = pdu.data.len();
        if pdu.is_damaged {
            self.note = Some("its data digest does not match".to_owned());
        }
        match pdu.whose {
            Whose::Initiator => {
                self.from = Some("initiator".to_owned());
                match Request::decode(&pdu.header) {
                    Ok(request) => self.read_request(&request, pdu),
                    Err(error) => self.is_unreadable(&error.to_string()),
                }
            }
            Whose::Target => {
                self.from = Some("target".to_owned());
                match Response::decode(&pdu.header) {
                    Ok(response) => self.read_response(&response, pdu),
                    Err(error) => self.is_unreadable(&error.to_string()),
                }
            }
        }
    }

    fn is_unreadable(&mut self, problem: &str) {
        "not a PDU".clone_into(&mut self.name);
        self.note = Some(problem.to_owned());
    }

    fn read_request(&mut self, request: &Request, pdu: &TracedPdu) {
        request.name().clone_into(&mut self.name);
        self.immediate = pdu.header[0] & IMMEDIATE != 0;
        self.set_itt(request.itt());
        self.cmd_sn = request.cmd_sn().map(|sn| sn.0);
        self.exp_stat_sn = Some(request.exp_stat_sn().0);
        match request {
            Request::DataOut(it) => self.set_data((it.lun, it.ttt), (it.data_sn, it.offset)),
            Request::Login(it) => {
                self.status = Some(stage(it.current_stage, it.next_stage, it.transit));
                self.text = pairs(&pdu.data);
            }
            Request::Logout(it) => self.status = Some(words(&it.reason)),
            Request::NopOut(it) => self.set_task(it.lun, it.ttt),
            Request::ScsiCommand(it) => {
                self.set_lun(it.lun);
                self.expected_length = Some(it.expected_len);
                self.command = command_name(&it.cdb).map(ToOwned::to_owned);
                self.cdb = Some(hex(&it.cdb));
            }
            Request::Snack(it) => {
                self.set_task(it.lun, it.ttt);
                let (kind, begin, count) = (words(&it.kind), it.begin_run, it.run_length);
                self.status = Some(format!("{kind}: {count} from {begin} on"));
            }
            Request::TaskManagement(it) => {
                self.set_lun(it.lun);
                self.status = Some(words(&it.function));
                if it.referenced_itt != Itt::RESERVED {
                    self.note = Some(format!("concerns task {:#010x}", it.referenced_itt.0));
                }
            }
            Request::Text(it) => {
                self.set_task(it.lun, it.ttt);
                self.text = pairs(&pdu.data);
            }
        }
    }

    fn read_response(&mut self, response: &Response, pdu: &TracedPdu) {
        response.name().clone_into(&mut self.name);
        self.set_itt(response.itt());
        match response {
            Response::AsyncMessage(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.set_lun(it.lun);
                self.status = Some(words(&it.event));
                self.sense = sense(&pdu.data);
            }
            Response::DataIn(it) => {
                let stat_sn = it.status.map(|status| status.stat_sn);
                self.set_numbers(stat_sn, it.exp_cmd_sn, it.max_cmd_sn);
                self.set_data((it.lun, it.ttt), (it.data_sn, it.offset));
                self.status = it.status.map(|status| scsi_status(status.status));
            }
            Response::Login(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                let (stages, status) = (
                    stage(it.current_stage, it.next_stage, it.transit),
                    words(&it.status),
                );
                self.status = Some(format!("{status}, {stages}"));
                self.text = pairs(&pdu.data);
            }
            Response::Logout(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.status = Some(words(&it.response));
            }
            Response::NopIn(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.set_task(it.lun, it.ttt);
            }
            Response::R2t(it) => {
                self.set_numbers(None, it.exp_cmd_sn, it.max_cmd_sn);
                self.set_data((it.lun, it.ttt), (it.r2t_sn, it.offset));
                self.expected_length = Some(it.desired_len);
            }
            Response::Reject(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.status = Some(words(&it.reason));
            }
            Response::ScsiResponse(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.status = Some(scsi_status(it.status));
                self.sense = sense(&pdu.data);
            }
            Response::TaskManagement(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.status = Some(words(&it.response));
            }
            Response::Text(it) => {
                self.set_numbers(Some(it.stat_sn), it.exp_cmd_sn, it.max_cmd_sn);
                self.set_task(it.lun, it.ttt);
                self.text = pairs(&pdu.data);
            }
        }
    }

    fn set_itt(&mut self, itt: Itt) {
        self.itt = (itt != Itt::RESERVED).then(|| format!("{:#010x}", itt.0));
    }

    fn set_lun(&mut self, lun: Lun) {
        self.lun = Some(match lun.number() {
            Some(number) => number.to_string(),
            None => hex(&lun.to_bytes()),
        });
    }

    fn set_task(&mut self, lun: Lun, ttt: Ttt) {
        self.set_lun(lun);
        self.ttt = (ttt != Ttt::RESERVED).then(|| format!("{:#010x}", ttt.0));
    }

    fn set_data(&mut self, (lun, ttt): (Lun, Ttt), (data_sn, offset): (u32, u32)) {
        self.set_task(lun, ttt);
        (self.data_sn, self.offset) = (Some(data_sn), Some(offset));
    }

    fn set_numbers(&mut self, stat_sn: Option<Sn>, exp_cmd_sn: Sn, max_cmd_sn: Sn) {
        self.stat_sn = stat_sn.map(|sn| sn.0);
        (self.exp_cmd_sn, self.max_cmd_sn) = (Some(exp_cmd_sn.0), Some(max_cmd_sn.0));
    }
}

/// Text as it came, however broken.
fn pairs(text: &[u8]) -> Vec<TextPair> {
    let pairs = text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty());
    pairs
        .take(PAIRS_SHOWN)
        .map(|pair| {
            let pair = String::from_utf8_lossy(pair);
            let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
            TextPair {
                key: cut(key),
                value: cut(value),
            }
        })
        .collect()
}

fn cut(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(VALUE_SHOWN).collect();
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A variant's name as words: `AuthenticationFailure` is `authentication failure`.
fn words(variant: &impl Debug) -> String {
    let text = format!("{variant:?}");
    let mut words = String::with_capacity(text.len() + 4);
    let mut before = ' ';
    for letter in text.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        before = letter;
    }
    words
}

fn stage(current: impl Debug, next: impl Debug, transit: bool) -> String {
    if transit {
        format!("{} to {}", words(&current), words(&next))
    } else {
        words(&current)
    }
}

/// SAM-5 §5.3.1.
fn scsi_status(status: u8) -> String {
    let name = match status {
        0x00 => "GOOD",
        0x02 => "CHECK CONDITION",
        0x04 => "CONDITION MET",
        0x08 => "BUSY",
        0x18 => "RESERVATION CONFLICT",
        0x28 => "TASK SET FULL",
        0x30 => "ACA ACTIVE",
        0x40 => "TASK ABORTED",
        other => return format!("{other:#04x}"),
    };
    name.to_owned()
}

/// Behind its length (§11.4.7.2): fixed or descriptor format (SPC-4 §4.5).
fn sense(data: &[u8]) -> Option<String> {
    let sense = data.get(2..)?;
    let (key, asc, ascq) = match sense.first()? & 0x7f {
        0x70 | 0x71 => (sense.get(2)?, sense.get(12)?, sense.get(13)?),
        0x72 | 0x73 => (sense.get(1)?, sense.get(2)?, sense.get(3)?),
        _ => return None,
    };
    Some(format!("{:02x}/{asc:02x}/{ascq:02x}", key & 0x0f))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

const OPCODE: u8 = 0x3f;
const IMMEDIATE: u8 = 0x40;
/// Characters of a value that are shown.
const VALUE_SHOWN: usize = 256;
/// Pairs of a PDU that are shown.
const PAIRS_SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_came_and_cut() {
        let long = "x".repeat(300);
        let text = format!("A=1\0B\0C=d=e\0D={long}\0");
        let shown = pairs(text.as_bytes());
        let pairs: Vec<_> = shown
            .iter()
            .map(|pair| (pair.key.as_str(), pair.value.as_str()))
            .collect();
        assert_eq!(pairs[..3], [("A", "1"), ("B", ""), ("C", "d=e")]);
        assert_eq!(shown[3].value.chars().count(), 257);
    }

    #[test]
    fn sense_is_read_in_both_formats() {
        let mut fixed = vec![0, 18, 0x70, 0, 0x05];
        fixed.extend([0; 9]);
        fixed.extend([0x24, 0x00]);
        assert_eq!(sense(&fixed).as_deref(), Some("05/24/00"));
        assert_eq!(
            sense(&[0, 8, 0x72, 0x06, 0x29, 0x01]).as_deref(),
            Some("06/29/01")
        );
        assert_eq!(sense(&[0, 1, 0x70]), None);
        assert_eq!(sense(&[]), None);
    }

    #[test]
    fn variants_are_shown_as_words() {
        use iscsi_proto::pdu::LoginStatus;
        assert_eq!(
            words(&LoginStatus::AuthenticationFailure),
            "authentication failure"
        );
    }
}
